"""The command line of the MCP inspector, which server authors use to examine their servers."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from installed import node, node_environment, npm_package

pytestmark = pytest.mark.slow

SHELLD = [sys.executable, "-P", "-m", "shelld"]


def inspect(*options: str) -> subprocess.CompletedProcess[str]:
    launcher = npm_package("@modelcontextprotocol/inspector") / "clients/launcher/build/index.js"
    return subprocess.run(
        [node(), str(launcher), "--cli", *options, "--", *SHELLD],
        env=node_environment(),
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )


@pytest.mark.sampled(2)
@pytest.mark.parametrize("era", ["legacy", "modern", "auto"])
def test_inspector_finds_no_fault_in_descriptions(era: str) -> None:
    ended = inspect("--protocol-era", era, "--method", "tools/list", "--strict")
    assert ended.returncode == 0, ended.stderr
    assert "warning" not in ended.stderr.lower(), ended.stderr
    names = [tool["name"] for tool in json.loads(ended.stdout)["tools"]]
    assert names == ["Bash", "BashOutput", "KillShell"]


@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_inspector_calls_a_tool(era: str) -> None:
    arguments = json.dumps({"command": "echo hi; exit 3"})
    ended = inspect(
        *("--protocol-era", era, "--format", "json", "-q"),
        *("--method", "tools/call", "--tool-name", "Bash", "--tool-args-json", arguments),
    )
    result: Any = json.loads(ended.stdout)["result"]
    assert result["isError"] is True
    assert result["structuredContent"]["metadata"]["exit_code"] == 3
