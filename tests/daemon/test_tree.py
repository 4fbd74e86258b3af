"""Looking at the processes below this one, and signals that hit them and nobody else."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from shelld.keeper import tree
from support import is_alive, wait_for


def below() -> dict[int, int]:
    """The parents of the processes below this one."""
    found = tree.walk()
    assert found is not None
    return dict(found)


@pytest.mark.parametrize("missing", ["children", "stat"])
def test_descendants_are_found_without_the_kernels_list_of_children(
    monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    # A kernel without CONFIG_PROC_CHILDREN, and a system without /proc, where ps(1) has to do.
    exists = os.path.exists
    script = "sleep 300 & sleep 300 & wait"
    with subprocess.Popen(["/bin/bash", "-c", script]) as process:
        wait_for(lambda: len(below()) == 3, "the processes")
        found = below()
        assert found[process.pid] == os.getpid()

        def without(path: str) -> bool:
            return exists(path) and not path.endswith(("/children", f"/{missing}"))

        monkeypatch.setattr("os.path.exists", without)
        by_ps = below()
        # ps shows itself, too.
        assert {pid: parent for pid, parent in by_ps.items() if is_alive(pid)} == found
        tree.kill_descendants()


def test_what_is_spared_is_spared_with_all_below_it() -> None:
    command = ["/bin/bash", "-c", "sleep 300 & wait"]
    with subprocess.Popen(command) as spared, subprocess.Popen(command) as other:
        wait_for(lambda: len(below()) == 4, "the processes")
        found = tree.kill_descendants({spared.pid}.__contains__) or []
        assert other.pid in found
        assert len(found) == 2
        assert other.wait(10) == -signal.SIGKILL
        assert spared.poll() is None
        tree.kill_descendants()


def test_a_pid_that_was_reused_meanwhile_is_not_signalled() -> None:
    # Its parent is another one than that below which it was found.
    script = "sleep 300 & wait"
    with subprocess.Popen(["/bin/bash", "-c", script]) as process:
        wait_for(lambda: len(below()) == 2, "the processes")
        (child,) = set(below()) - {process.pid}
        stat = Path(f"/proc/{child}/stat")
        tree.signal_process(child, signal.SIGKILL, parent=1)
        tree.signal_process(child, signal.SIGSTOP, parent=process.pid)
        wait_for(lambda: stat.read_text().rpartition(")")[2].split()[0] == "T", "only the second")
        tree.kill_descendants()


def test_a_signal_reaches_each_process_once_wherever_it_is(tmp_path: Path) -> None:
    counting = tmp_path / "counting.sh"
    counting.write_text(
        f"trap 'echo >> {tmp_path}/count' TERM; echo >> {tmp_path}/ready\n"
        "while :; do sleep 0.01; done\n"
    )
    # In the group of the command, in another one of its session, and in another session.
    script = f"bash {counting} & setsid bash {counting} & set -m; bash {counting} & exec sleep 300"

    def lines(name: str) -> int:
        path = tmp_path / name
        return path.read_text().count("\n") if path.exists() else 0

    with subprocess.Popen(["/bin/bash", "-c", script], start_new_session=True) as process:
        wait_for(lambda: lines("ready") == 3, "the traps")
        tree.Descendants().signal(signal.SIGTERM, process.pid)
        wait_for(lambda: lines("count") >= 3, "the signals")
        assert process.wait(10) == -signal.SIGTERM
        # Without a leader, as it has died: those that are left are reached one by one.
        tree.Descendants().signal(signal.SIGTERM, None)
        wait_for(lambda: lines("count") >= 6, "the signals")
        tree.kill_descendants()
        wait_for(lambda: not tree.living_descendants(), "the end of all")
        assert lines("count") == 6
