"""A task that belongs to no other task, on asyncio or trio.

A task group has to be left in the task that has entered it, before any scope around it. A client
that is held by an asynchronous generator or by a fixture of pytest is often left in another task.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import anyio
from anyio.lowlevel import current_token


def _asyncio_loop() -> asyncio.AbstractEventLoop | None:
    event_loop = current_token().native_token
    return event_loop if isinstance(event_loop, asyncio.AbstractEventLoop) else None


async def run_together(*works: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run coroutine functions in tasks of their own. For the `work` of a `Background`.

    On trio no KeyboardInterrupt is raised within them, where it would crash trio. The main task
    gets it instead.
    """
    if _asyncio_loop() is not None:
        async with anyio.create_task_group() as tasks:
            for work in works:
                tasks.start_soon(work)
        return
    from trio import open_nursery  # noqa: PLC0415 - an extra of anyio's
    from trio.lowlevel import enable_ki_protection  # noqa: PLC0415

    # A task group of anyio would run some steps of its own in each task, which are not protected.
    async with open_nursery() as nursery:
        for work in works:
            nursery.start_soon(enable_ki_protection(work))


class Background:
    """Runs `work`, which must not raise, from now on until it returns or `stop` is called.

    Calls `on_end` once, when `work` has ended or will never begin.
    """

    def __init__(self, work: Callable[[], Awaitable[None]], on_end: Callable[[], None]) -> None:
        self._work = work
        self._on_end = on_end
        self._scope = anyio.CancelScope()
        self._ended = anyio.Event()
        if (event_loop := _asyncio_loop()) is not None:
            # The event loop itself keeps no task from being collected.
            self._task = event_loop.create_task(self._run())
            # A task that is cancelled before its first step never runs.
            self._task.add_done_callback(lambda _: self._finish())
        else:
            from trio.lowlevel import spawn_system_task  # noqa: PLC0415 - an extra of anyio's

            spawn_system_task(self._run)

    async def _run(self) -> None:
        try:
            with self._scope:
                await self._work()
        finally:
            self._finish()

    def _finish(self) -> None:
        if not self.has_ended:
            self._ended.set()
            self._on_end()

    @property
    def has_ended(self) -> bool:
        return self._ended.is_set()

    async def stop(self) -> None:
        """Cancel the work, in any task, and return once it has ended."""
        self._scope.cancel()
        with anyio.CancelScope(shield=True):
            await self._ended.wait()
