"""The manager owns every shell. Only the manager starts, kills and forgets shells.

Inside ``async with``, the manager has a `Runtime`, with a task for each shell. At the end of the
block, it kills and forgets all shells. A manager belongs to the event loop on which it was entered.

Invariant: at most `max_shells` shells are running or have processes left. The manager never forgets
such a shell.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import signal
from collections.abc import Awaitable, Callable, Generator, Iterable
from functools import partial
from types import TracebackType
from typing import Final

import anyio
import anyio.abc
from anyio.lowlevel import checkpoint

from shelld.eventloop.turns import Turns
from shelld.filters.filter import Filters
from shelld.inspection.socket_news import SocketNews
from shelld.keeper.channel import RunnerInfo
from shelld.keeper.pool import RunnerPool
from shelld.process import faults
from shelld.screens.screens import Screens
from shelld.sessions.session import Session
from shelld.sessions.sessions import Sessions
from shelld.shells.deadlines import LAST_KILL_S
from shelld.shells.ids import ShellIds
from shelld.shells.launch import StartRequest
from shelld.shells.options import ManagerOptions
from shelld.shells.runtime import Runtime
from shelld.shells.shell import Shell
from shelld.terminals.input import TerminalInput
from shelld_protocol.errors import resource_exhausted, shell_not_found, spawn_failed

# The time between two sweeps, which drop expired shells and unneeded runners.
_SWEEP_S: Final = 15.0

# After this many iterations of the event loop, a shell without processes has certainly been
# released.
_TURNS_TO_RELEASE: Final = 4


class Manager:
    """Calls `on_start` with every shell that starts, `on_end` with every shell that has ended, and
    each function in `on_forget` with every shell that the manager forgets. Calls `on_close` before
    it kills the remaining shells. Only `on_end` may raise.
    """

    def __init__(
        self,
        options: ManagerOptions | None = None,
        *,
        pool: RunnerPool | None = None,
        on_end: Callable[[Shell], None] | None = None,
    ) -> None:
        self.options = options or ManagerOptions()
        self.started_count = 0
        self.on_close: Callable[[], None] = _nothing
        self.on_start: Callable[[Shell], None] = _nothing
        self.on_forget: list[Callable[[Shell], None]] = []
        # The pool of the first ``async with`` block. Each later block has its own pool.
        self._pool = pool
        self._on_end = on_end or _nothing
        self._ids = ShellIds()
        # All shells by id, in start order.
        self._shells: dict[str, Shell] = {}
        # `_live` has the shells that run or have processes left. `_starting_count` is the number of
        # shells that are about to start.
        self._live: set[Shell] = set()
        self._starting_count = 0
        # Retained shells without processes, in the order in which they became empty.
        self._ended: dict[Shell, None] = {}
        self._tasks: anyio.abc.TaskGroup | None = None
        self._runtime: Runtime | None = None

    # -- running ----------------------------------------------------------------------------

    async def __aenter__(self) -> Manager:
        if self._tasks is not None:
            raise RuntimeError("the shell manager is running already")
        self._tasks = await anyio.create_task_group().__aenter__()
        pool, self._pool = self._pool or RunnerPool(), None
        try:
            self._runtime = Runtime(
                self._tasks,
                self.options,
                pool,
                ids=self._ids,
                on_enter=self._enter,
                on_end=self._on_end,
                on_release=self._released,
            )
        except BaseException as error:
            tasks, self._tasks = self._tasks, None
            await tasks.__aexit__(type(error), error, error.__traceback__)
            raise
        self._tasks.start_soon(
            faults.keep_running, partial(self._sweep, self._runtime), "the sweep"
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        tasks, self._tasks = self._tasks, None
        assert tasks is not None
        try:
            try:
                self.runtime.stop_starting()
                with anyio.CancelScope(shield=True):
                    self.on_close()
                    with anyio.move_on_after(LAST_KILL_S):
                        await self.kill_all(0)
            finally:
                # asyncio may cancel this task in spite of any shield.
                tasks.cancel_scope.cancel()
                is_handled = await tasks.__aexit__(kind, error, traceback)
            return is_handled
        except BaseExceptionGroup as group:
            if error is None or group.exceptions != (error,):
                raise
            # The group contains only the exception that has ended the ``async with`` block. Return
            # False, so that this exception propagates unchanged.
            return False
        finally:
            runtime, self._runtime = self.runtime, None
            runtime.close()
            self._shells.clear()
            self._ended.clear()

    @property
    def runtime(self) -> Runtime:
        """The parts of the running manager. Raises RuntimeError if it is not running."""
        if self._runtime is None:
            raise RuntimeError("the shell manager is not running")
        return self._runtime

    @property
    def sessions(self) -> Sessions:
        return self.runtime.sessions

    @property
    def filters(self) -> Filters:
        return self.runtime.filters

    @property
    def check_turns(self) -> Turns:
        """Gives turns to the tasks that check the processes of commands."""
        return self.runtime.check_turns

    @property
    def socket_news(self) -> SocketNews:
        return self.runtime.socket_news

    @property
    def screens(self) -> Screens:
        return self.runtime.screens

    @property
    def spares_used(self) -> int:
        """The number of commands that a spare shell has run."""
        return self.runtime.spares.used

    @property
    def spool_bytes(self) -> int:
        """The disk space that the output of all shells takes."""
        return self.runtime.retention.spool_bytes

    async def runner_info(self) -> RunnerInfo | None:
        """Wait for a runner; return its report about itself, or None if no runner can start."""
        return await self.runtime.runner_info()

    # -- starting ---------------------------------------------------------------------------

    async def start(self, request: StartRequest) -> Shell:
        """Hand a command to a runner. Does not wait until bash has started, so bash may still fail
        to start.

        Raises `RpcError` (resource_exhausted, spawn_failed, shutting_down).
        """
        runtime = self.runtime
        limit = self.options.max_shells
        for _ in range(_TURNS_TO_RELEASE):
            if len(self._live) + self._starting_count < limit:
                break
            # Give the manager time to release shells that have just ended.
            await checkpoint()
        else:
            raise resource_exhausted("max_shells", f"Too many shells are running: {limit}")
        self._starting_count += 1
        try:
            return await runtime.start(request)
        except ConnectionError as error:
            # The runner was never forked.
            raise spawn_failed(errno.EAGAIN, "exec") from error
        except OSError as error:
            raise spawn_failed(error.errno or 0, "exec") from error
        finally:
            self._starting_count -= 1

    async def enter_sandbox(self, session: Session) -> None:
        """Start the sandbox of a session, if it has one, before its first command.

        Raises `RpcError` (unavailable, resource_exhausted, shutting_down).
        """
        try:
            if session.sandbox is not None:
                await self.runtime.places.enter(session.sandbox)
        except OSError as error:
            raise spawn_failed(error.errno or errno.EAGAIN, "exec") from error

    def attend(self, task: Callable[[], Awaitable[None]]) -> None:
        """Run a task that does some work for one shell, such as watching it. If the task fails, run
        it again. The task must end when the shell ends.
        """
        self.runtime.tasks.start_soon(faults.keep_running, task, "a background task of a shell")

    def _enter(self, shell: Shell) -> None:
        self._live.add(shell)
        self._shells[shell.id] = shell
        self.started_count += 1
        self.on_start(shell)

    def _released(self, shell: Shell) -> None:
        self._live.discard(shell)
        if shell.failure is not None:
            self._forget(shell)
            return
        # The audit log and the answer already have the whole command, so the record can shorten it.
        shell.shorten()
        self._ended[shell] = None
        self._forget_excess()

    # -- looking ----------------------------------------------------------------------------

    def get(self, shell_id: str) -> Shell:
        """Return a running or retained shell. Raises `RpcError` (shell_not_found)."""
        shell = self._shells.get(shell_id)
        if shell is None or shell.ended_before(self.options.retain_seconds):
            raise shell_not_found(shell_id, expired=self._ids.was_given(shell_id))
        return shell

    def list_shells(self) -> list[Shell]:
        """Return running and retained shells in start order."""
        limit = self.options.retain_seconds
        return [shell for shell in list(self._shells.values()) if not shell.ended_before(limit)]

    def list_running(self) -> list[Shell]:
        """Return the shells that run or are about to start, in start order."""
        return [shell for shell in list(self._shells.values()) if not shell.has_ended]

    @contextlib.contextmanager
    def reading(self, shell: Shell) -> Generator[None]:
        """Retain an ended shell, with its output, while a request reads it."""
        shell.output.pin()
        try:
            yield
        finally:
            shell.output.unpin()
            self._forget_excess()

    # -- forgetting -------------------------------------------------------------------------

    def forget_older_than(self, seconds: float) -> int:
        """Forget the shells whose last process ended at least `seconds` ago.

        Returns their number.
        """
        expired = [
            shell
            for shell in self._shells.values()
            if shell.ended_before(seconds) and not shell.output.is_pinned
        ]
        for shell in expired:
            self._forget(shell)
        return len(expired)

    def _forget_excess(self) -> None:
        """If there are too many ended shells, forget the oldest ones. Keep each shell whose output
        a request is reading.
        """
        excess = len(self._ended) - self.options.max_retained
        if excess > 0:
            unread = (shell for shell in self._ended if not shell.output.is_pinned)
            for shell in list(itertools.islice(unread, excess)):
                self._forget(shell)

    def _forget(self, shell: Shell) -> None:
        self._ended.pop(shell, None)
        self._shells.pop(shell.id, None)
        if self._runtime is not None:
            self._runtime.retention.forget(shell.output)
            if isinstance(shell.input, TerminalInput):
                self._runtime.screens.forget(shell.input)
        for tell in self.on_forget:
            tell(shell)

    async def _sweep(self, runtime: Runtime) -> None:
        while True:
            await anyio.sleep(_SWEEP_S)
            self.forget_older_than(self.options.retain_seconds)
            runtime.spares.trim()
            runtime.pool.trim()
            runtime.screens.trim()
            runtime.limiter.trim()
            runtime.places.trim()

    # -- ending -----------------------------------------------------------------------------

    async def close_session(self, name: str) -> list[Shell]:
        """Kill a session's shells with all their processes. Forget the session. Return the shells.

        Raises `RpcError` (session_not_found) for a session that was never used. The default session
        always exists.
        """
        runtime = self.runtime
        session = runtime.sessions.known(name)
        # End the spare shells first. If this fails, the caller can close the session again.
        runtime.spares.close_session(name)
        runtime.sessions.forget(name)
        runtime.limiter.forget(session)
        return await self._kill(
            [shell for shell in self._shells.values() if shell.session == name],
            self.options.grace_ms,
        )

    async def kill_all(self, grace_ms: int | None = None) -> int:
        """Kill every shell with all its processes. Return how many shells had processes."""
        grace = self.options.grace_ms if grace_ms is None else grace_ms
        return len(await self._kill(self._shells.values(), grace))

    async def _kill(self, shells: Iterable[Shell], grace: int) -> list[Shell]:
        shells = [shell for shell in shells if not shell.is_empty]
        number = None if grace else signal.SIGKILL
        async with anyio.create_task_group() as kills:
            for shell in shells:
                kills.start_soon(shell.end_tree, number, grace)
        return shells


def _nothing(*_: object) -> None:
    pass
