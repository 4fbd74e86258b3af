"""Events, jobs and streams of clients with `attach(reconnect=True)`, whose connections are lost."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import AsyncExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

from both_clients import Attach, Shell, client_of, text_of
from lasting import Lasting
from lost_connections import (
    ON_ALL_LOOPS,
    OPEN_INPUT,
    Attached,
    cancel_lost_call,
    end_connections_at,
    generation_of,
    has_lost_connection,
    has_subscription,
    lose_answer,
    lose_connection,
    occupied,
)
from shelld_client import (
    AsyncClient,
    Client,
    DaemonExited,
    ExitEvent,
    InvalidParams,
    OutputEvent,
    PromptEvent,
    ShellError,
    TargetLost,
    calls,
)
from shelld_client.async_ongoing import AsyncOngoing
from shelld_client.connection import Connection
from shelld_client.mailbox import End
from shelld_client.ongoing import Ongoing
from support import Gate, is_alive, stopped, wait_for

pytestmark = [pytest.mark.slow, pytest.mark.timeout(method="thread")]


@ON_ALL_LOOPS
async def test_events_continue_after_a_reconnect_without_gap_or_duplicate(
    attached: Attached,
) -> None:
    async with attached() as shell:
        count, is_ended = 0, False
        seqs = list[int]()
        text = ""
        job = await shell.bash(
            "for i in {1..60}; do echo $i; sleep 0.02; done", run_in_background=True
        )
        async with shell.events(bash_id=job.bash_id) as events:
            async for event in events:
                seqs.append(event.seq)
                is_ended = isinstance(event, ExitEvent)
                if isinstance(event, OutputEvent):
                    text += event.text
                count += 1
                if count in (2, 3, 5):
                    lose_connection(shell)
        assert is_ended
        assert seqs == list(range(seqs[0], seqs[0] + len(seqs)))
        assert text == "".join(f"{number}\n" for number in range(1, 61))


async def test_continued_events_end_although_the_shell_ended_without_a_client(
    attached: Attached, tmp_path: Path
) -> None:
    gate = Gate(tmp_path / "gate")
    options = {"run_in_background": True, "notify": ["prompt"]}
    async with attached() as shell:
        job = await shell.bash(gate.wait, **options)
        async with shell.events(subscription=job.subscription) as events:
            lose_connection(shell)
            await has_lost_connection(shell)
            gate.open()
            pid = job.pid
            while pid is not None and is_alive(pid):
                await anyio.sleep(0.01)
            assert [each async for each in events] == []


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


@pytest.mark.parametrize("is_attached_again", [False, True])
async def test_events_left_without_a_connection_leave_no_subscription_behind(
    attached: Attached, is_attached_again: bool
) -> None:
    async with attached() as shell:
        async with shell.events(events=["exit"]) as events:
            name = events.subscription
            lose_connection(shell)
            await has_lost_connection(shell)
            if is_attached_again:
                await shell.ping()
        assert not await has_subscription(shell, name)


async def test_events_that_went_on_leave_no_subscription_behind(attached: Attached) -> None:
    async with attached() as shell:
        async with shell.events(events=["exit"]) as events:
            name = events.subscription
            for number in range(2):
                lose_connection(shell)
                await has_lost_connection(shell)
                job = await shell.bash("true", run_in_background=True)
                event = await anext(events)
                assert (event.bash_id, event.seq) == (job.bash_id, number + 1)
            lose_connection(shell)
            await has_lost_connection(shell)
        assert not await has_subscription(shell, name)


async def test_subscription_that_another_reader_has_continued_stays(attached: Attached) -> None:
    async with attached() as shell, AsyncExitStack() as second:
        async with shell.events(events=["exit"]) as events:
            name = events.subscription
            lose_connection(shell)
            await has_lost_connection(shell)
            again = await second.enter_async_context(shell.events(subscription=name))
        job = await shell.bash("true", run_in_background=True)
        assert (await anext(again)).bash_id == job.bash_id


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
async def test_events_go_on_after_attempts_that_have_failed(
    attached: Attached, user: Lasting
) -> None:
    async with attached() as shell, shell.events(events=["exit"]) as events:
        with occupied(user, shell):
            await has_lost_connection(shell)
            for _ in range(4):
                with pytest.raises(ShellError):
                    await anext(events)
        # The daemon may not have noticed yet that the other client has left.
        with anyio.fail_after(60):
            while True:
                with suppress(ShellError):
                    await shell.bash("exit 3")
                    break
        assert (await anext(events)).exit_code == 3


@pytest.mark.parametrize("reconnect", [False, True])
async def test_command_is_killed_if_its_call_is_abandoned_before_the_client_is_left(
    attach: Attach, user: Lasting, monkeypatch: pytest.MonkeyPatch, reconnect: bool
) -> None:
    receive, is_abandoned = Connection[Any].receive, threading.Event()

    def receive_late(connection: Connection[Any], data: bytes) -> Iterator[Any]:
        is_abandoned.wait()
        yield from receive(connection, data)

    async with attach("work", env=user.env, reconnect=reconnect) as shell:
        client: Any = client_of(shell)
        monkeypatch.setattr(Connection, "receive", receive_late)
        ongoing = client._begin(calls.bash("sleep 300", {"run_in_background": True}))
        if isinstance(client, AsyncClient):
            ongoing = await ongoing
        # The daemon has answered, so the cancellation comes too late.
        wait_for(lambda: user.list()[0]["shellsRunning"] == 1)
        ongoing.abandon()
        is_abandoned.set()
    with user.attach("--name", "work") as other:
        wait_for(lambda: not [s for s in other.call("list_shells")["shells"] if s["isRunning"]])


def test_many_commands_are_killed_if_their_calls_are_abandoned_before_the_client_is_left(
    user: Lasting, monkeypatch: pytest.MonkeyPatch
) -> None:
    receive, held = Connection[Any].receive, list[bytes]()

    def receive_together(connection: Connection[Any], data: bytes) -> Iterator[Any]:
        held.append(data)
        if b'"result":{}' in data:
            # This is the answer to the ping. Write the requests that follow from the answers only
            # after the client is closed.
            yield from receive(connection, b"".join(held))
            wait_for(lambda: client._link.pump._haste is not None)

    client: Any = Client.attach("work", env=user.env)
    with client:
        monkeypatch.setattr(Connection, "receive", receive_together)
        options = {"run_in_background": True, "session": None}
        begun = [client._begin(calls.bash("sleep 300", options)) for _ in range(5)]
        wait_for(lambda: user.list()[0]["shellsRunning"] == 5)
        for each in begun:
            each.abandon()
    with user.attach("--name", "work") as other:
        wait_for(lambda: not [s for s in other.call("list_shells")["shells"] if s["isRunning"]])


@pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
async def test_cancellations_are_sent_although_the_client_is_left_at_once(user: Lasting) -> None:
    # The pipe to the daemon has no room for so much input.
    call = partial(AsyncClient.bash, command="sleep 300", stdin="x" * 50_000, session=None)
    async with AsyncClient.attach("work", env=user.env) as client:
        daemon = (await client.server_info()).pid
        async with anyio.create_task_group() as tasks:
            for _ in range(20):
                tasks.start_soon(call, client)
            while not [each for each in await client.list_shells() if each.pid]:
                await anyio.sleep(0.01)
            with stopped(daemon):
                for _ in range(20):
                    tasks.start_soon(call, client)
                await anyio.wait_all_tasks_blocked()
                tasks.cancel_scope.cancel()
    with user.attach("--name", "work") as other:
        wait_for(lambda: not [s for s in other.call("list_shells")["shells"] if s["isRunning"]])


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


async def open_and_wait_for_output(shell: Shell, gate: Gate, bash_id: str) -> None:
    """Let a command write its next output, and wait until earlier subscriptions have sent it."""
    async with shell.events(bash_id=bash_id, events=["output"]) as others:
        await anext(others)
        gate.open()
        # The earlier subscriptions send the output before this subscription does.
        await anext(others)


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


@pytest.mark.usefixtures("hurry")
async def test_stream_tells_no_output_as_lost_that_the_daemon_keeps(
    attached: Attached, user: Lasting, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shelld_client.mailbox.MAX_HELD_CHARACTERS", -1)
    async with attached() as shell:
        gate = Gate(tmp_path / "gate")
        command = f"echo one; {gate.wait}; echo two; sleep 300"
        async with shell.stream(command, idempotency_key="1") as stream:
            event = await anext(stream)
            await open_and_wait_for_output(shell, gate, event.bash_id)
            with occupied(user, shell):
                await has_lost_connection(shell)
                with pytest.raises(DaemonExited):
                    await anext(stream)


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


async def test_subscription_begins_once_although_its_answer_was_lost(attached: Attached) -> None:
    async with attached() as shell:
        events = shell.events(events=["exit"])
        await lose_answer(shell, events.__aenter__)
        await shell.bash("exit 3")
        assert (await anext(events)).exit_code == 3
        async with shell.events(events=["exit"]) as other:
            # The name of a subscription ends with its number and eight more characters.
            assert [each.subscription[:-8] for each in (events, other)] == ["sub_1", "sub_2"]
        await events.__aexit__(None, None, None)


async def test_subscription_is_continued_although_the_answer_was_lost(attached: Attached) -> None:
    async with attached() as shell:
        job = await shell.bash("true", run_in_background=True, notify=["exit"])

        async def follow() -> None:
            async with shell.events(subscription=job.subscription, from_seq=0) as events:
                assert [each.bash_id async for each in events] == [job.bash_id]

        await lose_answer(shell, follow)


async def test_stream_with_a_key_goes_on(attached: Attached, tmp_path: Path) -> None:
    log, text, is_lost = tmp_path / "log", "", False
    command = f"echo started >> {log}; for i in {{1..40}}; do echo $i; sleep 0.02; done"
    async with attached() as shell:
        async with shell.stream(command, idempotency_key="1") as stream:
            async for item in stream:
                if isinstance(item, OutputEvent):
                    text += item.text
                if not is_lost:
                    is_lost = True
                    lose_connection(shell)
        assert stream.result.exit_code == 0
    assert text == "".join(f"{number}\n" for number in range(1, 41))
    assert log.read_text() == "started\n"


async def test_stream_that_gets_output_on_each_of_many_connections_goes_on(
    attached: Attached, tmp_path: Path
) -> None:
    turns, text = tmp_path / "turns", ""
    os.mkfifo(turns)
    command = f"exec 3<>{turns}; for i in {{1..8}}; do echo $i; read -ru 3; done"
    async with attached() as shell:
        async with shell.stream(command, idempotency_key="1") as stream:
            async for item in stream:
                text += text_of([item])
                if isinstance(item, OutputEvent):
                    lose_connection(shell)
                    await has_lost_connection(shell)
                    turns.write_text("\n")
        assert stream.result.exit_code == 0
    assert text == "".join(f"{number}\n" for number in range(1, 9))


async def test_interrupted_iteration_goes_on(
    kind: str, attached: Attached, monkeypatch: pytest.MonkeyPatch
) -> None:
    interruptions = ["the subscription was continued, but its answer is lost"]
    answer: Any = (Ongoing if kind == "sync" else AsyncOngoing).answer

    def interrupt() -> None:
        if interruptions:
            raise RuntimeError(interruptions.pop())

    def answer_in_thread(ongoing: Ongoing) -> bytes:
        found: bytes = answer(ongoing)
        interrupt()
        return found

    async def answer_in_task(ongoing: AsyncOngoing) -> bytes:
        found: bytes = await answer(ongoing)
        interrupt()
        return found

    async with attached() as shell:
        job = await shell.bash("read -r; echo one; read -r; echo two", **OPEN_INPUT)
        async with shell.events(bash_id=job.bash_id) as events:
            lose_connection(shell)
            await has_lost_connection(shell)
            monkeypatch.setattr(Ongoing, "answer", answer_in_thread)
            monkeypatch.setattr(AsyncOngoing, "answer", answer_in_task)
            await shell.write_stdin(job.bash_id, "\n")
            with pytest.raises(RuntimeError, match="its answer is lost"):
                await anext(events)
            await shell.write_stdin(job.bash_id, "\n")
            found = [each async for each in events]
        assert "".join(each.text for each in found if isinstance(each, OutputEvent)) == "one\ntwo\n"
        assert [each.seq for each in found] == list(range(1, len(found) + 1))


@pytest.mark.parametrize("is_answered", [True, False])
async def test_events_left_while_they_are_continued_leave_no_subscription_behind(
    kind: str, attached: Attached, monkeypatch: pytest.MonkeyPatch, *, is_answered: bool
) -> None:
    answer: Any = (Ongoing if kind == "sync" else AsyncOngoing).answer

    def interrupt_thread(ongoing: Ongoing) -> None:
        if is_answered:
            answer(ongoing)
        raise RuntimeError("interrupted")

    async def interrupt_task(ongoing: AsyncOngoing) -> None:
        if is_answered:
            await answer(ongoing)
        raise RuntimeError("interrupted")

    async with attached() as shell:
        async with shell.events(events=["exit"]) as events:
            lose_connection(shell)
            await has_lost_connection(shell)
            with monkeypatch.context() as patch:
                patch.setattr(Ongoing, "answer", interrupt_thread)
                patch.setattr(AsyncOngoing, "answer", interrupt_task)
                with pytest.raises(RuntimeError, match="interrupted"):
                    await anext(events)
        assert not await has_subscription(shell, events.subscription)


@pytest.mark.parametrize("ends_before", [True, False])
async def test_events_that_were_lost_while_they_were_sent_again_come_once_more(
    attached: Attached, monkeypatch: pytest.MonkeyPatch, *, ends_before: bool
) -> None:
    def lose_in_thread(ongoing: Ongoing) -> None:
        while not isinstance(item := ongoing.next(), End):
            pass
        monkeypatch.undo()
        raise item.why

    async def lose_in_task(ongoing: AsyncOngoing) -> None:
        while not isinstance(item := await ongoing.next(), End):
            pass
        monkeypatch.undo()
        raise item.why

    async with attached() as shell:
        job = await shell.bash("echo one; read -r", **OPEN_INPUT)
        async with shell.events(bash_id=job.bash_id) as first:
            await anext(first)
            if ends_before:
                await shell.write_stdin(job.bash_id, "\n")
                await anext(first)
            async with shell.events(subscription=first.subscription, from_seq=0) as again:
                lose_connection(shell)
                monkeypatch.setattr(Ongoing, "next_event", lose_in_thread)
                monkeypatch.setattr(AsyncOngoing, "next_event", lose_in_task)
                output = await anext(again)
                if not ends_before:
                    await shell.write_stdin(job.bash_id, "\n")
                rest = [each async for each in again]
    assert [each.seq for each in (output, *rest)] == [1, 2]
    assert isinstance(rest[-1], ExitEvent)


@pytest.mark.parametrize("reconnect", [False, True])
async def test_key_continues_the_events_of_an_earlier_connection(
    attach: Attach, user: Lasting, reconnect: bool
) -> None:
    async with attach("work", env=user.env) as shell:
        job = await shell.bash("echo hello", run_in_background=True)
        options = {"bash_id": job.bash_id, "idempotency_key": "1"}
        lost = shell.events(**options)
        await lost.__aenter__()
        assert [type(await anext(lost)) for _ in range(2)] == [OutputEvent, ExitEvent]
        lose_connection(shell)
    async with (
        attach("work", env=user.env, reconnect=reconnect) as shell,
        shell.events(**options) as events,
    ):
        assert events.subscription == lost.subscription
        assert [type(event) async for event in events] == [OutputEvent, ExitEvent]


@pytest.mark.parametrize("kind", ["asyncio", "trio"])
async def test_cancelled_repeat_of_events_leaves_no_subscription_behind(
    attached: Attached,
) -> None:
    async with attached() as shell:
        await cancel_lost_call(shell, shell.events(events=["exit"]).__aenter__)
        async with shell.events(events=["exit"]) as events:
            # The name of a subscription ends with its number and eight more characters.
            mark = events.subscription[-8:]
        assert not await has_subscription(shell, f"sub_1{mark}")


async def test_stream_with_a_key_that_is_left_without_a_connection_is_killed(
    attached: Attached,
) -> None:
    async with attached() as shell:
        async with shell.stream("echo one; sleep 300", idempotency_key="1") as stream:
            event = await anext(stream)
            lose_connection(shell)
            await has_lost_connection(shell)
        read = await shell.bash_output(event.bash_id, until="exit", wait=60_000)
        assert read.status == "killed"


@pytest.mark.parametrize("kind", ["asyncio", "trio"])
async def test_stream_with_a_key_that_is_cancelled_while_it_is_repeated_is_killed(
    attached: Attached,
) -> None:
    async with attached() as shell:
        async with shell.stream("echo one; sleep 300", idempotency_key="1") as stream:
            event = await anext(stream)
            await cancel_lost_call(shell, stream.__anext__, runs=True)
        read = await shell.bash_output(event.bash_id, until="exit", wait=60_000)
        assert read.status == "killed"


async def test_repeated_stream_leaves_no_subscription_behind(
    attached: Attached, tmp_path: Path
) -> None:
    gates = [Gate(tmp_path / f"gate{number}") for number in range(2)]
    command = "; ".join(f"echo; {gate.wait}" for gate in gates)
    async with attached() as shell:
        names = list[str]()
        async with shell.stream(f"{command}; echo; sleep 300", idempotency_key="1") as stream:
            for gate in gates:
                names.append((await anext(stream)).subscription)
                lose_connection(shell)
                await has_lost_connection(shell)
                gate.open()
            last = await anext(stream)
            assert len({*names, last.subscription}) == 3
            assert not [name for name in names if await has_subscription(shell, name)]


@pytest.fixture
def forgetful(attach: Attach, user: Lasting, tmp_path: Path) -> Attached:
    """Attach to a daemon that keeps only the last event of each subscription."""
    (tmp_path / "sitecustomize.py").write_text(
        "import shelld.events.subscription as module\nmodule.JOURNAL_EVENTS = 1\n"
    )
    env = {**user.env, "PYTHONPATH": str(tmp_path)}
    return partial(attach, "work", env=env, reconnect=True)


async def test_events_that_the_daemon_has_not_kept_raise_once(forgetful: Attached) -> None:
    async with forgetful() as shell, shell.events(events=["exit"]) as events:
        await shell.bash("exit 9")
        assert (await anext(events)).exit_code == 9
        lose_connection(shell)
        await has_lost_connection(shell)
        for code in range(5):
            await shell.bash(f"exit {code}")
        with pytest.raises(InvalidParams):
            await anext(events)
        assert (await anext(events)).exit_code == 4


async def text_from(job: Any, end: str) -> str:
    """Iterate over a job until its output ends with `end`, and return this output."""
    events = list[Any]()
    with anyio.fail_after(60):
        while not text_of(events).endswith(end):
            events.append(await anext(job))
    return text_of(events)


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


@pytest.mark.parametrize("reader", ["events", "job"])
async def test_iteration_whose_repeated_request_ends_each_connection_raises(
    attached: Attached, monkeypatch: pytest.MonkeyPatch, reader: str
) -> None:
    end_connections_at(monkeypatch, '"method":"subscribe".*"from_seq":[1-9]')
    async with attached() as shell, AsyncExitStack() as stack:
        job = await stack.enter_async_context(shell.start("cat", open_stdin=True))
        events = await stack.enter_async_context(shell.events(bash_id=job.id))
        iteration, seq = job if reader == "job" else events, 0
        while seq == 0:
            # The first item of a job may be output from before the subscription.
            await job.write("line\n")
            seq = (await anext(iteration)).seq
        lose_connection(shell)
        await has_lost_connection(shell)
        with pytest.raises(TargetLost), anyio.fail_after(60):
            while True:
                await anext(iteration)


@pytest.mark.parametrize("reader", ["events", "job"])
async def test_iteration_that_gets_output_on_each_of_many_connections_goes_on(
    attached: Attached, reader: str
) -> None:
    async with attached() as shell, AsyncExitStack() as stack:
        job = await stack.enter_async_context(shell.start("cat", open_stdin=True))
        events = await stack.enter_async_context(shell.events(bash_id=job.id))
        iteration = job if reader == "job" else events
        for number in range(8):
            await job.write(f"{number}\n")
            assert await text_from(iteration, f"{number}\n") == f"{number}\n"
            lose_connection(shell)
            await has_lost_connection(shell)
