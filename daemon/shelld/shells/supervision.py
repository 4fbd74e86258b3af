"""The one task that watches over a running command.

Owns the read ends of the command's pipes and its runner's channel, from the moment the command is
handed over until its tree is proved empty. Only this task reads any of them and only it ends the
shell, so a command that exits, times out and is killed in the same millisecond has one outcome.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import math
import os
import signal
from collections.abc import Callable
from typing import Final

import anyio

from shelld import faults
from shelld.keeper.channel import (
    EMPTY,
    EXITED,
    FAILED,
    FILE_LOST,
    KILL,
    KILL_DEADLINE_MS,
    LEFTOVER,
    LOST,
    STARTED,
    STOPPED,
    SURVIVORS,
    Channel,
    Message,
)
from shelld.keeper.pool import RunnerPool
from shelld.readiness import READABLE, PollerPool, WatchedPoller, event_loop_clock
from shelld.shells.launch import Launch, StartRequest, TimeoutPolicy
from shelld.shells.lifecycle import ShellEvent, ShellStatus
from shelld.shells.oom import OomKills
from shelld.shells.orphans import kill_orphans
from shelld.shells.pipe import Pipe
from shelld.shells.process import CommandUsage, ShellProcess
from shelld.shells.recorder import Recorder

logger = logging.getLogger("shelld.shells")

# After bash has ended, how long what it left behind may go on writing before the answer goes out
# without it: for `> >(tee log)`, whose tee bash does not wait for. Measured: 5 ms is nearly always
# enough, 50 ms always was.
LEFTOVER_OUTPUT_GRACE_S: Final = 0.05

# For a runner to be forked and to start bash. A machine that forks a thousand of them at once takes
# a few seconds; a runner that was stopped by its own command takes for ever.
START_TIMEOUT_S: Final = 15.0

# For who has started a command to look at how it runs.
HOLD_S: Final = 1.0

# A deadline that is met so late was missed because this process did not run.
PAUSE_S: Final = 1.0

# How often a command is given to a runner that turns out to have never been there.
MAX_LAUNCHES: Final = 3

# Beyond the runner's own deadline: a runner that has said nothing by then is itself killed. The
# keeper, which then has to say something, gets as long.
RUNNER_MARGIN_S: Final = 0.5


class Supervision:
    """`on_start` is called when bash runs, or never will; `on_end`, when its command has ended.

    `release` is called when its tree is empty, with the channel or, if the runner was lost, None.
    What such a runner leaves is killed by the keeper, which goes on in its place on the channel;
    or here, if the keeper is gone too or cannot know.

    A bash that waits for its command is supervised from its start; `command_runs` tells when it has
    one.
    """

    def __init__(
        self,
        shell: ShellProcess,
        channel: Channel,
        launch: Launch,
        *,
        pool: RunnerPool,
        pollers: PollerPool,
        oom_kills: OomKills,
        on_start: Callable[[], None],
        on_end: Callable[[ShellProcess], None],
        release: Callable[[Supervision, Channel | None], None],
    ) -> None:
        self.shell = shell
        self.launch = launch
        self._channel = channel
        self._launches_left = MAX_LAUNCHES - 1
        self._pipes = {
            launch.stdout: Pipe(launch.stdout, shell.output, shell.stdout),
            launch.stderr: Pipe(launch.stderr, shell.output, shell.stderr),
        }
        self._timeout: TimeoutPolicy | None = None
        # None once it was called.
        self._on_start: Callable[[], None] | None = on_start
        self._on_end = on_end
        # None once it was called.
        self._release: Callable[[Supervision, Channel | None], None] | None = release
        self._pool = pool
        self._oom_kills = oom_kills
        self._oom_kills_before = 0
        self._runner_lost = False
        # Nobody is left at the other end of the channel.
        self._orphaned = False
        self._tree_empty = False
        # And all that it wrote has been taken.
        self._is_over = False
        self._wait_status: int | None = None
        self._was_signalled = False
        self._kill_event: ShellEvent | None = None
        # Deadlines, on the event loop's clock.
        self._clock = event_loop_clock()
        self._timeout_at = math.inf
        # It has passed, and is to move the command to the background.
        self._is_overdue = False
        self._answer_at = math.inf
        # Infinite if nobody holds it.
        self._held_until = math.inf
        self._stuck_at = self._clock() + START_TIMEOUT_S
        self._pollers = pollers
        # None once it was given back.
        self._watched: WatchedPoller | None = pollers.take()
        self._poller, self._watch = self._watched
        try:
            for descriptor in (channel.fileno(), *self._pipes):
                self._poller.register(descriptor, READABLE)
        except BaseException:
            self._watched.close()
            raise

    def set_timeout(self, policy: TimeoutPolicy | None) -> None:
        """From now on the command has that long."""
        self._timeout = policy
        if policy is not None:
            self._timeout_at = self._clock() + policy.timeout_ms / 1000
            self._deadline_changed()

    def command_runs(self, request: StartRequest) -> None:
        """Bash was told its command."""
        self.shell.started()
        self.set_timeout(request.timeout)
        self._oom_kills_before = self._oom_kills.count()
        if not self.shell.in_foreground:
            self.launch.close()

    @property
    def is_being_ended(self) -> bool:
        """Whether a kill was asked for."""
        return self._kill_event is not None

    def discard(self) -> None:
        """Kill what nobody wants: a spare shell, or a command whose caller was cancelled."""
        self.begin_kill(signal.SIGKILL, 0, ShellEvent.KILLED)

    def begin_kill(self, number: int, grace_ms: int, event: ShellEvent) -> None:
        """Ask the runner for a kill. The first reason stays the reason."""
        if self._kill_event is None:
            self._kill_event = event
        with contextlib.suppress(OSError):
            # If it cannot be sent the runner is gone, as `run` is about to see.
            self._channel.send((KILL, int(number), grace_ms))
        self._held_until = min(self._held_until, self._clock())
        patience = (grace_ms + KILL_DEADLINE_MS) / 1000 + RUNNER_MARGIN_S
        self._stuck_at = min(self._stuck_at, self._clock() + patience)
        self._deadline_changed()

    def hold(self) -> None:
        """Do not tell the end of the command before `let_go`, or for `HOLD_S`."""
        self._held_until = self._clock() + HOLD_S
        self._deadline_changed()

    def let_go(self) -> None:
        self._held_until = min(self._held_until, self._clock())
        self._deadline_changed()

    def cancel_start(self) -> None:
        """Let go of what is ours, as nobody will supervise."""
        self._give_back_poller()
        if self.launch.is_handed_over:
            for pipe in self._pipes.values():
                pipe.close()
            if self.launch.recorder is not None:
                self.launch.recorder.close()

    def abandon(self) -> None:
        """Close the channel, in a process that is not the one which supervises."""
        self._channel.close()

    async def run(self) -> None:
        """Read the pipes and the runner until nothing is left of the command.

        If our own code fails, the command is killed and its shell ends as "lost". Then this raises,
        and `give_up` is to be called.
        """
        try:
            await self._supervise()
        except Exception:
            try:
                with anyio.CancelScope(shield=True):
                    await self._kill_unseen()
            finally:
                self._end_as_lost()
            raise
        finally:
            self._finish()

    async def _supervise(self) -> None:
        while not self._is_over:
            if not self._orphaned:
                # `_advance` wakes waiters first, so the answer is sent before the clean-up.
                await self._watch.wait(self._advance, self._next_deadline())
            if self._orphaned:
                await self._kill_orphans()
            if not self._is_over:
                # Whatever ended the wait: some may have passed, or been set, meanwhile.
                self._meet_deadlines()
                self._advance()

    async def _kill_orphans(self) -> None:
        shell = self.shell
        shell.survivors = shell.leftover = await kill_orphans(
            self._pool, self._channel.peer, shell.pid
        )
        self._tree_empty, self._orphaned = True, False

    async def _kill_unseen(self) -> None:
        """Have the runner kill the tree, and wait for its word that nothing is left.

        In vain, the runner still kills it on the end of its channel.
        """
        self._runner_lost = True
        with contextlib.suppress(OSError):
            # If it cannot be sent, the channel is at its end.
            self._channel.send((KILL, int(signal.SIGKILL), 0))
        with anyio.move_on_after(KILL_DEADLINE_MS / 1000 + RUNNER_MARGIN_S):
            while not self._tree_empty:
                await anyio.wait_readable(self._channel)
                messages = self._channel.receive()
                if messages is None:
                    await self._kill_orphans()
                    return
                self._tree_empty = any(_tells_empty(message) for message, _ in messages)

    def give_up(self, _error: BaseException) -> None:
        """Report that `run` has failed, and do what it has not done; the runner kills the tree."""
        faults.report("the supervision of a shell")
        if self._release is not None:
            self._runner_lost = True
        self._end_as_lost()
        self._finish()

    def _end_as_lost(self) -> None:
        shell = self.shell
        if self.launch.is_waiting or shell.failure is not None:
            return
        if shell.status is ShellStatus.PENDING:
            shell.started()
        if shell.status is ShellStatus.RUNNING:
            shell.reason = "lost"
            shell.end(signal.SIGKILL, self._kill_event or ShellEvent.KILLED)
            self._tell_end()
        elif shell.leftover:
            self._leftover_is_lost()
        shell.leftover = shell.survivors

    def _finish(self) -> None:
        """Let go of everything; each step is taken, whatever happens in the others.

        Taken again, a step does only what it has not done.
        """
        try:
            self._start_is_over()
        finally:
            try:
                self._close()
            finally:
                try:
                    self._tell_empty()
                finally:
                    self._give_back()

    def _close(self) -> None:
        self._give_back_poller()
        for pipe in self._pipes.values():
            pipe.close()
        if self.launch.recorder is not None:
            self.launch.recorder.close()
        if not self._is_intact:
            self._channel.close()
        self.launch.close()

    def _give_back_poller(self) -> None:
        """To be called before the descriptors are closed."""
        watched, self._watched = self._watched, None
        if watched is None:
            return
        try:
            if self._is_intact and self._pollers.has_room:
                watched.poller.unregister(self._channel.fileno())
                for pipe in self._pipes.values():
                    if not pipe.closed:
                        watched.poller.unregister(pipe.descriptor)
                self._pollers.give_back(watched)
            else:
                watched.close()
        except BaseException:
            watched.close()
            raise

    @property
    def _is_intact(self) -> bool:
        """Whether the runner can take another command."""
        return self._is_over and not self._runner_lost

    def _tell_empty(self) -> None:
        shell = self.shell
        shell.is_empty = True
        # What is retained of a shell is what can be asked of it.
        shell.supervision = None
        shell.notify()

    def _give_back(self) -> None:
        release, self._release = self._release, None
        if release is not None:
            release(self, self._channel if self._is_intact else None)

    def _next_deadline(self) -> float:
        return min(self._timeout_at, self._answer_at, self._stuck_at, self._held_until)

    def _deadline_changed(self) -> None:
        # One that was put off is met too soon, and nothing comes of it.
        self._watch.hurry(self._next_deadline())

    def _advance(self) -> bool:
        """Take what has arrived; True if there is nothing more to wait for."""
        self._read_ready()
        self._conclude()
        if self.shell.failure is None:
            # Else only once nothing is left of it: who was told must not find it any more.
            self.shell.notify()
        return self._is_over or self._orphaned

    def _meet_deadlines(self) -> None:
        now = self._clock()
        if now >= self._held_until:
            self._held_until = math.inf
        if now >= self._answer_at:
            self._answer_at = math.inf
            self._end()
        if now >= self._timeout_at:
            self._timeout_at = math.inf
            self._time_out()
        if now >= self._stuck_at:
            self._meet_stuck(now)

    def _meet_stuck(self, now: float) -> None:
        if now - self._stuck_at > PAUSE_S:
            # This process was stopped, and the others perhaps, too: they get a moment.
            self._stuck_at = now + PAUSE_S
            return
        # The news may be there and unread.
        self._read_ready()
        if now >= self._stuck_at:
            self._stuck_at = math.inf
            self._give_up_on_runner()

    def _give_up_on_runner(self) -> None:
        shell, runner = self.shell, self._channel.peer
        bash = [] if shell.pid is None or self._wait_status is not None else [shell.pid]
        if runner is None and not self._runner_lost:
            self._replace_keeper()
        elif runner is not None and not self._runner_lost:
            self._pool.stop_runner(runner.pid)
            self._wait_for_keeper()
        elif survivors := shell.leftover or bash:
            # Nobody says that they are dead, and so they may not be.
            shell.survivors = shell.leftover = survivors
        else:
            self._runner_lost = self._orphaned = True

    def _replace_keeper(self) -> None:
        """Give the command to another runner, as the keeper has made none."""
        channel = self._channel
        # A runner that is there after all takes no command from now on, or has said READY.
        channel.shut_down()
        self._pool.replace_keeper_of(channel)
        while self._channel is channel and not self._orphaned:
            self._receive()

    def _time_out(self) -> None:
        # A command that has ended by now, but was not answered yet, was in time.
        self._read_ready()
        if self._timeout is None or self._wait_status is not None:
            return
        if self._timeout.action == "background":
            self._is_overdue = True
            self._release_if_overdue()
        else:
            self.begin_kill(signal.SIGTERM, self._timeout.grace_ms, ShellEvent.TIMED_OUT)

    def _release_if_overdue(self) -> None:
        """Move a command whose timeout has passed to the background, once it runs.

        Until then there is no pid to answer with, and another runner may still need the files.
        """
        if self._is_overdue and self.shell.is_running:
            self.shell.released = True
            self.launch.close()

    def _read_ready(self) -> None:
        for descriptor, _ in self._poller.poll(0):
            pipe = self._pipes.get(descriptor)
            if pipe is None:
                self._receive()
            elif not pipe.pump():
                self._poller.unregister(descriptor)
                pipe.close()

    def _receive(self) -> None:
        messages = self._channel.receive()
        for message, _ in messages or ():
            self._handle(message)
        if messages is None:
            self._poller.unregister(self._channel.fileno())
            if not self._launch_again():
                self._runner_is_lost()
                self._orphaned = True

    def _launch_again(self) -> bool:
        """Whether the command is with another runner now, as this one never was.

        The keeper died with the request for it. A runner says READY before it looks for a command.
        A command that is to be killed is not started any more.
        """
        if self._channel.peer is not None or self._on_start is None or not self._launches_left:
            return False
        if self.is_being_ended:
            return False
        self._launches_left -= 1
        self._channel.close()
        try:
            self._channel = self._pool.acquire()
            self.launch.hand_over(self._channel)
        except OSError:
            return False
        self._poller.register(self._channel.fileno(), READABLE)
        # All that wait for one keeper are late at the same moment. The next one has its own time.
        self._stuck_at = self._clock() + START_TIMEOUT_S
        return True

    def _leftover_is_lost(self) -> None:
        """Tell that what the ended command left behind is killed, whatever that was."""
        self.shell.reason = "lost"

    def _runner_is_lost(self) -> None:
        self._runner_lost = True
        if self._wait_status is not None and not self._tree_empty:
            self._leftover_is_lost()

    def _wait_for_keeper(self) -> None:
        """The keeper goes on in the place of the runner."""
        self._runner_is_lost()
        self._stuck_at = self._clock() + KILL_DEADLINE_MS / 1000 + RUNNER_MARGIN_S
        self._deadline_changed()

    def _handle(self, message: Message) -> None:
        shell = self.shell
        kind = message[0]
        if kind == STARTED:
            if self._kill_event is None:
                self._stuck_at = math.inf
            self._bash_runs(message[1])
        elif kind == EXITED:
            self._bash_exited(message)
        elif kind == STOPPED:
            if self.launch.is_waiting:
                # It would not run the command that it is given.
                self.discard()
        elif kind == LEFTOVER:
            shell.leftover = message[1]
        elif kind == SURVIVORS:
            self._stuck_at = math.inf
            shell.survivors = shell.leftover = message[1]
        elif kind == EMPTY:
            shell.leftover = []
            self._tree_empty = True
        elif kind == FAILED:
            shell.failure = message[1:]
            self._tree_empty = True
        elif kind == LOST:
            logger.info("%s lost its runner", shell.id)
            self._wait_for_keeper()
        elif kind == FILE_LOST:
            # How the command ended, perhaps. The runner ends when the channel does.
            self._channel.shut_down()

    def _bash_exited(self, message: Message) -> None:
        shell = self.shell
        _, wait_status, user, system, rss, self._was_signalled, leftover, is_empty = message
        self._wait_status = wait_status
        self._tree_empty = is_empty
        shell.stop_clock()
        shell.usage = CommandUsage(user, system, rss)
        shell.leftover = leftover or []
        if leftover is None:
            self._leftover_is_lost()
        if wait_status:
            self._look_for_oom(wait_status)

    def _bash_runs(self, pid: int) -> None:
        self.shell.pid = pid
        try:
            self.launch.bash_runs(pid)
        except OSError:
            # One that was to wait, but has ended, or may not be told anything.
            self.discard()
        if not self.launch.is_waiting:
            self.shell.started()
            self._oom_kills_before = self._oom_kills.count()
            logger.info("%s started", self.shell.id)
            if not self.shell.in_foreground:
                self.launch.close()
            self._release_if_overdue()
        self._start_is_over()

    def _start_is_over(self) -> None:
        on_start, self._on_start = self._on_start, None
        if on_start is not None:
            on_start()

    def _look_for_oom(self, wait_status: int) -> None:
        # By itself, or as what bash tells of the last process that it waited for.
        died = os.waitstatus_to_exitcode(wait_status) in (-signal.SIGKILL, 128 + signal.SIGKILL)
        if died and not self._was_signalled and self._oom_kills.count() > self._oom_kills_before:
            self.shell.reason = "oom"

    def _conclude(self) -> None:
        """Draw the consequences of what was read."""
        shell = self.shell
        is_lost = self._runner_lost and self._tree_empty
        is_pending = shell.status is ShellStatus.PENDING and shell.failure is None
        if is_lost and is_pending and not self.launch.is_waiting:
            if self._channel.peer is None and not self.is_being_ended:
                # There was none: the keeper could not fork.
                shell.failure = (errno.EAGAIN, "exec")
            else:
                # A command that kills its runner at once can be faster than the news of its start.
                # One that was killed before its start ends like any other that was killed.
                shell.started()
        is_running = shell.status is ShellStatus.RUNNING
        if is_running and self._wait_status is None and is_lost:
            self._assume_killed()
        has_exited = is_running and self._wait_status is not None
        if has_exited and self._held_until < math.inf:
            return
        if has_exited or self._tree_empty:
            # All that is there was written by now.
            for pipe in self._pipes.values():
                pipe.drain()
        if has_exited:
            self._after_exit()
        elif is_running and shell.survivors:
            # Bash is among them. SIGKILL was sent, and cannot be waited for for ever.
            self._assume_killed()
            self._end()
        self._is_over = self._tree_empty

    def _assume_killed(self) -> None:
        """Bash was sent SIGKILL, and nobody can tell how it ended, or it has not."""
        self._wait_status, self._was_signalled = signal.SIGKILL, True
        if self._runner_lost and self._kill_event is None:
            self.shell.reason = "lost"

    def _after_exit(self) -> None:
        """End, but give a `>(...)` that bash left a moment to finish."""
        if self._tree_empty or all(pipe.closed for pipe in self._pipes.values()):
            self._end()
        elif self._answer_at == math.inf:
            # If there are no writers left, we are told so at once.
            self.launch.close()
            self._answer_at = self._clock() + LEFTOVER_OUTPUT_GRACE_S
            self._deadline_changed()

    def _end(self) -> None:
        if not self.shell.is_running or self._wait_status is None:
            return
        self._timeout_at = self._answer_at = math.inf
        event = self._kill_event or ShellEvent.KILLED if self._was_signalled else None
        recorder = self.launch.recorder
        if recorder is not None:
            if event is None and not self.shell.released:
                self._keep_state(recorder, has_exited=os.WIFEXITED(self._wait_status))
                self.shell.recorder = recorder
            recorder.close()
        self.shell.end(self._wait_status, event)
        self._tell_end()

    def _keep_state(self, recorder: Recorder, *, has_exited: bool) -> None:
        try:
            recorder.keep(has_exited=has_exited)
        except Exception:
            # The next command starts from the state before.
            faults.report("the state of a session")
            recorder.give_up()

    def _tell_end(self) -> None:
        logger.info("%s ended: %s", self.shell.id, self.shell.status)
        try:
            self._on_end(self.shell)
        except Exception:
            faults.report("the record of a shell's end")


def _tells_empty(message: Message) -> bool:
    """Whether a runner says that it has nothing left."""
    kind = message[0]
    return kind in {EMPTY, FAILED} or (kind == EXITED and bool(message[-1]))
