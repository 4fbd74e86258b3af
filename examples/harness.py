"""An agent in one file: a model, the tools, and the loop between them.

The model runs a build, starts a server, answers a program's question, and is told when a background
job ends. It never asks whether something is ready: each wait is one call, and the harness waits
until the job ends.

The model here is a script, so this example needs no network access and no API key. A real model has
the same interface: `client.messages.create` of Anthropic's SDK takes the messages and the tools,
and returns blocks of the same kind.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import anyio

from shelld_client import AsyncClient, AsyncEventStream, ExitEvent

Block = dict[str, Any]


class ScriptedModel:
    """A scripted model that tries out a file server."""

    def __init__(self) -> None:
        self.calls = 0
        self._turns = self._script()
        self._messages: list[Block] = []

    def create(self, *, messages: list[Block], tools: list[Block]) -> list[Block]:
        """Return the blocks of the next turn, as the Messages API does."""
        assert {"Bash", "BashInput", "KillShell"} <= {tool["name"] for tool in tools}
        self._messages = messages
        return next(self._turns)

    def _script(self) -> Iterator[list[Block]]:
        yield [
            {"type": "text", "text": "I build, start the server, and begin the long tests."},
            self._use("build", "Bash", command="cd /tmp && for n in 1 2 3; do echo step $n; done"),
            self._use(
                "server",
                "Bash",
                command="exec python3 -u -m http.server --bind 127.0.0.1 0",
                description="Serve files on a free port",
                run_in_background=True,
                until="listening",
            ),
            self._use("tests", "Bash", command="sleep 1; exit 3", run_in_background=True),
        ]
        # The answer came when the server was ready, and contains the id of its shell.
        (server,) = re.findall(r"shell_\w+", self._answer("server"))
        question = "read -p 'Deploy? [y/N] ' answer; echo \"answered $answer\""
        yield [
            self._use(
                "deploy",
                "Bash",
                command=question,
                tty=True,
                run_in_background=True,
                until="prompt",
            )
        ]
        (deploy,) = re.findall(r"shell_\w+", self._answer("deploy"))
        yield [self._use("answer", "BashInput", bash_id=deploy, text="y\n")]
        # A turn without a call means that the model waits. The harness asks the model for the next
        # turn when a job has failed, or when the last job has ended.
        yield [{"type": "text", "text": "I wait for the tests."}]
        assert "exit code 3" in str(self._messages[-1]["content"])
        yield [self._use("stop", "KillShell", shell_id=server)]
        # On a busy machine, `deploy` can end after `tests`. The harness then asks once more.
        while True:
            yield [{"type": "text", "text": "It builds, starts and answers, but the tests fail."}]

    def _use(self, identifier: str, name: str, **arguments: Any) -> Block:
        self.calls += 1
        return {"type": "tool_use", "id": identifier, "name": name, "input": arguments}

    def _answer(self, identifier: str) -> str:
        results = self._messages[-1]["content"]
        return next(str(each["content"]) for each in results if each["tool_use_id"] == identifier)


class Harness:
    """Runs the calls of a model. `ends` yields an event when a shell ends."""

    def __init__(self, shell: AsyncClient, ends: AsyncEventStream) -> None:
        self._shell = shell
        self._ends = ends
        # The harness tells the model when one of these shells ends.
        self._jobs: set[str] = set()

    async def run(self, model: ScriptedModel, task: str) -> str:
        """Let the model work until it has nothing more to do or to wait for.

        Return its last text.
        """
        tools = await self._shell.tool_schemas("anthropic")
        messages: list[Block] = [{"role": "user", "content": task}]
        while True:
            blocks = model.create(messages=messages, tools=tools)
            messages.append({"role": "assistant", "content": blocks})
            for block in blocks:
                if block["type"] == "text":
                    print(f"model: {block['text']}")
            calls = [block for block in blocks if block["type"] == "tool_use"]
            if calls:
                content: Any = await self._execute(calls)
            elif self._jobs:
                content = await self._next_end()
            else:
                return str(blocks[-1]["text"])
            messages.append({"role": "user", "content": content})

    async def _execute(self, calls: list[Block]) -> list[Block]:
        """Run the calls of one turn at the same time. Cancelling the agent also cancels these
        calls.
        """
        results: dict[str, Block] = {}

        async def execute(call: Block) -> None:
            result = await self._shell.call_tool(call["name"], call["input"])
            print(f"{call['name']} {call['input']}\n  -> {result.to_display()!r}")
            if call["input"].get("run_in_background"):
                self._jobs.add(result.metadata["bash_id"])
            elif call["name"] == "KillShell":
                self._jobs.discard(call["input"]["shell_id"])
            results[call["id"]] = {
                "type": "tool_result",
                "tool_use_id": call["id"],
                "content": result.to_display(),
                "is_error": not result.success,
            }

        async with anyio.create_task_group() as tasks:
            for call in calls:
                tasks.start_soon(execute, call)
        return [results[call["id"]] for call in calls]

    async def _next_end(self) -> str:
        """Wait until a job fails or the last job ends; return a message about this job."""
        while True:
            end = await anext(self._ends)
            assert isinstance(end, ExitEvent)
            if end.bash_id in self._jobs:
                self._jobs.discard(end.bash_id)
                if end.exit_code != 0 or not self._jobs:
                    break
        message = f"{end.bash_id} has ended: {end.status}, exit code {end.exit_code}"
        print(f"event: {message}")
        return message


async def main() -> None:
    async with (
        AsyncClient.spawn(args=["--interactive-tools"]) as shell,
        shell.events(events=["exit"]) as ends,
    ):
        model = ScriptedModel()
        await Harness(shell, ends).run(model, "Does the file server work?")
        print(f"{model.calls} calls, none of them to see whether something was ready")


if __name__ == "__main__":
    anyio.run(main)
