"""Clients with `attach(reconnect=True)` get their events even if connections are lost."""

from __future__ import annotations

from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any

import anyio
import pytest

from both_clients import Attach
from lasting import Lasting
from lost_connections import (
    ON_ALL_LOOPS,
    OPEN_INPUT,
    Attached,
    cancel_lost_call,
    has_lost_connection,
    has_subscription,
    lose_answer,
    lose_connection,
    occupied,
)
from shelld_client import (
    ExitEvent,
    InvalidParams,
    OutputEvent,
    ShellError,
)
from shelld_client.async_ongoing import AsyncOngoing
from shelld_client.mailbox import End
from shelld_client.ongoing import Ongoing
from support import Gate, is_alive

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
