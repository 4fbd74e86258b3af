"""Describes one process of a command: its state, and the files that its threads wait to read."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from shelld.inspection.kernel import Process, file_behind, process, waits
from shelld.inspection.waiting_calls import Wait
from shelld.keeper.proc import exists

# Maps a file to the threads that wait to read this file. Each item has the `Wait` of a thread, and
# the thread's descriptor of the file.
Reads: TypeAlias = dict[tuple[int, ...], list[tuple[Wait, int]]]


class Member(NamedTuple):
    """A process of the command. A field is None if it cannot be seen."""

    pid: int
    process: Process | None
    reads: Reads | None


def member_of(
    pid: int, is_spent: Callable[[], bool], *, with_reads: bool, known: int | None
) -> Member:
    """Check a process, and return the result.

    `is_spent` returns whether the time for the check is over. `known`: see `file_in`.

    With `with_reads`, the result has the files that the process waits to read. Raises OSError or
    ValueError if the process is gone.
    """
    about = None
    try:
        about = process(pid)
        # A stopped process cannot read before a signal continues it.
        can_read = with_reads and not about.is_held
        return Member(pid, about, _reads(pid, about, is_spent, known) if can_read else {})
    except (PermissionError, FileNotFoundError):
        if not exists(pid):
            raise
        return Member(pid, about, None)


def _reads(pid: int, about: Process, is_spent: Callable[[], bool], known: int | None) -> Reads:
    found: Reads = {}
    for wait in waits(pid, is_spent):
        for descriptor in wait.descriptors:
            if is_spent():
                return found
            with contextlib.suppress(OSError):
                file = file_behind(wait.proc_dir, descriptor, about.terminal, known)
                found.setdefault(file, []).append((wait, descriptor))
    return found
