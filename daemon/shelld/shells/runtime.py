"""Holds the parts of a running manager: supervisors, runners, spare shells, sessions, the spool.

Starts commands. The manager, not this module, decides whether a command may start, and knows all
shells.

Invariant: nothing is awaited after a command was handed to a runner and before its supervisor
starts.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Awaitable, Callable
from typing import Final

import anyio
import anyio.abc

from shelld.eventloop.pipe_locks import PipeWatch
from shelld.eventloop.readiness import PollerPool
from shelld.eventloop.turns import Turns
from shelld.eventloop.workers import Workers
from shelld.filters.filter import Filters
from shelld.inspection.socket_news import SocketNews
from shelld.keeper.channel import Channel, RunnerInfo
from shelld.keeper.inherited import environment
from shelld.keeper.pool import RunnerPool
from shelld.limits.limiter import Limiter
from shelld.limits.members import Member
from shelld.output.retention import Retention, ShellOutput
from shelld.process import faults
from shelld.sandbox.policy import ResolvedPolicy
from shelld.sandbox.sandbox import Sandbox
from shelld.sandbox.sandboxes import SandboxKey
from shelld.screens.screens import Screens
from shelld.sessions.environment import EnvironmentRules
from shelld.sessions.session import Session
from shelld.sessions.sessions import Sessions
from shelld.sessions.text import current_directory
from shelld.shells.deadlines import START_TIMEOUT_S
from shelld.shells.ids import ShellIds
from shelld.shells.launch import CommandLaunch, Launch, StartRequest, StateChangedError
from shelld.shells.life import Life
from shelld.shells.links import Links
from shelld.shells.moments import Moment
from shelld.shells.oom import OomKills
from shelld.shells.options import ManagerOptions
from shelld.shells.outcome import Outcome
from shelld.shells.places import Place, Places
from shelld.shells.shell import Shell
from shelld.shells.spare import Spare, SpareLaunch
from shelld.shells.spare_policy import SparePolicy
from shelld.shells.spares import Spares
from shelld.shells.supervisor import Supervisor
from shelld.terminals.input import TerminalInput
from shelld_protocol.errors import session_closed, shutting_down, unavailable

# The number of commands that may be starting at once. If a thousand commands come in a burst, most
# of them wait for their turn at no cost, and the daemon answers other requests meanwhile.
MAX_STARTING: Final = 32

_TMP_HINT: Final = "Set tmp to shared, or let the daemon create cgroups."


class Runtime:
    """Calls `on_enter` after a command was handed over, `on_end` after it has ended, and
    `on_release` when no process of the command is left.
    """

    def __init__(
        self,
        tasks: anyio.abc.TaskGroup,
        options: ManagerOptions,
        pool: RunnerPool,
        *,
        ids: ShellIds,
        on_enter: Callable[[Shell], None],
        on_end: Callable[[Shell], None],
        on_release: Callable[[Shell], None],
    ) -> None:
        self.tasks = tasks
        self.pool = pool
        self.filters = Filters(pool)
        self.check_turns = Turns()
        self.socket_news = SocketNews()
        self.screens = Screens(pool, self._start_task)
        self.retention = Retention(
            options.retain_bytes, options.retain_total_bytes, options.spool_directory
        )
        cwd, env = os.fsencode(current_directory()), environment()
        rules = EnvironmentRules(options.env)
        self.sessions = Sessions(
            cwd, env, pool.directory, rules, limits=options.limits, sandbox=options.sandbox
        )
        self.limiter = Limiter(self._start_watch)
        self._options = options
        self._oom_kills = OomKills()
        self._on_enter = on_enter
        self._on_end = on_end
        self._on_release = on_release
        policy = SparePolicy(time.monotonic, options.spare_shells, _processors())
        self.spares = Spares(
            self._start_spare, self.limiter.may_start_spare, policy, self.sessions.get(None)
        )
        self.places = Places(pool, self._start_sandbox, options.bash, self.spares.end_in)
        self._ids = ids
        self._starting = anyio.Semaphore(MAX_STARTING, fast_acquire=True)
        self._is_open = True
        self._runner_info: RunnerInfo | None = None
        self._pollers = PollerPool()
        self._clock = asyncio.get_running_loop().time
        self._tasks = Workers(tasks, Supervisor.run, Supervisor.give_up)
        # The commands and spare shells that have a supervisor.
        self._lives: set[Life] = set()
        self._pipe_watch = PipeWatch(lambda: len(self._lives) > self.spares.count)

    def stop_starting(self) -> None:
        """Start no more commands."""
        self._is_open = False
        self.spares.close()
        self.places.stop()

    def _start_task(self, task: Callable[[], Awaitable[None]]) -> None:
        self.tasks.start_soon(faults.run_once, task, "the answer to a terminal's program")

    def _start_watch(self, task: Callable[[], Awaitable[None]]) -> None:
        self.tasks.start_soon(faults.keep_running, task, "the watch of limits")

    def _start_sandbox(self, task: Callable[[], Awaitable[None]]) -> None:
        self.tasks.start_soon(faults.keep_running, task, "a sandbox")

    def close(self) -> None:
        """Close all parts. Call this after the tasks have ended."""
        self._pipe_watch.close()
        self.screens.close()
        self._pollers.close()
        self.pool.close()
        self.limiter.close()
        self.places.close()
        self.sessions.close()
        self._oom_kills.close()
        self.retention.close()

    def abandon(self) -> None:
        """In a forked child, close its copies of the parent's channels and pipes.

        Otherwise runners would not see that the parent has ended, and a spare shell would wait
        until the child closes its copy of the pipe.
        """
        for life in self._lives:
            life.links.channel.close()
            life.launch.close()
        self.places.abandon()
        self.pool.abandon()

    async def start(self, request: StartRequest) -> Shell:
        """Hand a command to a spare shell or to a runner.

        Waits while `MAX_STARTING` other commands are starting. Raises OSError, and `RpcError`
        (shutting_down, spawn_failed, unavailable, resource_exhausted). Raises StateChangedError if
        the session's state is no longer `request.judged_state`, or if the request tightens a
        sandbox that the session no longer has.
        """
        # Check before a spare shell is taken, because a later failure would waste the spare shell.
        # Also check before a closed session is created again, because the guard may refuse the
        # command.
        self._check(self.sessions.peek(request.session), request)
        session = self.sessions.get(request.session)
        key = request.sandbox or session.sandbox
        place = self.places.outside if key is None else await self.places.enter(key)
        session.is_used = True
        spare = await self._take_spare(session, request)
        try:
            if spare is not None and self._start_in(spare, request, session):
                self._prepare_next(self.spares.command_started, session, spare.life.shell)
                return spare.life.shell
        except BaseException:
            if spare is not None:
                spare.life.discard()
            raise
        await self._starting.acquire()
        shell = self._start_new(request, session, place)
        self._prepare_next(self.spares.command_started, session, shell)
        return shell

    async def _take_spare(self, session: Session, request: StartRequest) -> Spare | None:
        try:
            return await self.spares.take(session, request)
        except Exception:
            # Without a spare shell, the command gets a new bash.
            faults.report("choosing a spare shell")
            return None

    async def runner_info(self) -> RunnerInfo | None:
        """Wait for a runner; return its report about itself, or None if no runner can start."""
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

    def _start_in(self, spare: Spare, request: StartRequest, session: Session) -> bool:
        """Let a spare shell run the command. Return False if the spare shell cannot run it.

        Discards the spare shell after a failure.
        """
        life, shell = spare.life, spare.life.shell
        self._check(session, request)
        launch = spare.launch
        shell.begin()
        try:
            if not launch.is_in_place(session, request):
                # The directory was replaced while the spare shell waited. This does not count as a
                # failure of the spare shell.
                life.discard()
                return False
            working_dir = session.resolve(request.cwd)
            if life.member is not None:
                # From now on, the shell counts towards the limits. Bash does not have the command
                # yet, so the command cannot have started a process.
                self.limiter.begin(life.member, life)
            launch.run(session, request)
        except BlockingIOError:
            # The pipe of the spare shell has too little room for the last lines that bash must
            # read.
            life.discard()
            return False
        except OSError:
            # Somebody may have killed the spare shell.
            life.discard()
            self.spares.note_failure(spare)
            return False
        # The command runs from here on.
        shell.assign(self._ids.next(), request, working_dir)
        self._note_sandbox(life)
        life.command_runs(request)
        self.spares.note_success()
        self._enter(life)
        return True

    def _start_new(self, request: StartRequest, session: Session, place: Place) -> Shell:
        """Hand the command to a runner. Nothing is awaited here."""
        member: Member | None = None
        try:
            self._check(session, request)
            member = self._admit(session, place)
            restrictions = None if member is None else member.restrictions
            launch = CommandLaunch(request, session, self._options.bash, restrictions, place.files)
            life = self._supervise(launch, member, place)
        except BaseException:
            self._starting.release()
            if member is not None:
                self.limiter.end(member)
            raise
        try:
            life.shell.assign(self._ids.next(), request, session.resolve(request.cwd))
            life.set_limits(request)
            self._enter(life)
        except BaseException:
            life.discard()
            raise
        return life.shell

    def _admit(self, session: Session, place: Place, *, is_waiting: bool = False) -> Member | None:
        """Put a command under the limits of its session. Raises `RpcError` (unavailable)."""
        if not session.is_limited:
            return None
        key = None if session.name is None else session
        member = self.limiter.admit(key, session.limits, is_waiting=is_waiting)
        sandbox = place.sandbox
        has_private_tmp = sandbox is not None and sandbox.policy.tmp == "private"
        if has_private_tmp and member.enforced.memory == "watch":
            # The files in a private /tmp use memory that belongs to no process. Without a cgroup,
            # the daemon counts only the memory of processes.
            self.limiter.end(member)
            raise unavailable("memory_bytes with a private /tmp", "a cgroup", _TMP_HINT)
        return member

    def _check(self, session: Session, request: StartRequest) -> None:
        """Raise `RpcError` if the manager or the session was closed while the command waited to
        start.

        Raises StateChangedError if the session's state is no longer `request.judged_state`, or if
        the request tightens a sandbox that the session no longer has.
        """
        if not self._is_open:
            raise shutting_down()
        if not self.sessions.is_current(session):
            raise session_closed()
        if request.judged_state not in (None, session.state):
            raise StateChangedError
        if request.sandbox is not None and request.session_sandbox != session.sandbox:
            # The session was closed and configured again. The request still has the old sandbox.
            # This sandbox may allow more than the session now allows.
            raise StateChangedError

    def _start_spare(self, session: Session) -> Spare:
        place = self.places.ready(session.sandbox)
        member = self._admit(session, place, is_waiting=True)
        try:
            restrictions = None if member is None else member.restrictions
            launch = SpareLaunch(session, self._options.bash, restrictions, place.files)
            return Spare(launch, self._supervise(launch, member, place))
        except BaseException:
            if member is not None:
                self.limiter.end(member)
            raise

    def _supervise(self, launch: Launch, member: Member | None, place: Place) -> Life:
        """Hand a launch to a runner, and start the task that supervises the command."""
        channel: Channel | None = None
        output: ShellOutput | None = None
        links: Links | None = None
        life: Life | None = None
        try:
            channel = place.runners.acquire()
            output = self.retention.open()
            shell = Shell(output=output, is_empty=False)
            shell.input = launch.input
            if isinstance(launch.input, TerminalInput):
                self.screens.watch(launch.input, shell.stdout.store)
            links = Links(channel, launch, shell, pollers=self._pollers, pool=place.runners)
            outcome = Outcome(self._oom_kills, member)
            outcome.show_limits(shell)
            place.show(shell)
            life = Life(
                shell,
                launch,
                links,
                outcome=outcome,
                clock=self._clock,
                listen=self._listen,
                sandbox=place.sandbox,
            )
            supervisor = Supervisor(life, place.runners)
            try:
                launch.hand_over(channel)
            except ConnectionError:
                # The runner has just ended, or the keeper ended before it forked a runner.
                if not links.launch_again(launch):
                    raise
                channel = links.channel
            self._lives.add(life)
            self._tasks.start(supervisor)
            if place.sandbox is not None:
                place.sandbox.join(life)
        except BaseException:
            if links is not None:
                links.cancel_start(launch)
            if life is not None:
                self._lives.discard(life)
            if output is not None:
                self.retention.forget(output)
            if channel is not None:
                # The runner may already have the command. Closing the channel ends the runner.
                channel.close()
            launch.close()
            raise
        return life

    def _enter(self, life: Life) -> None:
        shell = life.shell
        shell.owner = life
        shell.grace_ms = self._options.grace_ms
        self._pipe_watch.command_starts()
        self._on_enter(shell)

    def _listen(self, life: Life, moment: Moment) -> None:
        """Follow the life of a command, or of a spare shell."""
        if moment is Moment.ENDED:
            try:
                if life.sandbox is not None:
                    life.sandbox.collect_denials()
            finally:
                self.spares.command_ended(life.shell)
                self._on_end(life.shell)
        elif moment is Moment.STARTED:
            if not life.launch.is_waiting:
                self._starting.release()
                self._note_sandbox(life)
                if life.member is not None:
                    self.limiter.begin(life.member, life)
            elif life.member is not None:
                self.limiter.spare_runs(life.member)
        else:
            try:
                if life.member is not None:
                    self.limiter.end(life.member)
            finally:
                try:
                    if life.sandbox is not None:
                        self.places.left(life.sandbox, life)
                finally:
                    self._is_empty(life)

    def _note_sandbox(self, life: Life) -> None:
        """Let the result of a command say if the session's last command ran in another sandbox."""
        shell, sandbox, enforced = life.shell, life.sandbox, life.shell.sandbox
        if sandbox is None or enforced is None or shell.failure is not None:
            return
        if not self.sessions.has(shell.session):
            return
        session = self.sessions.get(shell.session)
        # A call with a tighter policy has another sandbox than its session.
        if sandbox.policy == _policy_of(session.sandbox):
            enforced.replaced = session.last_sandbox not in (None, sandbox.number)
            session.last_sandbox = sandbox.number

    def _is_empty(self, life: Life) -> None:
        if life.launch.is_waiting:
            self._spare_is_empty(life)
        else:
            self._shell_is_empty(life)

    def _spare_is_empty(self, life: Life) -> None:
        # The spare shell has run no command, and will never run one.
        try:
            self._lives.discard(life)
        finally:
            try:
                self.spares.has_ended(life)
            finally:
                self.retention.forget(life.shell.output)

    def _shell_is_empty(self, life: Life) -> None:
        shell = life.shell
        # A command that could not start never reached `Moment.ENDED`, so report its end here.
        self.spares.command_ended(shell)
        try:
            self._lives.discard(life)
            if isinstance(shell.input, TerminalInput):
                self.screens.release(shell.input)
            if shell.failure is None:
                self.retention.finish(shell.output)
        finally:
            self._on_release(shell)
        is_open = self._is_open and self.sessions.has(shell.session)
        if is_open and shell.failure is not None and shell.failure[1] == "cwd":
            session = self.sessions.get(shell.session)
            # In the tighter sandbox of a call, a directory of the session may be missing.
            if _policy_of(life.sandbox) == _policy_of(session.sandbox):
                session.directory_failed(shell.working_dir)
        if shell.in_foreground and shell.failure is None and is_open:
            session = self.sessions.get(shell.session)
            if not session.when_settled(lambda: self._prepare_after(session)):
                self._prepare_after(session)

    def _prepare_after(self, session: Session) -> None:
        """Prepare for the next command of a session whose last command is over."""
        # The session may have been closed while a thread parsed its state.
        if self._is_open and self.sessions.is_current(session):
            self._prepare_next(self.spares.command_is_over, session)

    def _prepare_next(self, prepare: Callable[..., None], *args: object) -> None:
        try:
            prepare(*args)
        except Exception:
            # Without a spare shell, the next command starts a new bash.
            faults.report("starting a spare shell")


def _policy_of(place: Sandbox | SandboxKey | None) -> ResolvedPolicy | None:
    return None if place is None else place.policy


def _processors() -> int:
    """Return how many processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
