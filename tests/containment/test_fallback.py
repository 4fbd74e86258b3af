"""Without subreapers, clients get the same answers, but shelld guarantees less about leftover
processes.

``--containment process-group`` simulates a machine without subreapers.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from oracles import start_tracer
from support import (
    Gate,
    RawDaemon,
    children,
    descendants,
    is_alive,
    parent_of,
    raw_daemon,
    wait_for,
)


@pytest.fixture
def daemon() -> Iterator[RawDaemon]:
    with raw_daemon("--containment", "process-group", "--grace", "200") as running:
        running.call("ping")
        yield running


def pid_of(daemon: RawDaemon, bash_id: str) -> int:
    shells = {shell["bash_id"]: shell for shell in daemon.call("list_shells")["shells"]}
    return int(shells[bash_id]["pid"])


def test_daemon_reports_process_group_containment(daemon: RawDaemon) -> None:
    expected = {"mechanism": "process-group", "cgroupKill": False}
    assert daemon.call("server_info")["containment"] == expected


@pytest.mark.slow
def test_command_runs_and_has_an_outcome(daemon: RawDaemon) -> None:
    result = daemon.bash("echo out; echo err >&2; exit 3")
    assert (result["stdout"], result["stderr"], result["exitCode"]) == ("out\n", "err\n", 3)
    assert result["leftover"] == []
    assert daemon.bash("kill -TERM $$")["signal"] == "SIGTERM"


@pytest.mark.sampled(2)
@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [
        "sleep 300 & sleep 300 & sleep 300",
        "nohup sleep 300 >/dev/null 2>&1 & disown; sleep 300",
        "setsid sleep 300 & setsid bash -c 'sleep 300 & sleep 300' & sleep 300",
        "set -m; sleep 300 & sleep 300 | sleep 300",
        "trap '' TERM; sleep 300 & kill -STOP $!; sleep 300",
    ],
)
@pytest.mark.parametrize("end", ["kill", "runner", "input", "daemon"])
def test_traceable_processes_are_killed(daemon: RawDaemon, command: str, end: str) -> None:
    # `true` at the end keeps bash from replacing itself with the first command.
    bash_id = daemon.background(f"{command}; true")
    pid = pid_of(daemon, bash_id)
    count = command.count("sleep") + command.count("bash")
    wait_for(lambda: len(descendants(pid)) == count, "the processes")
    family = [pid, *descendants(pid)]
    if end == "kill":
        result = daemon.call("kill_shell", {"shell_id": bash_id, "grace": 200})
        assert (result["status"], result["survivors"]) == ("killed", [])
        assert not [pid for pid in family if is_alive(pid)]
    elif end == "runner":
        (keeper,) = children(daemon.pid)
        (runner,) = [runner for runner in children(keeper) if pid in children(runner)]
        os.kill(runner, signal.SIGKILL)
        read = daemon.call("bash_output", {"bash_id": bash_id, "wait": 60_000, "until": "exit"})
        assert (read["status"], read["reason"]) == ("killed", "lost")
        # The daemon finds processes in another session only through living parents, so it may miss
        # processes whose parents have ended.
        session = [pid for pid in family if "setsid" not in command]
        assert not [pid for pid in session if is_alive(pid)]
        for left in family:
            if is_alive(left):
                os.kill(left, signal.SIGKILL)
    elif end == "input":
        daemon.end_input()
        assert daemon.wait() == 0
    else:
        daemon.process.kill()
    wait_for(lambda: not any(map(is_alive, family)), "the end of all")


@pytest.mark.slow
def test_lost_command_leaves_no_traceable_process(
    daemon: RawDaemon,
) -> None:
    # This many processes take a moment to die.
    bash_id = daemon.background("for i in {1..60}; do sleep 300 & done; wait")
    pid = pid_of(daemon, bash_id)
    wait_for(lambda: len(descendants(pid)) == 60, "the processes")
    family = [pid, *descendants(pid)]
    (keeper,) = children(daemon.pid)
    (runner,) = [runner for runner in children(keeper) if pid in children(runner)]
    descriptors = Path(f"/proc/{keeper}/fd")
    os.kill(daemon.pid, signal.SIGSTOP)
    try:
        count = len(list(descriptors.iterdir()))
        os.kill(runner, signal.SIGKILL)
        # Wait until the keeper has sent all its messages, so that the daemon finds them all at
        # once.
        wait_for(lambda: len(list(descriptors.iterdir())) < count, "the keeper's last word")
    finally:
        os.kill(daemon.pid, signal.SIGCONT)
    read = daemon.call("bash_output", {"bash_id": bash_id, "wait": 60_000, "until": "exit"})
    alive = [pid for pid in family if is_alive(pid)]
    assert (read["status"], read["reason"], alive) == ("killed", "lost", [])


@pytest.mark.slow
def test_leftover_list_shrinks_as_processes_end(daemon: RawDaemon) -> None:
    result = daemon.bash("sleep 300 & sleep 300 & exit 3")
    assert len(result["leftover"]) == 2
    first, second = result["leftover"]

    def listed() -> list[int]:
        found: list[int] = daemon.call("list_shells")["shells"][0]["leftover"]
        return found

    assert listed() == [first, second]
    os.kill(first, signal.SIGKILL)
    wait_for(lambda: listed() == [second], "the change of the list")
    killed = daemon.call("kill_shell", {"shell_id": result["bash_id"]})
    assert (killed["alreadyStopped"], killed["survivors"]) == (False, [])
    assert not is_alive(second)


@pytest.mark.slow
def test_ended_leftover_frees_its_shell(daemon: RawDaemon, tmp_path: Path) -> None:
    gate = Gate(tmp_path / "gate")
    result = daemon.bash(f"{gate.wait} & exit 0")
    assert len(result["leftover"]) == 1
    gate.open()
    wait_for(lambda: daemon.call("list_shells")["shells"][0]["leftover"] == [], "an empty list")
    assert daemon.bash("echo next")["stdout"] == "next\n"


@pytest.mark.slow
def test_traced_runner_does_not_stop_a_kill(daemon: RawDaemon) -> None:
    bash_id, family = start_tracer(daemon)
    try:
        result = daemon.call("kill_shell", {"shell_id": bash_id, "grace": 100})
        assert (result["status"], result["survivors"]) == ("killed", [])
        assert not [pid for pid in family if is_alive(pid)]
    finally:
        for left in filter(is_alive, family):
            os.kill(left, signal.SIGKILL)


@pytest.mark.slow
@pytest.mark.parametrize("end", ["kill", "input"])
@pytest.mark.parametrize("keeper_is", ["gone", "replaced", "stopped"])
def test_a_stopped_runner_without_a_keeper_leaves_nothing(
    daemon: RawDaemon, keeper_is: str, end: str
) -> None:
    bash_id = daemon.background("sleep 300 & sleep 300; true")
    pid = pid_of(daemon, bash_id)
    wait_for(lambda: len(descendants(pid)) == 2, "both sleeps")
    runner = parent_of(pid)
    family = [runner, pid, *descendants(pid)]
    (keeper,) = children(daemon.pid)
    try:
        os.kill(keeper, signal.SIGSTOP if keeper_is == "stopped" else signal.SIGKILL)
        if keeper_is != "stopped":
            wait_for(lambda: parent_of(runner) != keeper, "the end of the keeper")
        if keeper_is == "replaced":
            daemon.background("sleep 300")
            wait_for(lambda: len(children(daemon.pid)) > 1, "another keeper")
        os.kill(runner, signal.SIGSTOP)
        if end == "kill":
            result = daemon.call("kill_shell", {"shell_id": bash_id, "grace": 100})
            assert (result["status"], result["survivors"]) == ("killed", [])
            assert not [pid for pid in family if is_alive(pid)]
        else:
            daemon.end_input()
            assert daemon.wait() == 0
            wait_for(lambda: not any(map(is_alive, family)), "the end of all")
    finally:
        for left in filter(is_alive, family):
            os.kill(left, signal.SIGKILL)
