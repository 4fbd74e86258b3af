"""Follows the life of one command or one spare shell: takes its events and performs the actions.

A `Life` is the only writer of the shell's record. `course` says which actions follow an event, and
this module performs them. Nothing in this module waits, because `supervisor` notices the events and
reports them.
"""

from __future__ import annotations

import errno
import math
import signal
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, ClassVar

from shelld.keeper.channel import FILE_LOST, LOST, RETIRES, Message
from shelld.limits.members import LimitReason, Member
from shelld.process.logs import Log
from shelld.sandbox.denials import Denials
from shelld.sandbox.sandbox import Sandbox
from shelld.shells.course import DEADLINES, Action, Event, State, next_step
from shelld.shells.deadlines import KILL_TIMEOUT_S, OUTPUT_GRACE_S, START_TIMEOUT_S, Deadlines
from shelld.shells.launch import Launch, StartRequest
from shelld.shells.lifecycle import ShellEvent
from shelld.shells.links import Links
from shelld.shells.moments import Moment, Moments
from shelld.shells.news import apply_message
from shelld.shells.outcome import Outcome
from shelld.shells.shell import Shell
from shelld.shells.time_limits import TimeLimits
from shelld_protocol.structs import EndReason

logger = Log("shelld.shells")


class Life:
    """Applies events to one shell. Calls `listen(life, moment)` once at each `Moment`."""

    def __init__(
        self,
        shell: Shell,
        launch: Launch,
        links: Links,
        *,
        outcome: Outcome,
        clock: Callable[[], float],
        listen: Callable[[Life, Moment], None],
        sandbox: Sandbox | None = None,
    ) -> None:
        self.shell = shell
        self.sandbox = sandbox
        self.launch = launch
        self.links = links
        self.deadlines = Deadlines(clock)
        self.time_limits = TimeLimits(shell, self.deadlines)
        self.moments = Moments(partial(listen, self))
        self.state = State.SPARE if launch.is_waiting else State.STARTING
        self.is_over = False
        # While this is True, the supervisor kills orphans and reads no messages.
        self.has_orphans = False
        # The runner cannot be used again if one of these values is True.
        self.runner_is_lost = self._runner_retires = False
        self._outcome = outcome
        # Whether somebody has asked to move the command to the background. If the command does not
        # run yet, it moves as soon as it runs.
        self._is_to_be_released = False
        # The signal and the grace (ms) of the last kill that somebody has asked for.
        self._kill: tuple[int | None, int] = (signal.SIGKILL, 0)
        # Whether somebody has asked for a kill without a grace period. If a kill with a grace
        # period is asked for later, this stays true.
        self.is_killed_at_once = False
        self.deadlines.set(Event.START_DUE, START_TIMEOUT_S)

    # -- for others -------------------------------------------------------------------------

    def set_limits(self, request: StartRequest) -> None:
        """Start the clock for the time limits of a request."""
        self.time_limits.begin(request)
        self.links.wake_at(self.deadlines.next)

    def command_runs(self, request: StartRequest) -> None:
        """Record that the spare shell has its command."""
        self.take(Event.TOLD)
        self.set_limits(request)

    @property
    def is_being_ended(self) -> bool:
        """Whether somebody has asked for a kill."""
        return self._outcome.kill_reason is not None

    @property
    def member(self) -> Member | None:
        """The command's membership in a group with limits; None if the command has no limits."""
        return self._outcome.member

    @property
    def runner(self) -> int | None:
        """The pid of the runner; None if it does not own the processes of the command now."""
        peer = self.links.channel.peer
        return None if self.runner_is_lost or peer is None else peer.pid

    @property
    def began(self) -> float:
        """When the command began (time.monotonic()); infinite for a spare shell."""
        return math.inf if self.launch.is_waiting else self.shell.began

    @property
    def denials(self) -> Denials:
        return self.shell.denials

    @property
    def is_gone(self) -> bool:
        """Whether all processes of the command have ended."""
        return self.moments.is_told(Moment.EMPTY)

    def exceed(self, reason: LimitReason) -> None:
        """Kill the command, or the processes that it has left, because they exceed a limit."""
        self._outcome.exceeds(self.shell, reason)
        self.begin_kill(signal.SIGKILL, 0, ShellEvent.KILLED)

    def begin_kill(
        self, number: int | None, grace_ms: int, event: ShellEvent, reason: EndReason | None = None
    ) -> None:
        """Ask the runner for a kill. If there are several calls, the first call decides the event
        and the reason.

        If `number` is None, send SIGTERM, or no signal if the command has already got SIGTERM.
        """
        if not self.is_being_ended:
            self._outcome.kill_reason = event
            if reason is not None and not self._outcome.is_known:
                self.shell.reason = reason
        self._kill = number, grace_ms
        self.is_killed_at_once |= number == signal.SIGKILL or not grace_ms
        self.take(Event.KILL_ASKED)

    def discard(self) -> None:
        """Kill a spare shell, or a command whose call was cancelled or has failed."""
        self.begin_kill(signal.SIGKILL, 0, ShellEvent.KILLED)

    def release(self) -> bool:
        """Lift the command's time limits, and move the command to the background as soon as it
        runs.

        Returns False if the command is being ended.
        """
        if self.is_being_ended:
            return False
        self.time_limits.lift()
        self._is_to_be_released = True
        self._release_if_asked()
        return True

    def catch_up(self) -> None:
        """Store all output that was written before this call, and wake the waiters."""
        before = self.shell.output.written
        self.links.drain()
        if self.sandbox is not None:
            # The proxy reports a refusal before the command can write a message about this refusal.
            # So all refusals that the output mentions have been reported.
            self.sandbox.collect_denials()
        if self.shell.output.written != before:
            self.time_limits.note_output()
            self.shell.notify()

    def end_as_lost(self) -> None:
        """End the shell as "lost", after the supervisor has failed and the command was killed."""
        self.state, self.is_over = State.OVER, True
        if self.launch.is_waiting or self.shell.failure is not None:
            return
        if self._outcome.settle_as_lost(self.shell):
            self.moments.tell(Moment.ENDED)

    # -- events -----------------------------------------------------------------------------

    @property
    def is_intact(self) -> bool:
        """Whether all processes have ended and the runner can take another command."""
        return self.is_over and not (self.runner_is_lost or self._runner_retires)

    def take(self, event: Event) -> None:
        """Apply an event. An action that can cause another event comes last."""
        if self.is_over:
            return
        state, actions = next_step(self.state, event)
        if state is not self.state:
            self.state, self.is_over = state, state is State.OVER
            self.deadlines.keep(DEADLINES[state])
        for action in actions:
            self._PERFORM[action](self)

    def channel_ended(self) -> None:
        """Record that no process has the other end of the channel open."""
        if self._nobody_came:
            self.take(Event.RUNNER_ABSENT)
        else:
            self.runner_is_lost = True
            self.take(Event.CHANNEL_ENDED)

    def orphans_killed(self, survivors: list[int]) -> None:
        """Record that the leftover processes of a lost runner were killed, except `survivors`."""
        self.has_orphans = False
        self.shell.survivors = self.shell.leftover = survivors
        self.take(Event.NEVER_STARTED if self._nobody_came else Event.ORPHANS_KILLED)

    @property
    def _nobody_came(self) -> bool:
        """Whether the command still has no runner.

        A runner sends READY before it reads a command, so without READY no runner has started the
        command.
        """
        return (
            self.links.channel.peer is None
            and not self.moments.is_told(Moment.STARTED)
            and not self.is_being_ended
        )

    def receive(self, message: Message) -> None:
        """Process a message of the runner, or of the keeper that does the runner's work."""
        kind = message[0]
        if kind == LOST:
            self.runner_is_lost = True
        elif kind == RETIRES:
            self._runner_retires = True
        elif kind == FILE_LOST:
            # Some message was lost, perhaps the exit status. Shutting the channel down ends the
            # runner.
            self.links.channel.shut_down()
        event = apply_message(message, self.shell, self._outcome)
        if event is not None:
            self.take(event)

    def _set_deadline(self, name: Event, seconds: float) -> None:
        self.deadlines.set(name, seconds)
        self.links.wake_at(self.deadlines.next)

    # -- actions ----------------------------------------------------------------------------

    def _note_waiting(self) -> None:
        assert self.shell.pid is not None
        try:
            self.launch.bash_runs(self.shell.pid)
        except OSError:
            # Bash has ended, or the daemon cannot write into the memory of bash.
            self.discard()
        self.moments.tell(Moment.STARTED)

    def _note_start(self) -> None:
        shell = self.shell
        shell.started()
        self._outcome.command_starts()
        logger.info("%s started", shell.id)
        if not shell.in_foreground:
            self._close_files()
        self._release_if_asked()
        self.moments.tell(Moment.STARTED)

    def _note_failure(self) -> None:
        self.shell.failure = (errno.EAGAIN, "exec")

    def _send_kill(self) -> None:
        number, grace_ms = self._kill
        self.links.send_kill(number, grace_ms)
        self.deadlines.set_at_most(Event.KILL_DUE, grace_ms / 1000 + KILL_TIMEOUT_S)
        self.links.wake_at(self.deadlines.next)

    def _ask_again(self) -> None:
        """Give the command to another runner. If there is no other runner, the start has failed."""
        if self.links.launch_again(self.launch):
            self._set_deadline(Event.START_DUE, START_TIMEOUT_S)
        else:
            self.runner_is_lost = True
            self.take(Event.CHANNEL_ENDED)

    def _time_out(self) -> None:
        self._expire(Event.TIMEOUT_DUE)

    def _time_out_idle(self) -> None:
        if not self.is_being_ended:
            self.shell.reason = "idle"
        self._expire(Event.IDLE_DUE)

    def _expire(self, name: Event) -> None:
        policy = self.time_limits.policy(name)
        if policy.action == "background":
            self.release()
        else:
            self.begin_kill(None, policy.grace_ms, ShellEvent.TIMED_OUT)

    def _release_if_asked(self) -> None:
        """Move a running command to the background if somebody has asked for it.

        If the command does not run yet, this method does nothing, and is called again later. Until
        then, there is no pid for the answer, and another runner may still need the files of the
        command.
        """
        if self._is_to_be_released and self.shell.is_running:
            self.shell.released = True
            self._close_files()

    def _close_files(self) -> None:
        """Close the daemon's copies of the descriptors that a background command uses.

        A terminal stays open until bash ends. A program may close the terminal and open it again.
        The program must not get a hang-up between these two events, or while it exits.
        """
        if not self.shell.has_terminal:
            self.launch.close()

    def _await_output(self) -> None:
        # Close the daemon's copies of the write ends. Without these copies, the pipes reach end of
        # file as soon as the last process of the command has closed its copies.
        self.launch.close()
        self.links.drain()
        self._set_deadline(Event.OUTPUT_DUE, OUTPUT_GRACE_S)

    def _assume_killed(self) -> None:
        self._outcome.assume_killed()
        if self.runner_is_lost and not self.is_being_ended:
            self.shell.reason = "lost"

    def _end(self) -> None:
        # By now, bash has written all its output to the pipes.
        self.links.drain()
        self.links.end_input()
        self._outcome.settle(self.shell, self.launch.recorder)
        self.moments.tell(Moment.ENDED)

    def _note_lost_leftover(self) -> None:
        self.shell.reason = "lost"

    def _await_keeper(self) -> None:
        self.deadlines.drop(Event.START_DUE, Event.KILL_DUE)
        self._set_deadline(Event.KEEPER_DUE, KILL_TIMEOUT_S)

    def _stop_runner(self) -> None:
        if self.links.stop_runner():
            self.runner_is_lost = True
            self.take(Event.LOST)

    def _give_up_on_keeper(self) -> None:
        shell = self.shell
        bash = [] if shell.pid is None or self._outcome.is_known else [shell.pid]
        if survivors := shell.leftover or bash:
            # Nobody has confirmed that these processes are dead, so they count as survivors.
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
        Action.TIME_OUT_IDLE: _time_out_idle,
        Action.AWAIT_OUTPUT: _await_output,
        Action.ASSUME_KILLED: _assume_killed,
        Action.END: _end,
        Action.NOTE_LOST_LEFTOVER: _note_lost_leftover,
        Action.AWAIT_KEEPER: _await_keeper,
        Action.STOP_RUNNER: _stop_runner,
        Action.GIVE_UP_ON_KEEPER: _give_up_on_keeper,
        Action.KILL_ORPHANS: _kill_orphans,
    }
