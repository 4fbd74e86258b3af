"""The manager owns every shell: nobody else starts, kills or forgets one.

There is one in a process: `ShellManager()` always is the same. While it is *running* there is a
scope (`scope.py`) with a task a shell: inside of ``async with``, as in the daemon; or, where nobody
has entered it, from the first call on, on an event loop in a thread of its own, until `reset` or
the end of the program. So shells outlive the event loop that they were asked for on, and can be
used from others. Leaving the scope kills what still runs, and forgets all.

Invariant: at most `max_shells` shells are running or have processes left; none of those is ever
evicted.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import signal
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from types import TracebackType
from typing import ClassVar, Final, TypeVar

import anyio
import anyio.to_thread
from anyio.lowlevel import checkpoint, current_token

from shelld import faults
from shelld.keeper.channel import RunnerInfo
from shelld.keeper.pool import RunnerPool
from shelld.output.filter import Filters
from shelld.shells.home import HomeThread, do_soon
from shelld.shells.ids import ShellIds
from shelld.shells.launch import StartRequest
from shelld.shells.lifecycle import ShellStatus
from shelld.shells.options import ManagerOptions
from shelld.shells.process import ShellProcess
from shelld.shells.scope import Scope
from shelld.shells.session import Session
from shelld.shells.text import check_text
from shelld_protocol.errors import RpcError, resource_exhausted, shell_not_found, spawn_failed

T = TypeVar("T")

# For the last SIGKILLs to be carried out when the scope is left. Runners go on without us.
EXIT_KILL_S: Final = 0.3

# How often ended shells are looked through for expired ones, and runners for those not needed.
_SWEEP_S: Final = 15.0

# Of the event loop, from the end of a shell of which nothing is left to its release.
_TURNS_TO_RELEASE: Final = 4


class ShellManager:
    """The arguments are for who makes it; to give some when there is one already is an error.

    `on_end` is called with every shell that has ended. What is a coroutine can be awaited on any
    event loop, but for `start` and what else says so, which belongs to the scope's own.
    """

    _instance: ClassVar[ShellManager | None] = None
    _making: ClassVar[threading.Lock] = threading.Lock()

    # And no __init__, as that would be called each time.
    def __new__(
        cls,
        options: ManagerOptions | None = None,
        *,
        pool: RunnerPool | None = None,
        on_end: Callable[[ShellProcess], None] | None = None,
    ) -> ShellManager:
        with cls._making:
            if cls._instance is None:
                cls._instance = super().__new__(cls)
                cls._instance._set_up(options, pool, on_end)
            elif (options, pool, on_end) != (None, None, None):
                raise RuntimeError("there is a shell manager already")
            return cls._instance

    def _set_up(
        self,
        options: ManagerOptions | None,
        pool: RunnerPool | None,
        on_end: Callable[[ShellProcess], None] | None,
    ) -> None:
        self.options = options or ManagerOptions()
        self.started_count = 0
        # Of those, how many had a bash that was waiting for them.
        self.spares_used = 0
        # For the first scope; another one has its own.
        self._pool = pool
        self._on_end = on_end or _ignore
        self._ids = ShellIds()
        # In start order.
        self._shells: dict[str, ShellProcess] = {}
        # Shells that run or have processes left, and how many more are being started.
        self._live: set[ShellProcess] = set()
        self._starting_count = 0
        # Shells that are kept although nothing is left of them, in the order in which they ended.
        self._ended: dict[ShellProcess, None] = {}
        self._scope: Scope | None = None
        self._entered: AbstractAsyncContextManager[None] | None = None
        # If that is where the scope is.
        self._thread: HomeThread | None = None
        self._opening = threading.Lock()

    @classmethod
    async def reset(cls) -> None:
        """Kill all shells; the next ``ShellManager()`` is another one.

        If this one was entered, its scope is still to be left.
        """
        with cls._making:
            manager, cls._instance = cls._instance, None
        if manager is None:
            return
        if manager._thread is not None:
            await anyio.to_thread.run_sync(manager._thread.stop)
        elif manager._scope is not None:
            # Nothing to do if its event loop has ended.
            with contextlib.suppress(RpcError):
                await manager._scope.home.call(manager._end_all, manager._scope)

    async def _end_all(self, scope: Scope) -> None:
        scope.stop_starting()
        await self._kill_all(0)

    @classmethod
    def forget_after_fork(cls) -> None:
        """In a child process: the shells are the parent's, and the thread that they need is not."""
        manager, cls._instance = cls._instance, None
        cls._making = threading.Lock()
        if manager is not None and manager._scope is not None:
            manager._scope.abandon()

    # -- running ----------------------------------------------------------------------------

    async def __aenter__(self) -> ShellManager:
        if self._thread is None:
            if self._scope is not None:
                raise RuntimeError("the shell manager is running already")
            self._entered = self._running()
            await self._entered.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        entered, self._entered = self._entered, None
        try:
            return None if entered is None else await entered.__aexit__(kind, error, traceback)
        except BaseExceptionGroup as group:
            if error is None or group.exceptions != (error,):
                raise
            # Nothing but what the block itself has raised, which is raised again as it is.
            return False

    @asynccontextmanager
    async def _running(self) -> AsyncGenerator[None]:
        pool, self._pool = self._pool or RunnerPool(), None
        try:
            async with anyio.create_task_group() as tasks:
                scope = self._scope = Scope(
                    tasks,
                    self.options,
                    pool,
                    ids=self._ids,
                    on_enter=self._enter,
                    on_end=self._on_end,
                    on_release=self._released,
                )
                tasks.start_soon(faults.keep_running, partial(self._sweep, scope), "the sweep")
                try:
                    yield
                finally:
                    scope.stop_starting()
                    with anyio.CancelScope(shield=True):
                        scope.home.close()
                        with anyio.move_on_after(EXIT_KILL_S):
                            await self._kill_all(0)
                    tasks.cancel_scope.cancel()
        finally:
            if self._scope is not None:
                self._scope.close()
            self._scope = None
            self._shells.clear()
            self._ended.clear()

    async def run(
        self,
        function: Callable[..., Awaitable[T]],
        *args: object,
        discard: Callable[[T], object] | None = None,
    ) -> T:
        """Return what ``await function(*args)`` returns on the event loop that the shells live on.

        Opens the scope if it is not open. `discard`: see `Home.call`. Raises `RpcError`
        (shutting_down).
        """
        if self._scope is None:
            await anyio.to_thread.run_sync(self._open_in_thread)
        scope = self._scope
        assert scope is not None
        return await scope.home.call(function, *args, discard=discard)

    def _open_in_thread(self) -> None:
        with self._opening:
            if self._scope is None:
                self._thread = HomeThread(self._running)

    @property
    def _running_scope(self) -> Scope:
        if self._scope is None:
            raise RuntimeError("the shell manager is not running")
        return self._scope

    # -- starting ---------------------------------------------------------------------------

    async def create_shell(
        self, command: str, working_dir: str, env: dict[str, str | None] | None = None
    ) -> ShellProcess:
        """Start a command in the background and return once it runs; opens the scope if need be.

        `env` is laid over the environment, None removing a name. If this is cancelled the command
        is killed. Raises `RpcError`: invalid_params, spawn_failed and what else `start` does.
        """
        check_text(command, working_dir, env)
        request = StartRequest(command, cwd=_absolute(working_dir), env=env)
        shell = await self.run(self._start_held, request, discard=ShellProcess.discard)
        # Not before its caller waits for something else.
        do_soon(current_token(), shell.let_go)
        return shell

    async def _start_held(self, request: StartRequest) -> ShellProcess:
        """Start a command, whose caller is to see it running, however short it is.

        Its end is not told before `ShellProcess.let_go`. If this is cancelled the command is
        killed, as nobody would know of it.
        """
        shell = await self.start(request)
        shell.hold()
        try:
            await wait_for_start(shell)
        except anyio.get_cancelled_exc_class():
            shell.discard()
            raise
        return shell

    async def start(self, request: StartRequest) -> ShellProcess:
        """Hand a command to a runner, without waiting to hear whether it could be started.

        On the scope's event loop. Raises `RpcError` (resource_exhausted, spawn_failed,
        shutting_down).
        """
        scope = self._running_scope
        limit = self.options.max_shells
        for _ in range(_TURNS_TO_RELEASE):
            if len(self._live) + self._starting_count < limit:
                break
            # Shells whose end was told just now may be about to be released.
            await checkpoint()
        else:
            raise resource_exhausted("max_shells", f"Too many shells are running: {limit}")
        self._starting_count += 1
        try:
            return await scope.start(request)
        except ConnectionError as error:
            # The runner was never forked.
            raise spawn_failed(errno.EAGAIN, "exec") from error
        except OSError as error:
            raise spawn_failed(error.errno or 0, "exec") from error
        finally:
            self._starting_count -= 1

    def _enter(self, shell: ShellProcess, *, by_spare: bool) -> None:
        self._live.add(shell)
        self._shells[shell.id] = shell
        self.started_count += 1
        self.spares_used += by_spare

    def _released(self, shell: ShellProcess) -> None:
        self._live.discard(shell)
        if shell.failure is not None:
            self._forget(shell)
            return
        # It has been logged, and its result has the command from its request.
        shell.shorten()
        self._ended[shell] = None
        self._forget_excess()

    @contextlib.contextmanager
    def reading(self, shell: ShellProcess) -> Generator[None]:
        """Keep a shell that has ended, with its output, while a request reads it."""
        self.begin_reading(shell)
        try:
            yield
        finally:
            self.end_reading(shell)

    def begin_reading(self, shell: ShellProcess) -> None:
        shell.output.pin()

    def end_reading(self, shell: ShellProcess) -> None:
        shell.output.unpin()
        self._forget_excess()

    def _forget_excess(self) -> None:
        """Forget the shells that ended first, if too many are kept; none that a request reads."""
        excess = len(self._ended) - self.options.max_retained
        if excess > 0:
            unread = (shell for shell in self._ended if not shell.output.is_pinned)
            for shell in list(itertools.islice(unread, excess)):
                self._forget(shell)

    def _forget(self, shell: ShellProcess) -> None:
        self._ended.pop(shell, None)
        if self._shells.pop(shell.id, None) is not None and self._scope is not None:
            self._scope.retention.forget(shell.output)

    # -- looking ----------------------------------------------------------------------------

    def get(self, shell_id: str) -> ShellProcess:
        """Return a shell. Raises `RpcError` (shell_not_found)."""
        shell = self.get_shell(shell_id)
        if shell is None:
            raise shell_not_found(shell_id, expired=self._ids.was_given(shell_id))
        return shell

    def get_shell(self, shell_id: str) -> ShellProcess | None:
        """Return a shell that runs or is retained."""
        shell = self._shells.get(shell_id)
        expired = shell is not None and shell.ended_before(self.options.retain_seconds)
        return None if expired else shell

    def list_shells(self) -> list[ShellProcess]:
        """Return running and retained shells in start order."""
        limit = self.options.retain_seconds
        return [shell for shell in list(self._shells.values()) if not shell.ended_before(limit)]

    def list_running(self) -> list[ShellProcess]:
        """Return the shells that run or are about to, in start order."""
        return [shell for shell in list(self._shells.values()) if not shell.has_ended]

    def get_session(self, name: str) -> Session:
        """Return a session. Raises `RpcError` (session_not_found) for one that was never used."""
        return self._running_scope.sessions.known(name)

    def look_at_session(self, name: str | None) -> Session:
        """Return a session as its next command will find it; none is made for that."""
        return self._running_scope.sessions.look_at(name)

    def list_sessions(self) -> dict[str, Session]:
        """Return all sessions by name; the default one always exists."""
        return self._running_scope.sessions.all()

    @property
    def filters(self) -> Filters:
        return self._running_scope.filters

    @property
    def spool_bytes(self) -> int:
        """How much disk space the output of all shells takes."""
        return self._running_scope.retention.spool_bytes

    async def runner_info(self) -> RunnerInfo | None:
        """Return what a runner said of itself, once one can be had; None if none can.

        On the scope's event loop.
        """
        return await self._running_scope.runner_info()

    # -- ending -----------------------------------------------------------------------------

    async def close_session(self, name: str) -> list[ShellProcess]:
        """Kill a session's shells and what they left, and forget it; return those.

        On the scope's event loop. Raises `RpcError` (session_not_found) for one that was never
        used; the default one always exists.
        """
        scope = self._running_scope
        scope.sessions.known(name)
        # First, so that a failure here leaves a session that can be closed again.
        scope.spares.end(name)
        scope.sessions.forget(name)
        return await self._kill(
            [shell for shell in self._shells.values() if shell.session == name],
            self.options.grace_ms,
        )

    async def kill_all(self, grace_ms: int | None = None) -> int:
        """Kill every shell and everything any of them left; return how many were not empty."""
        scope = self._scope
        return 0 if scope is None else await scope.home.call(self._kill_all, grace_ms)

    async def _kill_all(self, grace_ms: int | None) -> int:
        grace = self.options.grace_ms if grace_ms is None else grace_ms
        return len(await self._kill(self._shells.values(), grace))

    async def _kill(self, shells: Iterable[ShellProcess], grace: int) -> list[ShellProcess]:
        shells = [shell for shell in shells if not shell.is_empty]
        number = signal.SIGTERM if grace else signal.SIGKILL
        async with anyio.create_task_group() as kills:
            for shell in shells:
                kills.start_soon(shell.end_tree, number, grace)
        return shells

    def cleanup_completed(self, max_age_seconds: float = 3_600) -> int:
        """Forget shells that ended longer ago and left nothing running; return how many."""
        scope = self._scope
        forget = self._forget_older_than
        return (
            forget(max_age_seconds)
            if scope is None
            else scope.home.call_sync(forget, max_age_seconds)
        )

    def _forget_older_than(self, seconds: float) -> int:
        expired = [
            shell
            for shell in self._shells.values()
            if shell.ended_before(seconds) and not shell.output.is_pinned
        ]
        for shell in expired:
            self._forget(shell)
        return len(expired)

    async def _sweep(self, scope: Scope) -> None:
        while True:
            await anyio.sleep(_SWEEP_S)
            self._forget_older_than(self.options.retain_seconds)
            scope.spares.trim()
            scope.pool.trim()


def _absolute(working_dir: str) -> str:
    """Return a directory relative to where the program is now, not where it was once."""
    try:
        return os.path.abspath(working_dir)
    except FileNotFoundError:
        # Where it is now was deleted.
        return working_dir


def _ignore(_shell: ShellProcess) -> None:
    pass


os.register_at_fork(after_in_child=ShellManager.forget_after_fork)


def raise_failure(shell: ShellProcess) -> None:
    """Raise `RpcError` (spawn_failed, resource_exhausted) if the command could not be started."""
    if shell.failure is not None:
        raise spawn_failed(*shell.failure)


async def wait_for_start(shell: ShellProcess) -> None:
    """Wait until a command runs, or has run. Raises `RpcError` (spawn_failed)."""
    pending = ShellStatus.PENDING
    await shell.wait_until(lambda: shell.status is not pending or shell.failure is not None)
    started_pid(shell)


def started_pid(shell: ShellProcess) -> int:
    """Return the pid of a command that is not pending. Raises `RpcError` if it never had one."""
    raise_failure(shell)
    if shell.pid is None:
        # Without a reason, a kill came before the start. Otherwise its runner was lost, perhaps as
        # soon as the command ran.
        killed_before = shell.reason is None
        raise spawn_failed(errno.ECANCELED if killed_before else errno.ECHILD, "exec")
    return shell.pid
