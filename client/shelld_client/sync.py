"""`Client`: the methods of `AsyncClient` without await, for any number of threads.

The calling thread hands its request to the pump's thread and waits until that thread delivers the
answer. If a call is interrupted while it waits (KeyboardInterrupt), it is cancelled in the daemon.
A forked child cannot use its parent's client.

Finalisers and signal handlers can use the client, whatever they interrupt. A finaliser that the
garbage collector runs in a pump's thread gets no answer: its request is sent, and the call raises
`ShellError`. While the interpreter shuts down, calls send nothing and raise `ShellError`.
"""

from __future__ import annotations

import copy
import queue
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from os import PathLike
from types import TracebackType
from typing import Any, Self, TypeAlias, TypeVar

from shelld_client import calls
from shelld_client.calls import Call, Undo
from shelld_client.child import START_TIMEOUT_S, SpawnedClient, message_limit, no_shelld
from shelld_client.connection import Connection
from shelld_client.errors import DaemonExited, ProtocolError, ShellError
from shelld_client.mailbox import Mailbox
from shelld_client.methods import Methods
from shelld_client.ongoing import Ongoing
from shelld_client.pump import Pump
from shelld_client.reentrant import may_wait

T = TypeVar("T")

Answer: TypeAlias = bytes | ShellError


class Client(SpawnedClient, Methods):
    """Use `spawn` and ``with``. Raises what `AsyncClient` raises."""

    def __init__(
        self,
        command: Sequence[str | PathLike[str]],
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | PathLike[str] | None = None,
        start_timeout: float | None = START_TIMEOUT_S,
    ) -> None:
        super().__init__(command, env=env, cwd=cwd, start_timeout=start_timeout)
        self._connection: Connection[queue.SimpleQueue[Answer] | Mailbox] = Connection(
            message_limit(self._command)
        )
        self._pump: Pump | None = None

    def __enter__(self) -> Self:
        if not may_wait():
            raise ShellError("no client can be entered in the thread of another, or at exit")
        self._enter_once()
        self._pump = Pump(self._start_child, self._receive, self._ended)
        try:
            begun_at = time.monotonic()
            self._pump.start(self._start_timeout)
            left = self._start_timeout
            if left is not None:
                left = max(0.0, left - (time.monotonic() - begun_at))
            self._request(calls.ping(), left)
        except BaseException as error:
            self._failure = self._failure or DaemonExited("the client is closed")
            self._pump.close(patiently=False)
            if isinstance(error, ShellError):
                raise no_shelld(error) from None
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._pump is None:
            raise RuntimeError("the client was not entered")
        if self._is_forked:
            self._pump.release()
            return
        try:
            self._failure = self._failure or DaemonExited("the client is closed")
        finally:
            self._pump.close()
        self._connection.write_log()

    def _request(self, call: Call[T], timeout: float | None = None) -> T:
        """Return the daemon's answer. `timeout` (seconds) is set only for the first answer."""
        pump = self._usable_pump(call)
        answers: queue.SimpleQueue[Answer] = queue.SimpleQueue()
        request_id = self._connection.new_id()
        try:
            frame = self._connection.call(request_id, call.method, call.params, answers)
            # Check again: if the client has failed since the first check, `_ended` has not seen
            # this call.
            self._raise_if_unusable()
            pump.send(frame)
            if not may_wait():
                self._connection.cancel(request_id)
                raise ShellError(f"{call.method} is sent, but nobody can wait here for the answer")
            answer = answers.get(timeout=timeout and min(timeout, threading.TIMEOUT_MAX))
        except BaseException as error:
            # The caller no longer waits: end the call in the daemon, too.
            if cancellation := self._connection.cancel(request_id):
                pump.send(cancellation)
            if isinstance(error, queue.Empty):
                raise self._no_answer(self._connection.said) from None
            raise
        self._connection.write_log()
        if isinstance(answer, ShellError):
            raise answer
        return call.decode(answer)

    def _usable_pump(self, call: Call[Any]) -> Pump:
        """Return the pump. Raises `ShellError`."""
        self._raise_if_unusable()
        assert self._pump is not None
        if sys.is_finalizing():
            # The pump's thread has stopped.
            raise ShellError(f"{call.method} is not sent: the interpreter is shutting down")
        return self._pump

    def _finish(self, call: Call[T]) -> T:
        return self._request(call)

    def _check_taker(self) -> None:
        self._raise_if_forked()
        if not may_wait():
            raise ShellError("nobody can wait here for the next item")

    def _begin(self, call: Call[Any], undo: Undo) -> Ongoing:
        pump = self._usable_pump(call)
        if not may_wait():
            raise ShellError(f"{call.method} is not sent: nobody can wait here for its events")
        return Ongoing(
            self._connection,
            pump.send,
            Mailbox(),
            call,
            # If the client has failed since the first check, `_ended` has not seen this call.
            check=self._raise_if_unusable,
            check_taker=self._check_taker,
            undo=undo,
        )

    # -- in the pump's thread ---------------------------------------------------------------

    def _receive(self, data: bytes) -> None:
        for answers, answer in self._connection.receive(data):
            answers.put(answer)

    def _ended(self, error: ProtocolError | None) -> None:
        """Make all calls, present and future, fail: no more answers will come."""
        assert self._child is not None
        # Set it first, so that a call that is not yet pending sees it.
        self._failure = failure = (
            self._failure or error or self._child.post_mortem(self._connection.said)
        )
        for answers in self._connection.take_pending():
            answers.put(copy.copy(failure))
        for listener in self._connection.take_listeners():
            listener.fail(copy.copy(failure))
