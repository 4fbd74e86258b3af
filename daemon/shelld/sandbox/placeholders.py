"""Directories on which a sandbox mounts something, although they are empty or were missing.

If such a directory were removed outside of the sandbox, the kernel would remove the mount with it,
and commands could make the denied path after all. So each sandbox holds a lock on the directories
that it uses. The last sandbox to give up a lock removes the directory, if a sandbox has made it.

Each sandbox also keeps the other paths open on which it mounts something. Otherwise the system
could give their inodes to other files, and a path that was replaced would look the same.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterable
from contextlib import suppress
from typing import Final

# Another sandbox may just be removing the directory.
_ATTEMPTS: Final = 5


class Placeholders:
    def __init__(self) -> None:
        # Descriptors of the directories, with a shared lock.
        self._held: dict[str, int] = {}
        self._made: list[str] = []
        # Descriptors of the other paths.
        self._kept: list[int] = []

    def make(self, paths: Iterable[str]) -> None:
        """Make directories. Raises OSError if that fails."""
        for path in paths:
            self._hold(path, may_make=True)
            self._made.append(path)

    def hold(self, paths: Iterable[str]) -> None:
        """Let no other sandbox remove directories, and keep everything else open.

        Raises OSError.
        """
        for path in paths:
            try:
                self._hold(path, may_make=False)
            except (NotADirectoryError, PermissionError):
                # A directory that this user cannot read was not made by a sandbox of this user.
                self.keep(path)

    def keep(self, path: str) -> None:
        """Keep a path open, without a lock. Raises OSError."""
        self._kept.append(os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC))

    def _hold(self, path: str, *, may_make: bool) -> None:
        for _ in range(_ATTEMPTS):
            if may_make:
                with suppress(FileExistsError):
                    os.mkdir(path, 0o755)
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            with suppress(OSError):
                fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
                if os.path.samestat(os.stat(path), os.fstat(descriptor)):
                    self._held[path] = descriptor
                    return
            os.close(descriptor)
        raise BlockingIOError

    def close(self, *, removes: bool) -> None:
        """Let go of the directories.

        `removes`: also remove those that this object has made, if they are empty.
        """
        for path in reversed(self._made if removes else ()):
            with suppress(OSError, KeyError):
                fcntl.flock(self._held[path], fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.rmdir(path)
        while self._held:
            os.close(self._held.popitem()[1])
        while self._kept:
            os.close(self._kept.pop())
