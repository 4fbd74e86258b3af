"""Lets tasks on asyncio wait at little cost: for input, for a deadline, or for another task.

Each of the following waits in anyio costs as much time as decoding a request. For each wait,
`anyio.wait_readable` registers the descriptor with the kernel and unregisters it. It wakes the task
one turn of the event loop later than necessary. An `anyio.Event` looks up the running event loop
several times, and so does a scope with a deadline. The waits in this module use asyncio directly. A
`Watch` registers its descriptor only once, and the event loop calls the `Watch` directly.
"""

from __future__ import annotations

import asyncio
import math
import select
from collections.abc import Callable
from typing import Final, NamedTuple

# The maximum number of idle pollers that are kept for reuse.
MAX_IDLE: Final = 8

READABLE: Final = select.EPOLLIN
WRITABLE: Final = select.EPOLLOUT


class Watch:
    """Calls a function whenever a descriptor is readable, but only while a task waits.

    The function returns whether to stop waiting. It must read the descriptor. Otherwise the event
    loop calls the function again. The function runs outside all tasks, so it must not use code that
    needs a task. `wait` raises the function's exceptions.
    """

    def __init__(self, descriptor: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._descriptor = descriptor
        # Whether the event loop watches the descriptor. The event loop also watches the descriptor
        # between two waits.
        self._is_registered = False
        # These attributes are None unless a task waits.
        self._on_readable: Callable[[], bool] | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._until = math.inf

    async def wait(self, on_readable: Callable[[], bool], until: float = math.inf) -> None:
        """Wait until `on_readable` returns True or the event loop's clock reaches `until`."""
        try:
            self._on_readable = on_readable
            self._waiter = self._loop.create_future()
            self.set_deadline(until)
            if not self._is_registered:
                self._loop.add_reader(self._descriptor, self._call)
                self._is_registered = True
            await self._waiter
        finally:
            if self._timer is not None:
                self._timer.cancel()
            self._on_readable = self._waiter = self._timer = None
            self._until = math.inf

    def set_deadline(self, until: float) -> None:
        """If a task waits now, end its wait at `until`, unless the wait ends earlier."""
        if self._waiter is None or until >= self._until:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._until = until
        self._timer = self._loop.call_at(until, self._end)

    def _call(self) -> None:
        waiter = self._waiter
        # No task waits, or the wait has ended but the task has not run yet.
        if self._on_readable is None or waiter is None or waiter.done():
            self.close()
            return
        try:
            is_enough = self._on_readable()
        except Exception as error:
            if waiter.done():
                raise
            waiter.set_exception(error)
        else:
            if is_enough:
                self._end()

    def _end(self) -> None:
        try:
            # If the waiting task was cancelled, its future is already done.
            if self._waiter is not None and not self._waiter.done():
                self._waiter.set_result(None)
        except Exception:
            # Try again in the next turn, because nothing else would end the wait.
            self._loop.call_soon(self._end)
            raise

    def close(self) -> None:
        """Unregister the descriptor. Call this method before you close the descriptor. If this
        method fails, call it again.

        If the event loop kept a closed descriptor, it would not watch the next file that gets this
        descriptor number.
        """
        if self._is_registered:
            self._loop.remove_reader(self._descriptor)
            self._is_registered = False


class WatchedPoller(NamedTuple):
    poller: select.epoll
    watch: Watch

    def close(self) -> None:
        self.watch.close()
        self.poller.close()


class PollerPool:
    """Keeps idle pollers for reuse.

    With a new poller for each command, `true` takes 2 % longer.
    """

    def __init__(self) -> None:
        self._idle: list[WatchedPoller] = []

    def take(self) -> WatchedPoller:
        """Return a poller. Raises OSError if the system is short of a resource."""
        if self._idle:
            return self._idle.pop()
        poller = select.epoll()
        return WatchedPoller(poller, Watch(poller.fileno()))

    @property
    def has_room(self) -> bool:
        return len(self._idle) < MAX_IDLE

    def give_back(self, watched: WatchedPoller) -> None:
        """Take back a poller.

        If `has_room` is true, the caller must first unregister all descriptors from the poller.
        """
        if self.has_room:
            self._idle.append(watched)
        else:
            watched.close()

    def close(self) -> None:
        while self._idle:
            self._idle.pop().close()


class Wakeup:
    """Lets one task wait once, until another task on the same event loop wakes it."""

    __slots__ = ("_waiter",)

    def __init__(self) -> None:
        self._waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def wait(self) -> None:
        """Wait for a call of `set`."""
        await self._waiter

    def set(self) -> None:
        # If the waiting task was cancelled, its future is already done.
        if not self._waiter.done():
            self._waiter.set_result(None)
