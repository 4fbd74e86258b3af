"""Events through both clients, against a real daemon."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

from both_clients import ASYNC_ONLY, Spawn, peer, text_of
from shelld_client import (
    AsyncClient,
    DaemonExited,
    Event,
    ExitEvent,
    InvalidParams,
    LeftoverEvent,
    OutputEvent,
    ShellError,
)
from support import Gate


async def test_subscription_without_a_shell_gets_all_events(spawn: Spawn) -> None:
    async with spawn() as shell, shell.events() as events:
        assert events.subscription.startswith("sub_1")
        assert events.seq == 0
        result = await shell.bash("echo out; echo err >&2; exit 3")
        found: list[Event] = []
        async for event in events:
            found.append(event)
            if isinstance(event, ExitEvent):
                break
        assert (text_of(found), text_of(found, "stderr")) == ("out\n", "err\n")
        assert [each.seq for each in found] == list(range(1, len(found) + 1))
        assert {each.bash_id for each in found} == {result.bash_id}
        assert isinstance(found[-1], ExitEvent)
        assert (found[-1].exit_code, found[-1].usage.max_rss_bytes > 0) == (3, True)
        assert events.seq == len(found)


async def test_iteration_over_one_shells_events_ends_with_the_shell(spawn: Spawn) -> None:
    async with spawn() as shell:
        job = await shell.bash(
            "echo out; setsid sleep 300 > /dev/null 2>&1 &", run_in_background=True
        )
        found: list[Any] = []
        async with shell.events(bash_id=job.bash_id, events=["output"]) as events:
            async for event in events:
                found.append(event)
        assert [type(each) for each in found] == [OutputEvent]
        async with shell.events(bash_id=job.bash_id, events=["exit", "leftover"]) as events:
            async for event in events:
                found.append(event)
                if isinstance(event, LeftoverEvent) and event.leftover:
                    await shell.kill_shell(job.bash_id)
        assert [type(each) for each in found[1:]] == [ExitEvent, LeftoverEvent, LeftoverEvent]
        assert found[-1].leftover == []


async def test_two_readers_miss_nothing(spawn: Spawn) -> None:
    async with spawn() as shell, shell.events() as one, shell.events(session="main") as other:
        await shell.bash("echo out")
        for events in (one, other):
            found: list[Any] = []
            async for event in events:
                found.append(event)
                if isinstance(event, ExitEvent):
                    break
            assert text_of(found) == "out\n"


async def test_continued_subscription_repeats_its_events(spawn: Spawn) -> None:
    async with spawn() as shell:
        job = await shell.bash("echo out; sleep 300", run_in_background=True)
        async with shell.events(bash_id=job.bash_id) as events:
            first = await anext(events)
            name = events.subscription
            async with shell.events(subscription=name, from_seq=0) as again:
                assert (again.subscription, again.seq) == (name, 1)
                repeated = await anext(again)
        assert (repeated.text, repeated.seq) == (first.text, first.seq)


async def test_continued_events_of_one_shell_end_with_the_shell(
    spawn: Spawn, tmp_path: Path
) -> None:
    gate = Gate(tmp_path / "gate")
    async with spawn() as shell:
        job = await shell.bash(f"echo out; {gate.wait}", run_in_background=True)
        async with shell.events(bash_id=job.bash_id) as events:
            first = await anext(events)
            options = {"subscription": events.subscription, "from_seq": 0}
            async with shell.events(**options) as again:
                # A subscription has only one reader. From now on, the reader is the iteration
                # `again`.
                with pytest.raises(ShellError, match="another reader"):
                    await anext(events)
                gate.open()
                found = [each async for each in again]
        assert [type(each) for each in found] == [OutputEvent, ExitEvent]
        assert found[0].text == first.text


async def test_continued_events_without_exit_end_with_the_shell(
    spawn: Spawn, tmp_path: Path
) -> None:
    gate = Gate(tmp_path / "gate")
    async with spawn() as shell:
        options = {"run_in_background": True, "notify": ["output"]}
        job = await shell.bash(f"{gate.wait}; echo out", **options)
        async with shell.events(subscription=job.subscription) as events:
            gate.open()
            assert [each.text async for each in events] == ["out\n"]


async def test_continued_subscription_can_name_its_events_again(spawn: Spawn) -> None:
    async with spawn() as shell:
        job = await shell.bash("echo out", run_in_background=True)
        async with shell.events(bash_id=job.bash_id, events=["output"]) as events:
            assert [each.text async for each in events] == ["out\n"]
            options = {"subscription": events.subscription, "from_seq": 0, "events": ["exit"]}
            async with shell.events(**options) as again:
                assert [type(each) async for each in again] == [ExitEvent]


@ASYNC_ONLY
async def test_cancelled_continuation_leaves_no_reader_waiting() -> None:
    async with AsyncClient.spawn() as shell:
        job = await shell.bash("echo out; sleep 300", run_in_background=True)
        async with shell.events(bash_id=job.bash_id) as events:
            await anext(events)
            continued = shell.events(subscription=events.subscription)
            with anyio.CancelScope() as scope:
                scope.cancel()
                await continued.__aenter__()
            with pytest.raises(ShellError, match="another reader"):
                await anext(events)
            async with shell.events(subscription=events.subscription, from_seq=0) as again:
                assert (await anext(again)).seq == 1


@ASYNC_ONLY
async def test_events_can_be_continued_while_their_reader_leaves(tmp_path: Path) -> None:
    gate = Gate(tmp_path / "gate")
    async with AsyncClient.spawn() as shell:
        job = await shell.bash(f"{gate.wait}; echo out", run_in_background=True)
        async with shell.events(bash_id=job.bash_id) as first:
            again = shell.events(subscription=first.subscription)
            begins = anyio.Event()

            async def enter() -> None:
                begins.set()
                await again.__aenter__()

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(enter)
                await begins.wait()
                # The request that continues the subscription is sent, but not answered yet.
                first.end()
            gate.open()
            assert [type(each) async for each in again] == [OutputEvent, ExitEvent]


async def test_only_the_last_of_several_readers_gets_the_events(
    spawn: Spawn, tmp_path: Path
) -> None:
    gate = Gate(tmp_path / "gate")
    async with spawn() as shell:
        job = await shell.bash(f"{gate.wait}; echo out", run_in_background=True)
        async with shell.events(bash_id=job.bash_id) as first:
            found: list[list[type]] = []
            entered: list[Any] = []

            async def read() -> None:
                events = shell.events(subscription=first.subscription)
                await events.__aenter__()
                entered.append(events)
                if len(entered) == 8:
                    gate.open()
                with suppress(ShellError):
                    found.append([type(each) async for each in events])

            async with anyio.create_task_group() as tasks:
                for _ in range(8):
                    tasks.start_soon(read)
        assert found == [[OutputEvent, ExitEvent]]


async def test_continued_events_of_an_ended_shell_always_end(spawn: Spawn) -> None:
    async with spawn() as shell:
        job = await shell.bash("echo out", run_in_background=True)
        async with shell.events(bash_id=job.bash_id) as events:
            seqs = [each.seq async for each in events]
            # Keep all readers, because the finaliser of a dropped reader would end the
            # subscription.
            readers: list[Any] = []
            for from_seq, expected in ((None, []), (0, seqs), (1, seqs[1:]), (seqs[-1], [])):
                options = {"subscription": events.subscription, "from_seq": from_seq}
                readers.append(shell.events(**options))
                await readers[-1].__aenter__()
                assert [each.seq async for each in readers[-1]] == expected


async def test_end_of_a_subscription_wakes_all_its_readers(spawn: Spawn) -> None:
    async with spawn() as shell:
        ends: list[object] = []

        async def wait(events: Any) -> None:
            try:
                ends.append([each async for each in events])
            except DaemonExited as error:
                ends.append(type(error))

        async with anyio.create_task_group() as tasks, shell.events() as events:
            tasks.start_soon(wait, events)
            tasks.start_soon(wait, events)
            await shell.ping()
        assert ends == [[], []]
        async with shell.events() as events, anyio.create_task_group() as tasks:
            tasks.start_soon(wait, events)
            tasks.start_soon(wait, events)
            await shell.ping()
            os.kill(shell.pid, signal.SIGKILL)
        assert ends[2:] == [DaemonExited, DaemonExited]


async def test_last_event_ends_the_iteration_of_all_readers(spawn: Spawn, tmp_path: Path) -> None:
    async with spawn() as shell:

        async def kinds_read_by_three(events: Any, gate: Gate) -> list[list[type]]:
            found: list[list[type]] = []

            async def read() -> None:
                found.append([type(each) async for each in events])

            with anyio.fail_after(60):
                async with anyio.create_task_group() as tasks:
                    for _ in range(3):
                        tasks.start_soon(read)
                    # When the ping is answered, all readers are already waiting.
                    await shell.ping()
                    gate.open()
            return sorted(found, key=len)

        gate = Gate(tmp_path / "gate")
        job = await shell.bash(gate.wait, run_in_background=True)
        async with shell.events(bash_id=job.bash_id) as events:
            assert await kinds_read_by_three(events, gate) == [[], [], [ExitEvent]]
            # The subscription can still be continued.
            options = {"subscription": events.subscription, "from_seq": 0}
            async with shell.events(**options) as again:
                assert [type(each) async for each in again] == [ExitEvent]
        gate = Gate(tmp_path / "other")
        async with shell.start(gate.wait) as started:
            assert await kinds_read_by_three(started, gate) == [[], [], [ExitEvent]]


@pytest.mark.slow
async def test_leaving_events_ends_the_subscription_in_the_daemon(spawn: Spawn) -> None:
    async with spawn() as shell:
        name = ""
        for _ in range(300):
            async with shell.events() as events:
                name = events.subscription
        with pytest.raises(InvalidParams):
            async with shell.events(bash_id="x", session="y"):
                pass
        with pytest.raises(InvalidParams):
            async with shell.events(subscription=name):
                pass


@pytest.mark.slow
@ASYNC_ONLY
async def test_cancelled_entries_leave_no_subscription() -> None:
    async with AsyncClient.spawn() as shell:
        for turns in range(300):
            with anyio.CancelScope() as scope:
                if turns % 2:
                    scope.cancel()
                else:
                    scope.deadline = anyio.current_time()
                async with shell.events(events=["exit"]):
                    await anyio.sleep_forever()
            # Wait for the answer to `subscribe`, and then for the `unsubscribe` that may follow it.
            await shell.ping()
            await shell.ping()
        async with shell.events() as events:
            assert events.subscription


async def test_events_must_be_entered_once(spawn: Spawn) -> None:
    async with spawn() as shell:
        events = shell.events()
        with pytest.raises(RuntimeError, match="with block"):
            await anext(events)
        async with events:
            with pytest.raises(RuntimeError, match="once"):
                await events.__aenter__()


@ASYNC_ONLY
async def test_nobody_can_iterate_before_the_entry_is_done() -> None:
    silent = peer("while read -r; do :; done")
    async with AsyncClient.spawn(silent) as shell:
        for iterator in (shell.events(), shell.start("true")):
            with anyio.fail_after(60):
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(iterator.__aenter__)
                    await anyio.wait_all_tasks_blocked()
                    with pytest.raises(RuntimeError, match="with block"):
                        await anext(iterator)
                    tasks.cancel_scope.cancel()


@ASYNC_ONLY
@pytest.mark.parametrize("what", ["events", "job", "stream"])
async def test_iterating_on_another_event_loop_is_refused(what: str) -> None:
    async with AsyncClient.spawn() as shell:
        begun: dict[str, Any] = {
            "events": shell.events(),
            "job": shell.start("sleep 300"),
            "stream": shell.stream("echo begun; sleep 300"),
        }
        async with begun[what] as items:
            if what == "stream":
                await anext(items)
            async with anyio.create_task_group() as tasks:
                for _ in ("nobody takes an item", "another task waits for an item"):
                    with pytest.raises(RuntimeError, match="entered on another event loop"):
                        await anyio.to_thread.run_sync(anyio.run, items.__anext__)
                    tasks.start_soon(items.__anext__)
                    await anyio.wait_all_tasks_blocked()
                tasks.cancel_scope.cancel()


async def test_end_of_the_daemon_ends_iterations_over_events(spawn: Spawn) -> None:
    async with spawn() as shell, shell.events() as events:
        os.kill(shell.pid, signal.SIGKILL)
        with pytest.raises(DaemonExited):
            await anext(events)
