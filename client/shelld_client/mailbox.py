"""What a request receives besides its answer: events, in the order of the wire.

Owns what was received and not yet taken. The thread that receives never waits for the one that
takes. So above a limit, the text of output is dropped and counts as skipped; the daemon still has
it. Every event keeps its place and its number.
"""

from __future__ import annotations

import collections
import queue
from typing import Final, TypeAlias

import anyio

from shelld_client.errors import ShellError
from shelld_protocol.event_methods import Event, OutputEvent

# The most text of output that waits, in characters.
MAX_HELD_CHARACTERS: Final = 8 * 1024 * 1024

# An event, the result of the request (JSON), or the error of either.
Item: TypeAlias = Event | bytes | ShellError


class _Held:
    """Counts the text that waits. One thread writes `_received`, the other one `_taken`."""

    _received = 0
    _taken = 0

    def _admit(self, event: Event) -> Event:
        if isinstance(event, OutputEvent):
            if self._received - self._taken > MAX_HELD_CHARACTERS:
                event.skipped += event.end - event.start
                event.text, event.start, event.dropped = "", event.end, 0
            self._received += len(event.text)
        return event

    def _take(self, item: Item) -> Item:
        if isinstance(item, OutputEvent):
            self._taken += len(item.text)
        return item


class Mailbox(_Held):
    """For threads."""

    def __init__(self) -> None:
        self._items: queue.SimpleQueue[Item] = queue.SimpleQueue()

    def put(self, answer: bytes | ShellError) -> None:
        self._items.put(answer)

    def hear(self, event: Event) -> None:
        self._items.put(self._admit(event))

    def get(self) -> Item:
        return self._take(self._items.get())

    def answer(self) -> bytes | ShellError:
        """Wait for the answer. Drops the events before it."""
        while True:
            if not isinstance(item := self.get(), Event):
                return item


class AsyncMailbox(_Held):
    """For the tasks of one event loop. Only one of them takes."""

    def __init__(self) -> None:
        self._items: collections.deque[Item] = collections.deque()
        self._filled = anyio.Event()

    def put(self, answer: bytes | ShellError) -> None:
        self._append(answer)

    def hear(self, event: Event) -> None:
        self._append(self._admit(event))

    def _append(self, item: Item) -> None:
        self._items.append(item)
        self._filled.set()

    async def get(self) -> Item:
        while not self._items:
            self._filled = anyio.Event()
            await self._filled.wait()
        return self._take(self._items.popleft())

    async def answer(self) -> bytes | ShellError:
        """Wait for the answer. Drops the events before it."""
        while True:
            if not isinstance(item := await self.get(), Event):
                return item
