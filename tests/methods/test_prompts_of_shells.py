"""If a check for a prompt fails or contradicts the last check, results report the right prompt."""

from __future__ import annotations

import signal
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from msgspec import structs

from shelld.inspection import input_reader
from shelld.methods.bash import bash
from shelld.methods.bash_output import bash_output, result_of
from shelld.methods.context import Daemon, RequestContext
from shelld.process import faults
from shelld.process.options import Options
from shelld.shells.manager import Manager
from shelld.shells.shell import SeenPrompt, Shell
from shelld.waits.until import Reached
from shelld_protocol.shell_methods import BackgroundResult, BashOutputParams, BashParams
from shelld_protocol.structs import Prompt


async def test_result_has_the_output_although_the_check_for_a_prompt_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_args: object) -> None:
        raise ArithmeticError

    monkeypatch.setattr(input_reader, "members", fail)
    before = faults.count()
    async with Manager() as manager:
        context = RequestContext(Daemon(Options(), manager))
        params = BashParams("stty -onlcr; echo kept; cat", run_in_background=True, tty=True)
        started = await bash(context, params)
        assert isinstance(started, BackgroundResult)
        result = await bash_output(context, BashOutputParams(started.bash_id, wait=60_000))
        assert (result.stdout, result.prompt) == ("kept\n", None)
    assert faults.count() > before


PROMPT = Prompt("proved", True, True, True, 1, "program", 500, "text")


@asynccontextmanager
async def running_cat(monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[Shell]:
    """Run cat, and make every check find no prompt."""

    def inspect(*_args: object, **_more: object) -> input_reader.Seen:
        return input_reader.Seen(None, is_stopped=False)

    monkeypatch.setattr(input_reader, "inspect", inspect)
    async with Manager() as manager:
        context = RequestContext(Daemon(Options(), manager))
        params = BashParams("cat", run_in_background=True, open_stdin=True, session=None)
        started = await bash(context, params)
        assert isinstance(started, BackgroundResult)
        yield manager.get(started.bash_id)


def reached_now(shell: Shell) -> Reached:
    return Reached("prompt", prompt=SeenPrompt.now(PROMPT, shell))


async def test_prompt_that_ended_a_wait_counts_until_something_is_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with running_cat(monkeypatch) as shell:
        reached = reached_now(shell)
        assert result_of(shell, {}, reached).prompt == PROMPT
        assert shell.input is not None
        shell.input.write(b"answer\n")
        assert result_of(shell, {}, reached).prompt is None
        reached = reached_now(shell)
        await shell.wait_until(lambda: shell.output.written > 0)
        assert result_of(shell, {}, reached).prompt is None


# The age is negative, so the prompt is not too old even on a slow machine.
@pytest.mark.parametrize(("age_s", "counts"), [(-60.0, True), (60.0, False)])
async def test_prompt_of_polling_program_counts_for_a_moment_after_the_wait(
    monkeypatch: pytest.MonkeyPatch, age_s: float, counts: bool
) -> None:
    timed = structs.replace(PROMPT, blocking=False)
    async with running_cat(monkeypatch) as shell:
        seen = SeenPrompt(timed, shell.activity, time.monotonic() - age_s)
        result = result_of(shell, {}, Reached("prompt", prompt=seen))
        assert result.prompt == (timed if counts else None)


async def test_ended_shell_has_no_prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running_cat(monkeypatch) as shell:
        await shell.end_tree(signal.SIGKILL, 0)
        result = result_of(shell, {}, reached_now(shell))
        assert (result.is_running, result.prompt) == (False, None)


async def test_answer_has_the_prompt_that_moved_the_command_to_the_background(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    inspect, shells = input_reader.inspect, list[Shell]()

    def inspect_until_released(*args: Any, **more: Any) -> input_reader.Seen:
        if any(shell.released for shell in shells):
            # The program has woken up for a moment.
            return input_reader.Seen(None, is_stopped=False)
        return inspect(*args, **more)

    def runs(_context: RequestContext, shell: Shell) -> None:
        shells.append(shell)

    monkeypatch.setattr(input_reader, "inspect", inspect_until_released)
    monkeypatch.setattr(RequestContext, "runs", runs)
    async with Manager() as manager:
        context = RequestContext(Daemon(Options(), manager))
        result = await bash(context, BashParams("cat", open_stdin=True, on_prompt="background"))
        assert isinstance(result, BackgroundResult)
        assert result.prompt is not None
        assert result.prompt.program == "cat"
