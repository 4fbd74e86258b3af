"""Wraps tools for Pydantic AI.

Needs the extra ``pydantic-ai``. Other modules import this module only when they need it. The model
gets the text of the `ToolResult`. A failure also becomes a text, never an exception.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from shelld_protocol.tools import ToolResult, without_nulls

try:
    from pydantic_ai import Tool
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "tools for Pydantic AI need the extra 'pydantic-ai': pip install 'shelld[pydantic-ai]'",
        name=error.name,
    ) from error


def pydantic_tool(
    name: str,
    description: str,
    schema: dict[str, Any],
    *,
    call: Callable[[dict[str, Any]], ToolResult] | None = None,
    call_async: Callable[[dict[str, Any]], Awaitable[ToolResult]] | None = None,
) -> Tool[object]:
    """Return a tool for an `Agent`.

    Give `call` or `call_async`. `schema` describes the arguments.
    """

    async def invoke_async(**arguments: Any) -> str:
        assert call_async is not None
        return (await call_async(without_nulls(arguments))).to_display()

    def invoke(**arguments: Any) -> str:
        assert call is not None
        return call(without_nulls(arguments)).to_display()

    # Pydantic AI calls plain functions in a thread.
    function = invoke if call_async is None else invoke_async
    return Tool[object].from_schema(function, name, description, schema)
