"""Stores output in an unnamed file, so that it takes no memory.

Owns one file for all shells, divided into blocks. Creates the file when it is first needed. The
file has no name, so no other program can find or link it. The kernel frees the file when the daemon
ends, even if the daemon was killed. All streams share one file, because descriptors are scarcer
than disk space. So the limit for all shells together is a limit on the size of the file.

This module knows nothing about streams or offsets. If the file is full, `retention` decides which
shell loses blocks.
"""

from __future__ import annotations

import errno
import heapq
import os
from collections.abc import Sequence
from typing import Final

# The size of a block. A block is written in one step. A block is so small that the last block of
# each stream can stay in memory until it is full.
BLOCK_BYTES: Final = 64 * 1024

_DIRECTORIES: Final = ("/tmp", "/var/tmp")


def may_hold_spool(directory: str | None) -> bool:
    """Return whether this user may use `directory` for the spool. None is the directory for
    temporary files. If this is False, the daemon does not start.
    """
    return directory is None or os.access(directory, os.R_OK | os.W_OK | os.X_OK)


class Spool:
    """Uses at most `max_bytes` of disk space, in `directory` or in the directory for temporary
    files.
    """

    def __init__(self, max_bytes: int, directory: str | None = None) -> None:
        self._max_blocks = max_bytes // BLOCK_BYTES
        self._directory = directory
        self._descriptor: int | None = None
        # One byte for each block of the file: whether the block is in use.
        self._used = bytearray()
        # The numbers of blocks that may be free. The block with the lowest number is used first, so
        # that blocks at the end of the file become free.
        self._free: list[int] = []

    @property
    def size(self) -> int:
        """The size of the file in bytes."""
        return len(self._used) * BLOCK_BYTES

    def free_bytes(self) -> int:
        """Return the free bytes of the file system that holds the file. Raises OSError."""
        if self._descriptor is None:
            self._descriptor = _unnamed_file(self._directory)
        system = os.fstatvfs(self._descriptor)
        return system.f_bavail * system.f_frsize

    def put(self, data: bytes | bytearray | memoryview) -> int | None:
        """Store up to `BLOCK_BYTES` bytes in a block, and return its number.

        Return None if `max_bytes` are in use. Raises OSError if there is no space or the file
        cannot be created.
        """
        block = self._take()
        if block is None:
            return None
        try:
            if self._descriptor is None:
                self._descriptor = _unnamed_file(self._directory)
            _write(self._descriptor, data, block * BLOCK_BYTES)
        except OSError:
            if block < len(self._used):
                heapq.heappush(self._free, block)
            raise
        if block == len(self._used):
            self._used.append(True)
        self._used[block] = True
        return block

    def _take(self) -> int | None:
        while self._free:
            block = heapq.heappop(self._free)
            # A block may be listed twice, or lie beyond the end of the file.
            if block < len(self._used) and not self._used[block]:
                return block
        return len(self._used) if len(self._used) < self._max_blocks else None

    def get(self, block: int, offset: int, length: int) -> bytes:
        """Return bytes of a block. Raises OSError unless all of them can be read."""
        if self._descriptor is None:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        data = os.pread(self._descriptor, length, block * BLOCK_BYTES + offset)
        if len(data) < length:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return data

    def free(self, block: int) -> None:
        self._used[block] = False
        heapq.heappush(self._free, block)

    def shrink(self) -> None:
        """Free the disk space after the last block in use."""
        size = len(self._used.rstrip(b"\0"))
        if self._descriptor is not None and size < len(self._used):
            os.ftruncate(self._descriptor, size * BLOCK_BYTES)
            del self._used[size:]

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def _write(descriptor: int, data: bytes | bytearray | memoryview, position: int) -> None:
    written = os.pwrite(descriptor, data, position)
    while written < len(data):
        # A full file system may write a part of the data before it reports the error.
        count = os.pwrite(descriptor, memoryview(data)[written:], position + written)
        if not count:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written += count


def _unnamed_file(directory: str | None) -> int:
    """Open a file without a name. Raises OSError."""
    directories: Sequence[str] = _DIRECTORIES
    if directory is not None:
        directories = (directory,)
    elif chosen := os.environ.get("TMPDIR"):
        directories = (chosen, *_DIRECTORIES)
    failure = OSError(errno.ENOENT, os.strerror(errno.ENOENT))
    for candidate in directories:
        for make in (_born_unnamed, _unlinked):
            try:
                return make(candidate)
            except OSError as error:
                failure = error
    raise failure


def _born_unnamed(directory: str) -> int:
    # With O_EXCL, linkat(2) can never give the file a name (see open(2)). Not all file systems
    # support O_TMPFILE.
    if not hasattr(os, "O_TMPFILE"):
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))
    return os.open(directory, os.O_TMPFILE | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600)


def _unlinked(directory: str) -> int:
    # Create the file in a new directory, where no other user can replace it.
    own = os.path.join(directory, f"shelld-{os.urandom(8).hex()}")
    os.mkdir(own, 0o700)
    path = os.path.join(own, "spool")
    try:
        flags = os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_RDWR | os.O_CLOEXEC
        descriptor = os.open(path, flags, 0o600)
        os.unlink(path)
    finally:
        os.rmdir(own)
    return descriptor
