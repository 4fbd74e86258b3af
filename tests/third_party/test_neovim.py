"""Neovim's own JSON-RPC client, against a real daemon."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

import example_tasks
from installed import program
from lasting import lasting_user
from support import DAEMON_COMMAND, Gate, wait_for

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent
EXAMPLE = HERE.parents[1] / "examples" / "neovim" / "shelld.lua"


def report_of(tmp_path: Path, *scripts: Path, **env: str) -> Any:
    """Run scripts in Neovim without a display; return their report."""
    report = tmp_path / "report"
    commands = [option for script in scripts for option in ("-c", f"luafile {script}")]
    ended = subprocess.run(
        [program("nvim"), "--headless", "-u", "NONE", *commands, "-c", "qa!"],
        env={
            **os.environ,
            # Neovim writes to these directories.
            "XDG_CACHE_HOME": str(tmp_path),
            "XDG_STATE_HOME": str(tmp_path),
            "DAEMON": json.dumps(DAEMON_COMMAND),
            "REPORT": str(report),
            "FOLDER": str(tmp_path),
            **env,
        },
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert report.exists(), ended.stderr
    return json.loads(report.read_text())


def test_neovim_gets_every_answer(tmp_path: Path) -> None:
    assert report_of(tmp_path, HERE / "neovim.lua") == {
        "ping": True,
        "foreground": ["out\n", "err\n", 3],
        "failure": [-32602, "Missing required parameter: command"],
        "background": ["ready\n", True],
        "killed": "killed",
        "waited": "killed",
        "cancelled": True,
        "long": [True, 5_000_000, 5_000_000],
        "many": True,
        "shutdown": True,
        "exit_code": 0,
        "errors": 0,
    }


def test_the_example_runs_several_tasks(tmp_path: Path) -> None:
    example_tasks.prepare(tmp_path)
    assert report_of(tmp_path, EXAMPLE, HERE / "neovim_example.lua") == {
        "first": "/\nto stderr\n[exit code 3 after N s]",
        "second": "/\n[exit code 0 after N s]",
        "fits": True,
        **example_tasks.EXPECTED,
    }


@pytest.mark.parametrize(
    "env",
    [{"TZ": "UTC0"}, {"TZ": "EST5EDT,0/0,J365/25"}, {"TZ": "UTC0", "LATE": "1"}],
    ids=["standard", "daylight", "late"],
)
def test_the_example_shows_a_command_that_has_ended_meanwhile(
    tmp_path: Path, env: dict[str, str]
) -> None:
    gate, runtime = Gate(tmp_path / "gate"), tmp_path / "runtime"
    runtime.mkdir()
    with lasting_user(runtime) as user:
        with user.attach("--name", "work") as client:
            client.background(gate.wait)
        gate.open()
        wait_for(lambda: user.list()[0]["shellsRunning"] == 0)
        env |= {"XDG_RUNTIME_DIR": str(runtime)}
        assert report_of(tmp_path, EXAMPLE, HERE / "neovim_rejoin.lua", **env) == {"shown": True}


def test_the_example_says_that_another_editor_is_attached(tmp_path: Path) -> None:
    runtime = tmp_path / "runtime"
    runtime.mkdir()
    env = {"XDG_RUNTIME_DIR": str(runtime)}
    with lasting_user(runtime) as user, user.attach("--name", "work") as client:
        client.call("ping")
        assert report_of(tmp_path, EXAMPLE, HERE / "neovim_occupied.lua", **env) == {
            "shown": "[another editor is attached to work]"
        }
