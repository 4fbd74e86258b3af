"""The JSON-RPC library of VS Code's extensions, against a real daemon."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

import example_tasks
import vscode_example
from installed import node, node_environment, npm_package
from lasting import lasting_user
from support import DAEMON_COMMAND, Gate, wait_for

pytestmark = pytest.mark.slow

SCRIPT = Path(__file__).with_name("vscode_jsonrpc.mjs")
EXAMPLE_SCRIPT = Path(__file__).with_name("vscode_example.mjs")
ATTACH_SCRIPT = Path(__file__).with_name("vscode_attach.mjs")


def test_vscode_jsonrpc_gets_every_answer() -> None:
    npm_package("vscode-jsonrpc")
    ended = subprocess.run(
        [node(), str(SCRIPT), *DAEMON_COMMAND],
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout) == {
        "ping": {},
        # This library turns null into [null].
        "pingNull": {},
        "foreground": ["out\n", "err\n", 3],
        "positional": "one\n",
        "failure": [-32602, "Missing required parameter: command", "invalid_params"],
        "background": ["ready\n", True],
        "killed": ["killed", 0],
        "waited": "killed",
        "cancelled": -32800,
        "long": [True, 5_000_000, 5_000_000],
        "many": True,
        "unhandled": [],
        "shutdown": None,
        "exitCode": 0,
        "stderr": "",
    }


def test_the_example_runs_several_tasks(tmp_path: Path) -> None:
    vscode_example.install_in(tmp_path)
    shutil.copy(EXAMPLE_SCRIPT, tmp_path)
    example_tasks.prepare(tmp_path)
    ended = subprocess.run(
        [node(), EXAMPLE_SCRIPT.name],
        cwd=tmp_path,
        env={**node_environment(), "SHELLD": " ".join([*DAEMON_COMMAND, "--audit-log", "audit"])},
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    report = json.loads((tmp_path / "report").read_text())
    assert report == {
        **{
            name: f"{value}\n" if isinstance(value, str) else value
            for name, value in example_tasks.EXPECTED.items()
        },
        "quiet": "word\ngot word\n[exit code 0 after N s]\n",
        "asked": "Password: Name: Ada\n\n8 Ada\n[exit code 0 after N s]\n",
        "questions": [["Password:", True], ["Password: Name:", False]],
        "late": 0,
        "coloured": ["\x1b[31mred\x1b[0m\n[exit code 3 after N s]\n", 3],
        "seqs": [1, 2, 3],
    }
    records = [json.loads(line) for line in (tmp_path / "audit").read_text().splitlines()]
    typed = [each["secret"] for each in records if each.get("event") == "input"]
    assert typed == [False, True, False, False, False]


def attached(folder: Path, runtime: Path) -> Any:
    """Attach the example to a lasting daemon, and return its report."""
    vscode_example.install_in(folder)
    shutil.copy(ATTACH_SCRIPT, folder)
    env = {"SHELLD": " ".join(DAEMON_COMMAND), "XDG_RUNTIME_DIR": str(runtime)}
    ended = subprocess.run(
        [node(), ATTACH_SCRIPT.name],
        cwd=folder,
        env={**node_environment(), **env},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (folder / "report").exists(), ended.stderr
    return json.loads((folder / "report").read_text())


def test_the_example_says_that_another_window_is_attached(tmp_path: Path) -> None:
    runtime = tmp_path / "runtime"
    runtime.mkdir()
    with lasting_user(runtime) as user, user.attach("--name", "work") as client:
        client.call("ping")
        assert attached(tmp_path, runtime) == {"failure": "another window is attached to work"}


def test_the_example_finds_what_was_left_long_after_it_has_attached(tmp_path: Path) -> None:
    gate, runtime = Gate(tmp_path / "gate"), tmp_path / "runtime"
    runtime.mkdir()
    with lasting_user(runtime) as user:
        with user.attach("--name", "work") as client:
            client.background(gate.wait)
        gate.open()
        wait_for(lambda: user.list()[0]["shellsRunning"] == 0)
        assert attached(tmp_path, runtime) == {"left": 1}
