"""Wraps tools for the OpenAI Agents SDK. Needs the extra ``openai-agents``.

Nothing else imports this module. The model gets the text of the `ToolResult`. A failure also
becomes a text, never an exception.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any, cast

from shelld_protocol.tools import ToolResult, without_nulls

try:
    from agents import FunctionTool
    from agents.tool_context import ToolContext
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "tools for the OpenAI Agents SDK need the extra 'openai-agents': "
        "pip install 'shelld[openai-agents]'",
        name=error.name,
    ) from error


def function_tool(
    name: str,
    description: str,
    schema: dict[str, Any],
    *,
    call: Callable[[dict[str, Any]], ToolResult] | None = None,
    call_async: Callable[[dict[str, Any]], Awaitable[ToolResult]] | None = None,
) -> FunctionTool:
    """Return a tool for an `Agent`.

    Give `call` or `call_async`. `schema` describes the arguments.
    """

    async def invoke(_context: ToolContext[Any], text: str) -> str:
        try:
            parsed: object = json.loads(text or "{}")
        except (ValueError, RecursionError):
            parsed = None
        if not isinstance(parsed, dict):
            return "Invalid arguments: expected a JSON object"
        given = without_nulls(cast("dict[str, Any]", parsed))
        if call_async is not None:
            return (await call_async(given)).to_display()
        assert call is not None
        return (await asyncio.to_thread(call, given)).to_display()

    return FunctionTool(
        name=name,
        description=description,
        params_json_schema=schema,
        on_invoke_tool=invoke,
        # A strict schema would make every parameter required.
        strict_json_schema=False,
    )
