"""Shares the event loop between tasks that each do some milliseconds of work repeatedly.

For each event loop, this module owns one lock. `do_serially` uses this lock.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Final, TypeVar

import anyio
from anyio.lowlevel import RunVar, checkpoint

T = TypeVar("T")

# A turn uses processor time. The pause after the turn lasts this multiple of that time. During the
# pause, the event loop is free for other work.
_REST_SHARE: Final = 3
# Pauses shorter than this are added up. A task that sleeps wakes up late on a busy machine. So a
# pause after each of many short turns would take much longer than the turns.
_LEAST_REST_S: Final = 0.01


class Turn:
    """The turn of a task, which may work until its turn ends. `cost_s` is the processor time that
    the owner of the turn has used.
    """

    cost_s: float = 0.0


class Turns:
    """Lets one task at a time work, and leaves most of the time to other tasks.

    Otherwise, many tasks at once would keep the event loop from all other work.
    """

    def __init__(self) -> None:
        self._lock = anyio.Lock()
        self._free_from = 0.0

    @asynccontextmanager
    async def turn(self) -> AsyncGenerator[Turn]:
        """Wait for a turn. The owner of the turn sets `cost_s` before it leaves the block.

        The event loop does other work between two turns, even if there is no pause.
        """
        async with self._lock:
            if self._free_from > anyio.current_time() + _LEAST_REST_S:
                await anyio.sleep_until(self._free_from)
            else:
                await checkpoint()
            turn, began = Turn(), anyio.current_time()
            try:
                yield turn
            finally:
                # The pause begins at the end of the turn, so `_free_from` also includes the time of
                # the turn.
                taken_s = anyio.current_time() - began + _REST_SHARE * turn.cost_s
                self._free_from = max(self._free_from, began) + taken_s


_serial_lock: Final[RunVar[anyio.Lock]] = RunVar("shelld_serial_lock")


async def do_serially(work: Callable[[], T]) -> T:
    """Do about a millisecond of work. Unlike a turn, it neither waits for a pause nor causes one.

    The event loop does other work between two calls of this function, even if many tasks call it.
    """
    try:
        lock = _serial_lock.get()
    except LookupError:
        lock = anyio.Lock(fast_acquire=True)
        _serial_lock.set(lock)
    async with lock:
        result = work()
        await checkpoint()
    return result
