"""Reads the resource usage of a command's processes in /proc. Never signals a process.

The runner of a command runs no other command at the same time, so all descendants of the runner
belong to the command. The scan counts a process before its children. So if a process is reaped
during the scan, its processor time may be missing in this scan, but never counts twice.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from shelld.keeper.proc import children_by_thread, children_of, lister, read_file, stat_fields

_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")

# Indexes in the result of `stat_fields`. Index 0 is the third field of /proc/PID/stat (proc(5)),
# which is the state.
_UTIME: Final = 14 - 3
_CSTIME: Final = 17 - 3
_THREADS: Final = 20 - 3
_RSS: Final = 24 - 3
# A scan of a command stops after this many processes.
_MAX_PROCESSES: Final = 32_768

_PSS: Final = re.compile(rb"^Pss:\s*(\d+) kB$", re.MULTILINE)


class Usage:
    """The resource usage of a command's processes. The numbers grow while `scan` runs.

    `rss_bytes` counts shared memory once for each process that shares it.
    """

    def __init__(self) -> None:
        self.threads = 0
        self.rss_bytes = 0
        self.cpu_s = 0.0
        self.pids: list[int] = []


class _Process(NamedTuple):
    threads: int
    rss_bytes: int
    own_cpu_s: float
    # The processor time of the children that the process has reaped.
    reaped_cpu_s: float


def reaped_cpu_s(runner: int) -> float:
    """Return the processor time of all processes that a runner has reaped so far.

    Raises OSError and ValueError.
    """
    return _process(runner).reaped_cpu_s


def scan(runner: int, reaped_before_s: float) -> Iterator[Usage]:
    """Scan the processes of a command. After each thread of a process, yield the usage so far.

    `reaped_before_s` is what `reaped_cpu_s` returned when the command started. Raises OSError if
    the system has no /proc, and OSError or ValueError if the runner has ended.
    """
    usage = Usage()
    list_children = _lister_by_thread()
    usage.cpu_s = _process(runner).reaped_cpu_s - reaped_before_s
    waiting: list[int] = []
    for children in list_children(runner):
        waiting += children
    yield usage
    seen = {runner}
    while waiting and len(usage.pids) < _MAX_PROCESSES:
        pid = waiting.pop()
        # If a thread ends, its children become children of another thread, which lists them again.
        if pid in seen:
            continue
        seen.add(pid)
        # The process may end during the scan, or be hidden.
        with suppress(OSError, ValueError, IndexError):
            found = _process(pid)
            usage.threads += found.threads
            usage.rss_bytes += found.rss_bytes
            usage.cpu_s += found.own_cpu_s + found.reaped_cpu_s
            usage.pids.append(pid)
            for children in list_children(pid):
                waiting += children
                yield usage
        yield usage


def _lister_by_thread() -> Callable[[int], Iterator[list[int]]]:
    """Return a function that lists a process's children, thread by thread.

    Raises OSError if no process can be listed.
    """
    list_children = lister()
    if list_children is None:
        raise FileNotFoundError
    if list_children is children_of:
        return children_by_thread
    return lambda pid: iter([list_children(pid)])


def pss_bytes(pids: Sequence[int]) -> int:
    """Return the memory that processes use. Shared memory is divided among the processes that share
    it.

    For large processes, this function takes a long time.
    """
    return sum(map(_pss, pids))


def _pss(pid: int) -> int:
    with suppress(OSError):
        found = _PSS.search(read_file(f"/proc/{pid}/smaps_rollup"))
        return 0 if found is None else int(found[1]) * 1024
    # The process has ended, or belongs to another user, or the system has no such file.
    with suppress(OSError, ValueError, IndexError):
        return _process(pid).rss_bytes
    return 0


def _process(pid: int) -> _Process:
    fields = stat_fields(pid)
    user, system, reaped_user, reaped_system = map(int, fields[_UTIME : _CSTIME + 1])
    return _Process(
        int(fields[_THREADS]),
        int(fields[_RSS]) * _PAGE_BYTES,
        (user + system) / _TICKS_PER_S,
        (reaped_user + reaped_system) / _TICKS_PER_S,
    )
