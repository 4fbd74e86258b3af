"""The manager owns every shell: nobody else starts, kills or forgets one.

Its running scope (``async with``) holds one task a shell, in one task group, and the pool of
runners. Leaving the scope kills what still runs.

Invariants:

* A shell is in the table, and its task started, before anything is awaited after its command was
  handed to a runner.
* At most `max_shells` shells are running or have processes left; none of those is ever evicted.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from types import TracebackType
from typing import Final

import anyio
import anyio.abc
from msgspec import Struct

from shelld.keeper.channel import Channel, RunnerInfo
from shelld.keeper.pool import RunnerPool
from shelld.output.retention import DEFAULT_RETAIN_BYTES, DEFAULT_RETAIN_TOTAL_BYTES, Retention
from shelld.shells.ids import ShellIds
from shelld.shells.launch import CommandLaunch, Launch, StartRequest
from shelld.shells.lifecycle import ShellStatus
from shelld.shells.oom import OomKills
from shelld.shells.process import ShellProcess
from shelld.shells.session import DEFAULT_SESSION, Session
from shelld.shells.spare import DEFAULT_SPARE_SHELLS, Spare, SpareLaunch, Spares
from shelld.shells.state import first_state
from shelld.shells.supervision import START_TIMEOUT_S, Supervision
from shelld_protocol.errors import (
    resource_exhausted,
    session_not_found,
    shell_not_found,
    shutting_down,
    spawn_failed,
)

# Commands that have been handed over and are not known to run yet. A burst of a thousand waits
# here, where it costs nothing, and other requests are answered meanwhile.
MAX_STARTING: Final = 32

# For the last SIGKILLs to be carried out when the scope is left. Runners go on without us.
EXIT_KILL_S: Final = 0.3

# How often ended shells are looked through for expired ones, and runners for those not needed.
_SWEEP_S: Final = 15.0


class ManagerOptions(Struct, frozen=True):
    """Limits (contract: Retention). `bash` is what runs commands."""

    bash: str = "/bin/bash"
    max_shells: int = 256
    max_retained: int = 1_000
    retain_seconds: int = 3_600
    retain_bytes: int = DEFAULT_RETAIN_BYTES
    retain_total_bytes: int = DEFAULT_RETAIN_TOTAL_BYTES
    spool_directory: str | None = None
    spare_shells: int = DEFAULT_SPARE_SHELLS
    grace_ms: int = 1_000


class ShellManager:
    def __init__(
        self,
        options: ManagerOptions | None = None,
        *,
        pool: RunnerPool | None = None,
        on_end: Callable[[ShellProcess], None] = lambda _shell: None,
    ) -> None:
        self.options = options or ManagerOptions()
        self.started_count = 0
        # Of those, how many had a bash that was waiting for them.
        self.spares_used = 0
        self.pool = pool or RunnerPool()
        self._oom_kills = OomKills()
        self._runner_info: RunnerInfo | None = None
        self._on_end = on_end
        # In start order, which is also nearly the order of ending.
        self._shells: dict[str, ShellProcess] = {}
        # Running, or with processes left.
        self._live_count = 0
        self._retention = Retention(
            self.options.retain_bytes,
            self.options.retain_total_bytes,
            self.options.spool_directory,
        )
        self._sessions: dict[str, Session] = {}
        self._base = first_state(os.fsencode(_current_directory()), dict(os.environb))
        self._no_session = Session(None, self._base)
        self._spares = Spares(self._start_spare, self.options.spare_shells)
        self._ids = ShellIds()
        self._starting = anyio.Semaphore(MAX_STARTING, fast_acquire=True)
        self._tasks: anyio.abc.TaskGroup | None = None

    async def __aenter__(self) -> ShellManager:
        self._tasks = await anyio.create_task_group().__aenter__()
        self._tasks.start_soon(self._sweep)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        # From here on nothing is started.
        tasks, self._tasks = self._tasks, None
        assert tasks is not None
        self._spares.close()
        try:
            with anyio.move_on_after(EXIT_KILL_S, shield=True):
                await self.kill_all(0)
        finally:
            tasks.cancel_scope.cancel()
            try:
                result = await tasks.__aexit__(kind, error, traceback)
            finally:
                self.pool.close()
                self._oom_kills.close()
                self._retention.close()
        return result

    # -- starting ---------------------------------------------------------------------------

    async def create_shell(
        self, command: str, working_dir: str, env: dict[str, str | None] | None = None
    ) -> ShellProcess:
        """Start a command in the background. Raises `RpcError`: spawn_failed and others."""
        return await self.start_and_wait(StartRequest(command, cwd=working_dir, env=env))

    async def start_and_wait(self, request: StartRequest) -> ShellProcess:
        """Start a command and return once it runs. Raises `RpcError`, as `start` does."""
        shell = await self.start(request)
        pending = ShellStatus.PENDING
        await shell.wait_until(lambda: shell.status is not pending or shell.failure is not None)
        raise_failure(shell)
        if shell.pid is None:
            # Lost as soon as it ran, if it did. What there is to be known of it can be read.
            raise spawn_failed(errno.ECHILD, "exec")
        return shell

    async def start(self, request: StartRequest) -> ShellProcess:
        """Hand a command to a runner, without waiting to hear whether it could be started.

        Waits while `MAX_STARTING` others are being started. Raises `RpcError` (resource_exhausted,
        spawn_failed, shutting_down).
        """
        if self._tasks is None:
            raise RuntimeError("the manager is not running")
        limit = self.options.max_shells
        if self._live_count >= limit:
            raise resource_exhausted("max_shells", f"Too many shells are running: {limit}")
        self._live_count += 1
        try:
            return await self._start(request)
        except BaseException as error:
            self._live_count -= 1
            if isinstance(error, ConnectionError):
                # The runner was never forked.
                raise spawn_failed(errno.EAGAIN, "exec") from error
            if isinstance(error, OSError):
                raise spawn_failed(error.errno or 0, "exec") from error
            raise

    async def _start(self, request: StartRequest) -> ShellProcess:
        session = self._session(request.session)
        spare = await self._spares.take(session, request)
        if spare is not None and self._start_in(spare, request, session):
            self._spares.command_started(session, spare)
            return spare.supervision.shell
        await self._starting.acquire()
        try:
            return self._start_new(request)
        except BaseException:
            self._starting.release()
            raise

    def _start_in(self, spare: Spare, request: StartRequest, session: Session) -> bool:
        """Whether a bash that has waited runs the command now."""
        if self._tasks is None:
            raise shutting_down()
        supervision = spare.supervision
        supervision.shell.assign(self._ids.next(), request, session.resolve(request.cwd))
        try:
            supervision.run_command(request)
        except OSError:
            # Somebody has ended it, say.
            supervision.discard()
            self._spares.note_use(succeeded=False)
            return False
        self._spares.note_use(succeeded=True)
        self._enter(supervision)
        self.spares_used += 1
        return True

    def _start_new(self, request: StartRequest) -> ShellProcess:
        """Hand over and own: no await from here to the start of the task."""
        if self._tasks is None:
            # It ended while this start waited for its turn.
            raise shutting_down()
        session = self._session(request.session)
        launch = CommandLaunch(request, session, self.options.bash)
        supervision = self._supervise(launch, on_start=self._starting.release)
        supervision.shell.assign(self._ids.next(), request, session.resolve(request.cwd))
        supervision.set_timeout(request.timeout)
        self._enter(supervision)
        return supervision.shell

    def _start_spare(self, session: Session) -> Spare:
        launch = SpareLaunch(session, self.options.bash)
        return Spare(launch, self._supervise(launch))

    def _supervise(
        self, launch: Launch, on_start: Callable[[], None] = lambda: None
    ) -> Supervision:
        """Hand over to a runner, and start the task that watches over what becomes of it."""
        assert self._tasks is not None
        with ExitStack() as undo:
            undo.callback(launch.close)
            channel = self.pool.acquire()
            undo.callback(self.pool.release, channel)
            output = self._retention.open()
            undo.callback(self._retention.forget, output)
            supervision = Supervision(
                ShellProcess(output),
                channel,
                launch,
                pool=self.pool,
                oom_kills=self._oom_kills,
                on_start=on_start,
                on_end=self._on_end,
                release=self._released,
            )
            # The last thing that can fail.
            launch.hand_over(channel)
            undo.pop_all()
        self._tasks.start_soon(supervision.run)
        return supervision

    def _enter(self, supervision: Supervision) -> None:
        shell = supervision.shell
        shell.supervision = supervision
        self._shells[shell.id] = shell
        self.started_count += 1

    def _released(self, supervision: Supervision, channel: Channel | None) -> None:
        shell = supervision.shell
        if channel is not None:
            self.pool.release(channel)
        if supervision.launch.is_waiting:
            # It has run no command, and never will.
            self._spares.has_ended(supervision)
            self._retention.forget(shell.output)
            return
        self._live_count -= 1
        if shell.failure is not None:
            self._forget(shell)
            return
        self._retention.finish(shell.output)
        while len(self._shells) - self._live_count > self.options.max_retained:
            self._forget(next(shell for shell in self._shells.values() if shell.is_empty))
        is_open = shell.session is None or shell.session in self._sessions
        if shell.in_foreground and is_open and self._tasks is not None:
            self._spares.command_ended(self._session(shell.session))

    def _forget(self, shell: ShellProcess) -> None:
        del self._shells[shell.id]
        self._retention.forget(shell.output)

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
        if shell is not None and self._ended_before(shell, self.options.retain_seconds):
            self._forget(shell)
            return None
        return shell

    def list_shells(self) -> list[ShellProcess]:
        """Return running and retained shells in start order."""
        self.cleanup_completed(self.options.retain_seconds)
        return list(self._shells.values())

    @property
    def spool_bytes(self) -> int:
        """How much disk space the output of all shells takes."""
        return self._retention.spool_bytes

    def list_running(self) -> list[ShellProcess]:
        return [shell for shell in self._shells.values() if shell.is_running]

    async def runner_info(self) -> RunnerInfo | None:
        """Return what a runner said of itself, once one can be had; None if none can."""
        if self._runner_info is None:
            with contextlib.suppress(OSError), anyio.move_on_after(START_TIMEOUT_S):
                channel = self.pool.acquire()
                try:
                    while channel.peer is None and channel.is_open:
                        await anyio.wait_readable(channel)
                        if channel.receive() is None:
                            channel.close()
                    self._runner_info = channel.peer
                finally:
                    self.pool.release(channel)
        return self._runner_info

    # -- ending -----------------------------------------------------------------------------

    async def close_session(self, name: str) -> list[ShellProcess]:
        """Kill a session's shells and what they left, and forget it; return those.

        Raises `RpcError` (session_not_found) for one that was never used; the default one always
        exists.
        """
        if name not in self._sessions and name != DEFAULT_SESSION:
            raise session_not_found(name)
        self._sessions.pop(name, None)
        self._spares.end(name)
        return await self._kill(
            [shell for shell in self._shells.values() if shell.session == name],
            self.options.grace_ms,
        )

    async def kill_all(self, grace_ms: int | None = None) -> int:
        """Kill every shell and everything any of them left; return how many were not empty."""
        grace = self.options.grace_ms if grace_ms is None else grace_ms
        return len(await self._kill(self._shells.values(), grace))

    async def _kill(self, shells: Iterable[ShellProcess], grace: int) -> list[ShellProcess]:
        shells = [shell for shell in shells if not shell.is_empty]
        number = signal.SIGTERM if grace else signal.SIGKILL
        async with anyio.create_task_group() as kills:
            for shell in shells:
                kills.start_soon(shell.kill, number, grace)
        return shells

    def cleanup_completed(self, max_age_seconds: float) -> int:
        """Forget shells that ended longer ago and left nothing running; return how many."""
        expired = [
            shell for shell in self._shells.values() if self._ended_before(shell, max_age_seconds)
        ]
        for shell in expired:
            self._forget(shell)
        return len(expired)

    def _ended_before(self, shell: ShellProcess, seconds: float) -> bool:
        """Whether a shell ended that long ago, and nothing of it is left."""
        ended = shell.completed_at
        return shell.is_empty and ended is not None and ended <= time.time() - seconds

    async def _sweep(self) -> None:
        while True:
            await anyio.sleep(_SWEEP_S)
            self.cleanup_completed(self.options.retain_seconds)
            self._spares.trim()
            self.pool.trim()

    def _session(self, name: str | None) -> Session:
        if name is None:
            return self._no_session
        session = self._sessions.get(name)
        if session is None:
            session = self._sessions[name] = Session(name, self._base)
        return session

    def get_session(self, name: str) -> Session:
        """Return a session. Raises `RpcError` (session_not_found) for one that was never used."""
        if name not in self._sessions and name != DEFAULT_SESSION:
            raise session_not_found(name)
        return self._session(name)

    def list_sessions(self) -> dict[str, Session]:
        """Return all sessions by name; the default one always exists."""
        self._session(DEFAULT_SESSION)
        return self._sessions


def raise_failure(shell: ShellProcess) -> None:
    """Raise `RpcError` (spawn_failed, resource_exhausted) if the command could not be started."""
    if shell.failure is not None:
        raise spawn_failed(*shell.failure)


def _current_directory() -> str:
    try:
        return os.getcwd()
    except FileNotFoundError:
        # Deleted under the daemon: commands still run there, and say so themselves.
        return os.environ.get("PWD", "/")
