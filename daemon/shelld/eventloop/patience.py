"""Waits until some work is done, with a time limit that is long enough even on a busy machine.

The limit counts turns of a timer instead of seconds. If a busy machine does not run this process
for a while, this time counts as one turn at most. A turn in which the work has progressed does not
count.
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
    """Await `work`. Cancel the work when the turns without progress add up to `seconds`, or at the
    time `until`.

    The work has progressed if `progress` returns another value than in the last turn.
    """
    loop = asyncio.get_running_loop()
    left, seen = math.ceil(seconds / TURN_S), progress()
    timer: asyncio.TimerHandle

    def check() -> None:
        nonlocal left, seen, timer
        if (now := progress()) == seen:
            left -= 1
        seen = now
        if left > 0:
            timer = loop.call_later(TURN_S, check)
        else:
            scope.cancel()

    # If the work ends in time, do not cancel any task, because there may be no memory for a
    # cancellation.
    with anyio.CancelScope(deadline=until) as scope:
        timer = loop.call_later(TURN_S, check)
        try:
            await work()
        finally:
            timer.cancel()
