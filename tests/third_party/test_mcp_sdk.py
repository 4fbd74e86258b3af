"""The official SDK's MCP client, in all its modes, against a real daemon."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client, StdioServerParameters
from mcp.shared.exceptions import MCPError
from mcp.types import CallToolResult, TextContent

from support import Gate, Mark, children, descendants, is_alive, running_below, wait_for

pytestmark = pytest.mark.slow

MODES = ["auto", "legacy", "2026-07-28"]
COMMAND = ["-W", "error", "-P", "-m", "shelld"]


class Host:
    """A client, and the pid of the daemon that it started."""

    def __init__(self, client: Client, pid: int) -> None:
        self.client = client
        self.pid = pid

    async def call(self, tool: str, /, **arguments: Any) -> CallToolResult:
        result = await self.client.call_tool(tool, arguments)
        assert isinstance(result, CallToolResult)
        return result

    async def bash(self, command: str, **arguments: Any) -> CallToolResult:
        return await self.call("Bash", command=command, **arguments)


@asynccontextmanager
async def connected(mode: str, *options: str) -> AsyncGenerator[Host]:
    """Yield a host; check that nothing is left when it ends."""
    before = set(children(os.getpid()))
    with anyio.fail_after(60):
        shelld = StdioServerParameters(command=sys.executable, args=[*COMMAND, *options])
        async with Client(shelld, mode=mode) as client:
            (pid,) = set(children(os.getpid())) - before
            yield Host(client, pid)
            family = [pid, *descendants(pid)]
    wait_for(lambda: not any(map(is_alive, family)), "the end of all that the daemon started")


@pytest.fixture(params=MODES)
def mode(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def text_of(result: CallToolResult) -> str:
    (content,) = result.content
    assert isinstance(content, TextContent)
    return content.text


async def test_sdk_lists_the_tools(mode: str) -> None:
    async with connected(mode) as host:
        tools = (await host.client.list_tools()).tools
        assert [tool.name for tool in tools] == ["Bash", "BashOutput", "KillShell"]
        assert tools[0].annotations is not None
        assert tools[0].annotations.destructive_hint


async def test_sdk_validates_a_tool_result(mode: str) -> None:
    async with connected(mode) as host:
        await host.client.list_tools()
        result = await host.bash("echo hi")
        assert (result.is_error, text_of(result)) == (False, "hi\n")
        assert result.structured_content is not None
        assert result.structured_content["metadata"]["exit_code"] == 0


async def test_sdk_sees_failed_command(mode: str) -> None:
    async with connected(mode) as host:
        result = await host.bash("echo no; exit 3")
        assert result.is_error
        assert text_of(result) == "Command failed with exit code 3\nno\n"
        assert text_of(await host.call("Bash")) == "Missing required parameter: command"
        with pytest.raises(MCPError, match="Unknown tool: Nope"):
            await host.call("Nope")


async def test_sdk_sees_timeout(mode: str, tmp_path: Path) -> None:
    mark, results = Mark(tmp_path), list[CallToolResult]()
    async with connected(mode) as host:
        for _ in mark.attempts():
            command = f"echo so far; {mark.touch}; sleep 300"
            results.append(await host.bash(command, timeout=1000))
        result = results[-1]
        assert result.is_error
        sentence, output, advice = text_of(result).splitlines()
        assert (sentence, output) == ("Command timed out after 1000ms", "so far")
        assert advice.startswith("[For more time: ")


async def test_a_cancelled_call_kills_its_command(mode: str) -> None:
    async with connected(mode) as host:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(host.bash, "sleep 3141")
            while not running_below(host.pid, "3141"):
                await anyio.sleep(0.01)
            tasks.cancel_scope.cancel()
        while running_below(host.pid, "3141"):
            await anyio.sleep(0.01)
        assert text_of(await host.bash("echo alive")) == "alive\n"


async def test_sdk_cancellation_kills_the_command(mode: str) -> None:
    async with connected(mode) as host:
        with pytest.raises(MCPError):
            await host.client.call_tool("Bash", {"command": "sleep 3141"}, read_timeout_seconds=0.5)
        while running_below(host.pid, "3141"):
            await anyio.sleep(0.01)


async def test_sdk_receives_progress(mode: str, tmp_path: Path) -> None:
    gate = Gate(tmp_path / "gate")
    reports: list[tuple[float, str | None]] = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        reports.append((progress, message))
        if len(reports) == 2:
            gate.open()

    async with connected(mode) as host:
        result = await host.client.call_tool(
            "Bash",
            {"command": f"echo compiling; {gate.wait}; echo done"},
            progress_callback=on_progress,
        )
        assert isinstance(result, CallToolResult)
        assert text_of(result) == "compiling\ndone\n"
        assert {message for _, message in reports} == {"compiling"}
        assert reports[0][0] < reports[1][0]


async def test_eight_calls_run_at_once(mode: str, tmp_path: Path) -> None:
    async with connected(mode) as host:
        texts: list[str] = []

        async def call(number: int) -> None:
            # Each call waits for all others.
            everybody = f"until [ $(ls {tmp_path} | wc -l) = 8 ]; do sleep 0.01; done"
            result = await host.bash(f"touch {tmp_path}/{number}; {everybody}; echo {number}")
            texts.append(text_of(result))

        async with anyio.create_task_group() as tasks:
            for number in range(8):
                tasks.start_soon(call, number)
        assert sorted(texts) == [f"{number}\n" for number in range(8)]


async def test_a_background_shell_is_read_and_killed(mode: str) -> None:
    async with connected(mode) as host:
        started = await host.bash("echo ready; sleep 300", run_in_background=True)
        assert started.structured_content is not None
        bash_id = started.structured_content["metadata"]["bash_id"]
        read = await host.call("BashOutput", bash_id=bash_id, wait=60_000)
        assert text_of(read).startswith("ready\n")
        assert not (await host.call("KillShell", shell_id=bash_id)).is_error


async def test_sdk_closes_beside_running_command(mode: str) -> None:
    async with connected(mode) as host:
        for _ in range(3):
            await host.bash("setsid sleep 300 & sleep 300", run_in_background=True)


async def test_sdk_types_and_looks_at_a_screen(mode: str) -> None:
    async with connected(mode, "--interactive-tools") as host:
        tools = (await host.client.list_tools()).tools
        assert [tool.name for tool in tools][3:] == ["BashInput", "BashScreen"]
        started = await host.bash(
            "read -p 'Name? ' name; clear; echo Hello $name; cat", tty=True, run_in_background=True
        )
        assert started.structured_content is not None
        bash_id = started.structured_content["metadata"]["bash_id"]
        await screen_with(host, bash_id, "Name?")
        typed = await host.call("BashInput", bash_id=bash_id, text="World", keys=["Enter"])
        assert typed.structured_content is not None
        assert typed.structured_content["metadata"]["written"] == 6
        shown = await screen_with(host, bash_id, "Hello World")
        assert text_of(shown).startswith("Hello World\n[Screen: ")
        await host.call("BashInput", bash_id=bash_id, keys=["C-d"])
        await screen_with(host, bash_id, "[Status: completed, exit code 0.")


async def screen_with(host: Host, bash_id: str, text: str) -> CallToolResult:
    """Return the first screen that shows a text."""
    while True:
        result = await host.call("BashScreen", bash_id=bash_id)
        assert not result.is_error, text_of(result)
        if text in text_of(result):
            return result
        await anyio.sleep(0.01)
