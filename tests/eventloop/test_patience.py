"""`wait_patiently` counts time in turns of the event loop, so that it does not give up early on a
busy machine.
"""

from __future__ import annotations

import itertools
import math
import time

import anyio
import anyio.lowlevel
import pytest

from shelld.eventloop.patience import TURN_S, wait_patiently


def nothing() -> int:
    return 0


async def test_wait_ends_when_its_work_ends() -> None:
    done = anyio.Event()

    async def work() -> None:
        done.set()

    await wait_patiently(work, 600, nothing, until=math.inf)
    assert done.is_set()


async def test_work_without_progress_is_cancelled() -> None:
    await wait_patiently(anyio.sleep_forever, 2 * TURN_S, nothing, until=math.inf)


async def test_work_that_progresses_may_take_longer() -> None:
    count = 0

    async def work() -> None:
        nonlocal count
        for _ in range(10):
            await anyio.sleep(TURN_S)
            count += 1

    # Each call of the function returns a new value, which counts as progress.
    looks = itertools.count()
    await wait_patiently(work, TURN_S, lambda: next(looks), until=math.inf)
    assert count == 10


async def test_progress_ends_with_the_deadline() -> None:
    looks = itertools.count()
    until = anyio.current_time() + 2 * TURN_S
    await wait_patiently(anyio.sleep_forever, 600, lambda: next(looks), until=until)
    assert anyio.current_time() >= until


async def test_time_without_running_counts_as_one_turn() -> None:
    done = anyio.Event()

    async def work() -> None:
        time.sleep(10 * TURN_S)  # noqa: ASYNC251 - nothing else may run meanwhile
        for _ in range(5):
            await anyio.lowlevel.checkpoint()
        done.set()

    await wait_patiently(work, 5 * TURN_S, nothing, until=math.inf)
    assert done.is_set()


async def test_error_of_the_work_is_raised() -> None:
    async def work() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await wait_patiently(work, 600, nothing, until=math.inf)
