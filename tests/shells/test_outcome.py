"""How the outcome of a shell sets its status, exit code and reason."""

from __future__ import annotations

import signal

import pytest

from shelld.limits.members import LimitReason
from shelld.shells.lifecycle import ShellEvent
from shelld.shells.oom import OomKills
from shelld.shells.outcome import Outcome
from shelld.shells.shell import Shell

EXIT_3 = 3 << 8


def running() -> tuple[Shell, Outcome]:
    shell = Shell(is_empty=False)
    shell.started()
    return shell, Outcome(OomKills())


@pytest.mark.parametrize("reason", ["memory", "processes", "cpu"])
def test_limit_exceeded_by_a_leftover_is_the_reason(reason: LimitReason) -> None:
    shell, outcome = running()
    outcome.bash_exited(shell, EXIT_3, was_signalled=False)
    outcome.exceeds(shell, reason)
    outcome.kill_reason = ShellEvent.KILLED
    outcome.settle(shell, None)
    assert (shell.status, shell.exit_code, shell.reason) == ("failed", 3, reason)


def test_exceeded_limit_replaces_the_reason_for_moving_to_background() -> None:
    shell, outcome = running()
    # After a long silence, the daemon has moved the command to the background.
    shell.reason = "idle"
    outcome.exceeds(shell, "memory")
    outcome.kill_reason = ShellEvent.KILLED
    outcome.bash_exited(shell, signal.SIGKILL, was_signalled=True)
    outcome.settle(shell, None)
    assert (shell.status, shell.reason) == ("killed", "memory")


def test_limit_is_no_reason_if_the_command_exits_before_the_kill() -> None:
    shell, outcome = running()
    outcome.exceeds(shell, "cpu")
    outcome.kill_reason = ShellEvent.KILLED
    outcome.bash_exited(shell, EXIT_3, was_signalled=False)
    outcome.settle(shell, None)
    assert (shell.status, shell.reason) == ("failed", None)


@pytest.mark.parametrize("event", [ShellEvent.KILLED, ShellEvent.TIMED_OUT])
def test_limit_exceeded_during_the_grace_is_the_reason(event: ShellEvent) -> None:
    shell, outcome = running()
    outcome.kill_reason = event
    outcome.exceeds(shell, "cpu")
    outcome.bash_exited(shell, signal.SIGKILL, was_signalled=True)
    outcome.settle(shell, None)
    assert (shell.is_running, shell.reason) == (False, "cpu")
