"""To be called whenever a descriptor is readable, or one of several.

`anyio.wait_readable` tells the kernel twice for each wait: that somebody waits, and that nobody
does any more; and whoever waits is woken one turn of the event loop after the news. For a request,
that takes as long as to decode it. Where asyncio runs the event loop, this tells the kernel once,
and is called with the news itself.
"""

from __future__ import annotations

import asyncio
import select
import selectors
from collections.abc import Callable
from typing import Final, Protocol

import anyio

READABLE: Final = getattr(select, "EPOLLIN", selectors.EVENT_READ)


class Poller(Protocol):
    """Several descriptors, for which one stands: as `select.epoll` is."""

    def register(self, fd: int, eventmask: int) -> None: ...

    def unregister(self, fd: int) -> None: ...

    def poll(self, timeout: float) -> list[tuple[int, int]]: ...

    def fileno(self) -> int: ...

    def close(self) -> None: ...


class KqueuePoller:
    """Where there is no epoll: what `selectors` has instead."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()

    def register(self, fd: int, eventmask: int) -> None:
        self._selector.register(fd, eventmask)

    def unregister(self, fd: int) -> None:
        self._selector.unregister(fd)

    def poll(self, timeout: float) -> list[tuple[int, int]]:
        return [(key.fd, events) for key, events in self._selector.select(timeout)]

    def fileno(self) -> int:
        return self._selector.fileno()

    def close(self) -> None:
        self._selector.close()


def new_poller() -> Poller:
    """Return one for `READABLE` descriptors, which are polled for without waiting."""
    # Without a Python object for each of them, which `selectors` makes.
    return select.epoll() if hasattr(select, "epoll") else KqueuePoller()


async def watch(descriptor: int, on_readable: Callable[[], bool]) -> None:
    """Call `on_readable` whenever there is something to read, or the end, until it returns True.

    It must read, as it is called again otherwise. What it raises is raised here.
    """
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        await anyio.wait_readable(descriptor)
        while not on_readable():
            await anyio.wait_readable(descriptor)
        return
    is_over = loop.create_future()

    def call() -> None:
        # Also between its end and the moment when this task learns of it.
        if is_over.done():
            return
        try:
            has_ended = on_readable()
        except Exception as error:
            if is_over.done():
                raise
            is_over.set_exception(error)
        else:
            # It may have cancelled the task that waits.
            if has_ended and not is_over.done():
                is_over.set_result(None)

    loop.add_reader(descriptor, call)
    try:
        await is_over
    finally:
        loop.remove_reader(descriptor)


def event_loop_clock() -> Callable[[], float]:
    """Return what tells the event loop's time, on which its deadlines are. Of the running one.

    `anyio.current_time` finds out anew each time, which it can only where a task calls it.
    """
    try:
        return asyncio.get_running_loop().time
    except RuntimeError:
        return anyio.current_time
