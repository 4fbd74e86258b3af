"""The ten tasks with SWE-ReX. SWE-ReX returns no output before the end of a command, and cannot end
background commands.
"""

# SWE-ReX has no types for the start and the stop of a deployment.
# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from collections.abc import Callable
from typing import Any

from swerex.deployment.local import LocalDeployment
from swerex.exceptions import CommandTimeoutError
from swerex.runtime.abstract import (
    BashAction,
    BashInterruptAction,
    Command,
    CreateBashSessionRequest,
)

from ten_tasks import commands
from ten_tasks.commands import Model


async def run() -> tuple[int | None, str]:
    deployment = LocalDeployment()
    await deployment.start()
    try:
        result = await deployment.runtime.execute(Command(command=commands.RUN, shell=True))
        return result.exit_code, result.stdout
    finally:
        await deployment.stop()


async def serve(port: int, use: Callable[[], object]) -> None:
    deployment = LocalDeployment()
    await deployment.start()
    try:
        await deployment.runtime.create_session(CreateBashSessionRequest(startup_timeout=30))
        command = commands.SERVE.format(port=port)
        started = f"({command} > /dev/null 2>&1 & echo $!)"
        pid = (await deployment.runtime.run_in_session(BashAction(command=started))).output
        try:
            give_up_at = time.monotonic() + 30
            while True:
                with contextlib.suppress(ConnectionRefusedError):
                    _, writer = await asyncio.open_connection("127.0.0.1", port)
                    writer.close()
                    break
                if time.monotonic() > give_up_at:
                    raise TimeoutError
                await asyncio.sleep(0.05)
            use()
        finally:
            # This command does not end the children of the process.
            kill = f"kill -9 {pid.split()[-1]}"
            await deployment.runtime.run_in_session(BashAction(command=kill))
    finally:
        await deployment.stop()


async def answer() -> str:
    deployment = LocalDeployment()
    await deployment.start()
    try:
        await deployment.runtime.create_session(CreateBashSessionRequest(startup_timeout=30))
        asked = await deployment.runtime.run_in_session(
            BashAction(
                command=commands.ASK,
                is_interactive_command=True,
                expect=[re.escape(commands.QUESTION)],
                timeout=30,
            )
        )
        ended = await deployment.runtime.run_in_session(
            BashAction(command="yes", is_interactive_quit=True, timeout=30)
        )
        return asked.output + commands.QUESTION + ended.output
    finally:
        await deployment.stop()


async def many() -> list[str]:
    deployment = LocalDeployment()
    await deployment.start()
    try:
        results = await asyncio.gather(
            *(
                deployment.runtime.execute(Command(command=command, shell=True))
                for command in commands.MANY
            )
        )
        return [result.stdout for result in results]
    finally:
        await deployment.stop()


async def give_tools(model: Model) -> None:
    definition = {
        "type": "function",
        "function": {
            "name": "Bash",
            "description": "Run a command with bash.",
            "parameters": {
                "type": "object",
                "properties": {
                    "command": {"type": "string"},
                    "timeout": {"type": "number", "description": "seconds, by default 60"},
                },
                "required": ["command"],
            },
        },
    }

    async def run_one(arguments: dict[str, Any]) -> str:
        action = BashAction(
            command=arguments["command"], timeout=arguments.get("timeout", 60), check="silent"
        )
        try:
            result = await deployment.runtime.run_in_session(action)
        except CommandTimeoutError:
            await deployment.runtime.run_in_session(BashInterruptAction())
            return "(timed out)"
        text = result.output
        if len(text) > 30_000:
            text = f"{text[:15_000]}\n(cut)\n{text[-15_000:]}"
        return f"{text}\n(exit code {result.exit_code})" if result.exit_code else text

    deployment = LocalDeployment()
    await deployment.start()
    try:
        await deployment.runtime.create_session(CreateBashSessionRequest(startup_timeout=30))
        text = None
        while call := model([definition], text):
            name, arguments = call
            text = await run_one(arguments) if name == "Bash" else f"there is no tool {name}"
    finally:
        await deployment.stop()
