"""Finds out which files processes have open.

This module never touches a file on a disk or a remote file system. If the server of a file system
does not answer, even stat(2) blocks. This would block the event loop. The terminals and pipes that
this package looks for are on file systems without a server. The same is true of /proc.
"""

from __future__ import annotations

import contextlib
import os
import re
from typing import Final, NamedTuple

from shelld.keeper.proc import read_file, read_short_file
from shelld.terminals.source import file_of, mount_of

# The types of file systems in memory. Device files of terminals are on such file systems.
_IN_MEMORY: Final = frozenset([b"devpts", b"devtmpfs", b"tmpfs", b"ramfs", b"rootfs"])
# If a process has more descriptors than this, the others are ignored.
_MAX_DESCRIPTORS: Final = 1_024
_FLAGS: Final = re.compile(rb"^flags:\s*([0-7]+)", re.MULTILINE)


class Pipes(NamedTuple):
    """`read`: the names of the pipes from which a process can read. `written`: the names of the
    pipes to which it can write.
    """

    read: frozenset[str]
    written: frozenset[str]


def file_in(proc_dir: str, descriptor: int, known: int | None) -> tuple[int, ...]:
    """Return the file behind a descriptor, in the form of `Source.file`. Return () if the file may
    be on a remote file system, because its server may not answer.

    `proc_dir`: the directory of a process or thread in /proc. `known`: the number of a mount that
    is known to be in memory. A file on this mount is found faster. Raises OSError.
    """
    path = f"{proc_dir}/fd/{descriptor}"
    has_path = os.readlink(path).startswith("/")
    return file_of(path) if not has_path or _is_in_memory(proc_dir, descriptor, known) else ()


def is_socket(proc_dir: str, descriptor: int | str) -> bool:
    """Return whether a descriptor is a socket. Raises OSError."""
    return os.readlink(f"{proc_dir}/fd/{descriptor}").startswith("socket:")


def pipes_of(proc_dir: str) -> Pipes:
    """Return the pipes of a process or thread. Raises OSError if they cannot be seen."""
    by_mode: dict[int, set[str]] = {os.O_RDONLY: set(), os.O_WRONLY: set(), os.O_RDWR: set()}
    for name in os.listdir(f"{proc_dir}/fd")[:_MAX_DESCRIPTORS]:
        with contextlib.suppress(OSError):
            target = os.readlink(f"{proc_dir}/fd/{name}")
            if target.startswith("pipe:"):
                by_mode[access_mode(proc_dir, name)].add(target)
    both = by_mode[os.O_RDWR]
    return Pipes(frozenset(by_mode[os.O_RDONLY] | both), frozenset(by_mode[os.O_WRONLY] | both))


def access_mode(proc_dir: str, descriptor: int | str) -> int:
    """Return the mode of an open descriptor: O_RDONLY, O_WRONLY or O_RDWR. Raises OSError."""
    flags = _FLAGS.search(read_short_file(f"{proc_dir}/fdinfo/{descriptor}"))
    return os.O_RDWR if flags is None else int(flags[1], 8) & os.O_ACCMODE


def _is_in_memory(proc_dir: str, descriptor: int, known: int | None) -> bool:
    """Return whether a file is on a file system in memory. Raises OSError.

    Looks for the mount in two mount namespaces: that of the process, and that of this daemon. The
    process may have inherited the file from our namespace, and then have entered another one.
    """
    if (mount := mount_of(proc_dir, descriptor)) is None:
        return False
    # The open file keeps its mount alive, so no other mount can have this number.
    if mount == known:
        return True
    line = re.compile(rb"^%d .*? - (\S+)" % mount, re.MULTILINE)
    for mounts in (f"{proc_dir}/mountinfo", "/proc/self/mountinfo"):
        if (found := line.search(read_file(mounts))) is not None:
            return found[1] in _IN_MEMORY
    return False
