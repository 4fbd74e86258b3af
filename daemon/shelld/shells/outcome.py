"""How bash ended, and why: as the runner reported, or as assumed where that is unknown."""

from __future__ import annotations

import logging
import os
import signal
from typing import Final

from shelld.process import faults
from shelld.sessions.recorder import Recorder
from shelld.shells.lifecycle import ShellEvent, ShellStatus
from shelld.shells.oom import OomKills
from shelld.shells.shell import Shell

logger = logging.getLogger("shelld.shells")

# How a command ends that the kernel killed because memory was short: by the signal, or with the
# exit code that bash gives for the last process that it waited for.
_SIGKILLED: Final = (-signal.SIGKILL, 128 + signal.SIGKILL)


class Outcome:
    """`kill_reason` is the first reason for which a kill was asked for."""

    def __init__(self, oom_kills: OomKills) -> None:
        self.kill_reason: ShellEvent | None = None
        # Of wait(2); None as long as bash runs.
        self._wait_status: int | None = None
        # By the runner, before it ended.
        self._was_signalled = False
        self._oom_kills = oom_kills
        self._oom_kills_before = 0

    @property
    def is_known(self) -> bool:
        return self._wait_status is not None

    def command_starts(self) -> None:
        self._oom_kills_before = self._oom_kills.count()

    def bash_exited(self, shell: Shell, wait_status: int, *, was_signalled: bool) -> None:
        """Note what the runner has reported."""
        self._wait_status, self._was_signalled = wait_status, was_signalled
        if wait_status and not was_signalled:
            died = os.waitstatus_to_exitcode(wait_status) in _SIGKILLED
            if died and self._oom_kills.count() > self._oom_kills_before:
                shell.reason = "oom"

    def assume_killed(self) -> None:
        """Bash was sent SIGKILL. Either its end is unknown, or it survives."""
        self._wait_status, self._was_signalled = signal.SIGKILL, True

    def settle(self, shell: Shell, recorder: Recorder | None) -> None:
        """End the shell, once. Keeps what the command has left, if it ended by itself."""
        assert self._wait_status is not None
        event = (self.kill_reason or ShellEvent.KILLED) if self._was_signalled else None
        if shell.reason == "idle" and event is not ShellEvent.TIMED_OUT:
            # It has gone on in the background, or ended by itself in that moment.
            shell.reason = None
        if recorder is not None:
            if event is None and not shell.released:
                _keep_state(recorder, has_exited=os.WIFEXITED(self._wait_status))
                shell.recorder = recorder
            recorder.close()
        _end(shell, self._wait_status, event)

    def settle_as_lost(self, shell: Shell) -> bool:
        """End the shell if it has not ended, as everything was killed; return whether it had not.

        Nobody knows more than what has survived.
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
        # The next command starts from the state before.
        faults.report("the state of a session")
        recorder.give_up()
