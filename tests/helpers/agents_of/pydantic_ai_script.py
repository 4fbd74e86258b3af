"""An agent of Pydantic AI. Its scripted model calls tools, and answers with their results."""

from __future__ import annotations

import math
import sys
from typing import Any

import anyio
from pydantic_ai import Agent
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel

from shelld_client import AsyncClient, Client

CALLS: list[dict[str, Any]] = [
    {"command": "pwd"},
    {"command": "exit 3"},
    {"timeout": None},
    {"command": "echo hi", "timeout": math.nan},
]


def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    assert [tool.name for tool in info.function_tools] == ["Bash", "BashOutput", "KillShell"]
    returned = [
        str(part.content)
        for message in messages
        if isinstance(message, ModelRequest)
        for part in message.parts
        if isinstance(part, ToolReturnPart)
    ]
    if len(returned) < len(CALLS):
        return ModelResponse([ToolCallPart("Bash", CALLS[len(returned)])])
    return ModelResponse([TextPart("".join(f"{text.strip()}\n" for text in returned))])


async def main() -> None:
    async with AsyncClient.spawn() as shell:
        tools = await shell.pydantic_ai_tools(context={"working_dir": "/usr"})
        sys.stdout.write(" ".join(tool.name for tool in tools) + "\n---\n")
        result = await Agent(FunctionModel(model), tools=tools).run("go")
        sys.stdout.write(result.output + "---\n")
    with Client.spawn() as plain:
        tools = plain.pydantic_ai_tools(context={"working_dir": "/usr"})
        result = await Agent(FunctionModel(model), tools=tools).run("go")
        sys.stdout.write(result.output)


anyio.run(main)
