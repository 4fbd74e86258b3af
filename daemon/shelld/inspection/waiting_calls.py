"""Knows the system calls in which a thread waits to read, and finds the descriptors of each call.

The descriptors of poll and select are in the memory of the process. The descriptors of an epoll set
are in /proc/PID/fdinfo. An epoll set may be a member of another set. This module only reads /proc.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import platform
import re
import struct
from collections.abc import Callable
from itertools import islice
from typing import Final, NamedTuple

from shelld.keeper.proc import read_short_file

# If a process, or a set of descriptors, has more descriptors than this, the others are ignored.
MAX_DESCRIPTORS: Final = 1_024
# An epoll set can be a member of another epoll set. Such sets are followed to this depth.
_MAX_DEPTH: Final = 2
# At each depth, the maximum number of descriptors that are examined to find epoll sets. Examining a
# descriptor takes up to 30 us.
_MAX_EXAMINED: Final = 64
# At each depth, the maximum number of epoll sets that are followed.
_MAX_INNER_SETS: Final = 8
# The maximum number of bytes that are read from the list of an epoll set. A descriptor takes about
# 50 bytes.
_EPOLL_BYTES: Final = 64 * 1024
_POLLFD: Final = struct.Struct("ihh")
# The format of an entry in /proc/PID/pagemap, and the bits of a page that is in memory or swapped
# out.
_PAGE: Final = struct.Struct("=Q")
_LOADED: Final = 0b11 << 62
# POLLIN and POLLRDNORM. The flags EPOLLIN and EPOLLRDNORM have the same values.
_READABLE: Final = 0x41
_EPOLL_FILE: Final = "anon_inode:[eventpoll]"
# If /proc/PID/wchan has one of these values, the thread may be waiting for room in a pipe. Before
# Linux 5.8, "pipe_wait" can also be a wait for data. The value "0" means that the kernel does not
# show the reason.
_MAY_WRITE: Final = frozenset([b"pipe_wait_writable", b"pipe_wait", b"0"])
_EPOLL_ENTRY: Final = re.compile(
    rb"^tfd:\s*(\d+)\s+events:\s*([0-9a-f]+)(?:.*\sino:([0-9a-f]+))?", re.MULTILINE
)


class Wait(NamedTuple):
    """A thread sleeps until it can read from one of `descriptors`.

    `proc_dir`: the thread's directory in /proc. `has_limit`: whether the thread's system call has a
    time limit. `is_read`: the thread waits in read(2) or a similar call, so it can do nothing else.

    `inodes`: pairs of a descriptor and the inode of its file, as epoll sets report them. After the
    process has closed the descriptor, an epoll set may still watch this file, even if the number of
    the descriptor now means another file.
    """

    proc_dir: str
    descriptors: frozenset[int]
    has_limit: bool
    is_read: bool = False
    inodes: frozenset[tuple[int, int]] = frozenset()


# The first six arguments of a call, and the address of the stack.
Arguments = tuple[int, ...]


def _memory(proc_dir: str, address: int, size: int) -> bytes:
    if not size:
        return b""
    if not _is_loaded(proc_dir, address, size):
        raise OSError(errno.EFAULT, os.strerror(errno.EFAULT))
    descriptor = os.open(f"{proc_dir}/mem", os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.pread(descriptor, size, address)
    finally:
        os.close(descriptor)


def _is_loaded(proc_dir: str, address: int, size: int) -> bool:
    """Return whether a piece of memory is loaded or swapped out. Raises OSError or OverflowError.

    Other memory may be mapped from a file on a server, and reading such memory would wait for the
    server.
    """
    first, last = address // mmap.PAGESIZE, (address + size - 1) // mmap.PAGESIZE
    count = last - first + 1
    try:
        descriptor = os.open(f"{proc_dir}/pagemap", os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        # This kernel does not have the file.
        return True
    try:
        content = os.pread(descriptor, count * _PAGE.size, first * _PAGE.size)
    finally:
        os.close(descriptor)
    entries = [entry for (entry,) in _PAGE.iter_unpack(content)]
    return len(entries) == count and all(entry & _LOADED for entry in entries)


def _from_read(proc_dir: str, arguments: Arguments) -> Wait:
    return Wait(proc_dir, frozenset(arguments[:1]), has_limit=False, is_read=True)


def _from_splice(proc_dir: str, arguments: Arguments) -> Wait:
    # The call also sleeps when there is no room for its output. Such a sleep is not a wait for
    # input.
    may_write = read_short_file(f"{proc_dir}/wchan") in _MAY_WRITE
    return Wait(
        proc_dir, frozenset(() if may_write else arguments[:1]), has_limit=False, is_read=True
    )


def _from_sendfile(proc_dir: str, arguments: Arguments) -> Wait:
    return _from_splice(proc_dir, arguments[1:])


def _from_poll(proc_dir: str, arguments: Arguments) -> Wait:
    # The timeout is a C int, and a negative timeout means that there is no limit.
    has_limit = not arguments[2] & 0x80000000
    return _with_inner_sets(Wait(proc_dir, _polled(proc_dir, arguments), has_limit))


def _from_restart(proc_dir: str, arguments: Arguments) -> Wait:
    # After a stop, the kernel continues a poll or a sleep with restart_syscall(2), which has the
    # same arguments. The file wchan shows whether this is a poll.
    if b"poll" not in read_short_file(f"{proc_dir}/wchan"):
        return Wait(proc_dir, frozenset(), has_limit=False)
    return _from_poll(proc_dir, arguments)


def _from_ppoll(proc_dir: str, arguments: Arguments) -> Wait:
    return _with_inner_sets(
        Wait(proc_dir, _polled(proc_dir, arguments), has_limit=arguments[2] != 0)
    )


def _polled(proc_dir: str, arguments: Arguments) -> frozenset[int]:
    count = min(arguments[1], MAX_DESCRIPTORS)
    entries = _memory(proc_dir, arguments[0], count * _POLLFD.size)
    return frozenset(
        descriptor
        for descriptor, events, _ in _POLLFD.iter_unpack(entries)
        if descriptor >= 0 and events & _READABLE
    )


def _from_select(proc_dir: str, arguments: Arguments) -> Wait:
    count = min(arguments[0], MAX_DESCRIPTORS)
    # A set is an array of words of 64 bits.
    words = _memory(proc_dir, arguments[1], (count + 63) // 64 * 8) if arguments[1] else b""
    bits = int.from_bytes(words, "little")
    chosen = frozenset(number for number in range(count) if bits >> number & 1)
    return _with_inner_sets(Wait(proc_dir, chosen, has_limit=arguments[4] != 0))


def _from_epoll_wait(proc_dir: str, arguments: Arguments) -> Wait:
    return _in_epoll(proc_dir, arguments, has_limit=not arguments[3] & 0x80000000)


def _from_epoll_pwait2(proc_dir: str, arguments: Arguments) -> Wait:
    return _in_epoll(proc_dir, arguments, has_limit=arguments[3] != 0)


def _in_epoll(proc_dir: str, arguments: Arguments, *, has_limit: bool) -> Wait:
    descriptors, inodes = _registered(proc_dir, arguments[0])
    return _with_inner_sets(Wait(proc_dir, descriptors, has_limit, inodes=inodes))


def _registered(proc_dir: str, epoll: int) -> tuple[frozenset[int], frozenset[tuple[int, int]]]:
    """Return the descriptors that an epoll set watches for input, and their known inodes."""
    with open(f"{proc_dir}/fdinfo/{epoll}", "rb", buffering=0) as file:
        entries = _EPOLL_ENTRY.findall(file.read(_EPOLL_BYTES))
    watched = [
        (int(descriptor), inode)
        for descriptor, events, inode in entries[:MAX_DESCRIPTORS]
        if int(events, 16) & _READABLE
    ]
    inodes = frozenset((descriptor, int(inode, 16)) for descriptor, inode in watched if inode)
    return frozenset(descriptor for descriptor, _ in watched), inodes


def _with_inner_sets(wait: Wait) -> Wait:
    """If the call waits for an epoll set, add the descriptors in that set to the wait."""
    proc_dir, found, inodes = wait.proc_dir, wait.descriptors, wait.inodes
    added = found
    for _ in range(_MAX_DEPTH):
        examined = sorted(added)[:_MAX_EXAMINED]
        inner = islice((each for each in examined if _is_epoll(proc_dir, each)), _MAX_INNER_SETS)
        added = frozenset[int]()
        for descriptors, more in [_registered(proc_dir, each) for each in inner]:
            # Leave out known descriptors, because the call itself, or an outer set, already waits
            # for them.
            added |= descriptors - found
            inodes |= {pair for pair in more if pair[0] not in found}
        found |= added
    return wait._replace(descriptors=found, inodes=inodes)


def _is_epoll(proc_dir: str, descriptor: int) -> bool:
    # The descriptor may be closed.
    with contextlib.suppress(OSError):
        return os.readlink(f"{proc_dir}/fd/{descriptor}") == _EPOLL_FILE
    return False


_Decoder = Callable[[str, Arguments], Wait]

_BY_MACHINE: Final[dict[str, dict[int, _Decoder]]] = {
    "x86_64": {
        0: _from_read,
        19: _from_read,  # readv
        45: _from_read,  # recvfrom
        47: _from_read,  # recvmsg
        327: _from_read,  # preadv2
        275: _from_splice,
        276: _from_splice,  # tee
        40: _from_sendfile,
        7: _from_poll,
        219: _from_restart,
        271: _from_ppoll,
        23: _from_select,
        270: _from_select,  # pselect6
        232: _from_epoll_wait,
        281: _from_epoll_wait,  # epoll_pwait
        441: _from_epoll_pwait2,
    },
    "aarch64": {
        63: _from_read,
        65: _from_read,  # readv
        207: _from_read,  # recvfrom
        212: _from_read,  # recvmsg
        286: _from_read,  # preadv2
        76: _from_splice,
        77: _from_splice,  # tee
        71: _from_sendfile,
        73: _from_ppoll,
        128: _from_restart,
        72: _from_select,  # pselect6
        22: _from_epoll_wait,  # epoll_pwait
        441: _from_epoll_pwait2,
    },
}
# Maps the number of each system call to the function that decodes the call's arguments.
DECODERS: Final = _BY_MACHINE.get(platform.machine(), {})
# The numbers of system calls that wait, but never for input. They wait for a child, a signal or a
# futex, or they sleep.
IDLE: Final = frozenset(
    {
        "x86_64": [b"61", b"247", b"130", b"34", b"128", b"202", b"35", b"230"],
        "aarch64": [b"260", b"95", b"133", b"137", b"98", b"101", b"115"],
    }.get(platform.machine(), [])
)
