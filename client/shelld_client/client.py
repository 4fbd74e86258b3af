"""Provides `AsyncClient`, which has the daemon's methods as coroutines.

Any number of tasks of one event loop can use a client. If a task that awaits a call is cancelled,
the client also cancels the call in the daemon. For `bash`, this kills the command and every process
it started. A client may be closed in another task than the one that entered it, but only on the
same event loop.
"""

from __future__ import annotations

import copy
import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from os import PathLike
from types import TracebackType
from typing import Any, Final, Self, TypeVar

import anyio
from anyio.lowlevel import checkpoint_if_cancelled, current_token

from shelld_client import calls
from shelld_client.async_mailbox import AsyncMailbox
from shelld_client.async_methods import AsyncMethods
from shelld_client.async_ongoing import AsyncOngoing, send_only, was_cut
from shelld_client.background import Background, run_together
from shelld_client.calls import Call
from shelld_client.child import LAST_WORDS_S, POST_MORTEM_S
from shelld_client.command_lines import daemon_command
from shelld_client.connection import Connection
from shelld_client.errors import (
    CommandBlocked,
    CommandTimedOut,
    DaemonExited,
    NoAnswer,
    ProtocolError,
    ShellError,
    TargetLost,
)
from shelld_client.reconnects import (
    RECONNECT_S,
    Losses,
    Reconnect,
    can_try_again,
    is_connection_lost,
    is_repeatable,
    pauses,
)
from shelld_client.restarts import Memory, Restart, enter
from shelld_client.spawned_client import (
    FINISH_TIMEOUT_S,
    LAST_ANSWERS_S,
    START_TIMEOUT_S,
    SpawnedClient,
    no_shelld,
)
from shelld_client.transport import Transport
from shelld_protocol.shell_methods import BashResult

T = TypeVar("T")

logger: Final = logging.getLogger("shelld_client")


class _Pending:
    """A call that has no answer yet."""

    __slots__ = ("_note", "answer", "answered")

    def __init__(self, note: Callable[[bytes | ShellError], None] | None) -> None:
        self._note = note
        self.answered = anyio.Event()
        self.answer: bytes | ShellError = b""

    def put(self, answer: bytes | ShellError) -> None:
        if self._note is not None:
            self._note(answer)
        self.answer = answer
        self.answered.set()


def _comes_again() -> bool:
    """Return whether a task that was just cancelled will be cancelled again at its next wait.

    This is so if a scope of anyio or trio is cancelled, but not if asyncio has cancelled the task.
    """
    return anyio.current_effective_deadline() == -math.inf


class AsyncClient(SpawnedClient, AsyncMethods):
    """Provides the daemon's methods as coroutines. Use `spawn` and ``async with``.

    Every method raises `ShellError` or a subclass of it: `DaemonExited` when the daemon is gone,
    `ProtocolError` when the peer does not speak the protocol.
    """

    def __init__(
        self,
        command: Sequence[str | PathLike[str]],
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | PathLike[str] | None = None,
        start_timeout: float | None = START_TIMEOUT_S,
        restart: bool = False,
        keep_directories: bool = False,
        on_restart: Callable[[Restart], None] | None = None,
        reconnect: Reconnect | None = None,
    ) -> None:
        super().__init__(
            command, env=env, cwd=cwd, start_timeout=start_timeout, reconnect=reconnect
        )
        if not restart and (keep_directories or on_restart is not None):
            raise TypeError("keep_directories and on_restart need restart=True")
        if on_restart is not None and not calls.is_plain_function(on_restart):
            # Nobody would await the coroutine, so it would never run.
            raise TypeError("on_restart must be a plain function")
        self._connection: Connection[_Pending | AsyncMailbox] = Connection(self._message_limit)
        self._transport: Transport | None = None
        self._background: Background | None = None
        # `__aexit__` creates this event, and sets it when the exit is complete.
        self._left: anyio.Event | None = None
        self._event_loop: object = None
        self._restarts = restart
        self._memory = Memory()
        self._keeps_directories = keep_directories
        self._on_restart = on_restart
        self._is_entered = False
        # A task holds this lock while it replaces the daemon. Entering the client creates the lock,
        # on the event loop.
        self._replacing: anyio.Lock
        # Whether the client is trying to reconnect, so that only this attempt may use the
        # connection. `_replacing` does not tell this, because other tasks may hold the lock for a
        # moment after the attempt.
        self._is_attaching = False
        # The cancel scope of the replacement that is under way. `_end` cancels it.
        self._replacement: anyio.CancelScope | None = None

    @classmethod
    def spawn(
        cls,
        command: Sequence[str | PathLike[str]] | None = None,
        *,
        args: Sequence[str | PathLike[str]] = (),
        env: Mapping[str, str] | None = None,
        cwd: str | PathLike[str] | None = None,
        start_timeout: float | None = START_TIMEOUT_S,
        restart: bool = False,
        keep_directories: bool = False,
        on_restart: Callable[[Restart], None] | None = None,
    ) -> Self:
        """Return a client that starts its daemon when entered.

        `Client.spawn` describes `command`, `args`, `env`, `cwd`, `start_timeout`, and the errors
        that entering the client can raise.

        With `restart`, the first call after a daemon has died starts a new daemon within
        `start_timeout`. If the start fails, this call raises the same errors as entering the
        client. Calls that were under way when the daemon died raise `DaemonExited`. All shells,
        sessions and subscriptions are lost. The client repeats the settings of `configure_session`
        and `add_target`; if this fails, the first call raises the error. With `keep_directories`,
        the client creates the sessions again, except sessions at targets. Each session gets the
        directory that the last result of `bash` or `stream` has reported, unless `cd` fails or
        takes more than `start_timeout`. `on_restart` is a plain function. It is called once for
        each new daemon, before the daemon takes calls. An exception in `on_restart` is logged.
        """
        argv = daemon_command(command, args)
        return cls(
            argv,
            env=env,
            cwd=cwd,
            start_timeout=start_timeout,
            restart=restart,
            keep_directories=keep_directories,
            on_restart=on_restart,
        )

    async def __aenter__(self) -> Self:
        self._enter_once()
        self._event_loop = current_token()
        self._replacing = anyio.Lock()
        await checkpoint_if_cancelled()
        try:
            await self._start()
        except BaseException as error:
            await self._end(patiently=False)
            if isinstance(error, ShellError):
                raise no_shelld(error) from None
            raise
        self._is_entered = True
        return self

    async def _start(self) -> None:
        """Start a daemon, and wait for its first answer. Raises `ShellError`.

        If this method raises, the caller must end the daemon.
        """
        child = self._start_child()
        self._failure = None
        self._transport = Transport(child)
        self._background = Background(self._serve, self._on_background_end)
        with anyio.move_on_after(self._start_timeout) as scope:
            await self._exchange(calls.ping())
            await self._identify_daemon()
        if scope.cancelled_caught:
            raise self._no_answer(self._connection.said)

    async def _identify_daemon(self) -> None:
        """Record the identity of the lasting daemon at the other end of the connection.

        Raise `DaemonExited` if it is not the same daemon as before.
        """
        if self._reconnect is not None:
            self._reconnect.identify((await self._exchange(calls.server_info())).pid)

    async def _ensure_daemon(self) -> None:
        """If the daemon has died, replace it; if the connection is lost, reconnect.

        Raises `ShellError`.
        """
        if not (self._is_entered and self._left is None):
            return
        if not (self._can_be_replaced(self._failure) or self._replacing.locked()):
            return
        self._check_taker()
        reconnect = self._reconnect
        before = reconnect and reconnect.failure
        async with self._replacing:
            cause = self._failure
            if not self._can_be_replaced(cause) or self._left is not None:
                # Another task has already replaced the daemon, or has left the client.
                return
            assert isinstance(cause, DaemonExited)
            if reconnect is not None and reconnect.failure not in (None, before):
                raise copy.copy(reconnect.failure)
            with anyio.CancelScope() as self._replacement:
                if reconnect is None:
                    await self._replace(cause)
                else:
                    await self._attach_again(reconnect, cause)
                    self._send_unsent()
                return
        raise DaemonExited("the client is closed")

    def _can_be_replaced(self, failure: ShellError | None) -> bool:
        """Return whether a new daemon or a new connection would make calls possible again."""
        if self._reconnect is not None:
            return is_connection_lost(failure)
        return self._restarts and isinstance(failure, DaemonExited)

    async def _attach_again(self, reconnect: Reconnect, cause: DaemonExited) -> None:
        # `lasting` is the error that future calls raise. `failure` is the error that this call
        # raises.
        lasting: ShellError = cause
        failure: ShellError = cause
        self._command, self._cwd = reconnect.command, None
        self._is_attaching = True
        try:
            with anyio.move_on_after(RECONNECT_S):
                for pause in pauses():
                    await self._release(patiently=False)
                    self._connection = Connection(self._message_limit)
                    try:
                        await self._start()
                        return
                    except ShellError as error:
                        failure = error
                    if not can_try_again(failure):
                        lasting = failure
                        break
                    await anyio.sleep(pause)
            reconnect.failure = copy.copy(failure)
            raise failure
        except BaseException:
            self._failure = lasting
            await self._release(patiently=False)
            raise
        finally:
            self._is_attaching = False

    async def _replace(self, cause: DaemonExited) -> None:
        await self._release(patiently=False)
        self._connection = Connection(self._message_limit)
        restored = dict[str, str]()
        try:
            try:
                await self._start()
            except ShellError as error:
                raise no_shelld(error) from None
            for call in self._memory.configured:
                await self._exchange_in_time(call)
            for session, directory in self._kept_directories.items():
                if await self._enter_again(session, directory):
                    restored[session] = directory
        except BaseException:
            # Keep the error that says that the daemon has died, so that the next call tries again
            # to replace the daemon.
            self._failure = cause
            await self._release(patiently=False)
            raise
        if self._on_restart is not None:
            try:
                self._on_restart(Restart(cause, restored))
            except Exception:
                # Raise nothing: the daemon is ready, and other calls wait for it.
                logger.exception("on_restart has failed")

    async def _enter_again(self, session: str, directory: str) -> bool:
        """Create a session again in its directory. Return whether this was possible."""
        try:
            entered = await self._exchange_in_time(enter(session, directory))
        except (CommandBlocked, CommandTimedOut, NoAnswer):
            # The file system of the directory may hang. The other sessions can go on.
            return False
        return isinstance(entered, BashResult) and entered.exit_code == 0

    async def _exchange_in_time(self, call: Call[T]) -> T:
        """Send a call to a new daemon, and return its answer.

        Wait up to `start_timeout` seconds. Each call has its own wait, because there may be
        thousands of sessions.
        """
        with anyio.move_on_after(self._start_timeout):
            return await self._exchange(call)
        raise self._no_answer(self._connection.said)

    @property
    def _kept_directories(self) -> Mapping[str, str]:
        return self._memory.directories if self._keeps_directories else {}

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._transport is None:
            raise RuntimeError("the client was not entered")
        if self._is_forked:
            # Do not use the event loop, because the parent's loop watches the same descriptors.
            self._transport.release()
            return
        is_watched = self._background is not None and not self._background.has_ended
        if is_watched and current_token() != self._event_loop:
            # Leave the pipes open, because only the event loop that watches them may close them.
            self._transport.kill()
            raise RuntimeError("the client was entered on another event loop; its daemon is killed")
        await self._end(patiently=True)

    async def _end(self, *, patiently: bool) -> None:
        if self._left is not None:
            # Another task is already closing the client. This takes a bounded time.
            with anyio.CancelScope(shield=True):
                await self._left.wait()
            return
        self._left = anyio.Event()
        is_interrupted = True
        try:
            await self._stop_replacing()
            if patiently:
                await self._take_last_answers()
            is_interrupted = False
        finally:
            self._failure = self._failure or DaemonExited("the client is closed")
            try:
                await self._release(patiently=patiently and not is_interrupted)
            finally:
                self._left.set()

    async def _take_last_answers(self) -> None:
        """Take the answers that the daemon has sent already. This takes a bounded time.

        If such an answer says that an abandoned call has started a command, the client kills the
        command, which would otherwise go on in a lasting daemon.
        """
        if self._failure is not None or not self._connection.has_unanswered:
            return
        with suppress(ShellError), anyio.move_on_after(LAST_ANSWERS_S, shield=True):
            await self._exchange(calls.ping())

    async def _stop_replacing(self) -> None:
        """If the daemon is being replaced, stop the replacement. This takes a bounded time."""
        if self._replacement is not None and self._replacing.locked():
            self._replacement.cancel()
            with anyio.CancelScope(shield=True):
                async with self._replacing:
                    pass

    async def _release(self, *, patiently: bool) -> None:
        """End the daemon, and the tasks that serve it. Its calls raise `_failure`."""
        transport, background = self._transport, self._background
        if transport is None or transport.is_closed:
            return
        failure = self._failure or DaemonExited("the client is closed")
        try:
            await transport.close(patiently=patiently)
        finally:
            self._fail(failure)
            if background is not None:
                await background.stop()

    async def _request(self, call: Call[T]) -> T:
        begun_at, losses = time.monotonic(), Losses()
        while True:
            try:
                await self._ensure_daemon()
                losses.sent()
                return await self._exchange(self._noted(self._shortened(call, begun_at)))
            except TargetLost as error:
                if not (was_cut(error) and is_repeatable(call) and losses.may_repeat()):
                    raise
            except anyio.get_cancelled_exc_class():
                self._give_up(call)
                raise

    def _give_up(self, call: Call[Any]) -> None:
        """Kill the command of a cancelled call, even if the cancellation is lost."""
        if self._reconnect is not None and (again := calls.to_give_up(call)) is not None:
            self._send_later(again)

    def _shortened(self, call: Call[T], begun_at: float) -> Call[T]:
        """If the call may be sent again, return a copy that waits only for the remaining time."""
        if self._reconnect is None or not is_repeatable(call):
            return call
        return calls.with_time_left(call, time.monotonic() - begun_at)

    def _noted(self, call: Call[T]) -> Call[T]:
        return self._memory.noted(call) if self._restarts else call

    def _may_reconnect(self, error: ShellError) -> bool:
        return self._reconnect is not None and can_try_again(error)

    def _repeatable(self, options: Mapping[str, Any]) -> Mapping[str, Any]:
        return options if self._reconnect is None else calls.repeatable(options)

    async def _exchange(self, call: Call[T]) -> T:
        """Send a call to the current daemon, and return its answer."""
        transport, connection = self._usable_transport(), self._connection
        pending = _Pending(call.note)
        request_id = connection.new_id()
        try:
            frame = connection.call(request_id, call.method, call.params, pending)
            transport.send(frame)
            await pending.answered.wait()
        except BaseException as error:
            # The caller no longer waits, so end the call in the daemon as well.
            if cancellation := connection.cancel(request_id):
                transport.send(cancellation)
            is_cancelled = isinstance(error, anyio.get_cancelled_exc_class())
            if not (pending.answered.is_set() and is_cancelled and _comes_again()):
                raise
            # The answer came before the cancellation. Return it, because the daemon counts the
            # output in it as read.
        if isinstance(pending.answer, ShellError):
            raise pending.answer
        return call.decode(pending.answer)

    def _check_taker(self) -> None:
        """Raise an error if nothing could wake this task, because it runs on another event loop."""
        self._raise_if_forked()
        has_left = self._left is not None and self._left.is_set()
        is_entered = self._background is not None and not has_left
        if is_entered and current_token() != self._event_loop:
            # The client's event loop may already have ended.
            raise RuntimeError("the client was entered on another event loop")

    def _usable_transport(self) -> Transport:
        """Return the transport. Raises `ShellError`, or RuntimeError on the wrong event loop."""
        self._check_taker()
        self._raise_if_unusable()
        assert self._transport is not None
        return self._transport

    async def _finish(self, call: Call[T]) -> T:
        # Never start a new daemon for this call, because its shell has died with the old daemon.
        send = self._exchange if self._reconnect is None else self._request
        with anyio.move_on_after(FINISH_TIMEOUT_S, shield=True):
            return await send(call)
        raise TimeoutError

    async def _begin(self, call: Call[Any]) -> AsyncOngoing:
        await self._ensure_daemon()
        # The code below awaits nothing, so no cancellation can lose a request that was sent.
        transport = self._usable_transport()
        return AsyncOngoing(
            self._connection,
            transport.send,
            AsyncMailbox(),
            self._noted(call),
            check=self._raise_if_unusable,
            check_taker=self._check_taker,
            send_later=None if self._reconnect is None else self._send_later,
        )

    def _send_later(self, call: Call[Any]) -> None:
        assert self._reconnect is not None
        self._reconnect.send_later(call)
        self._send_unsent()

    def _send_unsent(self) -> None:
        """If calls are possible, repeat the calls that were left unanswered by lost connections."""
        reconnect, transport, connection = self._reconnect, self._transport, self._connection
        if reconnect is None or transport is None or self._failure or self._is_attaching:
            return
        for call in reconnect.take_unsent(connection.ownership):
            send_only(connection, transport.send, call, self._send_later)

    async def _serve(self) -> None:
        assert self._transport is not None
        try:
            await run_together(
                self._transport.write_outbox,
                self._transport.watch_exit,
                self._transport.collect_stderr,
                self._receive,
            )
        except Exception as error:
            # Make the calls fail, because otherwise the pending calls would wait for ever, and no
            # caller would get the exception.
            self._fail(ShellError(f"the client has failed: {error!r}"))

    def _on_background_end(self) -> None:
        # Any code can cancel the task, even before the task begins, because asyncio's `all_tasks`
        # includes it.
        self._fail(DaemonExited("the client's task was cancelled"))

    async def _receive(self) -> None:
        """Pass each answer to its call until the daemon has ended."""
        assert self._child is not None
        assert self._transport is not None
        try:
            await self._transport.collect_stdout(self._hand_out)
        except ProtocolError as error:
            self._fail(error)
            return
        await self._transport.has_ended(POST_MORTEM_S)
        # The daemon has ended. But if a wrapper such as ssh started it, a child process of the
        # wrapper may still hold stderr open.
        with anyio.move_on_after(LAST_WORDS_S):
            await self._transport.stderr_ended.wait()
        failure = self._child.post_mortem(self._connection.said)
        if self._reconnect is not None and self._connection.is_stolen:
            failure = self._reconnect.stolen(failure)
        self._fail(failure)

    def _hand_out(self, data: bytes) -> None:
        # This code is a separate function. Otherwise, local variables would keep the last answer
        # alive while the loop waits for more data.
        for pending, answer in self._connection.receive(data):
            pending.put(answer)

    def _fail(self, failure: ShellError) -> None:
        """Make all current and future calls raise `failure`, because no more answers will come."""
        self._failure = failure = self._failure or failure
        # While the client tries to reconnect, the attempt itself makes all pending calls. They must
        # raise the original failure.
        is_in_use = self._is_entered and self._left is None and not self._is_attaching
        if self._reconnect is not None and is_in_use and is_connection_lost(failure):
            # Future calls try to reconnect, so only the pending calls fail.
            failure = self._reconnect.lost()
        for pending in self._connection.take_pending():
            pending.put(copy.copy(failure))
        for listener in self._connection.take_listeners():
            listener.fail(copy.copy(failure))
