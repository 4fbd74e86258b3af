"""The ten tasks with subprocess."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ten_tasks import commands
from ten_tasks.commands import Model

BASH = ["bash", "-c"]


def run() -> tuple[int | None, str]:
    done = subprocess.run([*BASH, commands.RUN], stdout=subprocess.PIPE, text=True, check=False)
    return done.returncode, done.stdout


def follow(show: Callable[[str], None]) -> None:
    with subprocess.Popen([*BASH, commands.FOLLOW], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        for line in child.stdout:
            show(line)


def serve(port: int, use: Callable[[], object]) -> None:
    command = commands.SERVE.format(port=port)
    with subprocess.Popen(
        [*BASH, command], stderr=subprocess.DEVNULL, start_new_session=True
    ) as child:
        try:
            give_up_at = time.monotonic() + 30
            while True:
                if child.poll() is not None:
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


def answer() -> str:
    with subprocess.Popen(
        [*BASH, commands.ASK], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        shown = ""
        while not shown.endswith(commands.QUESTION):
            if not (character := child.stdout.read(1)):
                raise RuntimeError("the command has ended")
            shown += character
        child.stdin.write("yes\n")
        child.stdin.flush()
        return shown + child.stdout.read()


def cancel(is_told: Callable[[str], object]) -> str:
    with subprocess.Popen(
        [*BASH, commands.TREE], stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as child:
        assert child.stdout is not None
        try:
            shown = child.stdout.readline()
            is_told(shown)
        finally:
            os.killpg(child.pid, signal.SIGKILL)
        return shown + child.stdout.read()


def page(show: Callable[[str], None]) -> None:
    # A command that writes to a file never waits for the reader.
    with tempfile.TemporaryFile() as file:
        subprocess.run([*BASH, commands.LONG], stdout=file, check=False)
        file.seek(0)
        while part := file.read(commands.PAGE_BYTES):
            show(part.decode(errors="replace"))


def many() -> list[str]:
    def run_one(command: str) -> str:
        return subprocess.run(
            [*BASH, command], stdout=subprocess.PIPE, text=True, check=False
        ).stdout

    with ThreadPoolExecutor(len(commands.MANY)) as threads:
        return list(threads.map(run_one, commands.MANY))


def restart(end: Callable[[int], object]) -> str:
    # Each command runs in a new bash, which prints its last directory when it ends.
    def run_one(command: str, directory: str) -> tuple[str, str]:
        told, tell = os.pipe()
        with os.fdopen(told) as file:
            script = f"trap 'pwd >&{tell}' EXIT\n{command}"
            with subprocess.Popen(
                [*BASH, script], cwd=directory, stdout=subprocess.PIPE, text=True, pass_fds=[tell]
            ) as child:
                os.close(tell)
                stdout, _ = child.communicate()
            return stdout, file.read().removesuffix("\n") or directory

    _, directory = run_one("cd /usr", os.getcwd())
    with subprocess.Popen([*BASH, "sleep 300"], cwd=directory) as child:
        end(child.pid)
    return run_one("pwd", directory)[0]


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
        with subprocess.Popen(
            [*BASH, arguments["command"]],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        ) as child:
            try:
                text, _ = child.communicate(timeout=arguments.get("timeout", 60))
            except subprocess.TimeoutExpired:
                os.killpg(child.pid, signal.SIGKILL)
                text = child.communicate()[0] + "\n(timed out)"
        if len(text) > 30_000:
            text = f"{text[:15_000]}\n(cut)\n{text[-15_000:]}"
        return f"{text}\n(exit code {child.returncode})" if child.returncode else text

    text = None
    while call := model([definition], text):
        name, arguments = call
        text = run_one(arguments) if name == "Bash" else f"there is no tool {name}"


def fetch() -> bytes:
    return subprocess.run([*BASH, commands.BINARY], stdout=subprocess.PIPE, check=False).stdout
