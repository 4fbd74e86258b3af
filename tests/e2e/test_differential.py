"""What a command sees and does is what ``bash -c`` shows, in sessions too."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from differential import COMMANDS, EXPECTED_DIFFERENCES
from support import RawDaemon, raw_daemon


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


@pytest.fixture(scope="module", params=[0, 8], ids=["started for it", "waiting for it"])
def spares(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture(scope="module")
def shared_daemon(environment: dict[str, str], home: Path, spares: int) -> Iterator[RawDaemon]:
    with raw_daemon("--spare-shells", str(spares), env=environment, cwd=home) as daemon:
        daemon.bash("true", session=None)
        yield daemon
        counters = daemon.call("server_info")["counters"]
        used = counters["sparesUsed"]
        # Of the six commands of a test, the last three but one; and others, unless the machine is
        # too busy.
        assert used > counters["shellsStarted"] * 0.4 if spares else used == 0


@pytest.fixture(scope="module", autouse=True)
def no_signal_is_ignored() -> Iterator[None]:
    """By the plain bash; a test run in the background may ignore some, and so would that."""
    ignored = [
        number
        for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT)
        if signal.getsignal(number) is signal.SIG_IGN
    ]
    for number in ignored:
        # With a handler, it has its default action in a program that is started.
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
    """As in "bash: line 1: 4711 Killed"."""
    return re.sub(r"(: line \d+: ) *\d+ ", r"\1PID ", stderr)


def by_daemon(daemon: RawDaemon, command: str, session: str | None) -> Outcome:
    done = daemon.bash(command, session=session, strip_ansi=False)
    code = done["exitCode"]
    if code is None:
        code = -signal.Signals[done["signal"]]
    return Outcome(done["stdout"], without_pids(done["stderr"]), code)


@pytest.mark.parametrize("command", COMMANDS)
def test_command_output_equals_bash_output(
    shared_daemon: RawDaemon, command: str, environment: dict[str, str], home: Path
) -> None:
    expected = by_bash(command, environment, home)
    assert by_daemon(shared_daemon, command, None) == expected
    if command in EXPECTED_DIFFERENCES:
        return
    # A session that has nothing to remember yet, and one that has.
    new, used = f"new: {command}", f"used: {command}"
    try:
        shared_daemon.bash("true", session=new)
        assert by_daemon(shared_daemon, command, new) == expected
        shared_daemon.bash("kept=1", session=used)
        assert by_daemon(shared_daemon, command, used) == expected
        assert by_daemon(shared_daemon, "echo on", used).stdout == "on\n"
    finally:
        for session in (new, used):
            shared_daemon.call("close_session", {"session": session})


def test_there_are_many_of_them() -> None:
    assert len(COMMANDS) - len(EXPECTED_DIFFERENCES) > 300
    assert set(COMMANDS) >= EXPECTED_DIFFERENCES
