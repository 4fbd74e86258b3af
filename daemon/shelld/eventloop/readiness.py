"""What tasks wait for: something to read, a moment, a word of another task. On asyncio.

`anyio.wait_readable` tells the kernel twice for each wait: that somebody waits, and that nobody
does any more; and the task is woken one turn of the event loop after the event. An
`anyio.Event` and a scope with a deadline ask several times which event loop runs. For a request,
each of them takes as long as to decode it. `Watch` tells the kernel once and is called with the
news itself, and all three are what asyncio has.
"""

from __future__ import annotations

import asyncio
import math
import select
from collections.abc import Callable
from typing import Final, NamedTuple

# Pollers that are kept for later.
MAX_IDLE: Final = 8

READABLE: Final = select.EPOLLIN


class Watch:
    """Calls a function whenever a descriptor is readable, while one task waits for that.

    The function returns whether to stop waiting. It must read, or it is called again. It runs
    outside of tasks, so it must not use what only tasks have. `wait` raises its exceptions.
    """

    def __init__(self, descriptor: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._descriptor = descriptor
        # Also after a wait, for the next one.
        self._is_registered = False
        # While somebody waits.
        self._on_readable: Callable[[], bool] | None = None
        self._is_over: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._until = math.inf

    async def wait(self, on_readable: Callable[[], bool], until: float = math.inf) -> None:
        """Wait until it is enough or, on the event loop's clock, `until`."""
        try:
            self._on_readable = on_readable
            self._is_over = self._loop.create_future()
            self.set_deadline(until)
            if not self._is_registered:
                self._loop.add_reader(self._descriptor, self._call)
                self._is_registered = True
            await self._is_over
        finally:
            if self._timer is not None:
                self._timer.cancel()
            self._on_readable = self._is_over = self._timer = None
            self._until = math.inf

    def set_deadline(self, until: float) -> None:
        """Wait no longer than `until`, if anybody waits."""
        if self._is_over is None or until >= self._until:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._until = until
        self._timer = self._loop.call_at(until, self._end)

    def _call(self) -> None:
        is_over = self._is_over
        # Also between its end and the moment when the task learns of it.
        if self._on_readable is None or is_over is None or is_over.done():
            self.close()
            return
        try:
            is_enough = self._on_readable()
        except Exception as error:
            if is_over.done():
                raise
            is_over.set_exception(error)
        else:
            if is_enough:
                self._end()

    def _end(self) -> None:
        try:
            # The task that waits may have been cancelled.
            if self._is_over is not None and not self._is_over.done():
                self._is_over.set_result(None)
        except Exception:
            # Nobody else would end the wait.
            self._loop.call_soon(self._end)
            raise

    def close(self) -> None:
        """Forget the descriptor. To be called before that is closed."""
        if self._is_registered:
            self._is_registered = False
            self._loop.remove_reader(self._descriptor)


class WatchedPoller(NamedTuple):
    poller: select.epoll
    watch: Watch

    def close(self) -> None:
        self.watch.close()
        self.poller.close()


class PollerPool:
    """Pollers that wait for their next use.

    With a new one for each command, `true` takes 2 % longer.
    """

    def __init__(self) -> None:
        self._idle: list[WatchedPoller] = []

    def take(self) -> WatchedPoller:
        """Raises OSError where the system is short of something."""
        if self._idle:
            return self._idle.pop()
        poller = select.epoll()
        return WatchedPoller(poller, Watch(poller.fileno()))

    @property
    def has_room(self) -> bool:
        return len(self._idle) < MAX_IDLE

    def give_back(self, watched: WatchedPoller) -> None:
        """Take back a poller. One that is kept, as there is room, has no descriptors."""
        if self.has_room:
            self._idle.append(watched)
        else:
            watched.close()

    def close(self) -> None:
        while self._idle:
            self._idle.pop().close()


class Wakeup:
    """What one task waits for, once, and others, on the same event loop, wake it with."""

    __slots__ = ("_is_set",)

    def __init__(self) -> None:
        self._is_set: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def wait(self) -> None:
        """Wait until it is set."""
        await self._is_set

    def set(self) -> None:
        # The task that waits may have been cancelled.
        if not self._is_set.done():
            self._is_set.set_result(None)
