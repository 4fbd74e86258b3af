"""The scan finds the descendants of this process, and signals reach only these processes."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from shelld.keeper import proc, tree
from support import is_alive, wait_for


def below() -> dict[int, int]:
    """Return the descendants of this process, with their parents."""
    found = tree.walk()
    assert found is not None
    return dict(found)


@pytest.mark.parametrize("missing", ["children", "stat"])
def test_descendants_are_found_without_children_file(
    monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    # Simulate a kernel without CONFIG_PROC_CHILDREN, and a system without /proc, on which only
    # ps(1) lists processes.
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
        # ps also lists itself.
        assert {pid: parent for pid, parent in by_ps.items() if is_alive(pid)} == found
        tree.kill_descendants()


def test_spared_process_spares_its_descendants() -> None:
    command = ["/bin/bash", "-c", "sleep 300 & wait"]
    with subprocess.Popen(command) as spared, subprocess.Popen(command) as other:
        wait_for(lambda: len(below()) == 4, "the processes")
        found = tree.kill_descendants({spared.pid}.__contains__) or []
        assert other.pid in found
        assert len(found) == 2
        assert other.wait(10) == -signal.SIGKILL
        assert spared.poll() is None
        tree.kill_descendants()


def test_newest_of_many_children_are_killed_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tree, "_KILLED_AT_ONCE", 2)
    with contextlib.ExitStack() as processes:
        pids = [
            processes.enter_context(subprocess.Popen(["/bin/sleep", "300"])).pid for _ in range(5)
        ]
        assert sorted(tree.kill_descendants() or []) == pids[3:]
        # Even if many processes are spared, the scan finds the processes that are not spared.
        assert sorted(tree.kill_descendants(set(pids[2:]).__contains__) or []) == pids[:2]
        tree.kill_descendants({*pids[:2], *pids[3:]}.__contains__)


def test_zombies_have_no_descendants(monkeypatch: pytest.MonkeyPatch) -> None:
    with subprocess.Popen(["/bin/true"]) as ended, subprocess.Popen(["/bin/sleep", "300"]) as runs:
        os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
        looked: list[str] = []
        read = os.listdir

        def listed(path: str) -> list[str]:
            looked.append(path)
            return read(path)

        monkeypatch.setattr(os, "listdir", listed)
        assert sorted(tree.kill_descendants() or []) == sorted([ended.pid, runs.pid])
        assert f"/proc/{runs.pid}/task" in looked
        assert f"/proc/{ended.pid}/task" not in looked


def test_reused_pid_is_not_signalled() -> None:
    # Simulate a reused pid: the first call says that the scan has found the process as a child of
    # process 1, although its parent is bash.
    script = "sleep 300 & wait"
    with subprocess.Popen(["/bin/bash", "-c", script]) as process:
        wait_for(lambda: len(below()) == 2, "the processes")
        (child,) = set(below()) - {process.pid}
        stat = Path(f"/proc/{child}/stat")
        tree.signal_process(child, signal.SIGKILL, parent=1)
        tree.signal_process(child, signal.SIGSTOP, parent=process.pid)
        wait_for(lambda: stat.read_text().rpartition(")")[2].split()[0] == "T", "only the second")
        tree.kill_descendants()


def test_signal_reaches_each_process_once(tmp_path: Path) -> None:
    counting = tmp_path / "counting.sh"
    counting.write_text(
        f"trap 'echo >> {tmp_path}/count' TERM; echo >> {tmp_path}/ready\n"
        "while :; do sleep 0.01; done\n"
    )
    # This script starts three processes. One is in the command's process group, one in another
    # session, and one in the command's session but in another process group.
    script = f"bash {counting} & setsid bash {counting} & set -m; bash {counting} & exec sleep 300"

    def lines(name: str) -> int:
        path = tmp_path / name
        return path.read_text().count("\n") if path.exists() else 0

    with subprocess.Popen(["/bin/bash", "-c", script], start_new_session=True) as process:
        wait_for(lambda: lines("ready") == 3, "the traps")
        tree.Descendants().signal(signal.SIGTERM, process.pid)
        wait_for(lambda: lines("count") >= 3, "the signals")
        assert process.wait(60) == -signal.SIGTERM
        # The leader has died, so the remaining processes are signalled one by one.
        tree.Descendants().signal(signal.SIGTERM, None)
        wait_for(lambda: lines("count") >= 6, "the signals")
        tree.kill_descendants()
        wait_for(lambda: not tree.living_descendants(), "the end of all")
        assert lines("count") == 6


ERRORS = ["EACCES", "EPERM", "EMFILE", "ENFILE", "ENOMEM", "EIO", "EINTR"]


def failing(monkeypatch: pytest.MonkeyPatch, function: str, error: str, word: str) -> None:
    """Make a function fail if its first argument contains `word`."""
    module, _, name = function.rpartition(".")
    assert module == "os"
    real: Callable[..., Any] = getattr(os, name)

    def fail(first: object, *others: object) -> Any:
        if word in str(first):
            raise OSError(getattr(errno, error), "injected")
        return real(first, *others)

    monkeypatch.setattr(function, fail)


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("function", ["os.open", "os.listdir"])
def test_unreadable_process_counts_as_alive(
    monkeypatch: pytest.MonkeyPatch, function: str, error: str
) -> None:
    with subprocess.Popen(["/bin/bash", "-c", "sleep 300 & wait"]) as process:
        wait_for(lambda: len(below()) == 2, "the processes")
        with monkeypatch.context() as patch:
            failing(patch, function, error, f"/proc/{process.pid}/")
            assert below() == {process.pid: os.getpid()}
            assert tree.living_descendants() == [process.pid]
            assert (proc.info_of(process.pid).state == "?") is (function == "os.open")
            tree.Descendants().signal(signal.SIGCONT, None)
            assert tree.kill_descendants() == [process.pid]
        wait_for(lambda: not is_alive(process.pid), "its end")
        # The child of the killed process is now a child of this process, so the next kill finds it.
        tree.kill_descendants()
        wait_for(lambda: not tree.living_descendants(), "the end of all")


def test_children_are_unknown_if_process_has_no_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    failing(monkeypatch, "os.open", "ENOENT", "/children")
    assert proc.own_children() is None
    assert tree.living_descendants() is None


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize(
    ("function", "word"),
    [
        ("os.open", "/children"),
        ("os.listdir", "/task"),
        ("os.listdir", "/proc"),
    ],
)
def test_unlistable_children_are_unknown(
    monkeypatch: pytest.MonkeyPatch, function: str, error: str, word: str
) -> None:
    failing(monkeypatch, function, error, word)
    assert proc.own_children() is None
    assert tree.walk() is None
    assert tree.living_descendants() is None
    assert tree.kill_descendants() is None
    assert tree.Descendants().remaining(childless=False) is None
    assert tree.Descendants().kill(None) is False
    tree.Descendants().signal(signal.SIGTERM, None)
    # If this process has no child, no process of the command is left.
    assert tree.Descendants().remaining(childless=True) == []


@pytest.mark.parametrize("error", ERRORS)
def test_unlistable_session_counts_as_nonempty(monkeypatch: pytest.MonkeyPatch, error: str) -> None:
    failing(monkeypatch, "os.listdir", error, "/proc")
    members = tree.SessionMembers()
    # This session does not exist.
    members.begin(-2)
    assert members.living() is None
    assert members.remaining(childless=True) is None
    assert members.kill(None) is False


def test_processes_are_unknown_without_proc_and_ps(monkeypatch: pytest.MonkeyPatch) -> None:
    def exists(_path: str) -> bool:
        return False

    monkeypatch.setattr("os.path.exists", exists)
    monkeypatch.setenv("PATH", "/nowhere")
    assert proc.processes() is None
    assert tree.walk() is None


@pytest.mark.parametrize("content", [b"", b"1 (a) S", b"1 (a) S x 1", b"(", b"1 (a) Z 1 2"])
def test_a_state_that_cannot_be_understood_is_alive(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, content: bytes
) -> None:
    (tmp_path / "stat").write_bytes(content)
    real = os.open

    def open_stat(_path: str, flags: int) -> int:
        return real(tmp_path / "stat", flags)

    monkeypatch.setattr("os.open", open_stat)
    assert not proc.info_of(os.getpid()).is_dead


@pytest.mark.parametrize(
    ("state", "threads", "is_dead"),
    [
        *[("R", 1, False), ("T", 1, False), ("Z", 1, True), ("Z", 0, True), ("Z", 2, False)],
        *[("X", 1, True), ("?", 1, False)],
    ],
)
def test_a_zombie_with_other_threads_is_alive(state: str, threads: int, is_dead: bool) -> None:
    assert proc.ProcessInfo(1, state, threads).is_dead is is_dead
