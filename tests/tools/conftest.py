"""The three tools, in this program and in a daemon: one set of tests for both."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from shelld.embed import ShellManager
from shelld.tools import (
    ExecutionContext,
    ToolExecutor,
    ToolRegistry,
    ToolResult,
    register_execution_tools,
)
from shelld_client import AsyncClient
from tool_samples import Tools


@pytest.fixture(params=["in the program", "over the wire"])
async def call(request: pytest.FixtureRequest) -> AsyncIterator[Tools]:
    """Executes a tool, and returns what came of it."""
    if request.param == "over the wire":
        async with AsyncClient.spawn() as client:

            async def over_the_wire(
                name: str, /, *, context: Any = None, **params: Any
            ) -> ToolResult:
                return await client.call_tool(name, params, context=context)

            yield over_the_wire
        return

    register_execution_tools(ToolRegistry())
    executor = ToolExecutor()

    async def in_the_program(name: str, /, *, context: Any = None, **params: Any) -> ToolResult:
        given: dict[str, Any] = {"working_dir": "", **(context or {})}
        return await executor.execute(name, ExecutionContext(**given), **params)

    yield in_the_program
    await ShellManager.reset()
