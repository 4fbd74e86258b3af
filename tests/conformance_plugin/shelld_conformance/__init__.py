"""Tools that MCP's conformance suite calls by name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shelld.tools import BaseTool, ExecutionContext, ToolCategory, ToolParameter, ToolResult


class Fixed(BaseTool):
    """A tool that always returns the same result."""

    def __init__(self, name: str, result: ToolResult) -> None:
        self._name = name
        self._result = result

    @property
    def name(self) -> str:
        return self._name

    @property
    def description(self) -> str:
        return "Always comes to the same."

    @property
    def category(self) -> ToolCategory:
        return ToolCategory.OTHER

    @property
    def parameters(self) -> Sequence[ToolParameter]:
        return []

    async def _execute(self, context: ExecutionContext, /, **params: Any) -> ToolResult:
        return self._result


def tools() -> list[BaseTool]:
    text = ToolResult.ok("This is a simple text response for testing.")
    error = ToolResult.fail("This tool intentionally returns an error for testing")
    return [
        Fixed("test_simple_text", text),
        Fixed("test_error_handling", error),
        # The suite requires that these tools neither log nor send a request to the client.
        Fixed("test_logging_tool", text),
        Fixed("test_streaming_elicitation", text),
    ]
