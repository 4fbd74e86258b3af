"""Represents one connection of `Client`, with its pump and its half of the protocol.

Owns the requests that were sent on the connection, and the error that calls raise after a failure.
Never makes another connection. When a connection is lost, `Client` makes another link.

Invariant: once a link has failed, it sends nothing, and all its requests have ended.
"""

from __future__ import annotations

import copy
import queue
import threading
from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

from shelld_client.calls import Call
from shelld_client.child import Child
from shelld_client.connection import Connection
from shelld_client.errors import ProtocolError, ShellError
from shelld_client.mailbox import Mailbox
from shelld_client.ongoing import Ongoing, SendLater, send_only
from shelld_client.pump import Pump
from shelld_client.reconnects import Reconnect
from shelld_client.reentrant import may_wait

T = TypeVar("T")

Answer: TypeAlias = bytes | ShellError


class LinkFailedError(Exception):
    """The link has failed, and the request was not sent."""


class TimedOutError(Exception):
    """There was no answer in time.

    This is not a TimeoutError, because a signal handler of the caller may raise a TimeoutError.
    """


class Link:
    """Create a link.

    `start_child` starts the process, in the thread of `pump`.

    When the link fails, `error_under_way` gets the link and the failure, and returns the error for
    the requests in flight. `reconnect` is None unless the client reconnects after a failure.
    """

    def __init__(
        self,
        start_child: Callable[[], Child],
        max_message_bytes: int,
        error_under_way: Callable[[Link, ShellError], ShellError],
        *,
        reconnect: Reconnect | None,
    ) -> None:
        self.connection: Connection[queue.SimpleQueue[Answer] | Mailbox] = Connection(
            max_message_bytes
        )
        self.pump = Pump(self._start, self._receive, self._ended)
        # The error that requests raise, or None while requests are possible.
        self.failure: ShellError | None = None
        self._start_child = start_child
        self._error_under_way = error_under_way
        self._reconnect = reconnect
        self._child: Child | None = None

    def exchange(self, call: Call[T], timeout: float | None = None) -> T:
        """Send a call, and return its answer.

        Raises `ShellError`, `LinkFailedError`, and `TimedOutError` after `timeout` seconds.
        """
        answers: queue.SimpleQueue[Answer] = queue.SimpleQueue()
        request_id = self.connection.new_id()
        try:
            frame = self.connection.call(request_id, call.method, call.params, answers)
            self.check()
            self.pump.send(frame)
            if not may_wait():
                self.connection.cancel(request_id)
                raise ShellError(f"{call.method} is sent, but nobody can wait here for the answer")
            answer = answers.get(timeout=timeout and min(timeout, threading.TIMEOUT_MAX))
        except BaseException as error:
            # The caller no longer waits, so end the call in the daemon as well.
            if cancellation := self.connection.cancel(request_id):
                self.pump.send(cancellation)
            if isinstance(error, queue.Empty):
                raise TimedOutError from None
            raise
        self.connection.write_log()
        if isinstance(answer, ShellError):
            raise answer
        return call.decode(answer)

    def begin(
        self,
        call: Call[Any],
        *,
        check_taker: Callable[[], None],
        send_later: SendLater | None,
    ) -> Ongoing:
        """Send a call; the caller takes its events one by one.

        Raises the same exceptions as `exchange`.
        """
        return Ongoing(
            self.connection,
            self.pump.send,
            Mailbox(),
            call,
            check=self.check,
            check_taker=check_taker,
            send_later=send_later,
        )

    def send_only(self, call: Call[Any], send_later: SendLater) -> None:
        """Send a call, and ignore its answer.

        If the link fails before the answer, pass the call to `send_later`.
        """
        send_only(self.connection, self.pump.send, call, send_later)

    def check(self) -> None:
        """Raise LinkFailedError if the link has failed.

        Call this method after the request was registered with the connection. If the link failed
        before that, the failure has not ended the request.
        """
        if self.failure is not None:
            raise LinkFailedError

    # -- in the pump's thread ---------------------------------------------------------------

    def _start(self) -> Child:
        self._child = self._start_child()
        return self._child

    def _receive(self, data: bytes) -> None:
        for answers, answer in self.connection.receive(data):
            answers.put(answer)

    def _ended(self, error: ProtocolError | None) -> None:
        """Make all current and future requests fail, because no more answers will come."""
        assert self._child is not None
        # Set the failure first, so that a request that is registered after the next step finds the
        # failure.
        self.failure = failure = self.failure or error or self._post_mortem(self._child)
        failure = self._error_under_way(self, failure)
        for answers in self.connection.take_pending():
            answers.put(copy.copy(failure))
        for listener in self.connection.take_listeners():
            listener.fail(copy.copy(failure))

    def _post_mortem(self, child: Child) -> ShellError:
        failure = child.post_mortem(self.connection.said)
        if self._reconnect is not None and self.connection.is_stolen:
            return self._reconnect.stolen(failure)
        return failure
