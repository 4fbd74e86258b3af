"""The JSON-RPC library of VS Code's extensions, against a real daemon."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

import example_tasks
import vscode_example
from installed import node, node_environment, npm_package
from support import DAEMON_COMMAND

pytestmark = pytest.mark.slow

SCRIPT = Path(__file__).with_name("vscode_jsonrpc.mjs")
EXAMPLE_SCRIPT = Path(__file__).with_name("vscode_example.mjs")


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
