"""The refusals that the proxy reports to the daemon, and when it reports them."""

from __future__ import annotations

import asyncio
import os
import time

import pytest

from shelld.keeper.channel import Message
from shelld.proxy import DENIED
from shelld.proxy import reports as reports_module
from shelld.proxy.reports import Refusal, Reports

PEER = ("127.0.0.1", 1)
REFUSAL: Refusal = ("a.org", 443, "not_listed")


def test_daemon_learns_of_a_refusal_before_the_client_is_answered() -> None:
    # Only the third attempt to send succeeds, as if the daemon did not read at first.
    answers = [False, False, True]
    sent: list[Message] = []

    def send(message: Message) -> bool:
        sent.append(message)
        return answers.pop(0)

    async def test() -> None:
        reports = Reports(send, os.getpid())
        task = asyncio.create_task(reports.run())
        async with asyncio.timeout(20):
            await asyncio.gather(*(reports.note(PEER, REFUSAL) for _ in range(3)))
        task.cancel()
        assert answers == []
        kind, [entry] = sent[-1]
        assert kind == DENIED
        # No process has this connection. The message contains the time of the first refusal.
        assert entry[:-1] == (0, *REFUSAL, 3)
        assert entry == sent[0][1][0]

    asyncio.run(test())


def test_burst_of_refusals_is_one_message() -> None:
    sent: list[Message] = []

    def send(message: Message) -> bool:
        sent.append(message)
        return True

    async def test() -> None:
        reports = Reports(send, os.getpid())
        task = asyncio.create_task(reports.run())
        async with asyncio.timeout(20):
            await reports.note(PEER, REFUSAL)
            await asyncio.gather(*(reports.note(PEER, REFUSAL) for _ in range(500)))
        task.cancel()
        assert [[entry[:-1] for entry in entries] for _, entries in sent] == [
            *([(0, *REFUSAL, 1)], [(0, *REFUSAL, 500)]),
        ]

    asyncio.run(test())


def test_the_refusal_of_a_later_command_has_its_own_time(monkeypatch: pytest.MonkeyPatch) -> None:
    # The first refusal has no owner. The command of runner 7 begins later, and then gets a refusal
    # of its own.
    other = ("127.0.0.1", 2)
    sent: list[Message] = []

    def runners_of(_first: int, _peers: object) -> dict[tuple[str, int], int]:
        return {other: 7}

    monkeypatch.setattr(reports_module, "runners_of", runners_of)

    def send(message: Message) -> bool:
        sent.append(message)
        return True

    async def test() -> None:
        reports = Reports(send, os.getpid())
        asked = [asyncio.create_task(reports.note(PEER, REFUSAL))]
        await asyncio.sleep(0)
        began = time.monotonic()
        asked += [asyncio.create_task(reports.note(each, REFUSAL)) for each in (other, PEER)]
        await asyncio.sleep(0)
        task = asyncio.create_task(reports.run())
        async with asyncio.timeout(20):
            await asyncio.gather(*asked)
        task.cancel()
        [(_, entries)] = sent
        times = {entry[0]: entry[-1] for entry in entries}
        assert times[0] <= began <= times[7]

    asyncio.run(test())
