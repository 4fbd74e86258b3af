"""The search finds the processes of a command, even if the kernel does not list children."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable

import pytest

from hidden_processes import hide_process
from shelld.inspection import members as module
from shelld.inspection.members import members
from shelld.keeper.proc import children_of
from support import children, wait_for


def scan(pid: int) -> list[int]:
    """This function replaces the scan of all processes on a kernel without CONFIG_PROC_CHILDREN."""
    return children_of(pid)


def by_scan() -> Callable[[int], list[int]]:
    return scan


def no_list() -> None:
    return None


@pytest.mark.parametrize("lister", [None, by_scan])
def test_descendants_are_listed(
    monkeypatch: pytest.MonkeyPatch, lister: Callable[[], Callable[[int], list[int]]] | None
) -> None:
    if lister is not None:
        monkeypatch.setattr(module, "lister", lister)
    with subprocess.Popen(["bash", "-c", "sleep 300 & wait"]) as bash:
        try:
            (child,) = wait_for(lambda: children(bash.pid), "the child of bash")
            found = [pid for pid in members(bash.pid) if pid is not None]
            assert found.index(bash.pid) < found.index(child)
        finally:
            for pid in children(bash.pid):
                os.kill(pid, 9)


def test_only_bash_is_listed_if_children_cannot_be_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "lister", no_list)
    assert [pid for pid in members(os.getpid()) if pid is not None] == [os.getpid()]


@pytest.mark.parametrize("refusal", [FileNotFoundError, PermissionError])
def test_bash_that_has_become_a_hidden_program_is_listed(
    refusal: type[OSError], monkeypatch: pytest.MonkeyPatch
) -> None:
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as top:
        with monkeypatch.context() as patch:
            hide_process(patch, top.pid, refusal)
            assert [pid for pid in members(top.pid) if pid is not None] == [top.pid]
        top.communicate()
    assert list(members(top.pid)) == []
