"""Waits for signals, and stays fast when many signals arrive.

asyncio receives a byte in a socket for each signal, and handles each byte separately. When
thousands of processes end at once, asyncio needs more time to handle the bytes than the daemon
needs to reap the processes. A SIGTERM may then be lost, because the socket is full. So this module
has a Python signal handler that counts the signals, and wakes the event loop once.

This module works only in a program that runs asyncio, and only in its main thread.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Generator
from contextlib import contextmanager
from types import FrameType

import anyio


class Arrivals:
    """Counts signals. Python may call `note` between any two steps of the program."""

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
        """Wait for a signal; return how many have arrived since the last call.

        The number may be one too low. But even if a signal was not counted, it ends the wait.
        """
        await self._arrived.wait()
        self._arrived = anyio.Event()
        count, self._count = self._count, 0
        return count


@contextmanager
def received(*numbers: signal.Signals) -> Generator[Arrivals]:
    """Receive these signals while the `with` block runs; then restore their handlers."""
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
    """Make Python write to a socket of the event loop when a signal arrives.

    asyncio does this only for its own handlers. If the socket is full, Python drops the byte. This
    does no harm, because the other bytes in the socket wake the event loop.
    """
    before = signal.getsignal(signal.SIGURG)
    loop.add_signal_handler(signal.SIGURG, _tell_nobody)
    descriptor = signal.set_wakeup_fd(-1)
    loop.remove_signal_handler(signal.SIGURG)
    if before is not None:
        signal.signal(signal.SIGURG, before)
    signal.set_wakeup_fd(descriptor, warn_on_full_buffer=False)


def _tell_nobody() -> None:
    """Do nothing. SIGURG has this handler only while `_let_signals_wake` runs."""
