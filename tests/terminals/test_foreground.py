"""Which shell reads what is typed, while shells start other programs."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from shelld.keeper.tree import children_of
from shelld.terminals import foreground
from shelld.terminals.foreground import Source, directory_of_reader, file_of
from support import wait_for


def names_below(pid: int) -> list[str]:
    return [Path(f"/proc/{child}/comm").read_text().strip() for child in children_of(pid)]


def test_shell_that_starts_another_during_the_search_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    # One child reads the input from the beginning. A shell that reads it, too, comes later.
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
                # wait4(2), or waitid(2)
                call = Path(f"/proc/{pid}/syscall").read_text().split()[0]
                return call in {"61", "247", "260", "95"}

            monkeypatch.setattr(foreground, "children_of", list_too_early)
            assert directory_of_reader(top.pid, source) == str(tmp_path)
        finally:
            for child in children_of(top.pid):
                os.kill(child, 9)
            top.kill()
