"""The same tests use the three tools in this program and in a daemon."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from functools import partial
from typing import Any

import anyio
import pytest

from shelld.embed import ShellManager
from shelld.tools import (
    ExecutionContext,
    ToolExecutor,
    ToolRegistry,
    ToolResult,
    register_execution_tools,
)
from shelld_client import Client
from tool_samples import Tools


@pytest.fixture(scope="module")
def interactive() -> bool:
    """Return whether models may type into terminals (`--interactive-tools`). A module can replace
    this fixture.
    """
    return False


@pytest.fixture(scope="module")
def client(interactive: bool) -> Iterator[Client]:
    """One client for all tests of a module, whatever event loop they use."""
    with Client.spawn(args=["--interactive-tools"] if interactive else []) as client:
        yield client


@pytest.fixture(params=["in the program", "over the wire"])
async def call(
    request: pytest.FixtureRequest, client: Client, interactive: bool
) -> AsyncIterator[Tools]:
    """Return a function that executes a tool and returns the result."""
    if request.param == "over the wire":

        async def over_the_wire(name: str, /, *, context: Any = None, **params: Any) -> ToolResult:
            work = partial(client.call_tool, name, params, context=context)
            return await anyio.to_thread.run_sync(work)

        yield over_the_wire
        for shell in client.list_shells():
            if shell.is_running or shell.leftover:
                client.kill_shell(shell.bash_id, grace=0)
        for session in client.list_sessions():
            client.close_session(session.session)
        return

    register_execution_tools(ToolRegistry(), interactive=interactive)
    executor = ToolExecutor()

    async def in_the_program(name: str, /, *, context: Any = None, **params: Any) -> ToolResult:
        given: dict[str, Any] = {"working_dir": "", **(context or {})}
        return await executor.execute(name, ExecutionContext(**given), **params)

    yield in_the_program
    await ShellManager.reset()
