"""An agent of the OpenAI Agents SDK. Its scripted model calls tools, and answers with their
results.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from typing import Any, cast

import anyio
from agents import Agent, FunctionTool, Model, ModelResponse, Runner, Tool, Usage
from agents.run import RunConfig
from openai.types.responses import (
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
)

from shelld_client import AsyncClient, Client

CALLS = [
    '{"command": "pwd"}',
    '{"command": "exit 3"}',
    '{"timeout": null}',
    '{"command": "echo hi", "timeout": NaN}',
    "[1]",
]


class ScriptedModel(Model):
    async def get_response(self, *given: Any, **more: Any) -> ModelResponse:
        items = cast("list[dict[str, Any]]", more["input"] if "input" in more else given[1])
        returned = [
            str(item["output"]) for item in items if item.get("type") == "function_call_output"
        ]
        output: Any
        if len(returned) < len(CALLS):
            output = ResponseFunctionToolCall(
                arguments=CALLS[len(returned)],
                call_id=f"call_{len(returned)}",
                name="Bash",
                type="function_call",
            )
        else:
            text = "".join(f"{each.strip()}\n" for each in returned)
            part = ResponseOutputText(annotations=[], text=text, type="output_text")
            output = ResponseOutputMessage(
                id="1", content=[part], role="assistant", status="completed", type="message"
            )
        return ModelResponse(output=[output], usage=Usage(), response_id=None)

    def stream_response(self, *given: Any, **more: Any) -> AsyncIterator[Any]:
        raise NotImplementedError


async def answer(tools: list[FunctionTool]) -> str:
    agent = Agent(name="scripted", model=ScriptedModel(), tools=cast("list[Tool]", tools))
    # With tracing, the SDK would send traces to a server.
    result = await Runner.run(agent, "go", run_config=RunConfig(tracing_disabled=True))
    # The SDK itself cannot read such arguments, so it does not pass them on.
    deep = await tools[0].on_invoke_tool(cast("Any", None), "[" * 100_000)
    return f"{result.final_output}{deep}\n"


async def main() -> None:
    async with AsyncClient.spawn() as shell:
        tools = await shell.openai_agents_tools(context={"working_dir": "/usr"})
        sys.stdout.write(" ".join(tool.name for tool in tools) + "\n---\n")
        sys.stdout.write(await answer(tools) + "---\n")
    with Client.spawn() as plain:
        sys.stdout.write(await answer(plain.openai_agents_tools(context={"working_dir": "/usr"})))


anyio.run(main)
