"""Signals that the daemon waits for, however many come.

asyncio learns of a signal from a byte in a socket, and handles each byte by itself. When thousands
of processes end at once, that takes more time than to reap them, and the byte of a SIGTERM finds
the socket full. So a handler of Python's own counts here, and wakes the event loop once.

Only for programs whose event loop is asyncio's, and for their main thread.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Generator
from contextlib import contextmanager
from types import FrameType

import anyio


class Arrivals:
    """Counts signals. Python runs `note` between any two steps of the program."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._count = 0
        self._arrived = anyio.Event()

    def note(self, _number: int, _frame: FrameType | None) -> None:
        self._count += 1
        if self._count == 1:
            self._loop.call_soon_threadsafe(self._tell)

    def _tell(self) -> None:
        self._arrived.set()

    async def wait(self) -> int:
        """Wait for a signal; return how many have come since the last call, or one less.

        What the caller does next happens after each of them, also after one that is not counted.
        """
        await self._arrived.wait()
        self._arrived = anyio.Event()
        count, self._count = self._count, 0
        return count


@contextmanager
def received(*numbers: signal.Signals) -> Generator[Arrivals]:
    """Receive these signals in the block; afterwards they do what they did before."""
    loop = asyncio.get_running_loop()
    arrivals = Arrivals(loop)
    descriptor = signal.set_wakeup_fd(-1)
    _let_signals_wake(loop)
    before = {number: signal.signal(number, arrivals.note) for number in numbers}
    try:
        yield arrivals
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(descriptor)


def _let_signals_wake(loop: asyncio.AbstractEventLoop) -> None:
    """Have Python write to a socket of the event loop when a signal comes.

    asyncio does that for handlers of its own only. If the socket is full, Python drops the byte:
    the bytes in the socket wake the event loop anyway.
    """
    before = signal.getsignal(signal.SIGURG)
    loop.add_signal_handler(signal.SIGURG, _tell_nobody)
    descriptor = signal.set_wakeup_fd(-1)
    loop.remove_signal_handler(signal.SIGURG)
    if before is not None:
        signal.signal(signal.SIGURG, before)
    signal.set_wakeup_fd(descriptor, warn_on_full_buffer=False)


def _tell_nobody() -> None:
    """Handle a signal that has another handler before and afterwards."""
