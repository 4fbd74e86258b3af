"""The daemon counts the signals that it waits for, and leaves all others alone."""

from __future__ import annotations

import asyncio
import os
import signal

import anyio

from shelld.eventloop.signals import received


def test_each_signal_of_a_burst_is_seen() -> None:
    async def main() -> int:
        with received(signal.SIGUSR1) as arrivals, anyio.fail_after(60):
            for _ in range(100):
                os.kill(os.getpid(), signal.SIGUSR1)
            return await arrivals.wait()

    assert 1 <= asyncio.run(main()) <= 100


def test_signal_handlers_are_restored() -> None:
    def handler(_number: int, _frame: object) -> None: ...

    numbers = (signal.SIGUSR1, signal.SIGURG)
    before = [signal.signal(number, handler) for number in numbers]

    async def main() -> None:
        with received(signal.SIGUSR1):
            # `received` has used SIGURG to find out how signals wake the event loop, and has
            # restored its handler.
            assert signal.getsignal(signal.SIGURG) is handler

    try:
        asyncio.run(main())
        assert [signal.getsignal(number) for number in numbers] == [handler, handler]
        # No wakeup descriptor of the closed event loop is left.
        assert signal.set_wakeup_fd(-1) == -1
    finally:
        for number, previous in zip(numbers, before, strict=True):
            signal.signal(number, previous)
