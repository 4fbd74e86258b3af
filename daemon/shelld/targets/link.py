"""Sends requests over one connection to a target, and gives each answer to the waiting call.

Owns the process that connects to the target, until `run` ends. Never decodes a result.

Invariants:

* Every call ends with the target's answer, or with an error once the link is over. A link that is
  over is never used again; the next call needs another link.
* Events and answers are passed on in the order in which the target has sent them.
* When a link is over, the client learns that each subscription on this link sends nothing more.
* If the target or the client does not read, this delays only the calls of this link, and costs a
  bounded amount of memory.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from typing import Any, Final, Protocol

import anyio
import msgspec
from anyio.lowlevel import checkpoint

from shelld.eventloop.readiness import Watch
from shelld.eventloop.threads import run_in_thread
from shelld.keeper.pool import RunnerPool
from shelld.process.logs import Log
from shelld.targets.bootstrap import Bootstrap, command_for
from shelld.targets.bundle import BundleError, cached_bundle
from shelld.targets.greeting import QUOTED_BYTES, Greeting, NoGreetingError, last_line, quoted
from shelld.targets.incoming import Incoming, IncomingError, Message
from shelld.targets.naming import named_error, named_event
from shelld.targets.opening import Opened, Opening
from shelld.targets.outgoing import Call, Outgoing
from shelld.targets.process import TargetProcess
from shelld.targets.requests import Requests
from shelld.targets.subscribers import Subscribers
from shelld_protocol.encoding import encode
from shelld_protocol.errors import (
    ErrorKind,
    PassedOnError,
    RpcError,
    target_lost,
    unavailable,
)
from shelld_protocol.event_methods import LOST_NOTIFICATION

logger = Log("shelld.targets")

# How long a target may take to connect. A user may have to confirm the login on another device.
CONNECT_S: Final = 60.0
# If a connected target has been silent for `PING_S`, the link sends a ping. After `SILENCE_S`, the
# link counts as lost. A target that is short of memory may need half a minute for an answer.
PING_S: Final = 15.0
SILENCE_S: Final = 60.0
# After a request was cancelled, how long to wait for its answer. If another request must undo its
# effect, this is also how long to wait for that request. This is less than 3 s: with the default
# grace period, the server then logs that a cancelled request goes on.
CANCEL_S: Final = 2.5
# How long to wait for a target to end after it was asked to. A target takes up to 5 s to end.
END_S: Final = 6.0

# While the client's backlog is larger than this, the link reads nothing from the target.
MAX_UNREAD_BYTES: Final = 1024 * 1024

_READ_BYTES: Final = 256 * 1024

_PING: Final = b'{"jsonrpc":"2.0","id":"ping","method":"ping"}'
_SHUTDOWN: Final = b'{"jsonrpc":"2.0","id":"end","method":"shutdown"}'
_EXIT: Final = b'{"jsonrpc":"2.0","method":"exit"}'


class Reader(Protocol):
    """Describes the part of the client that a link uses."""

    @property
    def backlog(self) -> int:
        """Return how many bytes wait for the client to read them."""
        ...

    async def wait_until_read(self) -> None:
        """Wait until the client has read all waiting bytes, or is gone."""
        ...


class Link:
    """Connects to a target.

    Call `run` in a task of its own. `greeting` is set once the target answers. Raises OSError or
    `RpcError` if the process cannot start.
    """

    def __init__(
        self, target: str, argv: Sequence[str], pool: RunnerPool, *, bootstrap: bool = False
    ) -> None:
        self.target = target
        self._argv = argv
        self._needs_bundle = bootstrap
        # The objects that watch the connection's descriptor and the process's standard error.
        self._watches: list[Watch] = []
        self._loop = asyncio.get_running_loop()
        self._opening: Opening | None = None
        self.greeting: Greeting | None = None
        self._incoming = Incoming(target)
        self._errors = b""
        self._heard_at = self._asked_at = self._loop.time()
        self._notify: Callable[[str, Mapping[str, Any]], bool] | None = None
        self._client: Reader | None = None
        # The number of the client's first request. Earlier requests came from other clients.
        self._first_number = 1
        self.subscribers = Subscribers()
        # The next message, if it cannot be passed on yet. Every message waits while the client has
        # much to read. An event that follows an answer also waits, until the task of the answered
        # call has passed the answer on.
        self._held: Message | None = None
        self._has_answered = False
        # Why the link is over: an error, or a text that completes a sentence.
        self._failure: RpcError | str | None = None
        self._is_ending = False
        self.is_over = False
        self._over = anyio.Event()
        self._process = TargetProcess(pool, command_for(argv) if bootstrap else argv)
        try:
            self._connection = self._process.connection
            self._outgoing = Outgoing(self._connection)
            self._requests = Requests(target, self._outgoing)
        except BaseException:
            self._process.close()
            raise

    # -- calls ------------------------------------------------------------------------------

    def listen(self, notify: Callable[[str, Mapping[str, Any]], bool], client: Reader) -> None:
        """Send events to this client from now on.

        A new client gets the events of an earlier client's subscription only if the new client
        continues this subscription. The new client does not know the ids of the earlier requests,
        and may use the same ids.
        """
        if client is not self._client:
            self._first_number = self._requests.count + 1
            self.subscribers.forget_all()
        self._notify, self._client = notify, client

    def begin(self, method: str, params: bytes, request_id: bytes | None) -> Call:
        """Send a request now, or once the target is connected. `params` is JSON text.

        Raises `RpcError` (resource_exhausted, invalid_request).
        """
        return self._requests.begin(method, params, request_id)

    async def answer(self, call: Call) -> bytes:
        """Return the result (JSON) of a call. Raises `RpcError`.

        If this method is cancelled, it cancels the request at the target, and waits up to CANCEL_S
        seconds for the target's error. This error is in `call.error`, and names the processes that
        have survived.
        """
        try:
            await call.done.wait()
        except anyio.get_cancelled_exc_class():
            self._requests.cancel(call)
            with anyio.move_on_after(CANCEL_S, shield=True):
                await call.done.wait()
            raise
        finally:
            self._requests.forget(call)
        if call.error is not None:
            raise call.error
        return call.result or b"null"

    async def undo(self, method: str, params: bytes) -> None:
        """Send another request to undo the effect of a cancelled call.

        No cancellation interrupts this. Waits up to CANCEL_S seconds for the answer.
        """
        if self._over.is_set():
            return
        with anyio.move_on_after(CANCEL_S, shield=True), suppress(RpcError):
            await self.answer(self.begin(method, params, None))

    def end_surplus(self) -> None:
        """End the subscriptions of lost clients that are too many."""
        for name in self.subscribers.take_surplus():
            params = b'{"subscription":%b}' % encode(name)
            self._requests.send(b'{"jsonrpc":"2.0","method":"unsubscribe","params":%b}' % params)

    def leave(self, call: Call) -> None:
        """Move a call's command to the background at the target, because the client is lost."""
        self._requests.leave(call)

    async def end(self) -> bool:
        """Tell the target to end, and wait until the link is over. Return True if the target has
        ended the link in time. Otherwise, cut the link, and return False.
        """
        self._is_ending = True
        try:
            if self.greeting is not None:
                self._requests.send(_SHUTDOWN)
                self._requests.send(_EXIT)
                with anyio.move_on_after(END_S):
                    await self._over.wait()
                    return True
        finally:
            # Cut the link even if the caller was cancelled, because nobody else knows this link.
            self.cut()
        await self._over.wait()
        return False

    def hang_up(self) -> None:
        """Close the target's input, so that the target ends."""
        with suppress(OSError):
            self._connection.shutdown(socket.SHUT_WR)

    def cut(self) -> None:
        """End the link: `run` then sees the end of the stream, and ends the calls."""
        with suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)

    # -- receiving --------------------------------------------------------------------------

    async def run(self) -> None:
        """Receive until the connection ends, or counts as lost.

        Then end all calls, and call `tell_subscribers`. If `run` raises, call it again to do the
        remaining steps.
        """
        try:
            if not self.is_over:
                for descriptor in (self._connection.fileno(), self._process.errors):
                    self._watches.append(Watch(descriptor))
                await self._run(*self._watches)
        finally:
            self.close()
        await self.tell_subscribers()

    async def tell_subscribers(self) -> None:
        """Once the link is over, tell the client which subscriptions send nothing more."""
        notify, client = self._notify, self._client
        if notify is None or client is None or not self._over.is_set():
            return
        # Let the calls report their errors first.
        await checkpoint()
        message = self._lost(maybe_started=True).message
        while (params := self.subscribers.take_lost(self.target, message)) is not None:
            while not notify(LOST_NOTIFICATION, params):
                await client.wait_until_read()

    async def _run(self, watch: Watch, errors: Watch) -> None:
        await self._begin()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(errors.wait, self._read_errors)
            await self._read(watch)
            if self._failure is None:
                self._failure = await self._process.end()
                self._read_errors()
            tasks.cancel_scope.cancel()

    def close(self) -> None:
        """End the process and all calls.

        `run` calls this method. If no task calls `run`, the code that has made the link must call
        this method.
        """
        self.is_over = True
        with ExitStack() as stack:
            stack.callback(self._over.set)
            for call in self._requests.calls:
                stack.callback(self._fail, call)
            stack.callback(self._process.close)
            for watch in self._watches:
                stack.callback(watch.close)
            stack.callback(self._requests.close)

    def _fail(self, call: Call) -> None:
        if not call.done.is_set():
            call.finish(error=self._lost(maybe_started=call.is_sent))

    async def _begin(self) -> None:
        """Send the bundle, if necessary, and the request for the greeting."""
        bootstrap = None
        if self._needs_bundle:
            try:
                bundle = await run_in_thread(cached_bundle, abandon_on_cancel=True)
            except BundleError as error:
                logger.warning("cannot make the bundle: %s", error)
                hint = "Install shelld with pip, or at the target."
                what = "a complete installation of shelld"
                self._failure = unavailable("bootstrap", what, hint)
                return
            bootstrap = Bootstrap(self.target, self._argv, bundle)
        self._opening = Opening(self.target, bootstrap)
        self._outgoing.put(self._opening.first)

    async def _read(self, watch: Watch) -> None:
        """Read until the stream ends, or the link has failed."""
        while self._failure is None:
            if self._held is not None:
                # Let other tasks run. If a call was answered, its task passes the answer on.
                await checkpoint()
                self._has_answered = False
                if self._client is not None and self._is_client_behind:
                    await self._client.wait_until_read()
                    self._heard_at = self._loop.time()
                self._take_messages()
            elif self.is_over:
                return
            else:
                await watch.wait(self._receive, self._next_check_at)
                if self._loop.time() >= self._next_check_at:
                    self._ask_for_life()

    @property
    def _next_check_at(self) -> float:
        if self.greeting is None:
            # A slow connection may need a long time for the bundle.
            return self._outgoing.sent_at + CONNECT_S
        return max(self._heard_at, self._asked_at) + PING_S

    def _ask_for_life(self) -> None:
        now = self._loop.time()
        late = now - self._next_check_at
        self._asked_at = now
        # If this process did not run for a while, as with SIGSTOP, it could not ask. So this time
        # does not count as silence.
        was_stopped = late > PING_S
        if was_stopped:
            self._heard_at += late
            self._outgoing.sent_at = now
        if self._outgoing.backlog:
            # The target answers the ping only after it has got all earlier requests. While it still
            # takes bytes of them, it is not silent.
            self._heard_at = max(self._heard_at, self._outgoing.sent_at)
        if self.greeting is None:
            if not was_stopped:
                self._failure = f"it did not answer for {CONNECT_S:.0f} s"
        elif now >= self._heard_at + SILENCE_S:
            self._failure = f"it did not answer for {SILENCE_S:.0f} s"
        else:
            self._requests.send(_PING)

    def _receive(self) -> bool:
        """Read the bytes that have arrived. Return True to stop reading for now."""
        try:
            data = self._connection.recv(_READ_BYTES)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        if not data:
            self.is_over = True
            return True
        self._heard_at = self._loop.time()
        if self.greeting is None:
            return self._receive_opening(data)
        self._incoming.receive_data(data)
        return self._take_messages()

    def _receive_opening(self, data: bytes) -> bool:
        assert self._opening is not None
        try:
            step = self._opening.receive(data)
        except NoGreetingError as error:
            self._failure = str(error)
        except RpcError as error:
            self._failure = error.with_traceback(None)
        else:
            if not isinstance(step, Opened):
                self._outgoing.put(step)
                return False
            logger.info("target %s is connected", self.target)
            self.greeting = step.greeting
            self._requests.open(step.greeting.limits.max_message_bytes)
            self._incoming.receive_data(step.rest)
            self._take_messages()
        return True

    def _take_messages(self) -> bool:
        """Pass on the messages that have arrived. Return True if one of them must wait."""
        while self._failure is None and (message := self._next_message()) is not None:
            is_answer = bool(bytes(message.id))
            if self._is_client_behind or (self._has_answered and not is_answer):
                self._held = message
                return True
            try:
                if is_answer:
                    self._take_answer(message)
                else:
                    self._take_event(message)
            except (msgspec.DecodeError, UnicodeDecodeError):
                self._failure = "it has sent an invalid message"
        return self._failure is not None

    def _next_message(self) -> Message | None:
        if self._held is not None:
            held, self._held = self._held, None
            return held
        try:
            return self._incoming.next_message()
        except IncomingError as error:
            self._failure = str(error)
            return None

    @property
    def _is_client_behind(self) -> bool:
        return self._client is not None and self._client.backlog > MAX_UNREAD_BYTES

    def _take_answer(self, message: Message) -> None:
        call = self._requests.call_of(bytes(message.id))
        # A message with a method is our own request. A terminal between the two daemons has echoed
        # the request.
        if call is None or call.done.is_set() or message.method:
            return
        if bytes(message.error):
            call.finish(error=self._named_error(bytes(message.error)))
        elif not bytes(message.result):
            raise msgspec.DecodeError
        else:
            call.finish(bytes(message.result))
        self._has_answered = True

    def _named_error(self, error: bytes) -> PassedOnError:
        named = named_error(self.target, error)
        if named.kind is not ErrorKind.SHUTTING_DOWN:
            return named
        # The target shuts down, but this daemon does not, so replace the error.
        message = f"Target {self.target} is shutting down"
        lost = target_lost(self.target, message, maybe_started=True)
        return PassedOnError(lost.code, message, {**named.data, **lost.data})

    def _take_event(self, message: Message) -> None:
        # The client gets only events of shells.
        if self._notify is None or not message.method.startswith("shell/"):
            return
        params = named_event(self.target, bytes(message.params), self._first_number)
        if params is not None:
            self.subscribers.note_event(message.method, bytes(message.params))
            self._notify(message.method, params)

    def _read_errors(self) -> bool:
        """Keep the last bytes that the process has written to its standard error. Return True if
        its standard error has ended.
        """
        try:
            data = os.read(self._process.errors, _READ_BYTES)
        except OSError:
            return False
        self._errors = (self._errors + data)[-QUOTED_BYTES:]
        return not data

    # -- the end ----------------------------------------------------------------------------

    def _lost(self, *, maybe_started: bool) -> RpcError:
        """Return the error for a call that had no answer when the link ended."""
        failure = "it was closed" if self._failure is None or self._is_ending else self._failure
        if isinstance(failure, RpcError):
            return failure
        if self.greeting is not None:
            message, text = f"The connection to target {self.target} is gone", quoted(self._errors)
        else:
            message = f"Target {self.target} cannot be reached"
            before = () if self._opening is None else self._opening.texts
            text = quoted(*before, self._errors)
        reason = f"{failure}: {last_line(text)}" if text else failure
        return target_lost(
            self.target, f"{message}: {reason}", maybe_started=maybe_started, text=text
        )
