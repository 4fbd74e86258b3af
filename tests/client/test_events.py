"""Events, streams and jobs through both clients, against a real daemon."""

from __future__ import annotations

import asyncio
import gc
import itertools
import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import pytest

from both_clients import Shell, Spawn, peer
from shelld_client import (
    AsyncClient,
    BackgroundResult,
    BashResult,
    Client,
    CommandBlocked,
    CommandTimedOut,
    DaemonExited,
    Event,
    ExitEvent,
    InvalidParams,
    LeftoverEvent,
    OutputEvent,
    PromptEvent,
    ShellError,
)
from shelld_client.mailbox import AsyncMailbox, Mailbox
from support import Gate, wait_for


@pytest.fixture
def anyio_backend(kind: str) -> str:
    return "asyncio" if kind == "sync" else kind


def text_of(items: list[Any], stream: str = "stdout") -> str:
    return "".join(
        each.text for each in items if isinstance(each, OutputEvent) and each.stream == stream
    )


async def is_over(shell: Shell, command: str) -> None:
    """Wait until the shells of a command have ended."""
    with anyio.fail_after(40):
        while any(
            each.is_running or each.leftover
            for each in await shell.list_shells()
            if each.command == command
        ):
            await anyio.sleep(0.01)


# -- events -----------------------------------------------------------------------------------


async def test_events_of_all_shells(spawn: Spawn) -> None:
    async with spawn() as shell, shell.events() as events:
        assert (events.subscription, events.seq) == ("sub_1", 0)
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


async def test_events_of_one_shell_end_with_it(spawn: Spawn) -> None:
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


async def test_subscription_is_continued(spawn: Spawn) -> None:
    async with spawn() as shell:
        job = await shell.bash("echo out; sleep 300", run_in_background=True)
        async with shell.events(bash_id=job.bash_id) as events:
            first = await anext(events)
            name = events.subscription
            async with shell.events(subscription=name, from_seq=0) as again:
                assert (again.subscription, again.seq) == (name, 1)
                repeated = await anext(again)
        assert (repeated.text, repeated.seq) == (first.text, first.seq)


async def test_continued_events_of_one_shell_end_with_it(spawn: Spawn, tmp_path: Path) -> None:
    gate = Gate(tmp_path / "gate")
    async with spawn() as shell:
        job = await shell.bash(f"echo out; {gate.wait}", run_in_background=True)
        async with shell.events(bash_id=job.bash_id) as events:
            first = await anext(events)
            options = {"subscription": events.subscription, "from_seq": 0}
            async with shell.events(**options) as again:
                # A subscription has one reader.
                with pytest.raises(ShellError, match="another reader"):
                    await anext(events)
                gate.open()
                found = [each async for each in again]
        assert [type(each) for each in found] == [OutputEvent, ExitEvent]
        assert found[0].text == first.text


async def test_continued_events_can_be_chosen(spawn: Spawn) -> None:
    async with spawn() as shell:
        job = await shell.bash("echo out", run_in_background=True)
        async with shell.events(bash_id=job.bash_id, events=["output"]) as events:
            assert [each.text async for each in events] == ["out\n"]
            options = {"subscription": events.subscription, "from_seq": 0, "events": ["exit"]}
            async with shell.events(**options) as again:
                assert [type(each) async for each in again] == [ExitEvent]


async def test_cancelled_entry_that_continues_leaves_nobody_waiting() -> None:
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
                # Its request is sent, but not answered.
                first.end()
            gate.open()
            assert [type(each) async for each in again] == [OutputEvent, ExitEvent]


async def test_last_of_many_readers_gets_the_events(spawn: Spawn, tmp_path: Path) -> None:
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


async def test_ended_events_have_an_end_wherever_they_begin(spawn: Spawn) -> None:
    async with spawn() as shell:
        job = await shell.bash("echo out", run_in_background=True)
        async with shell.events(bash_id=job.bash_id) as events:
            seqs = [each.seq async for each in events]
            # One that is dropped would end the subscription.
            readers: list[Any] = []
            for from_seq, expected in ((None, []), (0, seqs), (1, seqs[1:]), (seqs[-1], [])):
                options = {"subscription": events.subscription, "from_seq": from_seq}
                readers.append(shell.events(**options))
                await readers[-1].__aenter__()
                assert [each.seq async for each in readers[-1]] == expected


async def test_everyone_who_waits_learns_of_the_end(spawn: Spawn) -> None:
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


async def test_everyone_who_iterates_learns_of_the_last_event(spawn: Spawn, tmp_path: Path) -> None:
    async with spawn() as shell:

        async def kinds_read_by_three(events: Any, gate: Gate) -> list[list[type]]:
            found: list[list[type]] = []

            async def read() -> None:
                found.append([type(each) async for each in events])

            with anyio.fail_after(40):
                async with anyio.create_task_group() as tasks:
                    for _ in range(3):
                        tasks.start_soon(read)
                    # By the time of the answer, all wait.
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


async def test_left_events_end_in_the_daemon(spawn: Spawn) -> None:
    async with spawn() as shell:
        for _ in range(300):
            async with shell.events():
                pass
        with pytest.raises(InvalidParams):
            async with shell.events(bash_id="x", session="y"):
                pass
        with pytest.raises(InvalidParams):
            async with shell.events(subscription="sub_1"):
                pass


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
            # The answers come, and what follows on them.
            await shell.ping()
            await shell.ping()
        async with shell.events() as events:
            assert events.subscription


async def test_dropped_job_is_killed(spawn: Spawn) -> None:
    async with spawn() as shell:
        job = shell.start("sleep 300")
        await job.__aenter__()
        del job
        gc.collect()
        await is_over(shell, "sleep 300")


async def test_events_must_be_entered_once(spawn: Spawn) -> None:
    async with spawn() as shell:
        events = shell.events()
        with pytest.raises(RuntimeError, match="with block"):
            await anext(events)
        async with events:
            with pytest.raises(RuntimeError, match="once"):
                await events.__aenter__()


async def test_nobody_can_iterate_before_the_entry_is_done() -> None:
    silent = peer("while read -r; do :; done")
    async with AsyncClient.spawn(silent) as shell:
        for iterator in (shell.events(), shell.start("true")):
            with anyio.fail_after(40):
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(iterator.__aenter__)
                    await anyio.wait_all_tasks_blocked()
                    with pytest.raises(RuntimeError, match="with block"):
                        await anext(iterator)
                    tasks.cancel_scope.cancel()


async def test_end_of_the_daemon_ends_the_events(spawn: Spawn) -> None:
    async with spawn() as shell, shell.events() as events:
        os.kill(shell.pid, signal.SIGKILL)
        with pytest.raises(DaemonExited):
            await anext(events)


# -- stream -----------------------------------------------------------------------------------


async def test_stream_has_the_output_as_it_comes_and_then_the_result(
    spawn: Spawn, tmp_path: Path
) -> None:
    gate = Gate(tmp_path / "gate")
    async with spawn() as shell:
        stream = shell.stream(f"echo one; {gate.wait}; cd /; echo two; exit 3")
        items = [await anext(stream)]
        assert text_of(items) == "one\n"
        assert stream.result is None
        gate.open()
        async for item in stream:
            items.append(item)
        assert text_of(items) == "one\ntwo\n"
        assert isinstance(items[-1], BashResult)
        assert (items[-1].exit_code, items[-1].session_cwd) == (3, "/")
        assert stream.result == items[-1]


async def test_left_stream_kills_its_command(spawn: Spawn) -> None:
    async with spawn() as shell:
        for leave in ("break", "cancel", "drop"):
            command = f"echo {leave}; sleep 300"
            stream = shell.stream(command)
            if leave == "cancel":
                with anyio.CancelScope() as scope:
                    async with stream:
                        await anext(stream)
                        scope.cancel()
                        await anyio.sleep(60)
            elif leave == "break":
                async with stream:
                    async for _ in stream:
                        break
            else:
                await anext(stream)
                del stream
                gc.collect()
            await is_over(shell, command)


def test_stream_that_another_thread_ends_as_it_begins_stops() -> None:
    with Client.spawn() as client:
        stream = client.stream("sleep 300")
        begin = vars(stream)["_begin"]

        def end_and_begin(*args: Any) -> Any:
            stream.end()
            return begin(*args)

        vars(stream)["_begin"] = end_and_begin
        assert next(stream, None) is None
        wait_for(lambda: not any(each.is_running for each in client.list_shells()))


async def test_stream_of_a_timeout_has_the_output_first(spawn: Spawn) -> None:
    async with spawn() as shell:
        items: list[Any] = []
        with pytest.raises(CommandTimedOut) as caught:
            async for item in shell.stream("echo out; sleep 300", timeout=1_000):
                items.append(item)
        assert text_of(items) == "out\n"
        assert caught.value.result is not None


async def test_stream_of_a_refused_command_raises(spawn: Spawn) -> None:
    async with spawn() as shell:
        with pytest.raises(CommandBlocked):
            await anext(shell.stream("mkfs.ext4 /dev/none"))


async def test_stream_ends_when_the_command_moves_to_the_background(spawn: Spawn) -> None:
    async with spawn() as shell:
        items: list[Any] = []
        stream = shell.stream("echo out; sleep 300", timeout=1_000, on_timeout="background")
        async for item in stream:
            items.append(item)
        assert isinstance(items[-1], BackgroundResult)
        await shell.kill_shell(items[-1].bash_id)


async def test_stream_left_before_its_last_item_leaves_nothing(spawn: Spawn) -> None:
    async with spawn() as shell:
        for has_answer in (True, False):
            async with shell.stream("echo a; sleep 300", session=None) as stream:
                bash_id = (await anext(stream)).bash_id
                # The command goes on in the background, but nobody has taken the stream's result.
                await shell.background(bash_id)
                if has_answer:
                    await shell.ping()
            await is_over(shell, "echo a; sleep 300")


def test_client_that_fails_as_events_begin_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    with Client.spawn() as shell:

        def end_first() -> Mailbox:
            """End the daemon between the first look at the client and the request."""
            os.kill(shell.pid, signal.SIGKILL)
            wait_for(lambda: not can_ping(shell), "the end of the daemon")
            return Mailbox()

        monkeypatch.setattr("shelld_client.sync.Mailbox", end_first)
        with pytest.raises(DaemonExited), shell.events():
            pass


def can_ping(shell: Client) -> bool:
    try:
        shell.ping()
    except ShellError:
        return False
    return True


async def test_stream_fills_what_was_skipped(spawn: Spawn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shelld_client.mailbox.MAX_HELD_CHARACTERS", 100_000)
    async with spawn() as shell:
        stream = shell.stream("seq 200000; printf end")
        items = [await anext(stream)]
        # Nothing is taken until the command has ended.
        await is_over(shell, "seq 200000; printf end")
        async for item in stream:
            items.append(item)
        expected = "".join(f"{number}\n" for number in range(1, 200_001)) + "end"
        assert text_of(items) == expected


async def test_several_readers_of_a_stream_get_each_item_once(
    spawn: Spawn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shelld_client.mailbox.MAX_HELD_CHARACTERS", 100_000)
    async with spawn() as shell, shell.stream("seq 200000; printf end") as stream:
        items = [await anext(stream)]
        # Nothing is taken until the command has ended.
        await is_over(shell, "seq 200000; printf end")

        async def read() -> None:
            own = [item async for item in stream]
            items.extend(own)
            starts = [each.start for each in own if isinstance(each, OutputEvent)]
            assert starts == sorted(starts)

        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(read)
    (result,) = (each for each in items if isinstance(each, BashResult))
    items.remove(result)
    items.sort(key=lambda each: each.start)
    ends = [0, *(each.end for each in items)]
    assert [each.start for each in items] == ends[:-1]
    assert text_of(items) == "".join(f"{number}\n" for number in range(1, 200_001)) + "end"


async def test_last_item_of_a_stream_ends_all_its_readers(spawn: Spawn, tmp_path: Path) -> None:
    gate = Gate(tmp_path / "gate")
    async with spawn() as shell, shell.stream(gate.wait) as stream:
        found: list[Any] = []

        async def read() -> None:
            found.append(await anext(stream, None))

        with anyio.fail_after(40):
            async with anyio.create_task_group() as tasks:
                for _ in range(3):
                    tasks.start_soon(read)
                # By the time of the answer, all wait.
                await shell.ping()
                gate.open()
        assert sorted(type(each).__name__ for each in found) == ["BashResult", *2 * ["NoneType"]]


async def test_stream_counts_what_is_lost_once(
    spawn: Spawn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shelld_client.mailbox.MAX_HELD_CHARACTERS", 100_000)
    async with spawn(args=["--retain-bytes", "300000"]) as shell:
        stream = shell.stream("seq 200000; printf end")
        items = [await anext(stream)]
        # Nothing is taken until the command has ended.
        await is_over(shell, "seq 200000; printf end")
        items += [item async for item in stream]
    *output, result = items
    assert isinstance(result, BashResult)
    ends = [0, *(each.end for each in output)]
    assert [each.start for each in output] == ends[:-1]
    assert ends[-1] == result.stdout_bytes
    dropped = sum(each.dropped for each in output)
    assert dropped > 0
    assert len(text_of(items)) + dropped == result.stdout_bytes


async def test_stream_counts_a_skipped_part_of_a_character(
    spawn: Spawn, monkeypatch: pytest.MonkeyPatch
) -> None:
    # All output is skipped, and read again.
    monkeypatch.setattr("shelld_client.mailbox.MAX_HELD_CHARACTERS", -1)
    async with spawn() as shell:
        # A process is left, so more may be written.
        items = [item async for item in shell.stream(r"setsid sleep 300 & printf 'end\303'")]
        *output, result = items
        assert [(each.text, each.start, each.end, each.dropped) for each in output] == [
            ("end", 0, 3, 0),
            ("", 3, 4, 1),
        ]
        assert (result.stdout_bytes, len(result.leftover)) == (4, 1)
        await shell.kill_shell(result.bash_id)


@pytest.mark.parametrize("kind_of_box", [Mailbox, AsyncMailbox])
def test_full_mailbox_keeps_events_and_counts_text(
    monkeypatch: pytest.MonkeyPatch, kind_of_box: type[Any]
) -> None:
    monkeypatch.setattr("shelld_client.mailbox.MAX_HELD_CHARACTERS", 10)
    box = kind_of_box()
    for seq in range(1, 5):
        box.take_event(
            OutputEvent(
                subscription="sub_1",
                seq=seq,
                bash_id="x",
                session=None,
                stream="stdout",
                text="12345678",
                start=8 * seq - 8,
                end=8 * seq,
                dropped=0,
                skipped=0,
            )
        )

    async def take() -> list[Any]:
        got = [box.get() for _ in range(4)]
        return [each if isinstance(each, OutputEvent) else await each for each in got]

    taken = anyio.run(take)
    assert [each.seq for each in taken] == [1, 2, 3, 4]
    assert [(each.text, each.skipped) for each in taken] == [
        ("12345678", 0),
        ("12345678", 0),
        ("", 8),
        ("", 8),
    ]


# -- jobs -------------------------------------------------------------------------------------


async def test_job_ends_with_its_block(spawn: Spawn) -> None:
    command = "echo started; setsid sleep 300 & wait"
    async with spawn() as shell:
        async with shell.start(command) as job:
            first = await anext(job)
            assert (first.text, first.bash_id) == ("started\n", job.id)
            assert job.pid == job.started.pid
        (info,) = await shell.list_shells()
        assert (info.is_running, info.leftover) == (False, [])


async def test_job_tells_of_prompts_and_of_its_end(spawn: Spawn) -> None:
    async with spawn() as shell, shell.start("read -p 'Name? ' x; exit 4", tty=True) as job:
        found: list[Any] = []
        async for event in job:
            found.append(event)
            if isinstance(event, PromptEvent) and event.prompt is not None:
                await shell.write_stdin(job.id, "me\n")
        assert isinstance(found[-1], ExitEvent)
        assert found[-1].exit_code == 4


async def test_job_that_cannot_start_raises(spawn: Spawn) -> None:
    async with spawn() as shell:
        with pytest.raises(CommandBlocked):
            async with shell.start("mkfs.ext4 /dev/none"):
                pass
        with pytest.raises(RuntimeError, match="has not started"):
            _ = shell.start("true").id


async def test_stream_goes_on_when_its_shell_is_forgotten(
    spawn: Spawn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shelld_client.mailbox.MAX_HELD_CHARACTERS", 100_000)
    command = "seq 200000"
    async with spawn(args=["--max-retained", "1"]) as shell:
        stream = shell.stream(command)
        items = [await anext(stream)]
        await is_over(shell, command)
        for _ in range(3):
            await shell.bash("true")
        items += [item async for item in stream]
        *outputs, result = items
        assert result.exit_code == 0
        assert outputs[-1].end == result.stdout_bytes
        assert sum(each.dropped for each in outputs) > 0
        assert all(one.end == other.start for one, other in itertools.pairwise(outputs))


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
            with anyio.fail_after(40):
                while any(each.is_running for each in await shell.list_shells()):
                    await asyncio.sleep(0.01)

    asyncio.run(main())


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
        with anyio.fail_after(40):
            while any(each.is_running for each in await shell.list_shells()):
                await anyio.sleep(0.01)


def test_interrupted_iteration_kills_the_command() -> None:
    with Client.spawn() as client:
        stream = client.stream("echo out; sleep 300")
        next(stream)

        def interrupt() -> Any:
            raise KeyboardInterrupt

        vars(stream)["_next"] = interrupt
        with pytest.raises(KeyboardInterrupt):
            next(stream)
        wait_for(lambda: not any(each.is_running for each in client.list_shells()))
