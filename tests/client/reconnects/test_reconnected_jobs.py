"""Jobs of clients with `attach(reconnect=True)`, whose connections are lost."""

from __future__ import annotations

import gc
from collections.abc import Mapping
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any

import anyio
import pytest

from both_clients import Shell
from lasting import Lasting
from lost_connections import (
    Attached,
    generation_of,
    has_lost_connection,
    has_subscription,
    lose_answer,
    lose_connection,
    occupied,
    open_and_wait_for_output,
    text_from,
)
from shelld_client import (
    DaemonExited,
    InvalidParams,
    OutputEvent,
    PromptEvent,
    ShellError,
)
from support import Gate, is_alive

pytestmark = [pytest.mark.slow, pytest.mark.timeout(method="thread")]


async def test_job_goes_on_and_ends_with_its_block(attached: Attached) -> None:
    async with attached() as shell:
        text = ""
        async with shell.start("echo $$; echo one; sleep 300") as job:
            pid = job.pid
            async for event in job:
                assert isinstance(event, OutputEvent)
                text += event.text
                if text.endswith("one\n"):
                    break
            lose_connection(shell)
            await has_lost_connection(shell)
            assert (await job.output()).stdout == text
            lose_connection(shell)
            await has_lost_connection(shell)
        assert not is_alive(pid)
        assert text == f"{pid}\none\n"


async def test_iteration_over_a_job_goes_on(attached: Attached) -> None:
    async with attached() as shell:
        text, is_lost = "", False
        async with shell.start("for i in {1..40}; do echo $i; sleep 0.02; done") as job:
            async for event in job:
                if isinstance(event, OutputEvent):
                    text += event.text
                if not is_lost:
                    is_lost = True
                    lose_connection(shell)
        assert text == "".join(f"{number}\n" for number in range(1, 41))


async def has_sent_prompt(shell: Shell, bash_id: str) -> None:
    """Wait until earlier subscriptions have sent a shell's current prompt."""
    for _ in range(2):
        # The earlier subscriptions send the prompt before this subscription does.
        async with shell.events(bash_id=bash_id, events=["prompt"]) as others:
            assert isinstance(await anext(others), PromptEvent)


async def test_iteration_over_a_job_gets_a_prompt_only_once(attached: Attached) -> None:
    prompts = list[str]()
    async with attached() as shell, anyio.create_task_group() as tasks:

        async def lose_and_answer() -> None:
            for _ in range(2):
                before = await generation_of(shell)
                lose_connection(shell)
                while await generation_of(shell) == before:
                    await anyio.sleep(0.01)
                await has_sent_prompt(shell, job.id)
            await job.write("1\n")

        command = "read -rp 'One? ' a; echo; read -rp 'Two? ' b"
        async with shell.start(command, tty=True) as job:
            async for event in job:
                if isinstance(event, PromptEvent) and event.prompt is not None:
                    prompts.append(event.prompt.text)
                    if len(prompts) == 1:
                        tasks.start_soon(lose_and_answer)
                    if event.prompt.text == "Two?":
                        break
    assert prompts == ["One?", "Two?"]


@pytest.mark.usefixtures("hurry")
async def test_job_gets_a_prompt_only_once_although_attempts_to_attach_have_failed(
    attached: Attached, user: Lasting
) -> None:
    command = "read -rp 'One? ' a; echo; read -rp 'Two? ' b"
    async with attached() as shell, shell.start(command, tty=True) as job:

        async def prompt() -> str:
            while True:
                event = await anext(job)
                if isinstance(event, PromptEvent) and event.prompt is not None:
                    return event.prompt.text

        assert await prompt() == "One?"
        with occupied(user, shell):
            await has_lost_connection(shell)
            with pytest.raises(DaemonExited):
                await prompt()
        with anyio.fail_after(60):
            while True:
                with suppress(ShellError):
                    await shell.ping()
                    break

        async def answer() -> None:
            await has_sent_prompt(shell, job.id)
            await job.write("1\n")

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(answer)
            assert await prompt() == "Two?"


async def test_subscription_of_a_job_begins_once_although_its_answer_was_lost(
    attached: Attached,
) -> None:
    async with attached() as shell, shell.start("echo one; sleep 300") as job:
        await lose_answer(shell, job.__anext__)
        async with shell.events(events=["exit"]) as events:
            # The name of a subscription ends with its number and eight more characters.
            assert events.subscription[:-8] == "sub_2"


async def test_iteration_over_a_job_leaves_no_subscription_behind(
    attached: Attached, tmp_path: Path
) -> None:
    async with attached() as shell:
        gate = Gate(tmp_path / "gate")
        async with shell.start(f"echo one; {gate.wait}; echo two; sleep 300") as job:
            before = (await anext(job)).subscription
            lose_connection(shell)
            await has_lost_connection(shell)
            gate.open()
            event = await anext(job)
            assert (event.subscription, event.text) == (before, "two\n")
        assert not await has_subscription(shell, before)


async def test_iteration_over_a_job_goes_on_although_its_subscription_is_gone(
    attached: Attached, tmp_path: Path
) -> None:
    async with attached() as shell:
        gate = Gate(tmp_path / "gate")
        async with shell.start(f"echo one; {gate.wait}; echo two; sleep 300") as job:
            before = (await anext(job)).subscription
            lose_connection(shell)
            await has_lost_connection(shell)
            assert await has_subscription(shell, before)
            gate.open()
            event = await anext(job)
            assert event.subscription != before
            assert event.text == "two\n"


async def test_job_dropped_without_a_connection_is_killed(attached: Attached) -> None:
    async with attached() as shell:
        job = await shell.start("sleep 300").__aenter__()
        name = job.id
        lose_connection(shell)
        await has_lost_connection(shell)
        del job
        gc.collect()
        read = await shell.bash_output(name, until="exit", wait=60_000)
        assert read.status == "killed"


@pytest.mark.usefixtures("hurry")
async def test_job_left_without_a_connection_is_killed(attached: Attached, user: Lasting) -> None:
    async with attached() as shell:
        async with AsyncExitStack() as other, shell.start("sleep 300") as job:
            other.enter_context(occupied(user, shell))
            await has_lost_connection(shell)
        with anyio.fail_after(60):
            while True:
                with suppress(ShellError):
                    read = await shell.bash_output(job.id, until="exit", wait=60_000)
                    break
        assert read.status == "killed"


@pytest.mark.usefixtures("hurry")
async def test_job_reads_skipped_output_although_attempts_to_attach_have_failed(
    attached: Attached, user: Lasting, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The client holds no output, so it must read all output from the daemon.
    monkeypatch.setattr("shelld_client.mailbox.MAX_HELD_CHARACTERS", -1)
    async with attached() as shell:
        gate = Gate(tmp_path / "gate")
        async with shell.start(f"echo one; {gate.wait}; echo two; sleep 300") as job:
            assert (await anext(job)).text == "one\n"
            await open_and_wait_for_output(shell, gate, job.id)
            with occupied(user, shell):
                await has_lost_connection(shell)
                for _ in range(2):
                    with pytest.raises(DaemonExited):
                        await anext(job)
            with anyio.fail_after(60):
                while True:
                    with suppress(ShellError):
                        await shell.ping()
                        break
            event = await anext(job)
            assert (event.text, event.dropped) == ("two\n", 0)


async def test_job_with_a_key_starts_although_the_answer_was_lost(
    attached: Attached, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    async with attached() as shell:
        job = shell.start(f"echo started >> {log}; sleep 300", idempotency_key="1")
        await lose_answer(shell, job.__aenter__)
        while not log.exists():
            await anyio.sleep(0.01)
        await job.__aexit__(None, None, None)
        [info] = await shell.list_shells()
        assert (info.bash_id, info.status) == (job.id, "killed")
        assert log.read_text() == "started\n"


async def test_iteration_over_a_job_reads_output_whose_events_were_not_kept(
    forgetful: Attached,
) -> None:
    async with forgetful() as shell, shell.start("cat", open_stdin=True) as job:
        await job.write("0\n")
        before = (await anext(job)).subscription
        lose_connection(shell)
        await has_lost_connection(shell)
        async with shell.events(bash_id=job.id) as others:
            for number in range(1, 10):
                await job.write(f"{number}\n")
                await anext(others)
        with pytest.raises(InvalidParams):
            async with shell.events(subscription=before, from_seq=1):
                pass
        assert await text_from(job, "9\n") == "".join(f"{number}\n" for number in range(1, 10))


async def test_iteration_over_a_job_reads_earlier_output_although_its_first_events_are_gone(
    forgetful: Attached, monkeypatch: pytest.MonkeyPatch
) -> None:
    repeatable = dict[str, Any]()

    def with_known_key(options: Mapping[str, Any]) -> Mapping[str, Any]:
        repeatable.update(options, idempotency_key="known")
        return {**repeatable, "from_seq": 0}

    monkeypatch.setattr("shelld_client.calls.repeatable", with_known_key)
    command = "echo one; read -rp 'Name? ' name; sleep 300"
    async with forgetful() as shell, shell.start(command, tty=True) as job:
        options = {"bash_id": job.id, "events": ("output", "prompt", "exit")}
        # The daemon has begun the subscription of the job, but the client does not know it.
        async with shell.events(**options, idempotency_key="known") as lost:
            while not isinstance(await anext(lost), PromptEvent):
                pass
            first = await anext(job)
            assert isinstance(first, OutputEvent)
            assert first.text.startswith("one\r\n")
            assert {**options, "idempotency_key": "known"}.items() <= repeatable.items()
