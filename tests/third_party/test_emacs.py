"""jsonrpc.el, which is a part of Emacs, against a real daemon."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

from installed import program
from support import DAEMON_COMMAND

SCRIPT = Path(__file__).with_name("emacs.el")


def test_emacs_gets_all_it_asks_for(tmp_path: Path) -> None:
    report = tmp_path / "report"
    ended = subprocess.run(
        [program("emacs"), "-Q", "--batch", "-l", str(SCRIPT)],
        env={**os.environ, "DAEMON": json.dumps(DAEMON_COMMAND), "REPORT": str(report)},
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
        "cancelled": -32800,
        "long": [True, 5_000_000, 5_000_000],
        "many": True,
        "shutdown": True,
        "exit_code": 0,
    }
