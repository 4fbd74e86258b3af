"""Jobs through both clients, against a real daemon."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
from typing import Any

import anyio
import pytest

from both_clients import ASYNC_ONLY, Spawn, is_over
from shelld_client import (
    AsyncClient,
    CommandBlocked,
    ExitEvent,
    PromptEvent,
)


async def test_job_ends_with_its_block(spawn: Spawn) -> None:
    command = "echo started; setsid sleep 300 & wait"
    async with spawn() as shell:
        async with shell.start(command) as job:
            first = await anext(job)
            assert (first.text, first.bash_id) == ("started\n", job.id)
            assert job.pid == job.started.pid
        (info,) = await shell.list_shells()
        assert (info.is_running, info.leftover) == (False, [])


async def test_iteration_over_a_job_has_prompts_and_the_end(spawn: Spawn) -> None:
    async with spawn() as shell, shell.start("read -p 'Name? ' x; exit 4", tty=True) as job:
        found: list[Any] = []
        async for event in job:
            found.append(event)
            if isinstance(event, PromptEvent) and event.prompt is not None:
                await shell.write_stdin(job.id, "me\n")
        assert isinstance(found[-1], ExitEvent)
        assert found[-1].exit_code == 4


async def test_iteration_over_a_job_yields_output_that_others_have_read(spawn: Spawn) -> None:
    command = "echo log >&2; echo ready; sleep 300"
    async with spawn() as shell, shell.start(command) as job:
        await shell.bash_output(job.id, wait=60_000, until="match", pattern="ready")
        found = {(event.stream, event.text) for event in [await anext(job), await anext(job)]}
        assert found == {("stdout", "ready\n"), ("stderr", "log\n")}


async def test_iteration_over_a_job_yields_all_of_much_output_that_others_have_read(
    spawn: Spawn, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("gaps", "async_gaps"):
        monkeypatch.setattr(f"shelld_client.{module}._GAP_BYTES", 1_000)
    expected, text = "".join(f"{number}\n" for number in range(2_000)), ""
    async with spawn() as shell, shell.start("seq 0 1999; sleep 300") as job:
        await shell.bash_output(job.id, wait=60_000, until="match", pattern="1999")
        while len(text) < len(expected):
            text += (await anext(job)).text
    assert text == expected


async def test_job_that_cannot_start_raises(spawn: Spawn) -> None:
    async with spawn() as shell:
        with pytest.raises(CommandBlocked):
            async with shell.start("mkfs.ext4 /dev/none"):
                pass
        with pytest.raises(RuntimeError, match="has not started"):
            _ = shell.start("true").id


@ASYNC_ONLY
async def test_job_of_a_silent_daemon_can_be_cancelled(
    anyio_backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shelld_client.client.FINISH_TIMEOUT_S", 0.1)
    async with AsyncClient.spawn() as shell:
        job = shell.start("sleep 300")
        try:
            with anyio.CancelScope() as scope:
                async with job:
                    os.kill(shell.pid, signal.SIGSTOP)
                    scope.cancel()
                    await anyio.sleep_forever()
            assert scope.cancelled_caught
        finally:
            os.kill(shell.pid, signal.SIGCONT)
        ended = await shell.bash_output(job.id, wait=60_000, until="exit")
        assert ended.status == "killed"


def test_twice_cancelled_start_of_a_job_leaves_nothing() -> None:
    async def main() -> None:
        async with AsyncClient.spawn() as shell:

            async def job() -> None:
                async with shell.start("sleep 300"):
                    await asyncio.sleep(60)

            for turns in range(12):
                task = asyncio.create_task(job())
                for _ in range(turns):
                    await asyncio.sleep(0)
                task.cancel()
                await asyncio.sleep(0)
                task.cancel()
                await asyncio.wait([task])
            with anyio.fail_after(60):
                while any(each.is_running for each in await shell.list_shells()):
                    await asyncio.sleep(0.01)

    asyncio.run(main())


@ASYNC_ONLY
async def test_cancelled_start_of_a_job_leaves_nothing() -> None:
    async with AsyncClient.spawn() as shell:
        for turns in range(12):
            with anyio.CancelScope() as scope:
                async with anyio.create_task_group() as tasks:

                    async def cancel(turns: int = turns, scope: anyio.CancelScope = scope) -> None:
                        for _ in range(turns):
                            await anyio.lowlevel.checkpoint()
                        scope.cancel()

                    tasks.start_soon(cancel)
                    async with shell.start("sleep 300"):
                        await anyio.sleep(60)
        with anyio.fail_after(60):
            while any(each.is_running for each in await shell.list_shells()):
                await anyio.sleep(0.01)


async def test_dropped_job_is_killed(spawn: Spawn) -> None:
    async with spawn() as shell:
        job = shell.start("sleep 300")
        await job.__aenter__()
        del job
        gc.collect()
        await is_over(shell, "sleep 300")
