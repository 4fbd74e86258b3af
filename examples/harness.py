"""An agent in one file: a model, the three tools, and the loop between them.

The model here is a script, so this runs without network access and without a key. A real model has
the same interface: `client.messages.create` of Anthropic's SDK takes the messages and the tools,
and returns the blocks that the script returns.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import anyio

from shelld_client import AsyncClient

Block = dict[str, Any]


class ScriptedModel:
    """A scripted model that checks whether a server starts, answers, and can be stopped."""

    def __init__(self) -> None:
        self._turns = self._script()
        self._messages: list[Block] = []

    def create(self, *, messages: list[Block], tools: list[Block]) -> list[Block]:
        """Return the blocks of the next turn, as the Messages API does."""
        assert {tool["name"] for tool in tools} == {"Bash", "BashOutput", "KillShell"}
        self._messages = messages
        return next(self._turns)

    def _script(self) -> Iterator[list[Block]]:
        yield [
            {"type": "text", "text": "I look around and start the server, both at once."},
            self._use("1", "Bash", command="cd /tmp && ls -d /usr /nonexistent"),
            self._use(
                "2",
                "Bash",
                command="python3 -u -m http.server --bind 127.0.0.1 0",
                description="Serve files on a free port",
                run_in_background=True,
            ),
        ]
        # The second call's answer contains the shell's id.
        (bash_id,) = re.findall(r"shell_\w+", self._answer("2"))
        yield [self._use("3", "BashOutput", bash_id=bash_id, wait=10_000)]
        yield [self._use("4", "KillShell", shell_id=bash_id)]
        yield [{"type": "text", "text": "It starts, it answers, and it is gone."}]

    @staticmethod
    def _use(identifier: str, name: str, **arguments: Any) -> Block:
        return {"type": "tool_use", "id": identifier, "name": name, "input": arguments}

    def _answer(self, identifier: str) -> str:
        results = self._messages[-1]["content"]
        return next(str(each["content"]) for each in results if each["tool_use_id"] == identifier)


async def run(shell: AsyncClient, model: ScriptedModel, task: str) -> str:
    """Let the model work until it calls no more tools; return its last words."""
    tools = await shell.tool_schemas("anthropic")
    messages: list[Block] = [{"role": "user", "content": task}]
    while True:
        blocks = model.create(messages=messages, tools=tools)
        messages.append({"role": "assistant", "content": blocks})
        for block in blocks:
            if block["type"] == "text":
                print(f"model: {block['text']}")
        calls = [block for block in blocks if block["type"] == "tool_use"]
        if not calls:
            return str(blocks[-1]["text"])
        results: dict[str, Block] = {}

        async def execute(call: Block, results: dict[str, Block] = results) -> None:
            result = await shell.call_tool(call["name"], call["input"])
            print(f"{call['name']} {call['input']}\n  -> {result.to_display()!r}")
            results[call["id"]] = {
                "type": "tool_result",
                "tool_use_id": call["id"],
                "content": result.to_display(),
                "is_error": not result.success,
            }

        # Calls of one turn run at once; cancelling the agent cancels them, too.
        async with anyio.create_task_group() as tasks:
            for call in calls:
                tasks.start_soon(execute, call)
        messages.append({"role": "user", "content": [results[call["id"]] for call in calls]})


async def main() -> None:
    async with AsyncClient.spawn() as shell:
        await run(shell, ScriptedModel(), "Does a file server start here?")


if __name__ == "__main__":
    anyio.run(main)
