"""Lets other threads and event loops make calls on the event loop of the shells.

Shells are not thread-safe, so all calls run on the event loop of the shells. If a caller is
cancelled, its call is cancelled as well. The caller then waits until the call has ended.
"""

from __future__ import annotations

import asyncio
import atexit
import threading
from collections import deque
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, suppress
from functools import partial
from typing import Final, Generic, TypeVar, cast

import anyio
import anyio.abc
from anyio.lowlevel import EventLoopToken, current_token

from shelld.eventloop.threadsafe import call_threadsafe
from shelld.process import faults
from shelld_protocol.errors import RpcError, shutting_down

T = TypeVar("T")

# `LoopThread.stop` waits at most this long until its thread has left the scope. Usually, the thread
# leaves the scope as soon as the last processes have been killed.
STOP_TIMEOUT_S: Final = 3.0


class OwnerLoop:
    """Create this object on the event loop of the shells. `tasks` runs the calls."""

    def __init__(self, tasks: anyio.abc.TaskGroup) -> None:
        self._tasks = tasks
        self._token = current_token()
        self._thread = threading.get_ident()
        # This lock guards `_to_do` and `_closed`. After `close`, no call is added to `_to_do`.
        self._lock = threading.Lock()
        self._to_do: deque[Callable[[], object]] = deque()
        self._closed = False
        self._arrived = anyio.Event()
        tasks.start_soon(self._do_what_arrives)

    async def call(
        self,
        function: Callable[..., Awaitable[T]],
        *args: object,
        discard: Callable[[T], object] | None = None,
    ) -> T:
        """Await ``function(*args)`` on this event loop; return the result.

        If the caller was cancelled before the result arrived, this method calls `discard` with the
        result, also on this event loop. Raises `RpcError` (shutting_down).
        """
        if current_token() == self._token:
            return await function(*args)
        call = _Call(function, args, discard)
        self._add(partial(self._tasks.start_soon, call.run))
        try:
            await call.done.wait()
        except GeneratorExit:
            # The caller's event loop has ended, so nothing more can be awaited here.
            self.call_soon(call.cancel)
            raise
        except anyio.get_cancelled_exc_class():
            self.call_soon(call.cancel)
            with anyio.CancelScope(shield=True):
                await call.done.wait()
            raise
        return call.result()

    def call_sync(self, function: Callable[..., T], *args: object) -> T:
        """Call ``function(*args)`` on this event loop; return the result.

        `function` must be quick, because it blocks this event loop and the caller's thread. If this
        event loop has ended, the method calls `function` in the caller's thread.
        """
        if threading.get_ident() == self._thread:
            return function(*args)
        outcome: Future[T] = Future()

        def do() -> None:
            try:
                outcome.set_result(function(*args))
            except BaseException as error:
                outcome.set_exception(error)

        try:
            self._add(do)
        except RpcError:
            return function(*args)
        return outcome.result()

    def call_soon(self, action: Callable[[], object]) -> None:
        """Call `action` on this event loop, unless the event loop has ended."""
        with suppress(RpcError):
            self._add(action)

    def close(self) -> None:
        """Accept no more calls. Calls that were accepted earlier still start. When the task group
        ends, these calls end as well.
        """
        with self._lock:
            self._closed = True
        self._do_all()

    def abandon(self) -> None:
        """Close this object in a forked child, where the event loop does not run."""
        # Another thread may have held the lock during the fork.
        self._lock = threading.Lock()
        self._closed = True

    def _add(self, action: Callable[[], object]) -> None:
        with self._lock:
            if self._closed:
                raise shutting_down()
            self._to_do.append(action)
            try:
                call_threadsafe(self._token, self._wake)
            except RuntimeError:
                # The event loop has ended before anybody called `close`.
                self._to_do.pop()
                raise shutting_down() from None

    def _wake(self) -> None:
        self._arrived.set()

    async def _do_what_arrives(self) -> None:
        # The calls start in a task, not in a callback, because parts of anyio need a task.
        while True:
            await self._arrived.wait()
            self._arrived = anyio.Event()
            self._do_all()

    def _do_all(self) -> None:
        while self._to_do:
            try:
                self._to_do.popleft()()
            except Exception:
                faults.report("a call from another event loop")


class _Call(Generic[T]):
    """One call, which is made on the caller's event loop and runs on the owner's event loop."""

    def __init__(
        self,
        function: Callable[..., Awaitable[T]],
        args: tuple[object, ...],
        discard: Callable[[T], object] | None,
    ) -> None:
        self.done = anyio.Event()
        self._caller = current_token()
        self._function = function
        self._args = args
        self._discard = discard
        self._scope: anyio.CancelScope | None = None
        self._cancelled = False
        self._value: T | None = None
        # This is the outcome if the call never finishes.
        self._error: BaseException | None = shutting_down()

    async def run(self) -> None:
        try:
            with anyio.CancelScope() as self._scope:
                if self._cancelled:
                    self._scope.cancel()
                self._value = await self._function(*self._args)
                self._error = None
            if self._cancelled:
                self._drop_value()
        except BaseException as error:
            task = asyncio.current_task()
            if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
                raise
            # The function may call code of the caller, which may raise anything. The caller gets
            # the error, and this event loop goes on.
            self._error = error
        finally:
            # The caller's event loop may have ended without waiting for this call.
            with suppress(RuntimeError):
                call_threadsafe(self._caller, self.done.set)

    def cancel(self) -> None:
        self._cancelled = True
        if self._error is None:
            # The call has its result, but the caller has not received it.
            self._drop_value()
        elif self._scope is not None:
            self._scope.cancel()

    def _drop_value(self) -> None:
        if self._error is None and self._discard is not None:
            self._discard(cast("T", self._value))

    def result(self) -> T:
        if self._error is not None:
            raise self._error
        return cast("T", self._value)


class LoopThread:
    """Keeps a scope open on an event loop in a new thread, until `stop` or the program's exit.

    The constructor returns when the scope is open. If opening the scope fails, the constructor
    raises the error.
    """

    def __init__(self, scope: Callable[[], AbstractAsyncContextManager[None]]) -> None:
        self._scope = scope
        self._opened: Future[tuple[EventLoopToken, anyio.Event]] = Future()
        # This is a daemon thread, so that a program that ends without `stop` does not wait for it.
        self._thread = threading.Thread(target=self._run, name="shelld-shells", daemon=True)
        self._thread.start()
        self._token, self._stop = self._opened.result()
        atexit.register(self.stop)

    def stop(self) -> None:
        """Leave the scope. Return when the scope has been left, or after `STOP_TIMEOUT_S`."""
        atexit.unregister(self.stop)
        self.begin_stop()
        self._thread.join(STOP_TIMEOUT_S)

    def begin_stop(self) -> None:
        """Begin to leave the scope, without waiting."""
        with suppress(RuntimeError):
            call_threadsafe(self._token, self._stop.set)

    def _run(self) -> None:
        try:
            anyio.run(self._keep_open)
        except BaseException as error:
            if self._opened.done():
                raise
            self._opened.set_exception(error)

    async def _keep_open(self) -> None:
        stop = anyio.Event()
        async with self._scope():
            self._opened.set_result((current_token(), stop))
            await stop.wait()
