"""The daemon's tools as LangChain has them. Needs the extra ``langchain``."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from shelld_protocol.langchain import structured_tool
from shelld_protocol.tools import ToolResult

if TYPE_CHECKING:
    from langchain_core.tools import StructuredTool


def langchain_tool(
    tool: dict[str, Any],
    *,
    call: Callable[..., ToolResult] | None = None,
    call_async: Callable[..., Awaitable[ToolResult]] | None = None,
) -> StructuredTool:
    """`tool` is described Anthropic's way. `call`, or `call_async`: what a client calls it with."""
    name = tool["name"]

    async def do_async(arguments: dict[str, Any]) -> ToolResult:
        assert call_async is not None
        return await call_async(name, arguments)

    def do(arguments: dict[str, Any]) -> ToolResult:
        assert call is not None
        return call(name, arguments)

    return structured_tool(
        name,
        tool["description"],
        tool["input_schema"],
        call=None if call is None else do,
        call_async=None if call_async is None else do_async,
    )
