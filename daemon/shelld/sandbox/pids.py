"""Translates the pids of a sandbox's processes.

A process of a sandbox knows only *inner* pids, which are the pids of its own namespace. The daemon
and its clients know *outer* pids. The inner pid of a new process comes with a pidfd. For this
pidfd, the kernel shows the outer pid. For other pids, this module searches the processes below the
sandbox's first process.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Final

from shelld.keeper.channel import (
    EXITED,
    LEFTOVER,
    STARTED,
    SURVIVORS,
    Channel,
    Message,
    RunnerInfo,
)
from shelld.keeper.proc import children_of, read_file

# Stands for the pid of a process if the pid could not be read, most often because the process has
# ended. No process can have this number, because it is above the highest possible pid
# (PID_MAX_LIMIT).
ENDED: Final = 2**22 + 1

# The maximum number of processes that one search reads. Each process takes some 20 µs.
_MAX_LOOKED_UP: Final = 2_000

_PID: Final = re.compile(rb"^Pid:\s*(\d+)$", re.MULTILINE)
_IN_NAMESPACES: Final = re.compile(rb"^NSpid:((?:\s+\d+)+)$", re.MULTILINE)


def pid_of(handle: int) -> int:
    """Return the outer pid of a pidfd, or `ENDED`."""
    with suppress(OSError):
        found = _PID.search(read_file(f"/proc/self/fdinfo/{handle}"))
        if found is not None:
            return int(found[1])
    return ENDED


def outer_pids(first: int, inner: Iterable[int]) -> list[int]:
    """Return the sorted outer pids of processes. Skip processes that have ended.

    `first`: the outer pid of a common ancestor of the processes.

    If the search fails, the result also contains `ENDED`. Otherwise, the result could be empty, and
    an empty result means that all processes have ended.
    """
    wanted = set(inner)
    found: list[int] = []
    # Search twice, because one search misses a process that gets another parent during the search.
    _search(first, wanted, found)
    has_failed = _search(first, wanted, found)
    return sorted([*found, ENDED] if has_failed else found)


def _search(first: int, wanted: set[int], found: list[int]) -> bool:
    """Search for the processes with the inner pids `wanted`. For each process that is found, remove
    the inner pid from `wanted`, and add the outer pid to `found`. Return whether the search has
    failed.
    """
    waiting, seen, has_failed = [first], 0, False
    while waiting and wanted and seen < _MAX_LOOKED_UP:
        seen += 1
        pid = waiting.pop()
        try:
            waiting += children_of(pid)
            names = _IN_NAMESPACES.search(read_file(f"/proc/{pid}/status"))
            pids = [] if names is None else names[1].split()
            if len(pids) > 1 and int(pids[1]) in wanted:
                wanted.discard(int(pids[1]))
                found.append(pid)
        except (FileNotFoundError, ProcessLookupError):
            # The process has ended between two steps.
            pass
        except (OSError, ValueError):
            has_failed = True
    # The search has also failed if it has not read all processes.
    return has_failed or bool(waiting and wanted)


class NamespacedChannel(Channel):
    """A channel to a runner of a sandbox. `receive` returns messages with outer pids.

    `look_up` translates inner pids. `on_runner` is called with the runner's outer and inner pid.
    """

    look_up: Callable[[Sequence[int]], list[int]]
    on_runner: Callable[[int, int], None]
    _is_known = False

    def __init__(self, sock: socket.socket) -> None:
        super().__init__(sock)
        # How many messages of the current list `_complete` has translated so far.
        self._translated_count = 0

    def _complete(self, messages: list[tuple[Message, list[int]]]) -> None:
        if self.peer is not None and not self._is_known:
            # A read that returns READY returns no other message, so the handle of READY is still in
            # `_descriptors`.
            inner = self.peer.pid
            pid = self._close_handles(self._descriptors)
            self.peer = RunnerInfo(pid, *self.peer[1:])
            self._is_known = True
            self.on_runner(pid, inner)
        # If this raises MemoryError, the next call continues with the remaining messages.
        while self._translated_count < len(messages):
            message, descriptors = messages[self._translated_count]
            translated = self._translated(message, descriptors)
            self._close_handles(descriptors)
            messages[self._translated_count] = translated, []
            self._translated_count += 1
        self._translated_count = 0

    def _close_handles(self, descriptors: list[int]) -> int:
        """Close all handles. Return the pid that belongs to the last handle."""
        if not descriptors:
            # The kernel drops descriptors if this process has no room for them.
            return ENDED
        # If an earlier call has failed, the handle of READY comes before the handle of the message.
        try:
            return pid_of(descriptors[-1])
        finally:
            while descriptors:
                os.close(descriptors.pop())

    def _translated(self, message: Message, descriptors: list[int]) -> Message:
        kind = message[0]
        if kind == STARTED:
            return STARTED, self._close_handles(descriptors), *message[2:]
        if kind == EXITED and message[6]:
            return *message[:6], self.look_up(message[6]), *message[7:]
        if kind in (LEFTOVER, SURVIVORS):
            return kind, self.look_up(message[1])
        return message
