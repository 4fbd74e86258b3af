"""Some commands in a sandbox take all the memory or processes that they can get. A limit stops
these commands, and other commands still run.

Each program also limits itself, in case the limit of the session does not work.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from sandboxes import why_impossible
from support import Json, RawDaemon, raw_daemon, wait_for

pytestmark = pytest.mark.slow

MIB = 1024 * 1024
# Each fork doubles the number of processes, up to 256, and all of them stay.
STORM = """
import os, time
for _ in range(8):
    try:
        os.fork()
    except BlockingIOError:
        pass
time.sleep(300)
"""
# This program allocates 1 GiB of memory, one MiB at a time.
HOG = """
held = []
for _ in range(1024):
    held.append(bytearray(b"x") * (1024 * 1024))
print("has everything")
"""

if reason := why_impossible():
    pytest.skip(reason, allow_module_level=True)


def assert_others_live(daemon: RawDaemon, neighbours: list[str]) -> None:
    assert daemon.call("ping") == {}
    listed = {each["bash_id"]: each for each in daemon.call("list_shells")["shells"]}
    assert [listed[each]["isRunning"] for each in neighbours] == [True] * len(neighbours)
    for session in ("neighbour", "outside"):
        assert daemon.bash("echo next", session=session)["stdout"] == "next\n"


def leftover_of(daemon: RawDaemon, bash_id: str) -> list[int]:
    listed = {each["bash_id"]: each for each in daemon.call("list_shells")["shells"]}
    pids: list[int] = listed[bash_id]["leftover"]
    return pids


def neighbours_of(daemon: RawDaemon) -> list[str]:
    """Start one shell in the same sandbox, and another shell outside the sandbox."""
    daemon.call("configure_session", {"session": "neighbour", "sandbox": {}})
    return [
        daemon.background("exec sleep 300", session=session) for session in ("neighbour", "outside")
    ]


@pytest.mark.parametrize("where", ["memory", "a file"])
def test_a_hog_ends_by_its_limit(workspace: Path, where: str) -> None:
    with raw_daemon(cwd=workspace) as daemon:
        neighbours = neighbours_of(daemon)
        limited: Json = {"session": "hog", "sandbox": {}, "limits": {"memory_bytes": 64 * MIB}}
        answer = daemon.answer(daemon.request("configure_session", limited))
        if "error" in answer:
            # Without a cgroup, nothing could limit the memory that the files in a private /tmp
            # take.
            assert answer["error"]["data"]["missing"] == "a cgroup"
            pytest.skip("needs a cgroup that limits memory")
        command = "head -c 1G /dev/zero > /tmp/all" if where == "a file" else f"python3 -c '{HOG}'"
        result = daemon.bash(command, session="hog", timeout=120_000)
        assert result["reason"] == "memory", result
        assert "has everything" not in result["stdout"]
        # The kernel may still be ending the last process.
        wait_for(lambda: not leftover_of(daemon, result["bash_id"]), "its end")
        assert_others_live(daemon, neighbours)
        if where == "a file":
            # The file takes all the memory of the session. A command of a new session can remove
            # the file.
            daemon.call("close_session", {"session": "hog"})
            daemon.call("configure_session", limited)
        assert daemon.bash("rm -f /tmp/all; echo next", session="hog")["stdout"] == "next\n"


def test_a_storm_of_processes_ends_by_its_limit(workspace: Path) -> None:
    # With spare shells, the daemon would raise the limit to make room for them.
    with raw_daemon("--spare-shells", "0", cwd=workspace) as daemon:
        neighbours = neighbours_of(daemon)
        limited: Json = {"session": "storm", "sandbox": {}, "limits": {"processes": 40}}
        daemon.call("configure_session", limited)
        (workspace / "storm.py").write_text(STORM)
        storm = daemon.background("exec python3 storm.py", session="storm")
        read: Json = {"bash_id": storm, "wait": 5_000, "until": "exit"}
        daemon.call("bash_output", read)
        count = daemon.bash("ps -ef | grep -c '[s]torm.py'", session="neighbour")["stdout"]
        assert int(count) <= 40
        assert_others_live(daemon, neighbours)
        killed = daemon.call("kill_shell", {"shell_id": storm, "grace": 0})
        assert killed["survivors"] == []
        count = daemon.bash("ps -ef | grep -c '[s]torm.py'", session="neighbour")["stdout"]
        assert int(count) == 0
        assert daemon.bash("echo next", session="storm")["stdout"] == "next\n"
        assert_others_live(daemon, neighbours)
