"""Sends calls to a daemon in an actor, and gives each call its answer and events.

Owns the calls that have no answer yet. Invariant: each call gets an answer or an error, and after
`fail` each call gets an error at once.

At most one call of `Actor.feed` and one call of `Actor.take` are under way at any time. So messages
keep their order, and messages that arrive during a call go together into the next call.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final, TypeAlias, TypeVar

import anyio

from shelld_client import calls
from shelld_client.async_mailbox import AsyncMailbox
from shelld_client.async_ongoing import AsyncOngoing
from shelld_client.calls import Call
from shelld_client.connection import Connection
from shelld_client.errors import ProtocolError, ShellError
from shelld_client.ray.engine import Actor, ActorGone
from shelld_client.spawned_client import FINISH_TIMEOUT_S, START_TIMEOUT_S

T = TypeVar("T")

# A function that makes the error for a call of a session, or for a call without a session (None).
Failure: TypeAlias = Callable[[str | None], ShellError]

# How long a daemon may take to end before its actor is killed.
CLOSE_TIMEOUT_S: Final = 15.0


class _Pending:
    """A call that waits for its answer."""

    def __init__(self, session: str | None) -> None:
        self.session = session
        self.answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    def put(self, answer: bytes | ShellError) -> None:
        if self.answer.done():
            return
        if isinstance(answer, ShellError):
            self.answer.set_exception(answer)
        else:
            self.answer.set_result(answer)


class _Mailbox(AsyncMailbox):
    """Calls `on_settled` once, when the request is answered or nobody waits for the answer."""

    def __init__(self, session: str | None, on_settled: Callable[[], None]) -> None:
        super().__init__()
        self.session = session
        self._on_settled: Callable[[], None] | None = on_settled

    def put(self, answer: bytes | ShellError) -> None:
        self._settle()
        super().put(answer)

    def fail(self, error: ShellError) -> None:
        self._settle()
        super().fail(error)

    def end(self) -> None:
        self._settle()
        super().end()

    def _settle(self) -> None:
        settled, self._on_settled = self._on_settled, None
        if settled is not None:
            settled()


class Link:
    def __init__(
        self, actor: Actor, *, max_message_bytes: int, on_lost: Callable[[str], None]
    ) -> None:
        """Create a link.

        `on_lost` is called once, with the reason, if the daemon or its actor ends by itself.
        """
        self._actor = actor
        self._connection: Connection[_Pending | AsyncMailbox] = Connection(max_message_bytes)
        self._on_lost = on_lost
        self._event_loop = asyncio.get_running_loop()
        self._outbox = list[bytes]()
        self._filled = asyncio.Event()
        self._failure: Failure | None = None
        self._tasks = list[asyncio.Task[None]]()

    async def start(self) -> None:
        """Connect to the running daemon. Raises `ShellError`."""
        self._tasks = [asyncio.create_task(each) for each in (self._send_all(), self._receive())]
        try:
            async with asyncio.timeout(START_TIMEOUT_S):
                await self.request(calls.ping(), None)
        except TimeoutError:
            reason = f"a daemon did not answer within {START_TIMEOUT_S:g} s"
            raise ProtocolError(reason + self._connection.said) from None

    async def request(self, call: Call[T], session: str | None) -> T:
        """Send a call, and return its result. If this task is cancelled, cancel the call."""
        self._check(session)
        pending = _Pending(session)
        request_id = self._connection.new_id()
        try:
            self._send(self._connection.call(request_id, call.method, call.params, pending))
            answer = await pending.answer
        except BaseException:
            if cancellation := self._connection.cancel(request_id):
                self._send(cancellation)
            # Nobody else will use the answer.
            pending.answer.cancel()
            raise
        return call.decode(answer)

    async def finish(self, call: Call[T], session: str | None) -> T:
        """Like `request`, but finishes even if the caller is cancelled.

        Raises TimeoutError after `FINISH_TIMEOUT_S`.
        """
        with anyio.move_on_after(FINISH_TIMEOUT_S, shield=True):
            return await self.request(call, session)
        raise TimeoutError

    def begin(
        self, call: Call[Any], session: str | None, on_settled: Callable[[], None]
    ) -> AsyncOngoing:
        """Send a call.

        `on_settled` is called once, when the call is answered or nobody waits for the answer.
        """
        return AsyncOngoing(
            self._connection,
            self._send,
            _Mailbox(session, on_settled),
            call,
            check=lambda: self._check(session),
            check_taker=self._check_taker,
        )

    def _check_taker(self) -> None:
        """Raise an error on another event loop, because nothing would wake the caller there."""
        if asyncio.get_running_loop() is not self._event_loop:
            raise RuntimeError("the pool was entered on another event loop")

    def _check(self, session: str | None) -> None:
        self._check_taker()
        if self._failure is not None:
            raise self._failure(session)

    def _send(self, frame: bytes) -> None:
        self._outbox.append(frame)
        self._filled.set()

    async def _send_all(self) -> None:
        try:
            while True:
                await self._filled.wait()
                self._filled.clear()
                frames = b"".join(self._outbox)
                self._outbox.clear()
                await self._actor.feed(frames)
        except Exception as error:
            self._lose(str(error))

    async def _receive(self) -> None:
        try:
            while isinstance(taken := await self._actor.take(), bytes):
                for pending, answer in self._connection.receive(taken):
                    pending.put(answer)
            self._lose(str(taken))
        except Exception as error:
            # Make the calls fail, because otherwise they would wait for ever.
            self._lose(str(error))

    def _lose(self, reason: str) -> None:
        if self._failure is None:
            self._on_lost(reason)

    def fail(self, failure: Failure) -> None:
        """Make all current and future calls raise errors. Do not call `on_lost` after this."""
        if self._failure is not None:
            return
        self._failure = failure
        for pending in self._connection.take_pending():
            pending.put(failure(_session_of(pending)))
        for listener in self._connection.take_listeners():
            listener.fail(failure(_session_of(listener)))

    async def close(self) -> None:
        """End the daemon and its actor within `CLOSE_TIMEOUT_S`. Call `fail` first."""
        try:
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                await self._actor.close()
        except (TimeoutError, ActorGone):
            # The actor is gone, or `kill` ends it.
            pass
        finally:
            self.kill()

    def kill(self) -> None:
        """End the actor at once, and with it the daemon."""
        self._actor.kill()
        for task in self._tasks:
            task.cancel()


def _session_of(waiting: object) -> str | None:
    return waiting.session if isinstance(waiting, (_Pending, _Mailbox)) else None
