"""Decides how and why bash ended, whether or not the runner has reported this."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping, Set
from typing import Final

from shelld.limits.members import LimitReason, Member
from shelld.process import faults
from shelld.process.logs import Log
from shelld.sessions.recorder import Recorder
from shelld.shells.lifecycle import ShellEvent, ShellStatus
from shelld.shells.oom import OomKills
from shelld.shells.shell import Shell
from shelld_protocol.structs import EndReason, Unkept

logger = Log("shelld.shells")

# If memory is short, and the kernel kills a process of the command, bash may end with one of these
# codes. If the kernel has killed bash itself, the code is -SIGKILL. If the kernel has killed the
# last process that bash waited for, bash exits with 128 + SIGKILL.
_SIGKILLED: Final = (-signal.SIGKILL, 128 + signal.SIGKILL)

# Some reasons are valid only if a kill by shelld has ended the shell. For each such reason, this
# table has the possible values of `Outcome.kill_reason`. For a limit, two values are possible,
# because a command may exceed the limit during the grace period after a timeout.
_BY_LIMIT: Final = frozenset({ShellEvent.KILLED, ShellEvent.TIMED_OUT})
_KILLS: Final[Mapping[EndReason | None, Set[ShellEvent]]] = {
    "idle": frozenset({ShellEvent.TIMED_OUT}),
    "prompt": frozenset({ShellEvent.KILLED}),
    "memory": _BY_LIMIT,
    "processes": _BY_LIMIT,
    "cpu": _BY_LIMIT,
}


class Outcome:
    """Collects the facts about how bash has ended. `kill_reason` says why somebody first asked for
    a kill. `member` is the command's membership in a group with limits, or None.
    """

    def __init__(self, oom_kills: OomKills, member: Member | None = None) -> None:
        self.kill_reason: ShellEvent | None = None
        self.member = member
        # If bash has ended by itself, this is the limit that made the command fail, or the limit
        # that its leftover processes have exceeded.
        self._limit: LimitReason | None = None
        # The status of wait(2); None while bash runs.
        self._wait_status: int | None = None
        # Whether the runner has signalled bash.
        self._was_signalled = False
        self._oom_kills = oom_kills
        self._oom_kills_before = 0

    @property
    def is_known(self) -> bool:
        return self._wait_status is not None

    def show_limits(self, shell: Shell) -> None:
        """Record in the shell how the limits of the command are enforced."""
        shell.limits = None if self.member is None else self.member.enforced

    def command_starts(self) -> None:
        self._oom_kills_before = self._oom_kills.count()

    def bash_exited(self, shell: Shell, wait_status: int, *, was_signalled: bool) -> None:
        """Record how bash has ended, as the runner has reported it."""
        self._wait_status, self._was_signalled = wait_status, was_signalled
        if was_signalled and self.member is not None and self.member.cgroups.has_met("memory"):
            # The kernel may have killed bash at the memory limit before the runner did.
            shell.reason = shell.reason or "memory"
        if wait_status and not was_signalled:
            returncode = os.waitstatus_to_exitcode(wait_status)
            if self.member is not None:
                self._limit = self.member.reason_of_end(returncode)
            died = returncode in _SIGKILLED
            is_oom = died and self._oom_kills.count() > self._oom_kills_before
            if is_oom and self._limit != "memory":
                shell.reason, self._limit = "oom", None

    def exceeds(self, shell: Shell, reason: LimitReason) -> None:
        """Record that a limit is the reason to kill the command or its leftover processes."""
        # The record of a command that has moved to the background may still have the reason for the
        # move. The new reason replaces it.
        has_moved = self.kill_reason is None and not self.is_known
        if shell.reason is None or has_moved:
            shell.reason = reason
            if self.is_known:
                self._limit = reason

    def assume_killed(self) -> None:
        """Count bash as ended by SIGKILL, because nobody has reported that bash has ended, or
        because bash has survived a kill.
        """
        self._wait_status, self._was_signalled = signal.SIGKILL, True

    def settle(self, shell: Shell, recorder: Recorder | None) -> None:
        """End the shell, once. Keep the state of a command that ended by itself."""
        assert self._wait_status is not None
        event = (self.kill_reason or ShellEvent.KILLED) if self._was_signalled else None
        expected = _KILLS.get(shell.reason)
        if expected is not None and event not in expected:
            # The reason is not valid, because the command has moved to the background, or because
            # it has ended by itself before the kill.
            shell.reason = None
        if event is None and self._limit is not None:
            shell.reason = self._limit
        if recorder is not None and event is None:
            if shell.released:
                # If the command has ended before the answer, the result says why its state is lost.
                recorder.reason = Unkept.BACKGROUND
            else:
                _keep_state(recorder, has_exited=os.WIFEXITED(self._wait_status))
            shell.recorder = recorder
        if recorder is not None:
            recorder.close()
        _end(shell, self._wait_status, event)

    def settle_as_lost(self, shell: Shell) -> bool:
        """End a shell whose processes were all killed. Return False if the shell had ended before.

        Afterwards, the record has only the survivors as leftover processes.
        """
        if shell.status is ShellStatus.PENDING:
            shell.started()
        ends_now = shell.status is ShellStatus.RUNNING
        if ends_now:
            shell.reason = "lost"
            _end(shell, signal.SIGKILL, self.kill_reason or ShellEvent.KILLED)
        elif shell.leftover:
            shell.reason = "lost"
        shell.leftover = shell.survivors
        return ends_now


def _end(shell: Shell, wait_status: int, event: ShellEvent | None) -> None:
    shell.end(wait_status, event)
    logger.info("%s ended: %s", shell.id, shell.status)


def _keep_state(recorder: Recorder, *, has_exited: bool) -> None:
    try:
        recorder.keep(has_exited=has_exited)
    except Exception:
        # The next command starts from the previous state.
        faults.report("the state of a session")
        recorder.give_up()
