"""Finds out whether a process passes its input on to programs on another terminal.

Programs such as script(1), tmux and sudo do this. Such a relay holds the master side of the inner
terminal, and waits to read the output of the programs on that terminal. A program that uses pexpect
also holds the master side of a child's terminal. But such a program passes nothing on while it asks
its own user something.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Sequence
from typing import Final, NamedTuple

from shelld.inspection.files import Pipes, pipes_of
from shelld.inspection.kernel import (
    TERMINAL_MASTER,
    has_local_socket,
    inner_terminal,
    inner_terminals,
    may_read,
)
from shelld.inspection.member import Member
from shelld.inspection.waiting_calls import Wait
from shelld.terminals.source import Source


class Passed(NamedTuple):
    """`inner`: the terminals to which a process passes its input on. `is_uncertain`: the process
    may also pass its input on in another way.

    The sources in `inner` have no `group`, because the state of each process already shows which
    group is in the foreground of its terminal. The source of our terminal always has a `group`. So
    it differs from the sources in `inner`, even if one terminal is in a container and both have the
    same number.
    """

    inner: list[Source]
    is_uncertain: bool


NOT_PASSED: Final = Passed([], is_uncertain=False)


def passes_on(
    reader: Member,
    wait: Wait,
    members: Sequence[Member],
    seen: Collection[Source],
    is_spent: Callable[[], bool],
) -> Passed:
    """A process sleeps in `wait` until it can read input. Return the terminals to which it passes
    this input on.

    `seen`: the terminals through which the input has come so far. If there is no time to find out
    (`is_spent`), the result is uncertain.
    """
    devices, is_known = _terminals_of(wait.proc_dir)
    inner: list[Source] = []
    is_uncertain = not is_known
    for device in devices:
        source = Source(None, (device,))
        # A process may have inherited the master side of a terminal from an earlier relay. This
        # terminal is in `seen`. Include such a terminal only if the process itself reads from it.
        if _is_read(device, [reader] if source in seen else members):
            inner.append(source)
        elif source not in seen and _may_be_read(device, reader, wait, members, is_spent):
            is_uncertain = True
    if not (inner or is_uncertain) and len(members) > 1:
        is_uncertain = _has_relay_beside(reader, wait, members, seen, is_spent)
    return Passed(inner, is_uncertain)


def _terminals_of(proc_dir: str) -> tuple[list[int], bool]:
    try:
        return inner_terminals(proc_dir)
    except OSError:
        return [], False


def _is_read(device: int, members: Sequence[Member]) -> bool:
    """Return whether a process waits to read what the programs on a terminal write."""
    for member in members:
        for wait, descriptor in (member.reads or {}).get((TERMINAL_MASTER,), ()):
            with contextlib.suppress(OSError):
                if inner_terminal(wait.proc_dir, descriptor) == device:
                    return True
    return False


def _may_be_read(
    device: int,
    reader: Member,
    wait: Wait,
    members: Sequence[Member],
    is_spent: Callable[[], bool],
) -> bool:
    """Return whether a thread may be reading the master side of a terminal, or may do so very soon.

    `Member.reads` does not show this reliably. A thread that reads now may have been running when
    its waits were listed. Such a thread has no wait in the list.
    """
    if may_read(reader.pid, but=wait.proc_dir):
        return True
    for member in members:
        if is_spent():
            return True
        holds = member.pid != reader.pid and device in _terminals_of(f"/proc/{member.pid}")[0]
        if holds and may_read(member.pid):
            return True
    return False


def _has_relay_beside(
    reader: Member,
    wait: Wait,
    members: Sequence[Member],
    seen: Collection[Source],
    is_spent: Callable[[], bool],
) -> bool:
    """Return whether a process can send its input to another process that has the master side of a
    terminal.

    The input can go through a Unix socket or a pipe, directly or by way of other processes. The
    kernel does not show which process has the other end of a Unix socket, so any process may have
    it. This function ignores the terminals in `seen`.
    """
    try:
        written, has_socket = pipes_of(wait.proc_dir).written, has_local_socket(wait.proc_dir)
    except OSError:
        return False
    if not (written or has_socket):
        return False
    beside = dict[int, Pipes]()
    for member in members:
        if is_spent():
            return True
        if member.pid != reader.pid:
            if has_socket and _has_other_terminal(member.pid, seen):
                return True
            with contextlib.suppress(OSError):
                beside[member.pid] = pipes_of(f"/proc/{member.pid}")
    while reached := [pid for pid, pipes in beside.items() if pipes.read & written]:
        for pid in reached:
            if is_spent() or _has_other_terminal(pid, seen):
                return True
            written |= beside.pop(pid).written
    return False


def _has_other_terminal(pid: int, seen: Collection[Source]) -> bool:
    """Return whether a process has the master side of a terminal that is not in `seen`."""
    return any(Source(None, (each,)) not in seen for each in _terminals_of(f"/proc/{pid}")[0])
