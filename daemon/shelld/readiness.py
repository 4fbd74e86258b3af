"""To wait for a descriptor to become readable, again and again.

`anyio.wait_readable` tells the kernel twice for each wait: that somebody waits, and that nobody
does any more. For a request, that takes as long as to decode it. This tells it once.
"""

from __future__ import annotations

import asyncio

import anyio


class Readiness:
    """Of one descriptor, for one task at a time. To be closed before the descriptor is.

    Where it is not asyncio that runs the event loop, this is `anyio.wait_readable`.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._is_watched = False

    async def wait(self) -> None:
        """Return once there is something to read, or the end."""
        if self._loop is None:
            try:
                self._loop = asyncio.get_running_loop()
            except RuntimeError:
                await anyio.wait_readable(self._descriptor)
                return
        if not self._is_watched:
            self._is_watched = True
            self._loop.add_reader(self._descriptor, self._on_ready)
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _on_ready(self) -> None:
        if self._waiter is None:
            # Nobody has come back for more, and to be told again and again would take all time.
            self.close()
        elif not self._waiter.done():
            self._waiter.set_result(None)

    def close(self) -> None:
        """Tell the kernel that nobody waits, until the next `wait`."""
        if self._is_watched:
            self._is_watched = False
            assert self._loop is not None
            self._loop.remove_reader(self._descriptor)
