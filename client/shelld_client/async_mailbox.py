"""Holds the events and the answer of a request, for `AsyncClient`.

This class is not in `mailbox.py`, so that `Client` imports no event loop.
"""

from __future__ import annotations

import collections
from typing import ClassVar

import anyio

from shelld_client.mailbox import BaseMailbox, Item


class AsyncMailbox(BaseMailbox):
    """A mailbox for the tasks of one event loop."""

    # A cancellation can come only at an await, and `get` takes the item after its last await, so no
    # item is lost.
    MAY_LOSE_ITEMS: ClassVar = False

    def __init__(self) -> None:
        super().__init__()
        self._items: collections.deque[Item] = collections.deque()
        self._filled = anyio.Event()

    def _append(self, item: Item) -> None:
        self._items.append(item)
        self._filled.set()

    async def get(self) -> Item:
        while not self._items:
            if self._filled.is_set():
                self._filled = anyio.Event()
            await self._filled.wait()
        return self._took(self._items.popleft())
