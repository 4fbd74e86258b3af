"""The official client of MCP's Tasks extension, against a real daemon."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from installed import node, npm_package
from support import DAEMON_COMMAND

pytestmark = pytest.mark.slow

SCRIPT = Path(__file__).with_name("mcp_tasks.mjs")


def test_official_client_gets_every_result() -> None:
    npm_package("@modelcontextprotocol/ext-tasks")
    options = ["--task-after", "100", "--interactive-tools"]
    ended = subprocess.run(
        [node(), str(SCRIPT), *DAEMON_COMMAND, *options],
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout) == {
        "short": ["hi\n", False],
        "background": ["task", "hi\n[Status: failed, exit code 3. ", False],
        "long": ["task", "Command failed with exit code 3\ndone\n", True],
        "asked": ["task", "Name? World\nHello World\n", False],
        "cancelled": "cancelled",
        "view": "cancelled",
        "unknown": -32602,
        "questions": [["prompt_1", 'bash waits for input: "Name?"']],
        "errors": [],
        "exitCode": 0,
        "stderr": "",
    }
