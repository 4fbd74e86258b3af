"""Converts results into the form that MCP requires. Pure."""

from __future__ import annotations

from typing import Final, TypeVar

from msgspec import Raw

from shelld import __version__
from shelld_protocol.mcp import (
    SERVER_INFO_KEY,
    CallToolMcpResult,
    Implementation,
    McpResult,
    TextContent,
)
from shelld_protocol.tools import ToolResult

R = TypeVar("R", bound=McpResult)

IMPLEMENTATION: Final = Implementation("shelld", __version__)


def complete(result: R) -> R:
    """Set two members: the type of the result, and the server info. In `MODERN_REVISIONS`, every
    result has these members.
    """
    result.result_type = "complete"
    result.meta = {SERVER_INFO_KEY: IMPLEMENTATION}
    return result


def call_result(result: ToolResult, encoded: Raw | None) -> CallToolMcpResult:
    """Return the result of a tool.

    `encoded`: the result as JSON, if the revision has ``structuredContent``.
    """
    return CallToolMcpResult(
        content=[TextContent(_text_of(result))],
        is_error=not result.success,
        structured_content=encoded,
    )


def _text_of(result: ToolResult) -> str:
    """Return the text for the model. Only `isError` says whether the call has failed."""
    if not result.success and result.error is not None:
        return result.error
    return ToolResult.ok(result.output).to_display()
