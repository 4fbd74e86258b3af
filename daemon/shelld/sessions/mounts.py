"""Recognises remote directories, which another machine or another program serves.

If that machine or program does not answer, every system call on the directory blocks. Such a call
would block the event loop. Reading the list of mounts never blocks. So this module judges a
directory by its path, without touching it.
"""

from __future__ import annotations

import os
import re
import select
from typing import Final

_LIST: Final = "/proc/self/mountinfo"
_READ_BYTES: Final = 64 * 1024
_MAX_LINKS: Final = 40

# Types of file systems. FUSE has types with a dot, such as fuse.sshfs. "fuseblk" is not listed,
# because it stands for a disk of this machine.
_REMOTE: Final = frozenset(
    b"afs autofs beegfs ceph cifs davfs fuse glusterfs lustre ncpfs nfs nfs4 smb3 smbfs".split()
)
_ESCAPED: Final = re.compile(rb"\\([0-7]{3})")


class Mounts:
    """Reads the list of mounts on first use, and again after the kernel has reported a change.

    On a system without such a list, no directory counts as remote.
    """

    def __init__(self) -> None:
        self._file: int | None = None
        self._poll = select.poll()
        self._remote: frozenset[bytes] = frozenset()

    def may_hang(self, path: bytes) -> bool:
        """Return whether a system call on `path` may block for ever. Follows symbolic links."""
        try:
            self._update()
        except OSError:
            return False
        return bool(self._remote) and _leads_into(path, self._remote)

    def is_same(self, path: bytes, other: bytes) -> bool:
        """Return whether two paths lead to the same directory.

        If a system call on one of the directories may block, this method compares only the paths.
        """
        try:
            if self.may_hang(path) or self.may_hang(other):
                return os.path.normpath(path) == os.path.normpath(other)
            return os.path.samefile(path, other)
        except (OSError, ValueError):
            return False

    def _update(self) -> None:
        if self._file is None:
            self._file = os.open(_LIST, os.O_RDONLY | os.O_CLOEXEC)
            self._poll.register(self._file, select.POLLPRI)
        elif not self._poll.poll(0):
            return
        os.lseek(self._file, 0, os.SEEK_SET)
        pieces: list[bytes] = []
        while piece := os.read(self._file, _READ_BYTES):
            pieces.append(piece)
        self._remote = remote_mounts(b"".join(pieces))

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None


def remote_mounts(mountinfo: bytes) -> frozenset[bytes]:
    """Return the mount points of remote file systems. For the form of `mountinfo`, see proc(5)."""
    types: dict[bytes, bytes] = {}
    for line in mountinfo.split(b"\n"):
        mount, separator, source = line.partition(b" - ")
        fields = mount.split(b" ")
        if separator and len(fields) > 4:
            # A later mount hides an earlier one.
            types[_ESCAPED.sub(_byte, fields[4])] = source.split(b" ")[0]
    return frozenset(path for path, kind in types.items() if kind.split(b".")[0] in _REMOTE)


def _byte(escape: re.Match[bytes]) -> bytes:
    return bytes([int(escape[1], 8) & 0xFF])


def _leads_into(path: bytes, mounts: frozenset[bytes]) -> bool:
    """Return whether a path leads through one of the directories in `mounts`.

    Touches no file in these directories.
    """
    parts = path.split(b"/")[::-1]
    reached = b""
    links = 0
    while parts:
        part = parts.pop()
        if part == b"..":
            reached = os.path.dirname(reached).rstrip(b"/")
        elif part not in (b"", b"."):
            below = b"%s/%s" % (reached, part)
            if below in mounts:
                return True
            try:
                target = os.readlink(below)
            except OSError:
                reached = below
                continue
            links += 1
            if links > _MAX_LINKS:
                # The kernel does not follow more links than this either.
                return False
            if target.startswith(b"/"):
                reached = b""
            parts += target.split(b"/")[::-1]
    return False
