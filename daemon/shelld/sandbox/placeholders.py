"""Holds the empty directories on which a sandbox mounts something. Creates the directories that do
not exist yet.

If such a directory were removed outside of the sandbox, the kernel would remove the mount as well.
Commands could then create the denied path after all. So each sandbox holds a lock on the
directories that it uses. If a sandbox of this daemon has made a directory, the last sandbox of this
daemon that gives up its lock removes it.

Each sandbox also keeps open the denied paths and the hidden sockets. Otherwise, if such a path were
replaced, the system could give the old inode to the new file, and the path would look unchanged.
Until the sandbox has started, it also keeps open the paths that it shows. Then it closes these, so
that users can unmount their file systems.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterable
from contextlib import suppress
from typing import Final

from shelld.sandbox.view import Identity, identity_of

# Several attempts are needed, because another sandbox may be removing the directory.
_ATTEMPTS: Final = 5


class Placeholders:
    """`made`: the directories that the sandboxes of this daemon have made. They share this map."""

    def __init__(self, made: dict[str, Identity]) -> None:
        self._made = made
        # Descriptors of the directories. Each descriptor has a shared lock.
        self._held: dict[str, int] = {}
        # The directories that `close` removes if no other sandbox uses them.
        self._removed: list[str] = []
        # All descriptors that `close` closes.
        self._kept: list[int] = []
        # All descriptors that `close_after_start` closes.
        self._kept_while_starting: list[int] = []
        # What is open, or was open while the sandbox started, by its path.
        self.identities: dict[str, Identity] = {}

    def make(self, paths: Iterable[str]) -> None:
        """Make directories. Raises OSError if that fails."""
        for path in paths:
            self._hold_above(path)
            self._hold(path, may_make=True)
            self._removed.append(path)
            self._made[path] = self.identities[path]

    def hold(self, paths: Iterable[str]) -> None:
        """Lock the directories in `paths`, so that no other sandbox removes them. Keep the other
        paths open.

        Raises OSError.
        """
        for path in paths:
            self._hold_above(path)
            try:
                self._hold(path, may_make=False)
                # Somebody may have replaced the directory.
                if self._made.get(path) == self.identities[path]:
                    self._removed.append(path)
            except (NotADirectoryError, PermissionError):
                # A directory that this user cannot read was not made by a sandbox of this user.
                self.keep(path)

    def _hold_above(self, path: str) -> None:
        """Lock the directories above `path` that sandboxes of this daemon have made. So the last
        sandbox that needs such a directory removes it.
        """
        for above in sorted(self._made.keys() - self._held.keys()):
            if path.startswith(f"{above}/"):
                self._hold(above, may_make=False)
                self._removed.append(above)

    def keep(self, path: str) -> None:
        """Keep a path open, without a lock. Raises OSError, also if a part of the path is a
        symbolic link.
        """
        self._open(path, self._kept)

    def keep_while_starting(self, path: str) -> None:
        """Do the same as `keep`, but only until `close_after_start`."""
        self._open(path, self._kept_while_starting)

    def _open(self, path: str, descriptors: list[int]) -> None:
        descriptors.append(descriptor := os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC))
        self._identify(path, descriptor)

    def _identify(self, path: str, descriptor: int) -> None:
        _check_is_at(path, descriptor)
        found = os.fstat(descriptor)
        self.identities[path] = found.st_dev, found.st_ino

    def _hold(self, path: str, *, may_make: bool) -> None:
        if path in self._held:
            # A second lock of this sandbox would keep `close` from removing the directory.
            return
        for _ in range(_ATTEMPTS):
            if may_make:
                with suppress(FileExistsError):
                    _make(path)
            flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
            self._kept.append(descriptor := os.open(path, flags))
            with suppress(OSError):
                fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
                self._identify(path, descriptor)
                self._held[path] = descriptor
                return
            os.close(self._kept.pop())
        raise BlockingIOError

    def close_after_start(self) -> None:
        """Close the paths from `keep_while_starting`."""
        while self._kept_while_starting:
            os.close(self._kept_while_starting.pop())

    def close(self, *, removes: bool) -> None:
        """Release the directories and paths.

        `removes`: also remove the directories that a sandbox has made, if they are empty and no
        other sandbox uses them.
        """
        for path in reversed(dict.fromkeys(self._removed) if removes else {}):
            with suppress(OSError, KeyError):
                fcntl.flock(self._held[path], fcntl.LOCK_EX | fcntl.LOCK_NB)
                self._made.pop(path, None)
                if identity_of(path) == self.identities[path]:
                    os.rmdir(path)
        self._removed.clear()
        self._held.clear()
        self.close_after_start()
        while self._kept:
            os.close(self._kept.pop())


def _make(path: str) -> None:
    """Make a directory, but not where a symbolic link leads. Raises OSError."""
    above, name = os.path.split(path)
    descriptor = os.open(above, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        _check_is_at(above, descriptor)
        os.mkdir(name, 0o755, dir_fd=descriptor)
    finally:
        os.close(descriptor)


def _check_is_at(path: str, descriptor: int) -> None:
    """Raise OSError if the descriptor was opened through a symbolic link."""
    if os.readlink(f"/proc/self/fd/{descriptor}") != path:
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
