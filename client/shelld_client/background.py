"""Runs a task without a parent task, on asyncio or trio.

A task group would not work. The task that enters a task group must also exit the group, and must do
so before it exits any scope around the group. But if a client is entered in an asynchronous
generator or a pytest fixture, often another task exits the client.
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
    """Run each coroutine function in its own task. The `work` of a `Background` may call this
    function.

    On trio, the tasks are protected from KeyboardInterrupt, which would crash trio in these tasks.
    The main task gets the KeyboardInterrupt instead.
    """
    if _asyncio_loop() is not None:
        async with anyio.create_task_group() as tasks:
            for work in works:
                tasks.start_soon(work)
        return
    from trio import open_nursery  # noqa: PLC0415 - an extra of anyio's
    from trio.lowlevel import enable_ki_protection  # noqa: PLC0415

    # In an anyio task group, each task would also run code of anyio that lacks this protection.
    async with open_nursery() as nursery:
        for work in works:
            nursery.start_soon(enable_ki_protection(work))


class Background:
    """Runs `work`, which must not raise, until `work` returns or `stop` is called.

    Calls `on_end` once: when `work` has ended, or when it is certain that `work` will never begin.
    """

    def __init__(self, work: Callable[[], Awaitable[None]], on_end: Callable[[], None]) -> None:
        self._work = work
        self._on_end = on_end
        self._scope = anyio.CancelScope()
        self._ended = anyio.Event()
        if (event_loop := _asyncio_loop()) is not None:
            # Keep a reference, because the event loop holds tasks only weakly.
            self._task = event_loop.create_task(self._run())
            # The callback is necessary because a task that is cancelled before its first step never
            # runs `_run`.
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
        """Cancel the work, and wait until it has ended. Any task may call this method."""
        self._scope.cancel()
        with anyio.CancelScope(shield=True):
            await self._ended.wait()
