"""Events, jobs and streams of clients with `attach(reconnect=True)`, whose connections are lost."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import Any

import anyio
import pytest

from lost_connections import (
    OPEN_INPUT,
    Attached,
    end_connections_at,
    has_lost_connection,
    lose_connection,
    text_from,
)
from shelld_client import (
    OutputEvent,
    TargetLost,
)
from shelld_client.async_ongoing import AsyncOngoing
from shelld_client.ongoing import Ongoing

pytestmark = [pytest.mark.slow, pytest.mark.timeout(method="thread")]


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
            # The first item of a job may contain output that is older than the subscription.
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
