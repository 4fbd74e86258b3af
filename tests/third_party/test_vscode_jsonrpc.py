"""The JSON-RPC library of VS Code's extensions, against a real daemon."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from installed import node, npm_package
from support import DAEMON_COMMAND

SCRIPT = Path(__file__).with_name("vscode_jsonrpc.mjs")


def test_vscode_jsonrpc_gets_every_answer() -> None:
    npm_package("vscode-jsonrpc")
    ended = subprocess.run(
        [node(), str(SCRIPT), *DAEMON_COMMAND],
        capture_output=True,
        text=True,
        timeout=50,
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
