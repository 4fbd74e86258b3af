"""Results of executed tools."""

from __future__ import annotations

from typing import Any

from shelld_protocol import ToolResult
from tool_samples import Tools


def ok(result: ToolResult) -> str:
    assert result.success, result
    assert result.error is None
    return str(result.output)


def failed(result: ToolResult) -> str:
    assert not result.success, result
    assert result.output is None
    return str(result.error)


async def background(call: Tools, command: str, **params: Any) -> str:
    result = await call("Bash", command=command, run_in_background=True, **params)
    ok(result)
    return str(result.metadata["bash_id"])


async def ended(call: Tools, bash_id: str) -> ToolResult:
    """Return the result of BashOutput once the shell has ended."""
    return await call("BashOutput", bash_id=bash_id, wait=60_000, until="exit")
