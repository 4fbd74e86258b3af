"""Lower the resource limits of the keeper and the runners while they run, then raise these limits
again.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
from collections.abc import Generator
from pathlib import Path

import pytest

from support import Gate, RawDaemon, children, is_alive, raw_daemon, running_below, wait_for

pytestmark = pytest.mark.slow

MECHANISMS = pytest.mark.parametrize("mechanism", ["cgroup", "subreaper", "process-group"])


@contextlib.contextmanager
def no_more_descriptors(*pids: int) -> Generator[None]:
    """While the `with` block runs, keep processes from opening more files and sockets."""
    before = {pid: resource.prlimit(pid, resource.RLIMIT_NOFILE) for pid in pids}
    for pid in pids:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (3, before[pid][1]))
    try:
        yield
    finally:
        for pid, limits in before.items():
            with contextlib.suppress(ProcessLookupError):
                resource.prlimit(pid, resource.RLIMIT_NOFILE, limits)


def keeper_of(daemon: RawDaemon) -> int:
    (keeper,) = children(daemon.pid)
    return keeper


def runner_of(daemon: RawDaemon, pid: int) -> int:
    (runner,) = [runner for runner in children(keeper_of(daemon)) if pid in children(runner)]
    return runner


def pid_of(daemon: RawDaemon, bash_id: str) -> int:
    shells = {shell["bash_id"]: shell for shell in daemon.call("list_shells")["shells"]}
    return int(shells[bash_id]["pid"])


def nothing_sleeps(daemon: RawDaemon) -> bool:
    return not running_below(daemon.pid, "sleep\0")


@MECHANISMS
def test_a_runner_without_descriptors_still_kills(mechanism: str) -> None:
    with raw_daemon("--spare-shells", "0", "--containment", mechanism) as daemon:
        bash_id = daemon.background("sleep 300 & (sleep 300 & sleep 300); true")
        runner = runner_of(daemon, pid_of(daemon, bash_id))
        with no_more_descriptors(runner):
            killed = daemon.call("kill_shell", {"shell_id": bash_id, "grace": 100})
            assert (killed["status"], killed["survivors"]) == ("killed", [])
            assert nothing_sleeps(daemon)
        assert daemon.bash("echo next")["stdout"] == "next\n"


@MECHANISMS
def test_runner_without_descriptors_reports_exit_code(mechanism: str, tmp_path: Path) -> None:
    gate = Gate(tmp_path / "gate")
    with raw_daemon("--spare-shells", "0", "--containment", mechanism) as daemon:
        request_id = daemon.request("bash", {"command": f"sleep 300 & {gate.wait}; exit 3"})
        wait_for(lambda: running_below(daemon.pid, "sleep\0"), "the sleep")
        wait_for(lambda: daemon.call("list_shells")["shells"][0]["pid"], "its bash")
        (shell,) = daemon.call("list_shells")["shells"]
        with no_more_descriptors(runner_of(daemon, shell["pid"])):
            gate.open()
            result = daemon.answer(request_id)["result"]
            assert (result["status"], result["exitCode"]) == ("failed", 3)
            # The runner has restored its limit, so it can find the leftover processes.
            assert [is_alive(pid) for pid in result["leftover"]] == [True]
            assert "reason" not in result
        assert daemon.bash("echo next")["stdout"] == "next\n"


@MECHANISMS
def test_keeper_without_descriptors_cleans_up_killed_runner(mechanism: str) -> None:
    with raw_daemon("--spare-shells", "0", "--containment", mechanism) as daemon:
        daemon.background("sleep 0.1")
        bash_id = daemon.background("sleep 300 & sleep 300; true")
        pid = pid_of(daemon, bash_id)
        with no_more_descriptors(keeper_of(daemon)):
            os.kill(runner_of(daemon, pid), signal.SIGKILL)
            params = {"bash_id": bash_id, "wait": 60_000, "until": "exit"}
            read = daemon.call("bash_output", params)
            assert (read["status"], read["reason"]) == ("killed", "lost")
            wait_for(lambda: nothing_sleeps(daemon), "the end of all")
            shells = daemon.call("list_shells")["shells"]
            assert [shell["leftover"] for shell in shells] == [[], []]
        assert daemon.bash("echo next")["stdout"] == "next\n"


@pytest.mark.slow
@MECHANISMS
def test_a_keeper_without_descriptors_gets_them_back(mechanism: str) -> None:
    with raw_daemon("--spare-shells", "0", "--containment", mechanism) as daemon:
        daemon.bash("true")
        with no_more_descriptors(keeper_of(daemon)):
            asked = [daemon.request("bash", {"command": "sleep 0.2; echo on"}) for _ in range(4)]
            outputs = [daemon.answer(request_id)["result"]["stdout"] for request_id in asked]
            assert outputs == ["on\n"] * 4
        asked = [daemon.request("bash", {"command": "echo again"}) for _ in range(4)]
        outputs = [daemon.answer(request_id)["result"]["stdout"] for request_id in asked]
        assert outputs == ["again\n"] * 4


def test_environment_is_refused_without_descriptors() -> None:
    # This environment does not fit into a message. The daemon sends it as a file, and the runner
    # cannot receive the descriptor of that file.
    env = {f"NAME_{number}": "x" * 1000 for number in range(100)}
    with raw_daemon("--spare-shells", "0") as daemon:
        daemon.bash("true")
        (runner,) = children(keeper_of(daemon))
        with no_more_descriptors(runner):
            error = daemon.fail("bash", {"command": "true", "env": env})
            assert error["data"]["kind"] == "resource_exhausted"
        assert daemon.bash("echo $NAME_99", env=env)["stdout"] == "x" * 1000 + "\n"


@pytest.mark.parametrize("mechanism", ["subreaper", "process-group"])
def test_stopped_keeper_forks_on_request(mechanism: str) -> None:
    with raw_daemon("--spare-shells", "0", "--containment", mechanism) as daemon:
        daemon.bash("true")
        os.kill(keeper_of(daemon), signal.SIGSTOP)
        asked = [daemon.request("bash", {"command": "sleep 0.1; echo on"}) for _ in range(4)]
        outputs = [daemon.answer(request_id)["result"]["stdout"] for request_id in asked]
        assert outputs == ["on\n"] * 4


@MECHANISMS
def test_a_stopped_runner_is_continued(mechanism: str) -> None:
    with raw_daemon("--spare-shells", "0", "--containment", mechanism) as daemon:
        bash_id = daemon.background("sleep 300")
        os.kill(runner_of(daemon, pid_of(daemon, bash_id)), signal.SIGSTOP)
        killed = daemon.call("kill_shell", {"shell_id": bash_id, "grace": 0})
        assert (killed["status"], killed["survivors"]) == ("killed", [])


SPOILING = {
    "memory": "prlimit --pid $PPID --as=1000000:",
    "open files": "prlimit --pid $PPID --nofile=5:",
    "file size": "prlimit --pid $PPID --fsize=0:",
    "processor time": "prlimit --pid $PPID --cpu=100:",
    "stack": "prlimit --pid $PPID --stack=65536:",
    "priority": "renice -n 15 -p $PPID",
    "scheduling": "chrt -i -p 0 $PPID",
    "memory of the keeper": "prlimit --pid $(cut -d' ' -f4 /proc/$PPID/stat) --as=1000000:",
    "files of the keeper": "prlimit --pid $(cut -d' ' -f4 /proc/$PPID/stat) --nofile=3:",
    "priority of the keeper": "renice -n 15 -p $(cut -d' ' -f4 /proc/$PPID/stat)",
}
LOOK_AT_LIMITS = "ulimit -a; nice; chrt -p $$ | cut -d: -f2; touch written"


@pytest.mark.sampled(3)
@pytest.mark.slow
@pytest.mark.parametrize("spares", ["0", "4"])
@pytest.mark.parametrize("spoil", SPOILING.values(), ids=SPOILING)
def test_runner_changes_do_not_reach_later_commands(
    spoil: str, spares: str, tmp_path: Path
) -> None:
    with raw_daemon("--spare-shells", spares, cwd=tmp_path) as daemon:
        before = daemon.bash(LOOK_AT_LIMITS, session=None)
        daemon.bash(f"{spoil} > /dev/null", session="other")
        for number in range(4):
            after = daemon.bash(LOOK_AT_LIMITS, session=[None, "main"][number % 2])
            assert (after["stdout"], after["stderr"]) == (before["stdout"], "")


SPOILT_FAMILY = """
set -e
keeper=$(cut -d' ' -f4 /proc/$PPID/stat)
for pid in $PPID $keeper; do {change} $pid; done > /dev/null
"""


@pytest.mark.parametrize(
    "change", ["renice -n 15 -p", "prlimit --as=1000000 --pid", "prlimit --nofile=64 --pid"]
)
def test_keeper_changes_do_not_reach_later_commands_without_subreapers(change: str) -> None:
    options = ("--spare-shells", "0", "--containment", "process-group")
    with raw_daemon(*options) as daemon:
        running = daemon.background("sleep 300; echo never")
        before = daemon.bash("ulimit -a; nice")["stdout"]
        assert daemon.bash(SPOILT_FAMILY.format(change=change), session=None)["exitCode"] == 0
        asked = [daemon.request("bash", {"command": "ulimit -a; nice"}) for _ in range(4)]
        assert [daemon.answer(each)["result"]["stdout"] for each in asked] == [before] * 4
        # The runner of the old keeper continues.
        killed = daemon.call("kill_shell", {"shell_id": running})
        assert (killed["status"], killed["survivors"]) == ("killed", [])
        assert daemon.bash("ulimit -a; nice")["stdout"] == before


def test_a_retiring_runner_is_not_lost() -> None:
    with raw_daemon() as daemon:
        command = "renice -n 3 -p $PPID > /dev/null; sleep 300 & echo on"
        result = daemon.bash(command)
        assert (result["stdout"], len(result["leftover"])) == ("on\n", 1)
        daemon.call("kill_shell", {"shell_id": result["bash_id"]})
        read = daemon.call("bash_output", {"bash_id": result["bash_id"]})
        assert (read["status"], read.get("reason")) == ("completed", None)


def test_runner_that_cannot_start_commands_is_replaced() -> None:
    with raw_daemon("--spare-shells", "0") as daemon:
        daemon.bash("true")
        (runner,) = children(keeper_of(daemon))
        # Simulate a runner that was forked while memory was short.
        resource.prlimit(runner, resource.RLIMIT_AS, (1_000_000, resource.RLIM_INFINITY))
        assert daemon.fail("bash", {"command": "true"})["data"]["kind"] == "resource_exhausted"
        assert daemon.bash("echo next")["stdout"] == "next\n"


LIMITED_FAMILY = """
keeper=$(cut -d' ' -f4 /proc/$PPID/stat)
prlimit --pid $PPID --{limit}; prlimit --pid $keeper --{limit}
trap '' TERM HUP; setsid sleep 300 & sleep 300
"""


@pytest.mark.slow
@MECHANISMS
@pytest.mark.parametrize("limit", ["nofile=0:", "nofile=5:", "as=4096:"])
def test_processes_end_despite_limits_on_runner_and_keeper(mechanism: str, limit: str) -> None:
    daemon = RawDaemon("--containment", mechanism)
    try:
        daemon.background(LIMITED_FAMILY.format(limit=limit))
        wait_for(lambda: len(running_below(daemon.pid, "sleep\0")) == 2, "two sleeps")
        pids = running_below(daemon.pid, "sleep\0")
        os.kill(daemon.pid, signal.SIGKILL)
        wait_for(lambda: not any(is_alive(pid) for pid in pids), "the end of both")
    finally:
        daemon.close()
