"""Notices when a socket begins to listen, with one look for all tasks that wait for that.

Owns the timer of these looks, which runs only while somebody watches. Covers the network namespace
of the daemon. Never looks at a process: those who are woken find out whose socket it is.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Final

from shelld.inspection import sockets
from shelld.inspection.sockets import Socket
from shelld.process.faults import answer_for

# The pauses between two looks. They grow while nobody begins to watch, and no socket to listen.
_FIRST_PAUSE_S: Final = 0.04
_LAST_PAUSE_S: Final = 0.2
_QUIET_DIVISOR: Final = 50
# If there are many sockets, a pause is at least this many times as long as the last look took.
_COST_SHARE: Final = 40


class SocketNews:
    """`count` rises when a look finds a socket that did not listen at the look before.

    `listening`: the sockets that the last look has found. It is up to date only for watchers.
    """

    def __init__(self) -> None:
        self.count = 0
        self.listening: frozenset[Socket] = frozenset()
        self._watchers: list[Callable[[], None]] = []
        # When the pauses began to grow, as of time.monotonic().
        self._quiet_from = 0.0
        self._timer: asyncio.TimerHandle | None = None

    @contextmanager
    def watching(self, wake: Callable[[], None]) -> Generator[None]:
        """Call `wake` whenever `count` has risen, until the block ends.

        Sockets that listen at the beginning of the block do not count as news.
        """
        self._watchers.append(wake)
        self._quiet_from = time.monotonic()
        try:
            self._look()
            yield
        finally:
            self._watchers.remove(wake)
            if not self._watchers:
                self._stop()

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        self._stop()
        began = time.thread_time()
        try:
            # Without a free descriptor, the next look finds what this one has missed.
            with contextlib.suppress(OSError):
                self._note(frozenset(sockets.listening("/proc/self")))
        except Exception as error:
            answer_for(error, "the look for sockets that listen")
        least_s = max(_FIRST_PAUSE_S, _COST_SHARE * (time.thread_time() - began))
        grown_s = min((time.monotonic() - self._quiet_from) / _QUIET_DIVISOR, _LAST_PAUSE_S)
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(max(least_s, grown_s), self._look)

    def _note(self, now: frozenset[Socket]) -> None:
        before, self.listening = self.listening, now
        if not now <= before:
            self.count += 1
            self._quiet_from = time.monotonic()
            for wake in tuple(self._watchers):
                wake()
