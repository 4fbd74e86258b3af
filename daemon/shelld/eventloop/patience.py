"""Waits that a busy machine does not cut short.

Their time is counted in turns instead of by the clock. If a busy machine does not run this process
for a while, that time counts as one turn at most. A turn in which the awaited work has progressed
does not count at all.
"""

from __future__ import annotations

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
    with anyio.CancelScope(deadline=until):
        async with anyio.create_task_group() as tasks:

            async def give_up() -> None:
                left, seen = math.ceil(seconds / TURN_S), progress()
                while left > 0:
                    await anyio.sleep(TURN_S)
                    if (now := progress()) == seen:
                        left -= 1
                    seen = now
                tasks.cancel_scope.cancel()

            tasks.start_soon(give_up)
            await work()
            tasks.cancel_scope.cancel()
