"""The ten tasks with asyncio."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import tempfile
import time
from asyncio.subprocess import DEVNULL, PIPE, STDOUT
from collections.abc import Callable
from typing import Any

from ten_tasks import commands
from ten_tasks.commands import Model


async def run() -> tuple[int | None, str]:
    child = await asyncio.create_subprocess_exec("bash", "-c", commands.RUN, stdout=PIPE)
    stdout, _ = await child.communicate()
    return child.returncode, stdout.decode()


async def follow(show: Callable[[str], None]) -> None:
    child = await asyncio.create_subprocess_exec("bash", "-c", commands.FOLLOW, stdout=PIPE)
    assert child.stdout is not None
    async for line in child.stdout:
        show(line.decode())
    await child.wait()


async def serve(port: int, use: Callable[[], object]) -> None:
    command = commands.SERVE.format(port=port)
    child = await asyncio.create_subprocess_exec(
        "bash", "-c", command, stderr=DEVNULL, start_new_session=True
    )
    try:
        give_up_at = time.monotonic() + 30
        while True:
            if child.returncode is not None:
                raise RuntimeError("the server has ended")
            with contextlib.suppress(ConnectionRefusedError):
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.close()
                break
            if time.monotonic() > give_up_at:
                raise TimeoutError
            await asyncio.sleep(0.05)
        use()
    finally:
        # This call does not end a process that has left the group.
        os.killpg(child.pid, signal.SIGKILL)
        await child.wait()


async def answer() -> str:
    child = await asyncio.create_subprocess_exec(
        "bash", "-c", commands.ASK, stdin=PIPE, stdout=PIPE
    )
    assert child.stdin is not None
    assert child.stdout is not None
    shown = await child.stdout.readuntil(commands.QUESTION.encode())
    child.stdin.write(b"yes\n")
    child.stdin.close()
    shown += await child.stdout.read()
    await child.wait()
    return shown.decode()


async def cancel(is_told: Callable[[str], object]) -> str:
    child = await asyncio.create_subprocess_exec(
        "bash", "-c", commands.TREE, stdout=PIPE, start_new_session=True
    )
    assert child.stdout is not None
    try:
        shown = await child.stdout.readline()
        is_told(shown.decode())
    finally:
        os.killpg(child.pid, signal.SIGKILL)
    shown += await child.stdout.read()
    await child.wait()
    return shown.decode()


async def page(show: Callable[[str], None]) -> None:
    # A command that writes to a file never waits for the reader.
    with tempfile.TemporaryFile() as file:
        child = await asyncio.create_subprocess_exec("bash", "-c", commands.LONG, stdout=file)
        await child.wait()
        file.seek(0)
        while part := file.read(commands.PAGE_BYTES):
            show(part.decode(errors="replace"))


async def many() -> list[str]:
    async def run_one(command: str) -> str:
        child = await asyncio.create_subprocess_exec("bash", "-c", command, stdout=PIPE)
        stdout, _ = await child.communicate()
        return stdout.decode()

    return await asyncio.gather(*map(run_one, commands.MANY))


async def restart(end: Callable[[int], object]) -> str:
    # Each command runs in a new bash, which prints its last directory when it ends.
    async def run_one(command: str, directory: str) -> tuple[str, str]:
        told, tell = os.pipe()
        with os.fdopen(told) as file:
            script = f"trap 'pwd >&{tell}' EXIT\n{command}"
            try:
                child = await asyncio.create_subprocess_exec(
                    "bash", "-c", script, cwd=directory, stdout=PIPE, pass_fds=[tell]
                )
            finally:
                os.close(tell)
            stdout, _ = await child.communicate()
            return stdout.decode(), file.read().removesuffix("\n") or directory

    _, directory = await run_one("cd /usr", os.getcwd())
    child = await asyncio.create_subprocess_exec("bash", "-c", "sleep 300", cwd=directory)
    end(child.pid)
    await child.wait()
    return (await run_one("pwd", directory))[0]


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
        child = await asyncio.create_subprocess_exec(
            "bash",
            "-c",
            arguments["command"],
            stdin=DEVNULL,
            stdout=PIPE,
            stderr=STDOUT,
            start_new_session=True,
        )
        assert child.stdout is not None
        output = bytearray()
        try:
            async with asyncio.timeout(arguments.get("timeout", 60)):
                while part := await child.stdout.read(65_536):
                    output += part
                await child.wait()
        except TimeoutError:
            os.killpg(child.pid, signal.SIGKILL)
            output += await child.stdout.read() + b"\n(timed out)"
            await child.wait()
        text = output.decode(errors="replace")
        if len(text) > 30_000:
            text = f"{text[:15_000]}\n(cut)\n{text[-15_000:]}"
        return f"{text}\n(exit code {child.returncode})" if child.returncode else text

    text = None
    while call := model([definition], text):
        name, arguments = call
        text = await run_one(arguments) if name == "Bash" else f"there is no tool {name}"


async def fetch() -> bytes:
    child = await asyncio.create_subprocess_exec("bash", "-c", commands.BINARY, stdout=PIPE)
    stdout, _ = await child.communicate()
    return stdout
