"""Represents a request, whose events and answer a caller takes one by one, for `AsyncClient`.

`ongoing.py` has the same code without await, for `Client`. `make sync` makes it from this file.

Until `end`, owns the request, the request's listener, and the subscriptions that the request has
begun.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeAlias
from weakref import ref

from shelld_client import calls
from shelld_client.async_mailbox import AsyncMailbox
from shelld_client.calls import Call
from shelld_client.connection import Connection
from shelld_client.errors import ProtocolError, RequestCancelled, ShellError, TargetLost
from shelld_client.mailbox import End, Item
from shelld_client.reconnects import is_repeatable
from shelld_client.results import subscription_in
from shelld_protocol.event_methods import Event

SendLater: TypeAlias = Callable[[Call[Any]], None]


class AsyncOngoing:
    """Sends a request.

    Raises `ShellError` if the request cannot be sent, and the exceptions that `check` raises. If
    `send_later` is given, another request can continue this request after the connection was lost.
    `send_later` sends a call on the next connection, and ignores its answer.

    `check` is called once the request is registered with the connection. `check_taker` raises an
    exception if nothing could wake the task or thread that calls it. Call `check_taker` before you
    wait for an item, and before you wait for another task or thread that takes an item.
    """

    # `__del__` reads this value if `__init__` has failed.
    _has_ended = True

    def __init__(
        self,
        connection: Connection[Any],
        send: Callable[[bytes], None],
        mailbox: AsyncMailbox,
        call: Call[Any],
        *,
        check: Callable[[], None],
        check_taker: Callable[[], None],
        send_later: SendLater | None = None,
    ) -> None:
        self.check_taker = check_taker
        self._send_later = send_later
        self._connection = connection
        self._send = send
        self._mailbox = mailbox
        self._call = call
        self._id = connection.new_id()
        # The name of a subscription. Until the answer comes, this is the subscription that the
        # request continues. After the answer, it is the subscription that the request owns.
        self._subscription = str(call.params.get("subscription") or "")
        # The id of the request that owned the subscription before this request, or None.
        self._taken_from: int | None = None
        self._has_withdrawn = False
        mailbox.on_answer = _weakly(self)
        self._has_ended = False
        connection.listen(self._id, mailbox)
        try:
            if self._subscription:
                connection.ownership.expect(self._subscription, self._id)
            frame = connection.call(self._id, call.method, call.params, mailbox)
            check()
            send(frame)
        except Exception:
            # The request was not sent. An interrupt, such as KeyboardInterrupt, does not come here,
            # because it is not an Exception. After an interrupt, the request may have been sent,
            # and `__del__` ends it.
            self.end()
            raise

    def __del__(self) -> None:
        self.abandon()

    @property
    def subscription(self) -> str:
        """The name of the subscription that this request owns, or "" if it owns none."""
        return self._subscription

    def can_be_continued(self, error: object) -> bool:
        """Return whether another request can continue this request after `error`."""
        return self._send_later is not None and was_cut(error)

    def can_be_repeated(self, error: object) -> bool:
        """Return whether the same call can be sent again after `error`."""
        return self.can_be_continued(error) and is_repeatable(self._call)

    @property
    def is_cut(self) -> bool:
        """Whether this connection has ended and another one may take its place."""
        return self._send_later is not None and self._connection.is_over

    async def next(self) -> Item:
        """Wait for the next item: an event, the answer, or `End`, after which nothing comes."""
        item = await self._mailbox.get()
        self._connection.write_log()
        return item

    async def answer(self) -> bytes:
        """Wait for the answer.

        Raises `ShellError` if the answer is an error, or if an event comes before the answer.
        """
        item = await self.next()
        if isinstance(item, ShellError):
            raise item
        if isinstance(item, End):
            raise item.why
        if isinstance(item, Event):
            raise ProtocolError("the peer sent an event before its answer")
        return item

    async def next_event(self) -> Event | None:
        """Wait for the next event; return None if no more events come. Raises `ShellError`."""
        while not isinstance(item := await self.next(), Event):
            if isinstance(item, End):
                if item.error is not None:
                    raise item.error
                return None
        return item

    def stop_listening(self) -> None:
        """Take no more events, and wake the callers that wait in `next`.

        The subscription does not end, so it can be continued.
        """
        self._connection.unlisten(self._id)
        self._mailbox.end()

    def leave_to_next(self) -> None:
        """Stop listening. Leave the subscription to the request that continues it."""
        self.stop_listening()
        self._has_ended = True

    def withdraw(self) -> None:
        """Stop listening, and give up the subscription without ending it.

        If the daemon has not answered the request yet, its answer will still continue the
        subscription. After that, another request can continue the subscription again, or end it.
        """
        # First set the flag, then withdraw the claim. `answered` first claims the subscription, and
        # then reads the flag. So if both methods run at the same time, the one that ends last
        # withdraws the claim.
        self._has_withdrawn = True
        self.leave_to_next()
        self._connection.ownership.withdraw(self._subscription, self._id)

    def end(self) -> None:
        """Stop listening.

        Cancels the request, unless it was answered. Ends its subscription, unless another request
        has continued the subscription. If an interrupt stops this method early, call it again to do
        the remaining steps.
        """
        self.stop_listening()
        self._cancel()
        # Forget the request only after its cancellation was sent.
        self._connection.cancel(self._id)
        self._leave()
        self._has_ended = True

    def answered(self, answer: bytes | ShellError) -> None:
        """Handle the answer. The connection passes answers on in the order in which they arrive.

        If several requests have continued a subscription, the daemon sends the events to the
        request that it answered last.
        """
        if self._call.note is not None:
            self._call.note(answer)
        if isinstance(answer, ShellError):
            self._leave()
            return
        if name := subscription_in(answer):
            self._subscription = name
            self._taken_from = self._connection.claim(name, self._id)
            if self._has_withdrawn:
                self._connection.ownership.withdraw(name, self._id)

    def _leave(self) -> None:
        name = self._subscription
        if name and self._connection.ownership.leave(name, self._id):
            self._unsubscribe(name)
        self._subscription = ""

    def _unsubscribe(self, name: str) -> None:
        self.send_only(calls.unsubscribe(name))
        self._connection.ownership.ended(name)

    def abandon(self) -> None:
        """Cancel the request. If the cancellation comes too late, end what the request has begun.

        If the connection is lost before the answer comes, and the request has a key, the client
        does the same on its next connection.

        This method waits for nothing, because the caller may have been interrupted. If the request
        has taken a subscription from another reader, it gives the subscription back. That reader
        then owns the subscription again: when the reader leaves, it ends the subscription. But the
        reader receives no more events. If an interrupt stops this method early, call it again to do
        the remaining steps.
        """

        def undo(answer: bytes | ShellError) -> None:
            if isinstance(answer, ShellError):
                again = calls.find_again(self._call)
                if self._send_later is not None and again is not None and was_cut(answer):
                    self._send_later(again)
                elif isinstance(answer, RequestCancelled) and "bash_id" in answer.data:
                    # If a request with a key is cancelled while a target starts its command, the
                    # daemon leaves the command running. Kill it by its id, because another request
                    # may have begun a command with the same key by now.
                    self.send_only(calls.kill_shell(answer.data["bash_id"], {}))
                return
            if self._taken_from is not None:
                ownership = self._connection.ownership
                ownership.give_back(self._subscription, self._id, self._taken_from)
            self._leave()
            with suppress(ShellError):
                if (kill := calls.kill_if_running(self._call, answer)) is not None:
                    self.send_only(kill)

        if self._has_ended:
            return
        self._cancel()
        self.stop_listening()
        self._mailbox.abandon(undo)
        # If an interrupt came before the request was sent, no answer will come.
        name = self._subscription
        if name and self._connection.ownership.renounce(name, self._id):
            self._unsubscribe(name)
        self._has_ended = True

    def _cancel(self) -> None:
        if cancellation := self._connection.ask_to_cancel(self._id):
            self._send(cancellation)

    def send_only(self, call: Call[Any]) -> None:
        """Send a request, and ignore the answer. If the connection is lost, repeat the request."""
        send_only(self._connection, self._send, call, self._send_later)


def was_cut(error: object) -> bool:
    """Return whether an error says only that the connection was lost."""
    # If the daemon has sent the `TargetLost`, the error has a code, and says that a target was
    # lost.
    return isinstance(error, TargetLost) and error.code is None


def send_only(
    connection: Connection[Any],
    send: Callable[[bytes], None],
    call: Call[Any],
    send_later: SendLater | None,
) -> None:
    """Send a request, and ignore its answer. If the connection is lost, pass the call to
    `send_later`.

    If the request begins or finds a subscription, end this subscription. If it finds a command,
    kill the command. The daemon may get the request twice.
    """

    def answered(answer: bytes | ShellError) -> None:
        if isinstance(answer, bytes):
            if name := subscription_in(answer):
                # Nobody reads the events.
                send_only(connection, send, calls.unsubscribe(name), send_later)
            with suppress(ShellError):
                if (kill := calls.kill_if_running(call, answer)) is not None:
                    send_only(connection, send, kill, send_later)
        elif send_later is not None and was_cut(answer):
            send_later(call._replace(losses=call.losses + 1))

    mailbox = AsyncMailbox()
    mailbox.on_answer = answered
    request_id = connection.new_id()
    with suppress(ShellError):
        frame = connection.call(request_id, call.method, call.params, mailbox)
        send(frame)
        if call.method == "bash" and not call.params.get("run_in_background"):
            # The cancellation kills the command, unless another request waits for it. The daemon
            # answers a background request at once, so its command must be killed after the answer.
            send(connection.ask_to_cancel(request_id))
    if send_later is not None and connection.is_over:
        send_later(call)


def _weakly(ongoing: AsyncOngoing) -> Callable[[bytes | ShellError], None]:
    """Return a function that passes the answer to `ongoing`. The function has only a weak reference
    to `ongoing`.
    """
    weak = ref(ongoing)

    def pass_on(answer: bytes | ShellError) -> None:
        if (found := weak()) is not None:
            found.answered(answer)

    return pass_on
