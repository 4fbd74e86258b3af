"""Holds the events and the answer of a request in the order in which they arrive.

Owns the items that were received but not yet taken. The receiving thread never waits for the thread
that takes the items. So if the text of output exceeds a limit, the mailbox drops text, which then
counts as skipped. The daemon still has this output. Every event keeps its place and its number.
"""

from __future__ import annotations

import queue
from collections.abc import Callable
from typing import ClassVar, Final, NamedTuple, TypeAlias

from shelld_client.errors import ShellError
from shelld_protocol.event_methods import Event, OutputEvent

# The maximum number of characters of output that was received and not yet taken.
MAX_HELD_CHARACTERS: Final = 8 * 1024 * 1024


class End(NamedTuple):
    """Marks that no more items will come.

    The cause is `error`. If `error` is None, the caller itself has ended the request.
    """

    error: ShellError | None = None

    @property
    def why(self) -> ShellError:
        """Return the error for a caller that still expects an item."""
        return self.error or ShellError("the request was ended before its answer")


# An item is an event, the result of the request (JSON), its error, or the end of all items.
Item: TypeAlias = Event | bytes | ShellError | End


class BaseMailbox:
    """Counts the text that was not yet taken.

    Only the receiving thread sets `_received`. Only the thread that takes the items sets `_taken`.
    """

    def __init__(self) -> None:
        self._received = 0
        self._taken = 0
        # This function is called with the answer when it arrives, before anybody can take it. The
        # function must neither wait nor raise.
        self.on_answer: Callable[[bytes | ShellError], None] | None = None
        # If nobody will take the answer from the mailbox, this function is called with the answer.
        self._abandoned: Callable[[bytes | ShellError], None] | None = None
        self._answer: bytes | ShellError | None = None
        # Whether `fail` or `end` has added an `End`. A second end would hide the first one's error
        # from some calls of `get`, because `get` puts each end back behind the other.
        self._has_end = False

    def _append(self, item: Item) -> None:
        raise NotImplementedError

    def put(self, answer: bytes | ShellError) -> None:
        """Add the answer to the request."""
        if self.on_answer is not None:
            self.on_answer(answer)
        self._answer = answer
        self._append(answer)
        self._tell_abandoned()

    def fail(self, error: ShellError) -> None:
        """Add an `End` with `error`, because no more items will come."""
        self._add_end(End(error))

    def end(self) -> None:
        """Add an `End`, which wakes all waiting callers."""
        self._add_end(End())

    def _add_end(self, end: End) -> None:
        if not self._has_end:
            self._append(end)
            # Set this last: if an interrupt comes before this line, the next call of this method
            # still adds the end.
            self._has_end = True

    def take_event(self, event: Event) -> None:
        if isinstance(event, OutputEvent):
            if self._received - self._taken > MAX_HELD_CHARACTERS:
                event.skipped += event.end - event.start
                event.text, event.start, event.dropped = "", event.end, 0
            self._received += len(event.text)
        self._append(event)

    def abandon(self, take_answer: Callable[[bytes | ShellError], None]) -> None:
        """Pass the answer to a function when the answer comes, or at once if it is already here."""
        self._abandoned = take_answer
        self._tell_abandoned()

    def _tell_abandoned(self) -> None:
        # Read each attribute once, because two threads may run this code at the same time.
        take, answer = self._abandoned, self._answer
        if take is not None and answer is not None:
            self._abandoned = None
            take(answer)

    def _took(self, item: Item) -> Item:
        if isinstance(item, OutputEvent):
            self._taken += len(item.text)
        elif isinstance(item, End):
            # Put the end back for other callers that wait, and for later calls of `get`.
            self._append(item)
        return item


class Mailbox(BaseMailbox):
    """A mailbox for threads."""

    # A signal handler may raise after the item was taken, and before the caller has it.
    MAY_LOSE_ITEMS: ClassVar = True

    def __init__(self) -> None:
        super().__init__()
        self._items: queue.SimpleQueue[Item] = queue.SimpleQueue()

    def _append(self, item: Item) -> None:
        self._items.put(item)

    def get(self) -> Item:
        return self._took(self._items.get())
