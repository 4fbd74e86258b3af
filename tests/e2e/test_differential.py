"""With or without a session, a command does and sees the same as in ``bash -c``."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from differential import COMMANDS, EXPECTED_DIFFERENCES
from support import RawDaemon, raw_daemon

pytestmark = pytest.mark.slow


class Outcome(NamedTuple):
    stdout: str
    stderr: str
    code: int


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    home = tmp_path_factory.mktemp("home")
    return {"PATH": os.environ["PATH"], "HOME": str(home), "LC_ALL": "C.UTF-8", "SHLVL": "1"}


@pytest.fixture(scope="module")
def home(environment: dict[str, str]) -> Path:
    return Path(environment["HOME"])


@contextlib.contextmanager
def running_daemon(
    spare_shells: int, environment: dict[str, str], home: Path
) -> Generator[RawDaemon]:
    """Run a daemon while the `with` block runs. At the end, check that the daemon has used spare
    shells, or has used none if `spare_shells` is 0.
    """
    with raw_daemon("--spare-shells", str(spare_shells), env=environment, cwd=home) as daemon:
        daemon.bash("true", session=None)
        yield daemon
        # The number of used spare shells depends on how busy the machine is.
        used = daemon.call("server_info")["counters"]["sparesUsed"]
        assert bool(used) == bool(spare_shells)


@pytest.fixture(scope="module")
def daemon_with_spares(environment: dict[str, str], home: Path) -> Iterator[RawDaemon]:
    with running_daemon(8, environment, home) as daemon:
        yield daemon


@pytest.fixture(scope="module")
def daemon_without_spares(environment: dict[str, str], home: Path) -> Iterator[RawDaemon]:
    with running_daemon(0, environment, home) as daemon:
        yield daemon


@pytest.fixture(scope="module", autouse=True)
def no_signal_is_ignored() -> Iterator[None]:
    """Ignore no signals, so that plain bash starts without ignored signals.

    If these tests run in the background, they ignore some signals at first.
    """
    ignored = [
        number
        for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT)
        if signal.getsignal(number) is signal.SIG_IGN
    ]
    for number in ignored:
        # If a signal has a handler, starting a program resets the signal to its default action.
        signal.signal(number, lambda _number, _frame: None)
    yield
    for number in ignored:
        signal.signal(number, signal.SIG_IGN)


def by_bash(command: str, environment: dict[str, str], home: Path) -> Outcome:
    done = subprocess.run(
        ["bash", "-c", command],
        executable="/bin/bash",
        env=environment,
        cwd=home,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        start_new_session=True,
        check=False,
    )
    stdout, stderr = (data.decode("utf-8", "replace") for data in (done.stdout, done.stderr))
    return Outcome(stdout, without_pids(stderr), done.returncode)


def without_pids(stderr: str) -> str:
    """Replace the pids in messages such as "bash: line 1: 4711 Killed"."""
    return re.sub(r"(: line \d+: ) *\d+ ", r"\1PID ", stderr)


def by_daemon(daemon: RawDaemon, command: str, session: str | None) -> Outcome:
    done = daemon.bash(command, session=session, strip_ansi=False)
    code = done["exitCode"]
    if code is None:
        code = -signal.Signals[done["signal"]]
    return Outcome(done["stdout"], without_pids(done["stderr"]), code)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("command", COMMANDS)
def test_spare_shell_does_what_bash_does(
    daemon_with_spares: RawDaemon, command: str, environment: dict[str, str], home: Path
) -> None:
    assert_same_as_bash(daemon_with_spares, command, environment, home)


# `make test` starts a bash only for every third command.
@pytest.mark.parametrize(
    "command",
    [
        pytest.param(command, marks=[pytest.mark.long] if number % 3 else [])
        for number, command in enumerate(COMMANDS)
    ],
)
def test_new_shell_does_what_bash_does(
    daemon_without_spares: RawDaemon, command: str, environment: dict[str, str], home: Path
) -> None:
    assert_same_as_bash(daemon_without_spares, command, environment, home)


def assert_same_as_bash(
    daemon: RawDaemon, command: str, environment: dict[str, str], home: Path
) -> None:
    expected = by_bash(command, environment, home)
    assert by_daemon(daemon, command, None) == expected
    if command in EXPECTED_DIFFERENCES:
        return
    # One session has no state to restore, and the other restores a variable.
    new, used = f"new: {command}", f"used: {command}"
    try:
        daemon.bash("true", session=new)
        assert by_daemon(daemon, command, new) == expected
        daemon.bash("kept=1", session=used)
        assert by_daemon(daemon, command, used) == expected
        assert by_daemon(daemon, "echo on", used).stdout == "on\n"
    finally:
        for session in (new, used):
            daemon.call("close_session", {"session": session})


def test_many_commands_are_compared() -> None:
    assert len(COMMANDS) - len(EXPECTED_DIFFERENCES) > 300
    assert set(COMMANDS) >= EXPECTED_DIFFERENCES
