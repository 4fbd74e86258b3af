"""Asks the kernel for the state of a process, and for the files that its threads wait to read.

This module only reads /proc. If a thread sleeps in a system call, /proc/PID/task/TID/syscall
contains the call's number and arguments. The module `waiting_calls` interprets the numbers and
arguments. The daemon can read the file `syscall` only with the rights of a debugger. A parent has
these rights over processes of its own user.
"""

from __future__ import annotations

import contextlib
import os
import platform
import re
import struct
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from shelld.inspection.files import access_mode, file_in, is_socket
from shelld.inspection.waiting_calls import DECODERS, IDLE, MAX_DESCRIPTORS, Wait
from shelld.keeper.proc import fields_of, read_file, read_short_file, stat_fields
from shelld.terminals.source import OWN_TERMINAL

# `may_read` and `written_by` examine at most this many threads of a process. The main thread is
# listed first.
_MAX_WRITERS: Final = 256
# A 32-bit program has its stack below this address. A 64-bit program almost always has its stack
# above this address.
_32_BITS: Final = 1 << 32
# The fifth byte of a program file is the class of the program. The class 1 stands for a 32-bit
# program (elf(5)).
_ELF_CLASS: Final = 4
_ELF_32: Final = 1

# The system calls in which a program waits for a child: wait4, waitid and rt_sigsuspend.
_WAITS_FOR_CHILD: Final = {
    "x86_64": frozenset([b"61", b"247", b"130"]),
    "aarch64": frozenset([b"260", b"95", b"133"]),
}.get(platform.machine())

# The device number of /dev/ptmx, which makes terminals.
TERMINAL_MASTER: Final = os.makedev(5, 2)
_LINKS_OF_ONE_THREAD: Final = 3
# The first of the major numbers of pseudo-terminals.
_PTS_MAJOR: Final = 136
# Protocols whose names begin with these prefixes reach only this system.
_LOCAL_PROTOCOLS: Final = (b"UNIX", b"NETLINK")
_TIMER_FILE: Final = "anon_inode:[timerfd]"
_UNSET_TIMER: Final = re.compile(rb"^it_value: \(0, 0\)", re.MULTILINE)
_WRITTEN: Final = re.compile(rb"^wchar:\s*(\d+)", re.MULTILINE)
_MASTER_INDEX: Final = re.compile(r"^tty-index:\s*(\d+)", re.MULTILINE)


class Process(NamedTuple):
    """Fields of /proc/PID/stat. `state`: the state of the first thread, or of another thread if the
    first one has ended. `terminal`: the device of the controlling terminal, or 0.

    `terminal_group`: the process group in the foreground of that terminal. `threads`: the number of
    threads.
    """

    state: str
    parent: int
    group: int
    terminal: int
    terminal_group: int
    threads: int

    @property
    def is_stopped(self) -> bool:
        """Whether a signal has stopped the process. A stop by a tracer such as strace does not
        count.
        """
        return self.state == "T"

    @property
    def is_held(self) -> bool:
        """Whether a signal or a tracer keeps the process from running."""
        return self.state in "Tt"

    @property
    def is_dead(self) -> bool:
        return self.state in "XZ"

    @property
    def is_in_foreground(self) -> bool:
        return self.group == self.terminal_group


def process(pid: int) -> Process:
    """Return the fields that the kernel shows for a process.

    Raises OSError if the process is gone or cannot be seen, and ValueError if it ends during the
    call.
    """
    fields = stat_fields(pid)
    if len(fields) < 18:
        raise ValueError
    state, threads = fields[0], int(fields[17])
    parent, group, _, terminal, terminal_group = map(int, fields[1:6])
    if state == b"Z" and threads > 1:
        state = _state_of_another_thread(pid)
    return Process(state.decode(), parent, group, terminal, terminal_group, threads)


def _state_of_another_thread(pid: int) -> bytes:
    """Return the state of a thread that has not ended. Raises OSError or ValueError."""
    for thread in os.listdir(f"/proc/{pid}/task"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            state = fields_of(read_short_file(f"/proc/{pid}/task/{thread}/stat"))[0]
            if state not in b"ZX":
                return state
    raise ValueError


def threads_of(pid: int) -> list[str]:
    """Return the ids of a process's threads. The first thread comes first. Raises OSError."""
    path = f"/proc/{pid}/task"
    # The link count of this directory is the number of threads plus two. So one stat(2) shows
    # whether there is only one thread. This is faster than listing the directory.
    return [str(pid)] if os.stat(path).st_nlink == _LINKS_OF_ONE_THREAD else os.listdir(path)


def waits(pid: int, is_spent: Callable[[], bool] = lambda: False) -> Iterator[Wait]:
    """Yield the waits of a process's threads, until `is_spent` returns True.

    Raises PermissionError or FileNotFoundError if no thread can be seen, and another OSError if the
    process ends during the call.
    """
    failure: OSError | None = None
    has_seen = False
    for thread in threads_of(pid):
        if is_spent():
            return
        proc_dir = f"/proc/{pid}/task/{thread}"
        try:
            words = read_short_file(f"{proc_dir}/syscall").split()
        except OSError as error:
            # The thread may have ended.
            failure = error
            continue
        has_seen = True
        # If there are fewer words, the thread runs, or sleeps outside a system call.
        if len(words) < 9 or (decode := DECODERS.get(int(words[0]))) is None:
            continue
        arguments = tuple(int(word, 16) for word in words[1:8])
        if arguments[6] < _32_BITS and _is_32_bit(proc_dir):
            # A 32-bit program has other numbers for its calls.
            continue
        if thread != str(pid) and _is_held(proc_dir):
            # If a tracer such as a debugger holds a thread at the beginning of a call, the thread
            # does not wait for input.
            continue
        # While the call is decoded, another thread of the process may unmap memory or close a
        # descriptor. An argument of the call may also be an invalid address.
        with contextlib.suppress(OSError, ValueError, OverflowError, struct.error):
            yield decode(proc_dir, arguments)
    if failure is not None and not has_seen:
        raise failure


def _is_held(proc_dir: str) -> bool:
    """Return whether a signal or a tracer keeps a thread from running, or the thread is gone."""
    try:
        return fields_of(read_short_file(f"{proc_dir}/stat"))[0] in b"Tt"
    except (OSError, IndexError):
        return True


def waits_for_child(pid: int) -> bool:
    """Return whether a process waits for a child. Return True if the daemon cannot find out."""
    try:
        number = read_short_file(f"/proc/{pid}/syscall").split(b" ", 1)[0]
    except OSError:
        return True
    return _WAITS_FOR_CHILD is None or number in _WAITS_FOR_CHILD


def _is_32_bit(proc_dir: str) -> bool:
    try:
        with open(f"{proc_dir}/exe", "rb", buffering=0) as file:
            return file.read(_ELF_CLASS + 1)[_ELF_CLASS:] == bytes([_ELF_32])
    except OSError:
        return True


def can_end(wait: Wait, descriptor: int) -> bool:
    """Return whether a wait ends when input arrives at one of its descriptors. Raises OSError.

    A wait for several descriptors may include the write end of a pipe, where input never arrives.
    But a thread that waits in read(2) never reads a write end, because such a read would fail at
    once.
    """
    if wait.is_read:
        return True
    inodes = {inode for number, inode in wait.inodes if number == descriptor}
    if inodes and os.stat(f"{wait.proc_dir}/fd/{descriptor}").st_ino not in inodes:
        return False
    return access_mode(wait.proc_dir, descriptor) != os.O_WRONLY


def file_behind(
    proc_dir: str, descriptor: int, own_terminal: int, known: int | None = None
) -> tuple[int, ...]:
    """Return the file behind a descriptor of a thread, as `file_in` does. Raises OSError.

    If the file is /dev/tty, the result is `own_terminal`.
    """
    found = file_in(proc_dir, descriptor, known)
    return (own_terminal,) if found == (OWN_TERMINAL,) else found


def network_sockets(wait: Wait) -> set[int]:
    """Return the inodes of the network sockets that a thread waits to read.

    The result includes sockets of all protocols, because data can come over Bluetooth, from the
    host of a virtual machine, or in raw packets. The only exceptions are protocols that never leave
    this system.
    """
    found: set[int] = set()
    for descriptor in wait.descriptors:
        with contextlib.suppress(OSError):
            protocol = _protocol(wait.proc_dir, descriptor)
            if protocol and not protocol.startswith(_LOCAL_PROTOCOLS):
                found.add(os.stat(f"{wait.proc_dir}/fd/{descriptor}").st_ino)
    return found


def has_timer(wait: Wait, is_spent: Callable[[], bool]) -> bool:
    """Return whether a thread also waits for a timer: see timerfd_create(2).

    Ignores timers that are not set. Returns True if there is no time to find out (`is_spent`).
    """
    for descriptor in wait.descriptors:
        if is_spent():
            return True
        with contextlib.suppress(OSError):
            if os.readlink(f"{wait.proc_dir}/fd/{descriptor}") == _TIMER_FILE:
                about = read_short_file(f"{wait.proc_dir}/fdinfo/{descriptor}")
                if _UNSET_TIMER.search(about) is None:
                    return True
    return False


def has_local_socket(proc_dir: str) -> bool:
    """Return whether a thread has a Unix socket. Raises OSError."""
    for name in os.listdir(f"{proc_dir}/fd")[:MAX_DESCRIPTORS]:
        with contextlib.suppress(OSError):
            if _protocol(proc_dir, name).startswith(b"UNIX"):
                return True
    return False


def _protocol(proc_dir: str, descriptor: int | str) -> bytes:
    """Return the protocol of a socket; b"" for other files. Raises OSError."""
    if not is_socket(proc_dir, descriptor):
        return b""
    return os.getxattr(f"{proc_dir}/fd/{descriptor}", "system.sockprotoname")


def may_read(pid: int, but: str = "") -> bool:
    """Return whether a thread of a process runs or may be reading.

    A thread that waits for something else does not count. `but`: the directory of a thread that is
    ignored. Returns True if a thread cannot be seen.
    """
    try:
        for thread in os.listdir(f"/proc/{pid}/task")[:_MAX_WRITERS]:
            proc_dir = f"/proc/{pid}/task/{thread}"
            number = (
                b"" if proc_dir == but else read_short_file(f"{proc_dir}/syscall").split(b" ", 1)[0]
            )
            if number and number.strip() not in IDLE:
                return True
    except OSError:
        return True
    return False


def inner_terminals(proc_dir: str) -> tuple[list[int], bool]:
    """Find the terminals whose master side a thread holds. Return their devices, and whether all
    descriptors of the thread were examined. Raises OSError.
    """
    names = os.listdir(f"{proc_dir}/fd")
    found = [inner_terminal(proc_dir, int(name)) for name in names[:MAX_DESCRIPTORS]]
    devices = [device for device in found if device is not None]
    return devices, len(names) <= MAX_DESCRIPTORS


def inner_terminal(proc_dir: str, descriptor: int) -> int | None:
    """If a descriptor is the master side of a terminal, return the device of this terminal. Return
    None for other files.

    `proc_dir`: the directory of a process or thread in /proc. Raises OSError.
    """
    with contextlib.suppress(FileNotFoundError):
        # The device that makes terminals may be in any directory, but always has the name ptmx.
        if os.readlink(f"{proc_dir}/fd/{descriptor}").endswith("/ptmx"):
            # Only the master side of a terminal has an index.
            index = _MASTER_INDEX.search(read_file(f"{proc_dir}/fdinfo/{descriptor}").decode())
            if index is not None:
                return os.makedev(_PTS_MAJOR, int(index[1]))
    return None


def written_by(pid: int) -> int:
    """Return how many bytes the threads of a process have written; -1 if this is unknown."""
    count = 0
    try:
        for thread in os.listdir(f"/proc/{pid}/task")[:_MAX_WRITERS]:
            found = _WRITTEN.search(read_short_file(f"/proc/{pid}/task/{thread}/io"))
            count += 0 if found is None else int(found[1])
    except OSError:
        return -1
    return count


def name_of(pid: int) -> str:
    """Return the name of a process, as ps(1) shows it; "" if it is gone."""
    try:
        name = read_short_file(f"/proc/{pid}/comm").removesuffix(b"\n").decode("utf-8", "replace")
    except OSError:
        return ""
    return "".join(filter(str.isprintable, name))
