"""Implements ``to_langchain_tool``, which makes a LangChain tool from a tool.

The LangChain tool can be called from any event loop. A synchronous call executes the tool on a new
event loop. If the caller's thread already has an event loop, the new event loop runs in another
thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Protocol

import anyio
from anyio.lowlevel import current_token

from shelld_protocol.langchain import structured_tool
from shelld_protocol.schemas import parameters_schema
from shelld_protocol.tools import ExecutionContext, ToolParameter, ToolResult

if TYPE_CHECKING:
    from langchain_core.tools import StructuredTool


class Tool(Protocol):
    """The part of `BaseTool` that this module needs."""

    @property
    def name(self) -> str: ...

    @property
    def description(self) -> str: ...

    @property
    def parameters(self) -> Sequence[ToolParameter]: ...

    async def execute(self, context: ExecutionContext, /, **params: Any) -> ToolResult: ...


def to_langchain_tool(tool: Tool, context: ExecutionContext | None = None) -> StructuredTool:
    """Without `context`, the defaults apply, and commands run in their session's directory."""
    given = context or ExecutionContext("")

    async def call_async(arguments: dict[str, Any]) -> ToolResult:
        return await tool.execute(given, **arguments)

    def call(arguments: dict[str, Any]) -> ToolResult:
        if not _is_in_event_loop():
            return anyio.run(call_async, arguments)
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(anyio.run, call_async, arguments).result()

    return structured_tool(
        tool.name,
        tool.description,
        parameters_schema(tool.parameters),
        call=call,
        call_async=call_async,
    )


def _is_in_event_loop() -> bool:
    try:
        current_token()
    except anyio.NoEventLoopError:
        return False
    return True
