"""Neovim's own client for JSON-RPC, against a real daemon."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

from installed import program
from support import DAEMON_COMMAND

SCRIPT = Path(__file__).with_name("neovim.lua")


def test_neovim_gets_all_it_asks_for(tmp_path: Path) -> None:
    report = tmp_path / "report"
    ended = subprocess.run(
        [program("nvim"), "--headless", "-u", "NONE", "-c", f"luafile {SCRIPT}", "-c", "qa!"],
        env={
            **os.environ,
            # It writes there.
            "XDG_CACHE_HOME": str(tmp_path),
            "XDG_STATE_HOME": str(tmp_path),
            "DAEMON": json.dumps(DAEMON_COMMAND),
            "REPORT": str(report),
        },
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert report.exists(), ended.stderr
    assert json.loads(report.read_text()) == {
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
