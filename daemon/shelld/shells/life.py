"""The life of one command, or one spare shell: events in, actions out.

The only writer of the shell's record. `course` says what an event leads to; this module performs
the actions. Nothing here waits: `supervisor` finds out what has happened, and calls.
"""

from __future__ import annotations

import contextlib
import enum
import errno
import logging
import signal
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final

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
    Message,
)
from shelld.keeper.pool import RunnerPool
from shelld.shells.course import DEADLINES, Action, Event, State, next_step
from shelld.shells.deadlines import Deadlines
from shelld.shells.launch import Launch, StartRequest, TimeoutPolicy
from shelld.shells.lifecycle import ShellEvent, ShellStatus
from shelld.shells.links import Links
from shelld.shells.outcome import Outcome
from shelld.shells.process import CommandUsage, ShellProcess

logger = logging.getLogger("shelld.shells")

# OUTPUT_DUE. Measured: 5 ms is nearly always enough, 50 ms always was.
LEFTOVER_OUTPUT_GRACE_S: Final = 0.05

# START_DUE. A machine that forks a thousand runners at once takes a few seconds; a keeper that a
# command has stopped takes for ever.
START_TIMEOUT_S: Final = 15.0

# KILL_DUE, after the grace, and KEEPER_DUE: half a second more than a runner gives itself.
KILL_TIMEOUT_S: Final = KILL_DEADLINE_MS / 1000 + 0.5

# How often a command is given to a runner that turns out to have never been there.
MAX_LAUNCHES: Final = 3


_EVENTS: Final[Mapping[int, Event]] = {
    STARTED: Event.STARTED,
    FAILED: Event.START_FAILED,
    STOPPED: Event.STOPPED,
    SURVIVORS: Event.SURVIVED,
    EMPTY: Event.EMPTY,
    LOST: Event.LOST,
}


class Moment(enum.IntEnum):
    """What others learn of a shell, in this order.

    STARTED: bash was started, or never will be. ENDED: the outcome is known; never told of a spare
    shell, or of a command that could not be started. EMPTY: nothing is left of it.
    """

    STARTED = enum.auto()
    ENDED = enum.auto()
    EMPTY = enum.auto()


class Life:
    """`listen` is called at each moment."""

    def __init__(
        self,
        shell: ShellProcess,
        launch: Launch,
        links: Links,
        *,
        pool: RunnerPool,
        outcome: Outcome,
        clock: Callable[[], float],
        listen: Callable[[Moment, Life], None],
    ) -> None:
        self.shell = shell
        self.launch = launch
        self.links = links
        self.deadlines = Deadlines(clock)
        self.state = State.SPARE if launch.is_waiting else State.STARTING
        # Nothing is to be read before orphans have been killed.
        self.has_orphans = False
        # Another command must not be given to this runner.
        self.runner_is_lost = False
        self._pool = pool
        self._outcome = outcome
        self._listen = listen
        # What has happened and was not considered yet.
        self._events: deque[Event] = deque()
        # The last moment that was told; 0 before the first.
        self._told = 0
        self._is_taking = False
        self._launches_left = MAX_LAUNCHES - 1
        self._timeout: TimeoutPolicy | None = None
        # The timeout has passed before the start, and is to move the command to the background.
        self._is_overdue = False
        # The last kill that was asked for: signal, and grace in ms.
        self._kill: tuple[int, int] = (signal.SIGKILL, 0)
        self.deadlines.set(Event.START_DUE, START_TIMEOUT_S)

    # -- for others -------------------------------------------------------------------------

    def set_timeout(self, policy: TimeoutPolicy | None) -> None:
        """From now on the command has that long."""
        self._timeout = policy
        if policy is not None:
            self._set_deadline(Event.TIMEOUT_DUE, policy.timeout_ms / 1000)

    def command_runs(self, request: StartRequest) -> None:
        """The spare shell was told its command."""
        self.take(Event.TOLD)
        self.set_timeout(request.timeout)

    @property
    def is_being_ended(self) -> bool:
        """Whether a kill was asked for."""
        return self._outcome.kill_reason is not None

    def begin_kill(self, number: int, grace_ms: int, reason: ShellEvent) -> None:
        """Ask the runner for a kill. The first reason stays the reason."""
        if not self.is_being_ended:
            self._outcome.kill_reason = reason
        self._kill = number, grace_ms
        self.take(Event.KILL_ASKED)

    def discard(self) -> None:
        """Kill what nobody wants: a spare shell, or a command whose caller was cancelled."""
        self.begin_kill(signal.SIGKILL, 0, ShellEvent.KILLED)

    def abandon(self) -> None:
        """Close the channel, in a process that is not the one which supervises."""
        self.links.channel.close()

    # -- events -----------------------------------------------------------------------------

    @property
    def is_over(self) -> bool:
        return self.state is State.OVER

    @property
    def is_intact(self) -> bool:
        """Whether nothing is left, and the runner can take another command."""
        return self.is_over and not self.runner_is_lost

    def take(self, event: Event) -> None:
        """Let an event have its consequences, after those of the events before it."""
        self._events.append(event)
        if self._is_taking:
            return
        self._is_taking = True
        while self._events and not self.is_over:
            before = self.state
            self.state, actions = next_step(before, self._events.popleft())
            if self.state is not before:
                self.deadlines.keep(DEADLINES[self.state])
            for action in actions:
                self._PERFORM[action](self)
        self._is_taking = False

    def meet_deadline(self, name: Event) -> None:
        """A deadline has passed."""
        if name in DEADLINES[self.state]:
            self.take(name)

    def pipes_closed(self) -> None:
        """Nobody can write any more output."""
        if self.state is State.EXITED:
            self.take(Event.PIPES_CLOSED)

    def channel_ended(self) -> None:
        """Nobody is at the other end of the channel."""
        if self._nobody_came:
            self.take(Event.RUNNER_ABSENT)
        else:
            self.runner_is_lost = True
            self.take(Event.CHANNEL_ENDED)

    def orphans_killed(self, survivors: list[int]) -> None:
        """What was left without a runner was killed, but for `survivors`."""
        self.has_orphans = False
        self.shell.survivors = self.shell.leftover = survivors
        self.take(Event.NEVER_STARTED if self._nobody_came else Event.ORPHANS_KILLED)

    @property
    def _nobody_came(self) -> bool:
        """Whether no runner has ever been there. It says READY before it looks for a command."""
        return self.links.channel.peer is None and not self._told and not self.is_being_ended

    def receive(self, message: Message) -> None:
        """Take what the runner says, or the keeper in its place."""
        shell = self.shell
        kind = message[0]
        if kind == STARTED:
            shell.pid = message[1]
        elif kind == EXITED:
            self._bash_exited(message)
            return
        elif kind == FAILED:
            shell.failure = message[1:]
        elif kind == LEFTOVER:
            shell.leftover = message[1]
        elif kind == SURVIVORS:
            shell.survivors = shell.leftover = message[1]
        elif kind == EMPTY:
            shell.leftover = []
        elif kind == LOST:
            logger.info("%s lost its runner", shell.id)
            self.runner_is_lost = True
        elif kind == FILE_LOST:
            # How the command ended, perhaps. The runner ends when the channel does.
            self.links.channel.shut_down()
        event = _EVENTS.get(kind)
        if event is not None:
            self.take(event)

    def _bash_exited(self, message: Message) -> None:
        shell = self.shell
        _, wait_status, user, system, rss, was_signalled, leftover, is_empty = message
        shell.leftover = leftover or []
        if not self._outcome.is_known:
            shell.stop_clock()
            shell.usage = CommandUsage(user, system, rss)
            self._outcome.bash_exited(shell, wait_status, was_signalled=was_signalled)
        if leftover is None:
            self._note_lost_leftover()
        self.take(Event.EXITED_EMPTY if is_empty else Event.BASH_EXITED)

    def _set_deadline(self, name: Event, seconds: float) -> None:
        self.deadlines.set(name, seconds)
        self.links.wake_at(self.deadlines.next)

    # -- actions ----------------------------------------------------------------------------

    def _note_waiting(self) -> None:
        assert self.shell.pid is not None
        try:
            self.launch.bash_runs(self.shell.pid)
        except OSError:
            # It has ended, or may not be told anything.
            self.discard()
        self.tell(Moment.STARTED)

    def _note_start(self) -> None:
        shell = self.shell
        shell.started()
        self._outcome.command_starts()
        logger.info("%s started", shell.id)
        if not shell.in_foreground:
            self.launch.close()
        self._release_if_overdue()
        self.tell(Moment.STARTED)

    def _note_failure(self) -> None:
        self.shell.failure = (errno.EAGAIN, "exec")

    def _send_kill(self) -> None:
        number, grace_ms = self._kill
        with contextlib.suppress(OSError):
            # If it cannot be sent the runner is gone, which is about to be seen.
            self.links.channel.send((KILL, int(number), grace_ms))
        self.deadlines.set_at_most(Event.KILL_DUE, grace_ms / 1000 + KILL_TIMEOUT_S)
        self.links.wake_at(self.deadlines.next)

    def _ask_again(self) -> None:
        """Give the command to another runner; if none can be had, it has failed."""
        if self._launches_left:
            self._launches_left -= 1
            with contextlib.suppress(OSError):
                channel = self._pool.acquire()
                self.launch.hand_over(channel)
                self.links.replace_channel(channel)
                self._set_deadline(Event.START_DUE, START_TIMEOUT_S)
                return
        self.runner_is_lost = True
        self.take(Event.CHANNEL_ENDED)

    def _time_out(self) -> None:
        assert self._timeout is not None
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

    def _await_output(self) -> None:
        # If there are no writers left, we are told so at once.
        self.launch.close()
        self.links.drain()
        self._set_deadline(Event.OUTPUT_DUE, LEFTOVER_OUTPUT_GRACE_S)

    def _assume_killed(self) -> None:
        self._outcome.assume_killed()
        if self.runner_is_lost and not self.is_being_ended:
            self.shell.reason = "lost"

    def _end(self) -> None:
        # All that bash wrote is in the pipes by now.
        self.links.drain()
        self._outcome.settle(self.shell, self.launch.recorder)
        self.tell_end()

    def _note_lost_leftover(self) -> None:
        self.shell.reason = "lost"

    def _await_keeper(self) -> None:
        self.deadlines.drop(Event.START_DUE, Event.KILL_DUE)
        self._set_deadline(Event.KEEPER_DUE, KILL_TIMEOUT_S)

    def _stop_runner(self) -> None:
        runner = self.links.channel.peer
        if runner is not None:
            self._pool.stop_runner(runner.pid)
            self.runner_is_lost = True
            self.take(Event.LOST)
        else:
            # A runner that is there after all takes no command from now on, or has said READY. The
            # end of the channel is the next event.
            self.links.channel.shut_down()
            self._pool.replace_keeper_of(self.links.channel)

    def _give_up_on_keeper(self) -> None:
        shell = self.shell
        bash = [] if shell.pid is None or self._outcome.is_known else [shell.pid]
        if survivors := shell.leftover or bash:
            # Nobody says that they are dead, and so they may not be.
            shell.survivors = shell.leftover = survivors
            self.take(Event.SURVIVED)
        else:
            self.take(Event.CHANNEL_ENDED)

    def _kill_orphans(self) -> None:
        self.has_orphans = True

    _PERFORM: ClassVar[Mapping[Action, Callable[[Any], None]]] = {
        Action.NOTE_WAITING: _note_waiting,
        Action.NOTE_START: _note_start,
        Action.NOTE_FAILURE: _note_failure,
        Action.SEND_KILL: _send_kill,
        Action.DISCARD: discard,
        Action.ASK_AGAIN: _ask_again,
        Action.TIME_OUT: _time_out,
        Action.AWAIT_OUTPUT: _await_output,
        Action.ASSUME_KILLED: _assume_killed,
        Action.END: _end,
        Action.NOTE_LOST_LEFTOVER: _note_lost_leftover,
        Action.AWAIT_KEEPER: _await_keeper,
        Action.STOP_RUNNER: _stop_runner,
        Action.GIVE_UP_ON_KEEPER: _give_up_on_keeper,
        Action.KILL_ORPHANS: _kill_orphans,
    }

    # -- telling others ---------------------------------------------------------------------

    def tell(self, moment: Moment) -> None:
        """Tell a moment, once, unless a later one was told."""
        if moment <= self._told:
            return
        self._told = moment
        try:
            self._listen(moment, self)
        except Exception:
            faults.report(f"what follows on {moment.name} of a shell")

    def is_told(self, moment: Moment) -> bool:
        return self._told >= moment

    def tell_end(self) -> None:
        logger.info("%s ended: %s", self.shell.id, self.shell.status)
        self.tell(Moment.ENDED)

    def end_as_lost(self) -> None:
        """Our own code has failed, and the tree was killed: end whatever has not ended."""
        shell = self.shell
        self.state = State.OVER
        if self.launch.is_waiting or shell.failure is not None:
            return
        if shell.status is ShellStatus.PENDING:
            shell.started()
        if shell.status is ShellStatus.RUNNING:
            shell.reason = "lost"
            shell.end(signal.SIGKILL, self._outcome.kill_reason or ShellEvent.KILLED)
            self.tell_end()
        elif shell.leftover:
            self._note_lost_leftover()
        shell.leftover = shell.survivors
