"""The event loop goes on although there is no memory to report a failed callback."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from shelld.eventloop.loop import EventLoop


def fail(*_arguments: object) -> None:
    raise MemoryError


def run(main: Callable[[], object], *, loop: asyncio.AbstractEventLoop) -> None:
    async def call() -> None:
        main()
        # The callbacks that were added later still run, in their order.
        await asyncio.sleep(0.01)

    try:
        loop.run_until_complete(call())
    finally:
        loop.close()


def test_loop_continues_if_memory_is_short_while_reporting_a_failure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[int] = []
    loop = EventLoop()

    def add_callbacks() -> None:
        for number in range(3):
            loop.call_soon(fail)
            loop.call_soon(seen.append, number)

    # Before asyncio calls the exception handler, it describes the callback that has failed.
    monkeypatch.setattr("asyncio.format_helpers._format_callback_source", fail)
    run(add_callbacks, loop=loop)
    assert seen == [0, 1, 2]


def test_keyboard_interrupt_in_a_callback_leaves_the_loop() -> None:
    loop = EventLoop()

    def interrupt() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(lambda: loop.call_soon(interrupt), loop=loop)


def test_stop_is_not_forgotten_if_a_later_callback_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("asyncio.format_helpers._format_callback_source", fail)
    loop = EventLoop()

    async def main() -> None:
        task = asyncio.current_task()
        assert task is not None
        # The callback that stops the loop runs before this callback.
        task.add_done_callback(fail)

    loop.run_until_complete(main())
    loop.close()
