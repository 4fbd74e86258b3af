"""`check` and `on_output` of `bash` through both clients, against a real daemon."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from both_clients import Spawn, is_over, text_of
from shelld_client import BackgroundResult, CommandFailed, CommandTimedOut, OutputEvent
from support import Gate, Mark


async def test_check_raises_for_a_command_that_fails(spawn: Spawn) -> None:
    async with spawn() as shell:
        assert (await shell.bash("echo fine", check=True)).stdout == "fine\n"
        assert (await shell.bash("false", check=False)).exit_code == 1
        with pytest.raises(CommandFailed) as caught:
            await shell.bash("echo out; echo 1 >&2; echo why >&2; exit 3", check=True)
        assert str(caught.value) == "the command failed with exit code 3; its last line is: why"
        assert (caught.value.stdout, caught.value.stderr) == ("out\n", "1\nwhy\n")
        with pytest.raises(CommandFailed, match=r"^the command failed with SIGKILL$"):
            await shell.bash("kill -9 $$", check=True)
        with pytest.raises(CommandFailed, match=r"^the command failed with SIGTERM \(prompt\)$"):
            await shell.bash("read x", check=True, open_stdin=True, on_prompt="kill")
        # The last line of a text that was cut is not known.
        long = "yes | head -c 2000000"
        with pytest.raises(CommandFailed, match=r"exit code 3$"):
            await shell.bash(f"{long}; exit 3", check=True)
        with pytest.raises(CommandFailed, match=r"its last line is: why$"):
            await shell.bash(f"echo why; {long} >&2; exit 3", check=True)
        moved = await shell.bash("sleep 60", check=True, timeout=1_000, on_timeout="background")
        assert isinstance(moved, BackgroundResult)


async def test_on_output_gets_the_output_as_it_comes(spawn: Spawn, tmp_path: Path) -> None:
    gate = Gate(tmp_path / "gate")
    heard: list[OutputEvent] = []

    def on_output(event: OutputEvent) -> None:
        if not heard:
            # Only now can the command continue.
            gate.open()
        heard.append(event)

    async with spawn() as shell:
        command = f"echo one; {gate.wait}; echo two; echo err >&2; exit 4"
        result = await shell.bash(command, on_output=on_output)
        assert (result.exit_code, result.stdout, result.stderr) == (4, "one\ntwo\n", "err\n")
        assert (text_of(heard), text_of(heard, "stderr")) == (result.stdout, result.stderr)
        with pytest.raises(CommandFailed):
            await shell.bash("exit 4", on_output=on_output, check=True)
        mark = Mark(tmp_path)
        for _ in mark.attempts():
            heard.clear()
            command = f"echo so far; {mark.touch}; sleep 300"
            with pytest.raises(CommandTimedOut):
                await shell.bash(command, on_output=heard.append, timeout=1_000)
        assert text_of(heard) == "so far\n"


async def test_on_output_that_raises_kills_the_command(spawn: Spawn) -> None:
    def on_output(event: OutputEvent) -> None:
        raise LookupError(event.text)

    async with spawn() as shell:
        with pytest.raises(LookupError, match="up"):
            await shell.bash("echo up; sleep 300", on_output=on_output)
        await is_over(shell, "echo up; sleep 300")


async def test_impossible_run_options_are_refused(spawn: Spawn) -> None:
    async def coroutine(event: OutputEvent) -> None:
        raise AssertionError(event)

    class Awaited:
        async def __call__(self, event: OutputEvent) -> None:
            raise AssertionError(event)

    options: list[dict[str, Any]] = [
        {"check": True, "run_in_background": True},
        {"check": True, "dry_run": True},
        {"on_output": print, "run_in_background": True},
        {"on_output": coroutine},
        {"on_output": Awaited()},
        {"on_output": "no function"},
    ]
    async with spawn() as shell:
        for each in options:
            with pytest.raises(TypeError):
                await shell.bash("true", **each)
        assert await shell.list_shells() == []
