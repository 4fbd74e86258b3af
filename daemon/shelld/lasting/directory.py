"""Manages the directory with the sockets of the user's lasting daemons.

Owns the rules for the directory, the sockets in it, and the lock. The directory is `shelld` in
XDG_RUNTIME_DIR, or `/tmp/shelld-UID` if this variable does not name a directory of this user. A
`SocketDirectory` opens the directory once, and reaches all files in it through the descriptor. So
nobody can replace the directory while the `SocketDirectory` is open, and the directory may have a
path of any length. A socket is bound to its whole path if the path is short enough. The kernel then
lists the path, and sandboxes hide the sockets that the kernel lists.

Never follows or removes a file that is not a socket of this user. A process holds the lock while it
binds or removes a socket. The lock is on the directory itself, so it leaves no file.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import socket
import stat
import struct
import time
from collections.abc import Generator
from typing import Final

MAX_NAME_CHARACTERS: Final = 64
_MAX_ADDRESS_BYTES: Final = 107
# `_reached` turns a name into a path that is at most 27 bytes longer.
_MAX_NAME_BYTES: Final = 80
_SUFFIX: Final = ".sock"
# How long to wait for another process that starts or ends a daemon.
LOCK_S: Final = 15.0
_LOCK_POLL_S: Final = 0.01
# The maximum number of attempts to make and open the directory. Another process may remove it
# between the two steps.
_OPEN_TRIES: Final = 20
_BACKLOG: Final = 128
# The members of ucred: pid, uid, gid.
_UCRED: Final = struct.Struct("3i")


class DirectoryError(Exception):
    """The directory or a socket cannot be used. The message is a sentence for the user."""


def check_name(name: str) -> str:
    """Return `name` if it is a valid name of a daemon. Otherwise, raise ValueError with the
    reason.
    """
    if not 0 < len(name) <= MAX_NAME_CHARACTERS or len(os.fsencode(name)) > _MAX_NAME_BYTES:
        raise ValueError(
            f"a name has 1 to {MAX_NAME_CHARACTERS} characters, and up to {_MAX_NAME_BYTES} bytes"
        )
    if "/" in name or name.startswith(".") or not name.isprintable():
        raise ValueError(
            "a name has no slash and no control characters, and does not begin with a dot"
        )
    return name


def _is_name(name: str) -> bool:
    try:
        return bool(check_name(name))
    except ValueError:
        return False


def peer_of(connection: socket.socket) -> tuple[int, int]:
    """Return the pid and the uid of the process at the other end of a connection."""
    data = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
    pid, uid, _ = _UCRED.unpack(data)
    return pid, uid


def possible_directories() -> list[str]:
    """Return the directories that may hold this user's sockets.

    If XDG_RUNTIME_DIR names a directory of the user, there are two such directories.
    Another program of the user may run without this variable, and so use the directory in /tmp.
    """
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    directories = [f"/tmp/shelld-{os.getuid()}"]
    if runtime.startswith("/") and _is_own(runtime):
        directories.insert(0, os.path.join(runtime, "shelld"))
    return directories


def _new_socket() -> socket.socket:
    return socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def _path() -> str:
    return possible_directories()[0]


def _is_own(directory: str) -> bool:
    """Return whether a directory belongs to this user.

    With sudo or su, XDG_RUNTIME_DIR may name the directory of another user. Some containers set it
    to a directory that all users share, such as /tmp.
    """
    try:
        found = os.stat(directory)
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()


def _opened(path: str, *, create: bool) -> int:
    """Open a directory. If `create`, make it first if it does not exist. Raises OSError."""
    tries_left = _OPEN_TRIES if create else 1
    while True:
        tries_left -= 1
        is_new = False
        if create:
            with contextlib.suppress(FileExistsError):
                os.mkdir(path, 0o700)
                is_new = True
        try:
            if is_new:
                # A strict umask has taken permissions away from the new directory.
                os.chmod(path, 0o700)
            return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except FileNotFoundError:
            # A daemon that ends may have just removed the empty directory.
            if not tries_left:
                raise


class SocketDirectory:
    def __init__(self, descriptor: int, path: str) -> None:
        self._descriptor = descriptor
        self._path = path

    @classmethod
    def open(cls, *, create: bool) -> SocketDirectory | None:
        """Open the directory. Raises DirectoryError.

        If the directory does not exist, create it if `create` is True; otherwise return None.
        """
        path = _path()
        try:
            descriptor = _opened(path, create=create)
        except FileNotFoundError as error:
            if create:
                raise DirectoryError(f"cannot make {path}: {error.strerror}") from error
            return None
        except OSError as error:
            # O_NOFOLLOW with O_DIRECTORY reports a symlink as ENOTDIR.
            is_other = error.errno in {errno.ENOTDIR, errno.ELOOP}
            reason = "it is not a directory" if is_other else error.strerror
            raise DirectoryError(f"cannot use {path}: {reason}") from error
        found = os.fstat(descriptor)
        if found.st_uid != os.getuid() or found.st_mode & 0o777 != 0o700:
            os.close(descriptor)
            raise DirectoryError(f"cannot use {path}: it must belong to you, with mode 0700")
        return cls(descriptor, path)

    def close(self) -> None:
        os.close(self._descriptor)

    def path_of(self, name: str) -> str:
        """Return the path of a socket, for messages."""
        return os.path.join(self._path, name + _SUFFIX)

    def names(self) -> list[str]:
        """Return the names of all sockets. Leave out names that are not valid."""
        found = [each for each in os.listdir(self._descriptor) if each.endswith(_SUFFIX)]
        return sorted(name for each in found if _is_name(name := each.removesuffix(_SUFFIX)))

    def identity(self, name: str) -> int | None:
        """Return the inode of a socket; None if there is none. Raises DirectoryError."""
        try:
            found = os.stat(name + _SUFFIX, dir_fd=self._descriptor, follow_symlinks=False)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise DirectoryError(f"cannot use {self.path_of(name)}: {error.strerror}") from error
        if not stat.S_ISSOCK(found.st_mode) or found.st_uid != os.getuid():
            raise DirectoryError(f"cannot use {self.path_of(name)}: it is not a socket of yours")
        return found.st_ino

    def connect(self, name: str, seconds: float) -> socket.socket | None:
        """Connect to a daemon.

        Return None if no process listens on its socket. Raises DirectoryError.
        """
        if self.identity(name) is None:
            return None
        try:
            connection = _new_socket()
        except OSError as error:
            reason = error.strerror
            raise DirectoryError(f"cannot connect to {self.path_of(name)}: {reason}") from error
        connection.settimeout(seconds)
        try:
            connection.connect(self._reached(name))
            if peer_of(connection)[1] != os.getuid():
                raise DirectoryError(f"cannot use {self.path_of(name)}: another user listens there")
        except (ConnectionRefusedError, FileNotFoundError):
            connection.close()
            return None
        except OSError as error:
            connection.close()
            reason = error.strerror or "nobody answers"
            raise DirectoryError(f"cannot connect to {self.path_of(name)}: {reason}") from error
        except DirectoryError:
            connection.close()
            raise
        return connection

    def listen(self, name: str) -> socket.socket:
        """Make a socket, and listen on it. The caller holds the lock. Raises DirectoryError."""
        try:
            listener = _new_socket()
        except OSError as error:
            raise DirectoryError(f"cannot make {self.path_of(name)}: {error.strerror}") from error
        before = os.umask(0o177)
        try:
            listener.bind(self._address(name))
            if self.identity(name) is None:
                # Somebody has replaced the directory.
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
            listener.listen(_BACKLOG)
        except OSError as error:
            listener.close()
            raise DirectoryError(f"cannot make {self.path_of(name)}: {error.strerror}") from error
        finally:
            os.umask(before)
        return listener

    def remove(self, name: str, identity: int | None) -> None:
        """Remove a socket if its inode is `identity`. Then remove the directory if it is empty.

        The caller holds the lock. Does nothing if the socket was replaced or cannot be removed.
        """
        with contextlib.suppress(OSError, DirectoryError):
            if identity is not None and self.identity(name) == identity:
                os.unlink(name + _SUFFIX, dir_fd=self._descriptor)
        with contextlib.suppress(OSError):
            os.rmdir(self._path)

    def try_lock(self) -> bool:
        """Take the lock, and return True. If another process holds the lock, return False. `unlock`
        releases the lock, and so does the end of this process.
        """
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        return True

    def unlock(self) -> None:
        fcntl.flock(self._descriptor, fcntl.LOCK_UN)

    @property
    def is_removed(self) -> bool:
        """Tells whether somebody has removed the directory since it was opened."""
        return os.fstat(self._descriptor).st_nlink == 0

    def _address(self, name: str) -> str:
        """Return the address to which a new socket is bound."""
        path = self.path_of(name)
        return path if len(os.fsencode(path)) <= _MAX_ADDRESS_BYTES else self._reached(name)

    def _reached(self, name: str) -> str:
        return f"/proc/self/fd/{self._descriptor}/{name}{_SUFFIX}"


@contextlib.contextmanager
def locked() -> Generator[SocketDirectory]:
    """Open the directory, and create it if necessary.

    Hold the lock of the directory while the block runs. Raises DirectoryError.
    """
    give_up_at = time.monotonic() + LOCK_S
    while True:
        directory = SocketDirectory.open(create=True)
        assert directory is not None
        try:
            while not directory.try_lock():
                if time.monotonic() > give_up_at:
                    raise DirectoryError("another shelld attach does not finish")
                time.sleep(_LOCK_POLL_S)
            if not directory.is_removed:
                yield directory
                return
        finally:
            directory.close()
