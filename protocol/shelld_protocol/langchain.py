"""A tool as LangChain has it. Needs the extra ``langchain``; nothing else imports this module.

What a tool comes to is the content of the message to the model, and the `ToolResult` the artifact
beside it; a failed result is a message with the status "error".
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from langchain_core.tools import StructuredTool, ToolException

from shelld_protocol.tools import ToolResult


def structured_tool(
    name: str,
    description: str,
    schema: dict[str, Any],
    *,
    call: Callable[[dict[str, Any]], ToolResult] | None = None,
    call_async: Callable[[dict[str, Any]], Awaitable[ToolResult]] | None = None,
) -> StructuredTool:
    """Return a tool with at least one way to be called. `schema` is that of the arguments."""

    def invoke(**arguments: Any) -> tuple[str, ToolResult]:
        assert call is not None
        return _content(call(_given(arguments)))

    async def ainvoke(**arguments: Any) -> tuple[str, ToolResult]:
        assert call_async is not None
        return _content(await call_async(_given(arguments)))

    return StructuredTool(
        name=name,
        description=description,
        args_schema=schema,
        func=None if call is None else invoke,
        coroutine=None if call_async is None else ainvoke,
        response_format="content_and_artifact",
        handle_tool_error=True,
    )


def _given(arguments: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in arguments.items() if value is not None}


def _content(result: ToolResult) -> tuple[str, ToolResult]:
    if not result.success:
        raise ToolException(result.error)
    return result.to_display(), result
