"""Streams of clients with `attach(reconnect=True)`, whose connections are lost."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from both_clients import text_of
from lasting import Lasting
from lost_connections import (
    Attached,
    cancel_lost_call,
    has_lost_connection,
    has_subscription,
    lose_connection,
    occupied,
    open_and_wait_for_output,
)
from shelld_client import (
    DaemonExited,
    OutputEvent,
)
from support import Gate

pytestmark = [pytest.mark.slow, pytest.mark.timeout(method="thread")]


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
