"""The audit log has a line for each command, and contains no output and no environment."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import pytest

from support import raw_daemon


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.slow
def test_every_command_is_logged_without_output_or_environment(tmp_path: Path) -> None:
    log = tmp_path / "audit.jsonl"
    with raw_daemon("--audit-log", str(log)) as daemon:
        daemon.bash("echo $SECRET; exit 3", env={"SECRET": "hunter2"}, description="leak")
        daemon.bash("echo x", dry_run=True, session="dry")
        daemon.fail("bash", {"command": "sleep 300", "timeout": 1000})
        bash_id = daemon.background("sleep 300")
        daemon.call("kill_shell", {"shell_id": bash_id})
        daemon.fail("bash", {"command": "true", "cwd": "/nonexistent"})
    first, dry, timeout, killed = lines_of(log)
    assert first["time"].endswith("Z")
    assert first["duration_ms"] >= 0
    assert {key: first[key] for key in first if key not in ("time", "duration_ms")} == {
        "session": "main",
        "bash_id": first["bash_id"],
        "command": "echo $SECRET; exit 3",
        "description": "leak",
        "status": "failed",
        "exit_code": 3,
        "signal": None,
        "stdout_bytes": 8,
        "stderr_bytes": 0,
        "guard": "allow",
    }
    assert (dry["bash_id"], dry["session"], dry["status"]) == (None, "dry", "dry_run")
    assert (timeout["status"], timeout["signal"]) == ("timeout", "SIGTERM")
    assert (killed["status"], killed["bash_id"]) == ("killed", bash_id)
    assert "hunter2" not in log.read_text()
    assert stat.S_IMODE(log.stat().st_mode) == 0o600


@pytest.mark.slow
def test_rotation_keeps_three_old_logs(tmp_path: Path) -> None:
    log = tmp_path / "audit.jsonl"
    with raw_daemon("--audit-log", str(log), "--audit-max-bytes", "1000") as daemon:
        for number in range(30):
            daemon.bash(f"true {number}")
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == [f"audit.jsonl{suffix}" for suffix in ("", ".1", ".2", ".3")]
    assert all(path.stat().st_size <= 1000 for path in tmp_path.iterdir())
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in tmp_path.iterdir())
    newest = [line["command"] for line in lines_of(log)]
    assert newest[-1] == "true 29"


@pytest.mark.slow
def test_daemon_appends_to_an_older_log(tmp_path: Path) -> None:
    log = tmp_path / "audit.jsonl"
    for text in ("one", "two"):
        with raw_daemon("--audit-log", str(log)) as daemon:
            daemon.bash(f"echo {text}")
    assert [line["command"] for line in lines_of(log)] == ["echo one", "echo two"]
