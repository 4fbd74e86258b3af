"""Streams through both clients, against a real daemon."""

from __future__ import annotations

import gc
import itertools
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from both_clients import Spawn, is_over, text_of
from shelld_client import (
    BackgroundResult,
    BashResult,
    Client,
    CommandBlocked,
    CommandTimedOut,
    DaemonExited,
    Event,
    ExitEvent,
    OutputEvent,
    ShellError,
    ShellNotFound,
    ShuttingDown,
)
from shelld_client.async_mailbox import AsyncMailbox
from shelld_client.mailbox import Mailbox
from support import GENTLE_DAEMON, Gate, Mark, wait_for


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


async def test_leaving_a_stream_kills_its_command(spawn: Spawn) -> None:
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


async def test_stream_of_a_timeout_has_the_output_first(spawn: Spawn, tmp_path: Path) -> None:
    mark, items = Mark(tmp_path), list[Any]()
    command = f"echo out; {mark.touch}; sleep 300"
    async with spawn() as shell:
        for _ in mark.attempts():
            items.clear()
            with pytest.raises(CommandTimedOut) as caught:
                async for item in shell.stream(command, timeout=1_000):
                    items.append(item)
            assert caught.value.result is not None
        assert text_of(items) == "out\n"


@pytest.mark.slow
@pytest.mark.parametrize("is_skipped", [False, True])
async def test_stream_of_a_stopping_daemon_has_the_output_first(
    spawn: Spawn, monkeypatch: pytest.MonkeyPatch, is_skipped: bool
) -> None:
    async with spawn(GENTLE_DAEMON) as shell:
        stream = shell.stream("sleep 300 & trap 'echo last words; exit' TERM; echo go; wait")
        items: list[Any] = [await anext(stream)]
        if is_skipped:
            # The mailbox drops the text of all output events. The client asks the daemon for this
            # output again, but the stopping daemon refuses the request.
            monkeypatch.setattr("shelld_client.mailbox.MAX_HELD_CHARACTERS", -1)
        os.kill(shell.pid, signal.SIGTERM)
        with pytest.raises(ShuttingDown):
            async for item in stream:
                items.append(item)
        dropped = sum(each.dropped for each in items)
        assert dropped == (len("last words\n") if is_skipped else 0)
        assert text_of(items) == "go\nlast words\n"[: -dropped or None]


async def test_stream_of_a_refused_command_raises(spawn: Spawn) -> None:
    async with spawn() as shell:
        with pytest.raises(CommandBlocked):
            await anext(shell.stream("mkfs.ext4 /dev/none"))


async def test_streams_and_jobs_refuse_a_dry_run(spawn: Spawn) -> None:
    options: dict[str, Any] = {"dry_run": True}
    async with spawn() as shell:
        for follow in (shell.stream, shell.start):
            with pytest.raises(TypeError, match="dry_run works only with bash"):
                follow("echo out", **options)


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
                # The command goes on in the background, but nobody has read the stream's result.
                await shell.background(bash_id)
                if has_answer:
                    await shell.ping()
            await is_over(shell, "echo a; sleep 300")


def test_stream_raises_if_the_daemon_ends_as_it_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    with Client.spawn() as shell:

        def end_first() -> Mailbox:
            """End the daemon after the client has checked its own state and before it sends the
            request.
            """
            os.kill(shell.pid, signal.SIGKILL)
            wait_for(lambda: not can_ping(shell), "the end of the daemon")
            return Mailbox()

        monkeypatch.setattr("shelld_client.link.Mailbox", end_first)
        with pytest.raises(DaemonExited), shell.events():
            pass


def can_ping(shell: Client) -> bool:
    try:
        shell.ping()
    except ShellError:
        return False
    return True


@pytest.mark.slow
async def test_stream_reads_the_skipped_output_again(
    spawn: Spawn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shelld_client.mailbox.MAX_HELD_CHARACTERS", 100_000)
    async with spawn() as shell:
        stream = shell.stream("seq 200000; printf end")
        items = [await anext(stream)]
        # The test takes no item from the stream until the command has ended.
        await is_over(shell, "seq 200000; printf end")
        async for item in stream:
            items.append(item)
        expected = "".join(f"{number}\n" for number in range(1, 200_001)) + "end"
        assert text_of(items) == expected


@pytest.mark.slow
async def test_several_readers_of_a_stream_get_each_item_once(
    spawn: Spawn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shelld_client.mailbox.MAX_HELD_CHARACTERS", 100_000)
    async with spawn() as shell, shell.stream("seq 200000; printf end") as stream:
        items = [await anext(stream)]
        # The test takes no item from the stream until the command has ended.
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

        with anyio.fail_after(60):
            async with anyio.create_task_group() as tasks:
                for _ in range(3):
                    tasks.start_soon(read)
                # When the daemon answers the ping, all readers are waiting.
                await shell.ping()
                gate.open()
        assert sorted(type(each).__name__ for each in found) == ["BashResult", *2 * ["NoneType"]]


async def test_stream_counts_lost_output_once(
    spawn: Spawn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shelld_client.mailbox.MAX_HELD_CHARACTERS", 100_000)
    async with spawn(args=["--retain-bytes", "300000"]) as shell:
        stream = shell.stream("seq 200000; printf end")
        items = [await anext(stream)]
        # The test takes no item from the stream until the command has ended.
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


async def test_stream_never_splits_a_character(spawn: Spawn, tmp_path: Path) -> None:
    gate = Gate(tmp_path / "gate")
    async with spawn() as shell:
        command = rf"({gate.wait}; printf '\251') & printf 'end\303'"
        *output, result = [item async for item in shell.stream(command)]
        assert [(each.text, each.end) for each in output] == [("end", 3)]
        assert (result.stdout, result.stdout_bytes) == ("end", 4)
        gate.open()
        with anyio.fail_after(60):
            while not (rest := await shell.bash_output(result.bash_id)).stdout:
                await anyio.sleep(0.01)
        assert rest.stdout == "\u00e9"


def skipped_to_the_end(take_event: Callable[[Any, Event], None]) -> Callable[[Any, Event], None]:
    """Return a `take_event` that changes the exit event: it then counts all 4 bytes of stdout. The
    client must conclude that the daemon has skipped the last output.
    """

    def take(box: Any, event: Event) -> None:
        if isinstance(event, ExitEvent):
            event.stdout_bytes = 4
        take_event(box, event)

    return take


async def test_stream_counts_a_skipped_part_of_a_character(
    spawn: Spawn, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The mailbox drops the text of all output events, so the stream asks the daemon for the output
    # again.
    monkeypatch.setattr("shelld_client.mailbox.MAX_HELD_CHARACTERS", -1)
    for kind in (Mailbox, AsyncMailbox):
        monkeypatch.setattr(kind, "take_event", skipped_to_the_end(kind.take_event))
    async with spawn() as shell:
        # A process is left running, so more output may follow.
        items = [item async for item in shell.stream(r"setsid sleep 300 & printf 'end\303'")]
        *output, result = items
        assert [(each.text, each.start, each.end, each.dropped) for each in output] == [
            ("end", 0, 3, 0),
            ("", 3, 4, 1),
        ]
        assert (result.stdout_bytes, len(result.leftover)) == (4, 1)
        await shell.kill_shell(result.bash_id)


@pytest.mark.slow
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


async def test_stream_whose_key_has_no_command_raises(spawn: Spawn) -> None:
    async with spawn() as shell:
        stream = shell.stream("echo built", idempotency_key="1", key_must_exist=True)
        with pytest.raises(ShellNotFound, match="no command has this idempotency_key"):
            await anext(stream)


async def test_stream_whose_command_was_forgotten_raises(spawn: Spawn) -> None:
    async with spawn(args=["--max-retained", "1"]) as shell:
        await shell.bash("echo built", idempotency_key="1")
        for _ in range(2):
            await shell.bash("true")
        with pytest.raises(ShellNotFound) as caught:
            await anext(shell.stream("echo built", idempotency_key="1"))
        assert caught.value.data["expired"]
