"""Commands attack the keeper and the runners, or the keeper and the runners fail by themselves."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from oracles import TRACER, Cgroup, Freezer, start_tracer
from shelld.keeper.pool import MAX_SHORT_LIVES
from support import (
    RawDaemon,
    altered_daemon,
    children,
    descendants,
    is_alive,
    parent_of,
    raw_daemon,
    wait_for,
)

pytestmark = pytest.mark.slow

# This daemon waits a shorter time for the keeper to fork a runner.
HASTY_DAEMON = altered_daemon({"shelld.shells.life.START_TIMEOUT_S": 5})


@pytest.fixture(params=["cgroup", "subreaper"])
def mechanism(request: pytest.FixtureRequest) -> str:
    if request.param == "cgroup" and not Cgroup.is_possible():
        pytest.skip("needs a cgroup v2 directory that can be divided")
    return str(request.param)


@pytest.fixture
def daemon(mechanism: str) -> Iterator[RawDaemon]:
    with raw_daemon("--containment", mechanism) as running:
        running.call("ping")
        yield running


def keeper_of(daemon: RawDaemon) -> int:
    (keeper,) = children(daemon.pid)
    return keeper


def runners_of(daemon: RawDaemon) -> list[int]:
    return children(keeper_of(daemon))


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_command_killing_its_runner_ends_as_lost(daemon: RawDaemon, tmp_path: Path) -> None:
    other = daemon.background("sleep 300")
    command = f"setsid sleep 300 & echo $! > {tmp_path}/pid; sync; kill -9 $PPID; sleep 300"
    result = daemon.bash(command)
    assert (result["status"], result["signal"], result["exitCode"]) == ("killed", "SIGKILL", None)
    assert result["reason"] == "lost"
    # When the daemon answered, the process had already died.
    assert not is_alive(int((tmp_path / "pid").read_text()))
    assert daemon.call("bash_output", {"bash_id": other})["isRunning"] is True
    listed = {shell["bash_id"]: shell for shell in daemon.call("list_shells")["shells"]}
    assert listed[result["bash_id"]]["reason"] == "lost"
    assert "reason" not in listed[other]
    assert daemon.bash("echo next")["stdout"] == "next\n"


def test_command_killing_runner_and_keeper_leaves_nothing(
    daemon: RawDaemon, tmp_path: Path
) -> None:
    other = daemon.background("sleep 300")
    keeper = keeper_of(daemon)
    result = daemon.bash(
        f"(setsid sleep 300 &) ; setsid sleep 300 & echo $! > {tmp_path}/pid;"
        f" kill -9 {keeper} $PPID; sleep 300"
    )
    assert (result["status"], result["reason"]) == ("killed", "lost")
    assert not is_alive(int((tmp_path / "pid").read_text()))
    assert [Path(f"/proc/{pid}/comm").read_text() for pid in descendants(daemon.pid)].count(
        "sleep\n"
    ) == 1
    assert daemon.call("bash_output", {"bash_id": other})["isRunning"] is True
    assert daemon.call("kill_shell", {"shell_id": other})["survivors"] == []
    assert daemon.bash("echo next")["stdout"] == "next\n"


def test_leftovers_die_with_their_runner(
    daemon: RawDaemon,
) -> None:
    result = daemon.bash("setsid sleep 300 & exit 3")
    (leftover,) = result["leftover"]
    (runner,) = [pid for pid in runners_of(daemon) if leftover in children(pid)]
    os.kill(runner, signal.SIGKILL)
    wait_for(lambda: not is_alive(leftover), "the end of what was left")
    wait_for(lambda: daemon.call("list_shells")["shells"][0]["leftover"] == [], "the list")
    (shell,) = daemon.call("list_shells")["shells"]
    assert (shell["status"], shell["exitCode"], shell["reason"]) == ("failed", 3, "lost")


def test_output_of_a_lost_shell_is_kept(daemon: RawDaemon) -> None:
    result = daemon.bash("printf unfinished; echo error >&2; kill -9 $PPID; sleep 300")
    assert (result["stdout"], result["stderr"]) == ("unfinished", "error\n")


def test_killed_keeper_is_replaced(daemon: RawDaemon) -> None:
    busy = daemon.background("sleep 300")
    keeper = keeper_of(daemon)
    os.kill(keeper, signal.SIGKILL)
    wait_for(
        lambda: (
            "shelld-keeper\n"
            in [
                Path(f"/proc/{pid}/comm").read_text()
                for pid in children(daemon.pid)
                if pid != keeper
            ]
        ),
        "another keeper",
    )
    ids = [daemon.background("sleep 300") for _ in range(4)]
    assert daemon.call("bash_output", {"bash_id": busy})["isRunning"] is True
    for bash_id in [busy, *ids]:
        assert daemon.call("kill_shell", {"shell_id": bash_id})["survivors"] == []


def test_failing_keeper_is_not_restarted_endlessly(tmp_path: Path) -> None:
    starts = tmp_path / "starts"
    # This keeper writes more to stderr than a pipe holds, and then fails.
    boot = f"import os; open({str(starts)!r}, 'a').write('x'); os.write(2, bytes(1 << 20)); [][0]"
    # Every keeper counts as short-lived, however slow the machine is.
    command = altered_daemon(
        {"shelld.keeper.pool._BOOT": boot, "shelld.keeper.pool.MIN_KEEPER_LIFE_S": 300}
    )
    with raw_daemon(command=command) as daemon:
        expected = 1 + MAX_SHORT_LIVES
        wait_for(lambda: starts.exists() and len(starts.read_text()) >= expected, "restarts")
        for _ in range(300):
            daemon.call("ping")
        assert len(starts.read_text()) == expected
        assert daemon.fail("bash", {"command": "true"})["code"] == 1005
        assert daemon.call("ping") == {}


def test_repeatedly_killed_keeper_stops_no_command(daemon: RawDaemon) -> None:
    for number in range(10):
        for pid in children(daemon.pid):
            # A child may also be a runner of a dead keeper, or may just have ended.
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                if Path(f"/proc/{pid}/comm").read_text() == "shelld-keeper\n":
                    os.kill(pid, signal.SIGKILL)
        assert daemon.bash(f"echo {number}")["stdout"] == f"{number}\n"


def test_stopped_runner_or_keeper_is_continued(daemon: RawDaemon) -> None:
    keeper = keeper_of(daemon)
    result = daemon.bash(f"kill -STOP $PPID {keeper}; echo on; exit 3")
    assert (result["stdout"], result["exitCode"]) == ("on\n", 3)
    assert daemon.bash("kill -9 $PPID")["reason"] == "lost"
    assert daemon.bash("echo next")["stdout"] == "next\n"
    assert state_of(keeper) != "T"


def test_stopped_keeper_ends_with_killed_daemon(mechanism: str) -> None:
    daemon = RawDaemon("--containment", mechanism)
    try:
        daemon.background("setsid sleep 300 & sleep 300")
        family = descendants(daemon.pid)
        keeper = keeper_of(daemon)
        # Stop the daemon and the keeper, so that the daemon cannot send SIGCONT to the keeper.
        os.kill(daemon.pid, signal.SIGSTOP)
        os.kill(keeper, signal.SIGSTOP)
        wait_for(lambda: state_of(keeper) == "T", "the keeper's stop")
        daemon.process.kill()
        wait_for(lambda: not any(map(is_alive, family)), "the end of all")
    finally:
        daemon.close()


def stop(pid: int) -> None:
    os.kill(pid, signal.SIGSTOP)
    wait_for(lambda: state_of(pid) == "T", f"the stop of {pid}")


@pytest.mark.slow
@pytest.mark.parametrize("keeper_ends", ["after-the-daemon", "long-before", "just-before"])
def test_stopped_helpers_of_a_killed_daemon_leave_nothing(mechanism: str, keeper_ends: str) -> None:
    daemon = RawDaemon("--containment", mechanism, "--spare-shells", "0")
    family: list[int] = []
    try:
        daemon.background("setsid sleep 300 & sleep 300")
        keeper = keeper_of(daemon)
        (bash,) = [shell["pid"] for shell in daemon.call("list_shells")["shells"]]
        wait_for(lambda: len(descendants(bash)) == 2, "both sleeps")
        runner = parent_of(bash)
        if keeper_ends == "long-before":
            os.kill(keeper, signal.SIGKILL)
            wait_for(lambda: parent_of(runner) == daemon.pid, "the adoption of the runner")
        # Stop the processes from the top down, because each one sends SIGCONT to its stopped
        # children.
        stop(daemon.pid)
        family = descendants(daemon.pid)
        if keeper_ends != "long-before":
            stop(keeper)
        stop(runner)
        if keeper_ends == "just-before":
            os.kill(keeper, signal.SIGKILL)
        daemon.process.kill()
        wait_for(lambda: not any(map(is_alive, family)), "the end of all")
    finally:
        daemon.close()
        kill_all(family)


def kill_all(pids: list[int]) -> None:
    """Send SIGKILL to the processes that a failed test has left."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def test_a_frozen_runner_does_not_stop_a_kill(daemon: RawDaemon, freezer: Freezer) -> None:
    bash_id = daemon.background("sleep 300")
    (pid,) = [shell["pid"] for shell in daemon.call("list_shells")["shells"]]
    (runner,) = runners_of(daemon)
    with freezer.holding(runner):
        result = daemon.call("kill_shell", {"shell_id": bash_id, "grace": 100})
        # Neither the runner nor the keeper can act, so the daemon knows only the pid of the shell.
        assert (result["status"], result["survivors"]) == ("killed", [pid])
        assert daemon.call("list_shells")["shells"][0]["leftover"] == [pid]
        assert daemon.bash("echo others go on")["stdout"] == "others go on\n"
    wait_for(lambda: not is_alive(pid) and not is_alive(runner), "the end of both once thawed")
    wait_for(lambda: daemon.call("list_shells")["shells"][0]["leftover"] == [], "an empty list")


@pytest.mark.long
@pytest.mark.parametrize(
    ("background", "kind"),
    [(True, "spawn_failed"), (False, "timeout")],
)
def test_silent_runner_is_given_up(
    daemon: RawDaemon, freezer: Freezer, background: bool, kind: str
) -> None:
    (runner,) = runners_of(daemon)
    with freezer.holding(runner):
        request_id = daemon.request(
            "bash", {"command": "true", "timeout": 1000, "run_in_background": background}
        )
        assert daemon.bash("echo others go on")["stdout"] == "others go on\n"
        error = daemon.answer(request_id)["error"]
        assert error["data"]["kind"] == kind
        # Nobody can tell whether the command ran.
        (shell, _) = daemon.call("list_shells")["shells"]
        assert (shell["status"], shell["signal"], shell["pid"]) == ("timeout", "SIGKILL", None)
    wait_for(lambda: not is_alive(runner), "the end of the runner")


@pytest.mark.slow
@pytest.mark.parametrize("end", ["kill", "kill-without-keeper", "input", "daemon"])
def test_runner_traced_by_its_command_leaves_nothing(daemon: RawDaemon, end: str) -> None:
    bash_id, family = start_tracer(daemon)
    keeper = keeper_of(daemon)
    try:
        if end == "kill-without-keeper":
            os.kill(keeper, signal.SIGKILL)
            wait_for(lambda: parent_of(family[0]) == daemon.pid, "the adoption of the runner")
        if end.startswith("kill"):
            result = daemon.call("kill_shell", {"shell_id": bash_id, "grace": 100})
            assert (result["status"], result["survivors"]) == ("killed", [])
            assert not [pid for pid in family if is_alive(pid)]
            assert daemon.bash("echo next")["stdout"] == "next\n"
        else:
            if end == "input":
                daemon.end_input()
                assert daemon.wait() == 0
            else:
                daemon.process.kill()
            wait_for(lambda: not any(map(is_alive, [keeper, *family])), "the end of all")
    finally:
        kill_all([pid for pid in family if is_alive(pid)])


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", ["subreaper", "process-group"])
def test_keeper_traced_by_a_command_is_replaced(mechanism: str) -> None:
    with raw_daemon("--containment", mechanism, command=HASTY_DAEMON) as daemon:
        running = [daemon.background("sleep 300") for _ in range(3)]
        keeper = keeper_of(daemon)
        runners = children(keeper)
        tracer = daemon.background(f"{sys.executable} {TRACER} {keeper}")
        told = daemon.call("bash_output", {"bash_id": tracer, "wait": 60_000})["stdout"]
        if told != "stopped":
            pytest.skip(f"no debugger may be attached: {told}")
        # There are more commands than idle runners, so the keeper has to fork more runners.
        requests = [daemon.request("bash", {"command": "sleep 0.1"}) for _ in range(10)]
        for request_id in requests:
            answer = daemon.answer(request_id)
            assert "result" in answer, answer
            assert answer["result"]["exitCode"] == 0
        assert keeper not in [parent_of(pid) for pid in runners if is_alive(pid)]
        for bash_id in (*running, tracer):
            result = daemon.call("kill_shell", {"shell_id": bash_id, "grace": 0})
            assert (result["status"], result["survivors"]) == ("killed", [])
        wait_for(lambda: not is_alive(keeper), "the end of the keeper")
        assert daemon.bash("echo next")["stdout"] == "next\n"


@pytest.mark.slow
@pytest.mark.parametrize("whole_family", [False, True], ids=["daemon alone", "whole family"])
def test_each_command_runs_once_after_a_long_suspension(tmp_path: Path, whole_family: bool) -> None:
    hasty = altered_daemon(
        {"shelld.shells.life.START_TIMEOUT_S": 5, "shelld.shells.supervisor.PAUSE_S": 0.2}
    )
    with raw_daemon(command=hasty) as daemon:
        daemon.call("ping")
        stopped = [daemon.pid, *(descendants(daemon.pid) if whole_family else [])]
        requests = [
            daemon.request("bash", {"command": f"echo {number} >> {tmp_path}/ran; sleep 0.1"})
            for number in range(40)
        ]
        time.sleep(0.1)
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)
        # The suspension must last longer than START_TIMEOUT_S of this daemon.
        time.sleep(6)
        for pid in reversed(stopped):
            os.kill(pid, signal.SIGCONT)
        for request_id in requests:
            assert daemon.answer(request_id)["result"]["exitCode"] == 0
    assert sorted(map(int, (tmp_path / "ran").read_text().split())) == list(range(40))
