"""Tests of waiting and of hand-overs, with both clients and a real daemon."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from both_clients import Shell, Spawn
from shelld_client import BackgroundResult, BashResult, InvalidParams, Matched, ShellNotFound


async def foreground(shell: Shell) -> Any:
    """Return the shell for which a call waits, once the shell runs."""
    with anyio.fail_after(60):
        while True:
            for each in await shell.list_shells():
                if each.in_foreground and each.pid is not None:
                    return each


async def test_each_wait_reports_what_ended_it(spawn: Spawn) -> None:
    async with spawn() as shell:
        job = await shell.bash("echo ready; read -r name", tty=True, run_in_background=True)
        found = await shell.bash_output(job.bash_id, wait=60_000, until="match", pattern="^r")
        assert (found.reached, found.matched) == ("match", Matched("ready", "stdout", 0, 5))
        asks = await shell.bash_output(job.bash_id, wait=60_000, until="prompt")
        assert (asks.reached, asks.matched, asks.listening) == ("prompt", None, None)
        quiet = await shell.bash_output(job.bash_id, wait=60_000, until="quiet", quiet_ms=50)
        assert quiet.reached == "quiet"
        none = await shell.bash_output(job.bash_id, wait=50, until="listening", port=1)
        assert none.reached is None
        ended = await shell.write_stdin(
            job.bash_id, "x\n", wait=60_000, until="quiet", quiet_ms=60_000
        )
        assert ended.reached == "exit"
        with pytest.raises(InvalidParams):
            await shell.bash_output(job.bash_id, until="match")


async def test_foreground_call_is_handed_over(spawn: Spawn) -> None:
    results: list[Any] = []
    async with spawn() as shell:

        async def run() -> None:
            results.append(await shell.bash("echo started; sleep 300"))

        bash_id = ""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run)
            bash_id = (await foreground(shell)).bash_id
            assert (await shell.background(bash_id)).bash_id == bash_id
        assert isinstance(results[0], BackgroundResult)
        assert (results[0].bash_id, results[0].prompt) == (bash_id, None)
        with pytest.raises(InvalidParams):
            await shell.background(bash_id)
        with pytest.raises(ShellNotFound):
            await shell.background("shell_unknown")


async def test_call_returns_at_a_prompt(spawn: Spawn) -> None:
    async with spawn() as shell:
        command = "read -rp 'Name? ' name; echo $name"
        asked = await shell.bash(command, tty=True, on_prompt="background")
        assert isinstance(asked, BackgroundResult)
        assert asked.prompt is not None
        assert (asked.prompt.certainty, asked.prompt.text) == ("proved", "Name?")
        killed = await shell.bash(command, open_stdin=True, on_prompt="kill")
        assert isinstance(killed, BashResult)
        assert (killed.status, killed.reason) == ("killed", "prompt")
