"""The search finds the shell that reads the typed text, even if shells start programs meanwhile."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hidden_processes import hide_process
from shelld.inspection import members, shell_reader
from shelld.inspection.kernel import process
from shelld.inspection.shell_reader import (
    directories_of_readers,
    interrupt_is_ignored,
    is_handling_interrupt,
)
from shelld.keeper.proc import children_of
from shelld.terminals.pty import Size, open_pty
from shelld.terminals.source import Source, file_of
from support import wait_for


def name_of(pid: int) -> str:
    return Path(f"/proc/{pid}/comm").read_text().strip()


def names_below(pid: int) -> list[str]:
    return [name_of(child) for child in children_of(pid)]


def test_shell_that_starts_another_during_the_search_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    # One child reads the input from the beginning. A shell that also reads the input starts later.
    script = f"exec 3<&0; cat <&3 & read -r _ < {gate}; bash; true"
    with subprocess.Popen(["bash", "-c", script], stdin=subprocess.PIPE, cwd=tmp_path) as top:
        try:
            assert top.stdin is not None
            source = Source(None, file_of(f"/proc/{top.pid}/fd/0"))
            wait_for(lambda: names_below(top.pid) == ["cat"], "the first child")

            def list_too_early(pid: int) -> list[int]:
                found = children_of(pid)
                if pid == top.pid and "bash" not in names_below(pid):
                    gate.write_text("go\n")
                    wait_for(lambda: "bash" in names_below(pid), "the second child")
                    wait_for(lambda: is_waiting(top.pid), "the wait for it")
                return found

            def is_waiting(pid: int) -> bool:
                # These are the numbers of wait4(2) and waitid(2) on two architectures.
                call = Path(f"/proc/{pid}/syscall").read_text().split()[0]
                return call in {"61", "247", "260", "95"}

            monkeypatch.setattr(members, "lister", lambda: list_too_early)
            assert directories_of_readers(top.pid, source) == [str(tmp_path)]
        finally:
            for child in children_of(top.pid):
                os.kill(child, 9)
            top.kill()


@pytest.mark.parametrize(
    ("command", "missing"),
    [
        # The kernel has no CONFIG_PROC_CHILDREN.
        (["timeout", "300", "bash"], ("/children",)),
        # The kernel lists no process.
        (["bash"], ("/children", "/task", "/proc")),
    ],
)
def test_shell_is_found_although_files_of_proc_are_missing(
    command: list[str], missing: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    exists = os.path.exists

    def exists_now(path: str) -> bool:
        return exists(path) and not path.endswith(missing)

    def without(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(path: str, *others: Any) -> Any:
            if path.endswith(missing):
                raise FileNotFoundError
            return function(path, *others)

        return call

    with subprocess.Popen(command, stdin=subprocess.PIPE, cwd=tmp_path) as top:
        try:
            wait_for(lambda: "bash" in (name_of(top.pid), *names_below(top.pid)), "the shell")
            source = Source(None, file_of(f"/proc/{top.pid}/fd/0"))
            with monkeypatch.context() as patch:
                patch.setattr("os.path.exists", exists_now)
                patch.setattr("os.open", without(os.open))
                patch.setattr("os.listdir", without(os.listdir))
                assert directories_of_readers(top.pid, source) == [str(tmp_path)]
        finally:
            for child in children_of(top.pid):
                os.kill(child, 9)
            top.kill()


def test_working_directory_is_unknown_if_too_many_processes_exist(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ["timeout", "300", "bash", "-c", "trap '' INT; cat; true"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, cwd=tmp_path) as top:
        try:
            wait_for(lambda: "bash" in names_below(top.pid), "the shell")
            (shell,) = children_of(top.pid)
            wait_for(lambda: names_below(shell) == ["cat"], "its child")
            source = Source(None, file_of(f"/proc/{top.pid}/fd/0"))
            wait_for(lambda: directories_of_readers(top.pid, source) == [], "its wait")
            monkeypatch.setattr(shell_reader, "_MAX_PROCESSES", 1)
            assert directories_of_readers(top.pid, source) == ["/"]
            assert interrupt_is_ignored(top.pid, source)
        finally:
            top.terminate()


def test_both_shells_are_found_if_one_started_the_other(tmp_path: Path) -> None:
    script = "x=$(cd /; bash; true); true"
    with subprocess.Popen(["bash", "-c", script], stdin=subprocess.PIPE, cwd=tmp_path) as top:
        try:
            source = Source(None, file_of(f"/proc/{top.pid}/fd/0"))

            def found() -> bool:
                return directories_of_readers(top.pid, source) == [str(tmp_path), "/"]

            wait_for(found, "both shells")
        finally:
            assert top.stdin is not None
            top.stdin.close()


def test_shell_of_another_user_is_found_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def deny(_path: str) -> str:
        raise PermissionError

    with subprocess.Popen(["bash"], stdin=subprocess.PIPE) as top:
        assert top.stdin is not None
        wait_for(lambda: name_of(top.pid) == "bash", "the shell")
        source = Source(None, file_of(f"/proc/{top.pid}/fd/0"))
        monkeypatch.setattr("os.readlink", deny)
        assert directories_of_readers(top.pid, source) == ["/"]
        top.stdin.close()


@pytest.mark.parametrize("refusal", [FileNotFoundError, PermissionError])
def test_hidden_process_may_be_a_shell(
    refusal: type[OSError], monkeypatch: pytest.MonkeyPatch
) -> None:
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as top:
        assert top.stdin is not None
        source = Source(None, file_of(f"/proc/{top.pid}/fd/0"))
        wait_for(lambda: name_of(top.pid) == "cat", "cat")
        assert directories_of_readers(top.pid, source) == []
        with monkeypatch.context() as patch:
            hide_process(patch, top.pid, refusal)
            assert directories_of_readers(top.pid, source) == ["/"]
        top.stdin.close()
        top.wait()
        assert directories_of_readers(top.pid, source) == []


def test_shell_on_another_terminal_with_our_number_may_read(tmp_path: Path) -> None:
    # A container numbers its own terminals from 0. A relay passes on our input.
    pty = open_pty(Size(24, 80))
    theirs = os.fstat(pty.slave).st_rdev
    command = ["setsid", "-c", "dash"]
    with subprocess.Popen(
        command, stdin=pty.slave, stdout=pty.slave, stderr=pty.slave, cwd=tmp_path
    ) as top:
        try:
            wait_for(lambda: name_of(top.pid) == "dash", "the shell")
            ours = Source(os.getpgrp(), (theirs,))
            assert directories_of_readers(top.pid, ours) == [str(tmp_path)]
        finally:
            top.kill()
            for descriptor in pty:
                os.close(descriptor)


def test_shell_that_runs_or_has_a_signal_may_be_handling_an_interrupt() -> None:
    # If the tests run in the background, they may ignore SIGINT. The kernel drops an ignored
    # signal.
    command = ["env", "--default-signal=INT", "bash"]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as top:
        try:
            source = Source(None, file_of(f"/proc/{top.pid}/fd/0"))

            def is_handling() -> bool:
                return is_handling_interrupt(top.pid, source)

            def reads() -> bool:
                return name_of(top.pid) == "bash" and not is_handling()

            wait_for(reads, "the read of the shell")
            # A stopped process gets its signals only when it continues.
            top.send_signal(signal.SIGSTOP)
            wait_for(lambda: process(top.pid).is_stopped, "the stop")
            top.send_signal(signal.SIGINT)
            wait_for(is_handling, "the signal")
        finally:
            top.kill()
    with subprocess.Popen(["bash", "-c", "while :; do :; done"], stdin=subprocess.PIPE) as top:
        try:
            source = Source(None, file_of(f"/proc/{top.pid}/fd/0"))
            wait_for(lambda: is_handling_interrupt(top.pid, source), "a shell that runs")
        finally:
            top.kill()
