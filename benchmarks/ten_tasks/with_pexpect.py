"""The ten tasks with pexpect. Its commands have a terminal, which changes line ends."""

from __future__ import annotations

import contextlib
import importlib
import os
import signal
import socket
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ten_tasks import commands
from ten_tasks.commands import Model

# pexpect has no types.
pexpect: Any = importlib.import_module("pexpect")
replwrap: Any = importlib.import_module("pexpect.replwrap")


def run() -> tuple[int | None, str]:
    output, status = pexpect.run(
        "bash", args=["-c", commands.RUN], withexitstatus=True, encoding="utf-8"
    )
    return status, output.replace("\r\n", "\n")


def follow(show: Callable[[str], None]) -> None:
    child = pexpect.spawn("bash", ["-c", commands.FOLLOW], encoding="utf-8")
    while line := child.readline():
        show(line.replace("\r\n", "\n"))
    child.close()


def serve(port: int, use: Callable[[], object]) -> None:
    command = commands.SERVE.format(port=port)
    child = pexpect.spawn("bash", ["-c", command])
    try:
        give_up_at = time.monotonic() + 30
        while True:
            if not child.isalive():
                raise RuntimeError("the server has ended")
            with contextlib.suppress(ConnectionRefusedError):
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                break
            if time.monotonic() > give_up_at:
                raise TimeoutError
            time.sleep(0.05)
        use()
    finally:
        # This call does not end a process that has left the group.
        os.killpg(child.pid, signal.SIGKILL)
        child.close()


def answer() -> str:
    child = pexpect.spawn("bash", ["-c", commands.ASK], encoding="utf-8")
    child.expect_exact(commands.QUESTION)
    shown = child.before + child.after
    child.sendline("yes")
    shown += child.read()
    child.close()
    return str(shown)


def cancel(is_told: Callable[[str], object]) -> str:
    child = pexpect.spawn("bash", ["-c", commands.TREE], encoding="utf-8")
    try:
        shown = child.readline()
        is_told(shown)
    finally:
        os.killpg(child.pid, signal.SIGKILL)
    shown += child.read()
    child.close()
    return str(shown).replace("\r\n", "\n")


def many() -> list[str]:
    def run_one(command: str) -> str:
        output = pexpect.run("bash", args=["-c", command], encoding="utf-8")
        return str(output).replace("\r\n", "\n")

    with ThreadPoolExecutor(len(commands.MANY)) as threads:
        return list(threads.map(run_one, commands.MANY))


def restart(end: Callable[[int], object]) -> str:
    shell = replwrap.bash()
    directory = "/"

    def run_one(command: str) -> str:
        nonlocal shell, directory
        if not shell.child.isalive():
            shell = replwrap.bash()
            shell.run_command(f"cd '{directory}'")
        output = shell.run_command(command)
        directory = shell.run_command("pwd").strip()
        return str(output).replace("\r\n", "\n")

    run_one("cd /usr")
    end(shell.child.pid)
    shell.child.wait()
    output = run_one("pwd")
    shell.child.close(force=True)
    return output


def give_tools(model: Model) -> None:
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

    def run_one(arguments: dict[str, Any]) -> str:
        child = pexpect.spawn(
            "bash", ["-c", arguments["command"]], encoding="utf-8", codec_errors="replace"
        )
        try:
            child.expect(pexpect.EOF, timeout=arguments.get("timeout", 60))
            text = child.before
        except pexpect.TIMEOUT:
            text = f"{child.before}\n(timed out)"
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.close()
        if len(text) > 30_000:
            text = f"{text[:15_000]}\n(cut)\n{text[-15_000:]}"
        return f"{text}\n(exit code {child.exitstatus})" if child.exitstatus else text

    text = None
    while call := model([definition], text):
        name, arguments = call
        text = run_one(arguments) if name == "Bash" else f"there is no tool {name}"


def fetch() -> bytes:
    return bytes(pexpect.run("bash", args=["-c", f"stty raw; {commands.BINARY}"]))
