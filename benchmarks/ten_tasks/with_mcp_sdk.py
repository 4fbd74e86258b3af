"""The ten tasks with the MCP SDK as the client and shelld as the server. The server's tools are
made for models, not for programs.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable

from mcp import Client, StdioServerParameters
from mcp.types import CallToolResult, TextContent

from ten_tasks import commands
from ten_tasks.commands import Model

SERVER = StdioServerParameters(command=sys.executable, args=["-m", "shelld"])


async def run() -> tuple[int | None, str]:
    async with Client(SERVER) as host:
        result = await host.call_tool("Bash", {"command": commands.RUN})
        assert isinstance(result, CallToolResult)
        assert result.structured_content is not None
        metadata = result.structured_content["metadata"]
        [content] = result.content
        assert isinstance(content, TextContent)
        # The text is for a model, so if the command has failed, the first line says so.
        lines = content.text.splitlines(keepends=True)
        return metadata["exit_code"], "".join(lines[result.is_error :])


async def serve(port: int, use: Callable[[], object]) -> None:
    async with Client(SERVER) as host:
        command = commands.SERVE.format(port=port)
        start = {"command": command, "run_in_background": True}
        result = await host.call_tool("Bash", {**start, "wait": 30_000, "until": "listening"})
        assert isinstance(result, CallToolResult)
        assert result.structured_content is not None
        metadata = result.structured_content["metadata"]
        use()
        await host.call_tool("KillShell", {"shell_id": metadata["bash_id"]})


async def many() -> list[str]:
    async with Client(SERVER) as host:

        async def run_one(command: str) -> str:
            result = await host.call_tool("Bash", {"command": command})
            assert isinstance(result, CallToolResult)
            [content] = result.content
            assert isinstance(content, TextContent)
            return content.text

        return await asyncio.gather(*map(run_one, commands.MANY))


async def give_tools(model: Model) -> None:
    async with Client(SERVER) as host:
        definitions = [
            {
                "type": "function",
                "function": {
                    "name": tool.name,
                    "description": tool.description,
                    "parameters": tool.input_schema,
                },
            }
            for tool in (await host.list_tools()).tools
        ]
        text = None
        while call := model(definitions, text):
            result = await host.call_tool(*call)
            assert isinstance(result, CallToolResult)
            text = "".join(each.text for each in result.content if isinstance(each, TextContent))
