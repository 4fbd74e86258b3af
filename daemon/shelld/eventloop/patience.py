"""Waits that a busy machine does not cut short.

Their time is counted in turns instead of by the clock. If a busy machine does not run this process
for a while, that time counts as one turn at most. A turn in which the awaited work has progressed
does not count at all.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from typing import Final

import anyio

TURN_S: Final = 0.02


async def wait_patiently(
    work: Callable[[], Awaitable[object]],
    seconds: float,
    progress: Callable[[], object],
    *,
    until: float,
) -> None:
    """Await `work`. Cancel it after `seconds` of turns without progress, or at the time `until`.

    The work has progressed whenever the value of `progress` is another than before.
    """
    loop = asyncio.get_running_loop()
    left, seen = math.ceil(seconds / TURN_S), progress()
    timer: asyncio.TimerHandle

    def look() -> None:
        nonlocal left, seen, timer
        if (now := progress()) == seen:
            left -= 1
        seen = now
        if left > 0:
            timer = loop.call_later(TURN_S, look)
        else:
            scope.cancel()

    # Work that ends must need no cancellation: memory may be too short for one.
    with anyio.CancelScope(deadline=until) as scope:
        timer = loop.call_later(TURN_S, look)
        try:
            await work()
        finally:
            timer.cancel()
