"""Finds out which files processes have open.

Never touches a file on a disk or a remote file system. If the server of a file system does not
answer, even stat(2) blocks, and would block the event loop. The terminals and pipes that matter are
on file systems without a server. Reading /proc never blocks for this reason.
"""

from __future__ import annotations

import os
import re
from typing import Final

from shelld.keeper.tree import read_file
from shelld.terminals.source import file_of

# The types of file systems in memory, which have the device files of terminals.
_IN_MEMORY: Final = frozenset([b"devpts", b"devtmpfs", b"tmpfs", b"ramfs", b"rootfs"])
_MOUNT: Final = re.compile(rb"^mnt_id:\s*(\d+)", re.MULTILINE)


def file_in(place: str, descriptor: int) -> tuple[int, ...]:
    """Return the file behind a descriptor, as `file_of` does; () for a file that may hang.

    `place`: the directory of a process or thread in /proc. Raises OSError.
    """
    path = f"{place}/fd/{descriptor}"
    has_path = os.readlink(path).startswith("/")
    return file_of(path) if not has_path or _is_in_memory(place, descriptor) else ()


def is_socket(place: str, descriptor: int | str) -> bool:
    """Whether a descriptor is a socket. Raises OSError."""
    return os.readlink(f"{place}/fd/{descriptor}").startswith("socket:")


def _is_in_memory(place: str, descriptor: int) -> bool:
    """Whether a file is on a file system in memory. Raises OSError.

    The file may have been opened in this mount namespace, and inherited by a process in another.
    """
    if (mount := _MOUNT.search(read_file(f"{place}/fdinfo/{descriptor}"))) is None:
        return False
    line = re.compile(rb"^%s .*? - (\S+)" % mount[1], re.MULTILINE)
    for mounts in (f"{place}/mountinfo", "/proc/self/mountinfo"):
        if (found := line.search(read_file(mounts))) is not None:
            return found[1] in _IN_MEMORY
    return False
