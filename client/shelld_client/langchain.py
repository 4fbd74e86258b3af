"""The daemon's tools as LangChain has them. Needs the extra ``langchain``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from shelld_client.client import AsyncClient
from shelld_protocol.langchain import structured_tool
from shelld_protocol.tools import ExecutionContext, ToolResult

if TYPE_CHECKING:
    from langchain_core.tools import StructuredTool

    from shelld_client.sync import Client


def langchain_tool(
    client: AsyncClient | Client,
    tool: dict[str, Any],
    context: ExecutionContext | Mapping[str, Any] | None,
) -> StructuredTool:
    """`tool` is described Anthropic's way. One of an `AsyncClient` can only be awaited."""
    name, description, schema = tool["name"], tool["description"], tool["input_schema"]
    if isinstance(client, AsyncClient):

        async def call_async(arguments: dict[str, Any]) -> ToolResult:
            return await client.call_tool(name, arguments, context=context)

        return structured_tool(name, description, schema, call_async=call_async)

    def call(arguments: dict[str, Any]) -> ToolResult:
        return client.call_tool(name, arguments, context=context)

    return structured_tool(name, description, schema, call=call)
