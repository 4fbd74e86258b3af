"""Behaviour at the limits: shells, retained output, and files."""

from __future__ import annotations

import os
import resource
import signal
from pathlib import Path

import pytest

from support import Gate, RawDaemon, children, is_alive, raw_daemon, wait_for


def test_shells_over_the_limit_are_refused() -> None:
    with raw_daemon("--max-shells", "2") as daemon:
        ids = [daemon.background("sleep 300") for _ in range(2)]
        error = daemon.fail("bash", {"command": "true"})
        assert error["code"] == 1005
        assert error["data"] == {"kind": "resource_exhausted", "limit": "max_shells"}
        daemon.call("kill_shell", {"shell_id": ids[0]})
        assert daemon.bash("echo room")["stdout"] == "room\n"
        listed = daemon.call("list_shells")["shells"]
        assert [shell["isRunning"] for shell in listed] == [False, True, False]


def test_ended_shells_expire_by_number() -> None:
    with raw_daemon("--max-retained", "3") as daemon:
        ids = [daemon.bash(f"echo {number}")["bash_id"] for number in range(6)]
        wait_for(lambda: len(daemon.call("list_shells")["shells"]) == 3, "the oldest to expire")
        error = daemon.fail("bash_output", {"bash_id": ids[0]})
        assert error["message"] == f"Shell not found: {ids[0]}"
        assert error["data"] == {"kind": "shell_not_found", "bash_id": ids[0], "expired": True}
        made_up = daemon.fail("bash_output", {"bash_id": "shell_1deadbeef"})
        assert made_up["data"]["expired"] is False
        assert daemon.call("bash_output", {"bash_id": ids[5]})["isRunning"] is False
        assert len(set(ids)) == 6


def test_the_shell_that_ended_first_expires_first(tmp_path: Path) -> None:
    gates = [Gate(tmp_path / name) for name in ("foreground", "background")]
    with raw_daemon("--max-retained", "3") as daemon:
        request = daemon.request("bash", {"command": f"echo kept; {gates[0].wait}"})
        bash_id = daemon.background(f"echo kept; {gates[1].wait}")
        quick = [daemon.bash("echo quick")["bash_id"] for _ in range(4)]
        for gate in gates:
            gate.open()
        result = daemon.answer(request)["result"]
        assert (result["stdout"], result["truncated"]) == ("kept\n", False)
        waited = daemon.call("bash_output", {"bash_id": bash_id, "wait": 60_000, "until": "exit"})
        assert waited["stdout"] == "kept\n"
        wait_for(lambda: len(daemon.call("list_shells")["shells"]) == 3, "the oldest to expire")
        listed = {shell["bash_id"] for shell in daemon.call("list_shells")["shells"]}
        assert listed == {result["bash_id"], bash_id, quick[3]}


@pytest.mark.slow
def test_only_ended_shells_expire_by_time() -> None:
    with raw_daemon("--retain-seconds", "1") as daemon:
        running = daemon.background("sleep 300")
        with_leftover = daemon.bash("sleep 300 &")["bash_id"]
        ended = daemon.bash("true")["bash_id"]
        assert daemon.call("bash_output", {"bash_id": ended})["isRunning"] is False
        wait_for(
            lambda: "error" in daemon.answer(daemon.request("bash_output", {"bash_id": ended})),
            "the ended shell to expire",
        )
        assert daemon.fail("kill_shell", {"shell_id": ended})["data"]["expired"] is True
        listed = [shell["bash_id"] for shell in daemon.call("list_shells")["shells"]]
        assert listed == [running, with_leftover]


@pytest.mark.slow
def test_oldest_output_goes_first_at_the_total_limit() -> None:
    with raw_daemon("--retain-total-bytes", "1000000") as daemon:
        ids = [daemon.bash("head -c 300000 /dev/zero")["bash_id"] for _ in range(6)]

        def read(bash_id: str) -> tuple[int, int]:
            result = daemon.call("bash_output", {"bash_id": bash_id, "stdout_offset": 0})
            return len(result["stdout"]), result["droppedBytes"]

        # Dropping output does not make the daemon forget shells.
        assert read(ids[0])[1] >= 262_144
        assert sum(map(sum, map(read, ids))) == 6 * 300_000
        assert sum(kept for kept, _ in map(read, ids)) <= 1_000_000
        assert [read(bash_id) for bash_id in ids[-2:]] == [(300_000, 0)] * 2


@pytest.mark.slow
def test_shells_exceed_usual_file_limit(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    try:
        with raw_daemon() as daemon:
            for _ in range(100):
                daemon.request("bash", {"command": "sleep 300", "run_in_background": True})
            # Commands get the daemon's original limit, even after a new keeper has started.
            assert daemon.bash("ulimit -Sn")["stdout"] == "256\n"
            (keeper,) = children(daemon.pid)
            os.kill(keeper, signal.SIGKILL)
            wait_for(lambda: not is_alive(keeper), "the keeper's end")
            assert {daemon.bash("ulimit -Sn; sleep 0.01")["stdout"] for _ in range(5)} == {"256\n"}
            for _ in range(10):
                daemon.background("sleep 300")
            running = [s for s in daemon.call("list_shells")["shells"] if s["isRunning"]]
            assert len(running) == 110
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_shortage_of_files_is_reported_and_passes(new_daemon: RawDaemon) -> None:
    limits = resource.prlimit(new_daemon.pid, resource.RLIMIT_NOFILE)
    used = len(os.listdir(f"/proc/{new_daemon.pid}/fd"))
    resource.prlimit(new_daemon.pid, resource.RLIMIT_NOFILE, (used + 2, limits[1]))
    for _ in range(3):
        error = new_daemon.fail("bash", {"command": "true"})
        assert error["data"] == {"kind": "resource_exhausted", "limit": "files"}
    # Other threads of the daemon may have a file open for a moment.
    wait_for(lambda: len(os.listdir(f"/proc/{new_daemon.pid}/fd")) == used, "closed descriptors")
    resource.prlimit(new_daemon.pid, resource.RLIMIT_NOFILE, limits)
    assert new_daemon.bash("echo again")["stdout"] == "again\n"
