"""A request whose events and answer are taken one by one, for `AsyncClient`.

`ongoing.py` has the same without await, for `Client`. `make sync` makes it from this file.

Owns the request until `end`: its place among those who listen, and the subscriptions it has begun.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from shelld_client import calls
from shelld_client.calls import Call
from shelld_client.connection import Connection
from shelld_client.errors import ProtocolError, ShellError
from shelld_client.mailbox import AsyncMailbox, End, Item
from shelld_client.results import subscription_in
from shelld_protocol.event_methods import Event


class AsyncOngoing:
    """Sends a request. Raises `ShellError` if that is impossible."""

    def __init__(
        self,
        connection: Connection[Any],
        send: Callable[[bytes], None],
        mailbox: AsyncMailbox,
        call: Call[Any],
    ) -> None:
        self._connection = connection
        self._send = send
        self._mailbox = mailbox
        self._id = connection.new_id()
        # The subscription that it continues, and then the one that it owns.
        self._subscription = str(call.params.get("subscription") or "")
        self._has_taken_over = False
        mailbox.on_answer = self._answered
        connection.listen(self._id, mailbox)
        try:
            if self._subscription:
                connection.ownership.expect(self._subscription, self._id)
            send(connection.call(self._id, call.method, call.params, mailbox))
        except BaseException:
            self.end()
            raise

    async def next(self) -> Item:
        """Wait for the next event, the answer, or the end."""
        item = await self._mailbox.get()
        self._connection.write_log()
        return item

    async def answer(self) -> bytes:
        """Wait for the answer, if it comes before all events. Raises `ShellError`."""
        item = await self.next()
        if isinstance(item, ShellError):
            raise item
        if isinstance(item, End):
            raise item.why
        if isinstance(item, Event):
            raise ProtocolError("the peer sent an event before its answer")
        return item

    async def next_event(self) -> Event | None:
        """Wait for the next event; return None at the end. Raises `ShellError`."""
        while not isinstance(item := await self.next(), Event):
            if isinstance(item, End):
                if item.error is not None:
                    raise item.error
                return None
        return item

    def end(self) -> None:
        """Listen no more, and let those go on who wait in `next`.

        Cancels the request, unless it was answered. Ends its subscription, unless another request
        has continued it.
        """
        self._connection.unlisten(self._id)
        if cancellation := self._connection.cancel(self._id):
            self._send(cancellation)
        self._leave()
        self._mailbox.end()

    def _answered(self, answer: bytes | ShellError) -> None:
        # The daemon sends events to the request that it has answered last, so the order counts.
        if isinstance(answer, ShellError):
            self._leave()
        elif name := subscription_in(answer):
            self._subscription = name
            self._has_taken_over = self._connection.claim(name, self._id)

    def _leave(self) -> None:
        name, self._subscription = self._subscription, ""
        if name and self._connection.ownership.leave(name, self._id):
            self.send_only(calls.unsubscribe(name))
            self._connection.ownership.ended(name)

    def abandon(
        self, undo: Callable[[bytes], Call[Any] | None], *, is_cancelled: bool = False
    ) -> None:
        """End the request, and undo what it does: `undo` returns the call for its result, if any.

        With `is_cancelled`, also cancel it. The daemon may have answered already, so that can come
        too late. This waits for nothing, because whoever calls it may have been interrupted.
        """

        def send_undo(answer: bytes) -> None:
            self._leave()
            with suppress(ShellError):
                if (call := undo(answer)) is not None:
                    self.send_only(call)

        if is_cancelled and (cancellation := self._connection.ask_to_cancel(self._id)):
            self._send(cancellation)
        self._leave_to(send_undo)

    def disown(self) -> None:
        """End the request, but not a subscription that it takes from another reader.

        That reader learns that nothing more comes. The subscription can be continued again.
        """

        def leave_to_others(_answer: bytes) -> None:
            if self._has_taken_over:
                self._connection.ownership.abandon(self._subscription, self._id)
            else:
                self._leave()

        self._leave_to(leave_to_others)

    def _leave_to(self, take_answer: Callable[[bytes], None]) -> None:
        self._connection.unlisten(self._id)
        self._mailbox.abandon(take_answer)
        self._mailbox.end()

    def send_only(self, call: Call[Any]) -> None:
        """Send a request whose answer nobody takes."""
        with suppress(ShellError):
            request_id = self._connection.new_id()
            frame = self._connection.call(request_id, call.method, call.params, AsyncMailbox())
            self._send(frame)
