"""Provides `Client`, which has the methods of `AsyncClient` without await, for all threads.

The calling thread gives its request to the pump's thread, and waits until the pump's thread returns
the answer. If a KeyboardInterrupt interrupts a waiting call, the client cancels the call in the
daemon. A forked child cannot use its parent's client.

Finalisers and signal handlers can use the client, whatever they interrupt. A finaliser that the
garbage collector runs in a pump's thread gets no answer: its request is sent, and the call raises
`ShellError`. While the interpreter shuts down, calls send nothing and raise `ShellError`.

With `reconnect`, the thread that notices the lost connection reconnects, and other threads wait for
this thread. A finaliser or signal handler does not wait for the thread that it has interrupted.
"""

from __future__ import annotations

import copy
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from os import PathLike
from types import TracebackType
from typing import Any, Self, TypeVar

from shelld_client import calls
from shelld_client.calls import Call
from shelld_client.child import BLOCKED_S
from shelld_client.errors import DaemonExited, NoAnswer, ShellError, SpawnFailed
from shelld_client.link import Link, LinkFailedError, TimedOutError
from shelld_client.methods import Methods
from shelld_client.ongoing import Ongoing, was_cut
from shelld_client.reconnects import (
    RECONNECT_S,
    Losses,
    Reconnect,
    can_try_again,
    is_connection_lost,
    is_repeatable,
    pauses,
)
from shelld_client.reentrant import Latch, may_wait
from shelld_client.spawned_client import (
    LAST_ANSWERS_S,
    START_TIMEOUT_S,
    SpawnedClient,
    no_shelld,
)

T = TypeVar("T")


class Client(SpawnedClient, Methods):
    """Provides the daemon's methods.

    Use `spawn` and ``with``. Raises the same exceptions as `AsyncClient`.
    """

    def __init__(
        self,
        command: Sequence[str | PathLike[str]],
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | PathLike[str] | None = None,
        start_timeout: float | None = START_TIMEOUT_S,
        reconnect: Reconnect | None = None,
    ) -> None:
        super().__init__(
            command, env=env, cwd=cwd, start_timeout=start_timeout, reconnect=reconnect
        )
        # The link that calls use, even after it has failed.
        self._link: Link | None = None
        # The newest link. Calls may use a link only after the client has identified the daemon at
        # the other end.
        self._newest: Link | None = None
        # A thread holds this lock while it attaches to the daemon again. The lock is reentrant for
        # the reason in `AsyncItems`.
        self._attaching = threading.RLock()
        self._is_attaching = False
        # This is set once the `with` block of the client ends.
        self._leaving = Latch()

    def __enter__(self) -> Self:
        if not may_wait():
            raise ShellError("a client cannot be entered in another client's thread, or at exit")
        self._enter_once()
        try:
            self._link = self._connect(self._start_timeout)
        except ShellError as error:
            raise no_shelld(error) from None
        self._failure = None
        return self

    def _connect(self, timeout: float | None) -> Link:
        """Start the process, and return the link to it once the daemon has answered.

        Raises `ShellError` if the start fails, or after `timeout` seconds. Before this method
        raises an exception, it ends the process.
        """
        link = Link(
            self._start_child,
            self._message_limit,
            self._error_under_way,
            reconnect=self._reconnect,
        )
        self._newest = link
        begun_at = time.monotonic()

        def left() -> float | None:
            return timeout and max(0.001, timeout - (time.monotonic() - begun_at))

        try:
            if self._leaving.is_set:
                raise DaemonExited("the client is closed")
            link.pump.start(timeout)
            try:
                link.exchange(calls.ping(), left())
                if self._reconnect is not None:
                    self._reconnect.identify(link.exchange(calls.server_info(), left()).pid)
            except TimedOutError:
                raise self._no_answer(link.connection.said) from None
            except LinkFailedError:
                assert link.failure is not None
                raise copy.copy(link.failure) from None
        except BaseException:
            link.failure = link.failure or DaemonExited("the client is closed")
            link.pump.close(patiently=False)
            raise
        return link

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        newest = self._newest
        if newest is None:
            raise RuntimeError("the client was not entered")
        if self._is_forked:
            newest.pump.release()
            return
        link = self._link or newest
        closed = DaemonExited("the client is closed")
        patiently = False
        try:
            self._take_last_answers(link)
            patiently = True
        finally:
            # An interrupt may come during the wait for the last answers. The `with` block ends even
            # then, so no call may attach again.
            try:
                self._leaving.set()
                # If another thread attaches again, it sets `_newest` before it checks `_leaving`.
                # So either this method closes that thread's link, or that thread gives up.
                newest = self._newest or newest
                self._failure = self._failure or link.failure or closed
                link.failure = newest.failure = link.failure or closed
                if newest is not link:
                    newest.pump.close(patiently=False)
            finally:
                link.pump.close(patiently=patiently)
        if may_wait() and self._attaching.acquire(timeout=BLOCKED_S):
            # If another thread was trying to attach, its attempt is over by now.
            self._attaching.release()
        link.connection.write_log()

    def _take_last_answers(self, link: Link) -> None:
        """Take the answers that the daemon has sent already. This takes a bounded time.

        If such an answer says that an abandoned call has started a command, the client kills the
        command, which would otherwise go on in a lasting daemon.
        """
        if link.failure is None and link.connection.has_unanswered and may_wait():
            with suppress(ShellError, LinkFailedError, TimedOutError):
                link.exchange(calls.ping(), LAST_ANSWERS_S)

    def _request(self, call: Call[T]) -> T:
        begun_at, losses = time.monotonic(), Losses()
        while True:
            try:
                link = self._usable_link(call)
                losses.sent()
                return link.exchange(self._shortened(call, begun_at))
            except LinkFailedError:
                continue
            except ShellError as error:
                if self._reconnect is None or not (was_cut(error) and is_repeatable(call)):
                    raise
                if not losses.may_repeat():
                    raise
            except BaseException:
                self._give_up(call)
                raise

    def _shortened(self, call: Call[T], begun_at: float) -> Call[T]:
        """If the call may be sent again, return a copy that waits only for the remaining time."""
        if self._reconnect is None or not is_repeatable(call):
            return call
        return calls.with_time_left(call, time.monotonic() - begun_at)

    def _give_up(self, call: Call[Any]) -> None:
        """Kill the command of an interrupted call, even if the cancellation is lost."""
        if self._reconnect is not None and (again := calls.to_give_up(call)) is not None:
            self._send_later(again)

    def _usable_link(self, call: Call[Any]) -> Link:
        """Return the link. If the link has failed, reconnect. Raises `ShellError`."""
        while True:
            self._raise_if_unusable()
            link = self._link
            assert link is not None
            if sys.is_finalizing():
                # The pump's thread has stopped.
                raise ShellError(f"{call.method} is not sent: the interpreter is shutting down")
            if link.failure is None:
                return link
            if self._reconnect is None or not is_connection_lost(link.failure) or not may_wait():
                # Raise a copy, because raising an exception writes a traceback into it.
                raise copy.copy(link.failure)
            self._attach_again(self._reconnect, link.failure)

    def _may_reconnect(self, error: ShellError) -> bool:
        return self._reconnect is not None and can_try_again(error)

    def _repeatable(self, options: Mapping[str, Any]) -> Mapping[str, Any]:
        return options if self._reconnect is None else calls.repeatable(options)

    def _finish(self, call: Call[T]) -> T:
        return self._request(call)

    def _check_taker(self) -> None:
        self._raise_if_forked()
        if not may_wait():
            raise ShellError("nobody can wait here for the next item")

    def _begin(self, call: Call[Any]) -> Ongoing:
        send_later = None if self._reconnect is None else self._send_later
        while True:
            link = self._usable_link(call)
            if not may_wait():
                raise ShellError(f"{call.method} is not sent: nobody can wait here for its events")
            try:
                return link.begin(call, check_taker=self._check_taker, send_later=send_later)
            except LinkFailedError:
                continue

    # -- attaching again --------------------------------------------------------------------

    def _attach_again(self, reconnect: Reconnect, cause: ShellError) -> None:
        """Replace the link that has failed, unless another thread has done so."""
        before = reconnect.failure
        with self._attaching:
            if self._is_attaching:
                # This is a finaliser or signal handler that has interrupted the attempt in this
                # thread, so it must not wait for the attempt.
                raise copy.copy(cause)
            assert self._link is not None
            if self._link.failure is None or self._failure is not None:
                return
            if reconnect.failure not in (None, before):
                raise copy.copy(reconnect.failure)
            self._is_attaching = True
            try:
                self._link.pump.close(patiently=False)
                self._command, self._cwd = reconnect.command, None
                self._link = self._attached_link(cause)
            except ShellError as error:
                reconnect.failure = copy.copy(error)
                raise
            finally:
                self._is_attaching = False
        self._send_unsent()

    def _send_later(self, call: Call[Any]) -> None:
        assert self._reconnect is not None
        self._reconnect.send_later(call)
        self._send_unsent()

    def _send_unsent(self) -> None:
        """If calls are possible, repeat the calls that were left unanswered by lost connections."""
        reconnect, link = self._reconnect, self._link
        if reconnect is None or link is None or self._failure or link.failure:
            return
        for call in reconnect.take_unsent(link.connection.ownership):
            link.send_only(call, self._send_later)

    def _attached_link(self, cause: ShellError) -> Link:
        """Try to attach, for a limited time. Raises `ShellError`.

        `cause` is the failure of the last link.
        """
        give_up_at = time.monotonic() + RECONNECT_S
        failure = cause
        for pause in pauses():
            left = max(0.001, give_up_at - time.monotonic())
            try:
                return self._connect(min(left, self._start_timeout or left))
            except ShellError as error:
                if self._leaving.is_set:
                    raise DaemonExited("the client is closed") from None
                # If the total time limit has cut this attempt short, its error says nothing about
                # the cause.
                is_late = time.monotonic() > give_up_at
                is_cut_short = is_late and isinstance(error, NoAnswer | SpawnFailed)
                failure = failure if is_cut_short else error
            if not can_try_again(failure):
                self._failure = failure
            if not can_try_again(failure) or time.monotonic() + pause > give_up_at:
                raise copy.copy(failure)
            self._leaving.wait(pause)
        raise AssertionError

    def _error_under_way(self, link: Link, failure: ShellError) -> ShellError:
        """Return the error for the calls that were under way when a link failed."""
        is_lost = link is self._link and self._failure is None and is_connection_lost(failure)
        return self._reconnect.lost() if self._reconnect is not None and is_lost else failure
