"""Finds out whether bytes are still on their way to or from a program that is behind relays.

Bytes that a relay writes to a terminal arrive a moment later. During this moment, the relay already
sleeps again, and the program that will get the bytes still sleeps in its read. So both processes
seem to wait for input. The same happens when a program has just written a question. The program
already sleeps again, and the relay has not woken up yet to pass on the question.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import select
import stat
from collections.abc import Sequence
from typing import Final, NamedTuple

from shelld.inspection.kernel import TERMINAL_MASTER, can_end, inner_terminal
from shelld.inspection.member import Member, member_of
from shelld.inspection.waiting_calls import Wait
from shelld.terminals.source import Source

_STANDARD: Final = (0, 1, 2)
# The number of the system call pidfd_getfd(2). It is the same on all machines. The system call
# needs the rights of a debugger.
_PIDFD_GETFD: Final = 438
_OPEN: Final = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class Hop(NamedTuple):
    """A process that waits to read a source. The process is a relay, or the program behind all
    relays.
    """

    member: Member
    source: Source


def wait_on(member: Member, source: Source) -> tuple[Wait, int] | None:
    """Return how a process waits to read a source, and the descriptor that it will read.

    Returns None unless the process sleeps until it can read the source.
    """
    about = member.process
    if about is None:
        return None
    if (about.terminal,) == source.file:
        group = about.terminal_group if source.group is None else source.group
        if about.group != group:
            # The process is in the background, so the terminal would stop it.
            return None
    for wait, descriptor in (member.reads or {}).get(source.file, ()):
        with contextlib.suppress(OSError):
            is_ours = source.may_be(f"{wait.proc_dir}/fd/{descriptor}")
            if is_ours and can_end(wait, descriptor):
                return wait, descriptor
    return None


def is_on_its_way(hops: Sequence[Hop]) -> bool:
    """Return whether input is still on its way from the first process in `hops` to the last one.
    Each process in `hops` passes its input on to the next one.

    Checks the processes in this order. A relay that sleeps has passed on all input that it has
    read. If the terminal behind the relay is empty after that, and the next process sleeps, all
    input has arrived at the next process.
    """
    for number, (member, source) in enumerate(hops):
        found = wait_on(member, source)
        if found is None or (number and _has_input(*found, source)):
            return True
        with contextlib.suppress(OSError, ValueError):
            now = member_of(member.pid, lambda: False, with_reads=True, known=source.mount)
            if wait_on(now, source) is not None:
                continue
        return True
    return False


def has_unread_output(hops: Sequence[Hop], members: Sequence[Member]) -> bool:
    """Return whether output is still on its way from the last process in `hops` to the first one.

    The last process sleeps, so it has written all of its output. If a relay then sleeps, and has
    nothing to read from the terminal behind it, the relay has passed on all output that it has
    read.
    """
    for hop in reversed(hops[1:]):
        for member in members:
            descriptor = _master_of(member, hop.source)
            if descriptor is None:
                continue
            if _is_readable(member.pid, descriptor, hop.source):
                return True
            with contextlib.suppress(OSError, ValueError):
                now = member_of(member.pid, lambda: False, with_reads=True, known=None)
                if _master_of(now, hop.source) is not None:
                    continue
            return True
    return False


def _master_of(member: Member, source: Source) -> int | None:
    """If a process waits to read the master side of a terminal, return the descriptor of the master
    side.
    """
    for wait, descriptor in (member.reads or {}).get((TERMINAL_MASTER,), ()):
        with contextlib.suppress(OSError):
            if (inner_terminal(wait.proc_dir, descriptor),) == source.file:
                return descriptor
    return None


def _is_readable(pid: int, descriptor: int, source: Source) -> bool:
    """Return whether there is something to read from the master side of a terminal.

    Return False if the daemon cannot find out.

    Before the kernel answers that there is nothing to read, it delivers all bytes that are on their
    way.
    """
    with contextlib.suppress(OSError):
        copy = -1
        process = os.pidfd_open(pid)
        try:
            # Opening the descriptor by its path in /proc would make a new terminal.
            copy = ctypes.CDLL(None).syscall(_PIDFD_GETFD, process, descriptor, 0)
            if copy < 0 or (inner_terminal("/proc/self", copy),) != source.file:
                return False
            ready = select.poll()
            ready.register(copy, select.POLLIN)
            return any(events & select.POLLIN for _, events in ready.poll(0))
        finally:
            os.close(process)
            if copy >= 0:
                os.close(copy)
    return False


def _has_input(wait: Wait, descriptor: int, source: Source) -> bool:
    """Return whether a terminal has input to read. Returns False if the terminal cannot be opened.

    Before the kernel answers that there is no input, it delivers all bytes that are on their way.
    """
    # If the process has opened /dev/tty, its descriptor does not lead to the terminal, because
    # /dev/tty means another terminal when the daemon opens it. So also try the standard streams of
    # the process.
    for each in (descriptor, *_STANDARD):
        with contextlib.suppress(OSError):
            terminal = _opened(f"{wait.proc_dir}/fd/{each}", source)
            try:
                ready = select.poll()
                ready.register(terminal, select.POLLIN)
                return bool(ready.poll(0))
            finally:
                os.close(terminal)
    return False


def _opened(path: str, source: Source) -> int:
    """Open a terminal through a link in /proc.

    Raises OSError if this fails, or if the link leads to another file.
    """
    # With O_PATH, this opens only the path, and not the file itself. The descriptor may mean
    # another file by now, and opening that file itself may hang.
    opened = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        about = os.fstat(opened)
        if not stat.S_ISCHR(about.st_mode) or (about.st_rdev,) != source.file:
            raise OSError(errno.ENOTTY, os.strerror(errno.ENOTTY))
        return os.open(f"/proc/self/fd/{opened}", _OPEN)
    finally:
        os.close(opened)
