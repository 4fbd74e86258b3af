"""The result shows whether the OOM killer or an ordinary signal has killed a command."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from shelld.shells.oom import OomKills
from support import RawDaemon, descendants, raw_daemon, wait_for

LIMIT = 160 * 1024 * 1024
EAT = f"{sys.executable} -S -c 'bytearray({4 * LIMIT})'"


class MemoryCgroup:
    """A throw-away cgroup with a memory limit: v1 or v2, whichever has the memory controller."""

    def __init__(self, parent: Path, limit_file: str) -> None:
        self.path = parent / f"shelld-test-{os.getpid()}"
        self.path.mkdir()
        (self.path / limit_file).write_text(str(LIMIT))
        swap = self.path / limit_file.replace("memory.max", "memory.swap.max")
        if swap.name == "memory.swap.max" and swap.exists():
            swap.write_text("0")
        enter = 'echo $$ > "$0/cgroup.procs" && exec "$@"'
        self.prefix = ["/bin/sh", "-c", enter, str(self.path)]


def place_for_a_limit() -> tuple[Path, str] | None:
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "memory":
            return Path("/sys/fs/cgroup/memory", path.lstrip("/")), "memory.limit_in_bytes"
        parent = Path("/sys/fs/cgroup", path.lstrip("/"))
        controlled = parent / "cgroup.subtree_control"
        if controllers == "" and controlled.exists() and "memory" in controlled.read_text():
            return parent, "memory.max"
    return None


@pytest.fixture
def limited() -> Iterator[RawDaemon]:
    """A daemon that shares `LIMIT` bytes of memory with all its commands."""
    place = place_for_a_limit()
    if place is None or not os.access(place[0], os.W_OK):
        pytest.skip("needs a writable cgroup with the memory controller")
    cgroup = MemoryCgroup(*place)
    with raw_daemon(prefix=cgroup.prefix) as daemon:
        yield daemon
    wait_for(lambda: not (cgroup.path / "cgroup.procs").read_text(), "an empty cgroup")
    cgroup.path.rmdir()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "exit_code", "signal"),
    [(f"exec {EAT}", None, "SIGKILL"), (f"{EAT}; exit $?", 137, None)],
)
def test_oom_killed_command_has_reason_oom(
    limited: RawDaemon, command: str, exit_code: int | None, signal: str | None
) -> None:
    limited.bash("true")
    result = limited.bash(command)
    assert (result["exitCode"], result["signal"]) == (exit_code, signal)
    assert (result["status"], result["reason"]) == ("failed", "oom")
    read = limited.call("bash_output", {"bash_id": result["bash_id"]})
    assert read["reason"] == "oom"
    # If bash survives an OOM kill and ends by itself, the result does not have the reason "oom".
    assert "reason" not in limited.bash(f"{EAT}; exit 3")
    # An OOM kill during an earlier command is not the reason for the end of this command.
    assert "reason" not in limited.bash("kill -9 $$")
    assert limited.bash("echo next")["stdout"] == "next\n"


@pytest.mark.parametrize("command", ["kill -9 $$", "exit 137", "bash -c 'kill -9 $$'; exit $?"])
def test_sigkill_without_oom_has_no_reason(daemon: RawDaemon, command: str) -> None:
    assert "reason" not in daemon.bash(command)


@pytest.mark.slow
def test_a_command_is_killed_before_the_daemon(new_daemon: RawDaemon) -> None:
    def score(pid: int) -> int:
        return int(Path(f"/proc/{pid}/oom_score_adj").read_text())

    ours = score(new_daemon.pid)
    theirs = int(new_daemon.bash("cat /proc/self/oom_score_adj")["stdout"])
    assert theirs == min(1000, ours + 500)
    # The keeper has the same OOM score as the daemon, because it must live as long as the daemon.
    assert {score(pid) for pid in descendants(new_daemon.pid)} == {ours, theirs}


def test_oom_count_is_read_from_memory_events(tmp_path: Path) -> None:
    counter = tmp_path / "memory.events"
    kills = OomKills(str(counter))
    for number in (3, 4, 12345):
        counter.write_text(f"low 0\noom 7\noom_kill {number}\noom_group_kill 9\n")
        assert kills.count() == number
    kills.close()


def test_oom_count_is_zero_without_source(tmp_path: Path) -> None:
    for content in (None, "", "oom_kill_disable 0\n"):
        path = tmp_path / "counter"
        if content is not None:
            path.write_text(content)
        before = os.listdir("/proc/self/fd")
        kills = OomKills(str(path))
        assert kills.count() == 0
        assert os.listdir("/proc/self/fd") == before
        kills.close()


def test_oom_count_works_on_this_machine() -> None:
    if not Path("/proc/vmstat").exists():
        pytest.skip("not Linux")
    before = os.listdir("/proc/self/fd")
    kills = OomKills()
    assert kills.count() >= 0
    # `OomKills` keeps open the file from which it reads the count.
    assert len(os.listdir("/proc/self/fd")) == len(before) + 1
    kills.close()
