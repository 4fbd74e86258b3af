"""Waits until daemons have started, and logs what the start is waiting for. Has no state."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Iterable, Sequence
from typing import Final

from shelld_client.errors import ResourceExhausted
from shelld_client.ray.engine import Needs
from shelld_protocol.errors import ErrorKind

logger: Final = logging.getLogger("shelld_client.ray")

# If the start takes longer than this, the log says what the pool is waiting for.
NOTICE_S: Final = 5.0


async def all_started(
    tasks: Sequence[asyncio.Task[None]], timeout: float | None, needs: Needs
) -> None:
    """Wait until all daemons have started. Each of `tasks` starts one daemon.

    `needs` are the resources that each daemon needs. Raises the error of the first task that fails,
    and `ResourceExhausted` after `timeout` seconds.
    """
    limit = math.inf if timeout is None else timeout
    await asyncio.wait(tasks, timeout=min(NOTICE_S, limit), return_when=asyncio.FIRST_EXCEPTION)
    left = [task for task in tasks if not task.done()]
    if left and not _failed(tasks):
        until = "" if timeout is None else f", up to {timeout:g} s"
        logger.warning("%s%s", _waits_for(len(left), len(tasks), needs), until)
        await asyncio.wait(
            left,
            timeout=None if timeout is None else max(0, timeout - NOTICE_S),
            return_when=asyncio.FIRST_EXCEPTION,
        )
    for task in _failed(tasks):
        await task
    left = [task for task in tasks if not task.done()]
    if left:
        raise ResourceExhausted(
            f"{_waits_for(len(left), len(tasks), needs)}, for {timeout:g} s (start_timeout)",
            code=ErrorKind.RESOURCE_EXHAUSTED.code,
            data={"kind": ErrorKind.RESOURCE_EXHAUSTED.value, "limit": "cluster"},
        )


def _waits_for(left: int, count: int, needs: Needs) -> str:
    return (
        f"the pool waits for room in the Ray cluster: {left} of {count} daemons have not "
        f"started, each of which needs {needs}"
    )


def _failed(tasks: Iterable[asyncio.Task[None]]) -> list[asyncio.Task[None]]:
    return [
        task
        for task in tasks
        if task.done() and not task.cancelled() and task.exception() is not None
    ]
