"""What the proxy tells the daemon, and when."""

from __future__ import annotations

import asyncio
import os

from shelld.keeper.channel import Message
from shelld.proxy import DENIED
from shelld.proxy.reports import Refusal, Reports

PEER = ("127.0.0.1", 1)
REFUSAL: Refusal = ("a.org", 443, "not_listed")


def test_a_refusal_is_told_before_its_client_is_answered() -> None:
    # At first, the daemon does not read.
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
        kind, since, entries = sent[-1]
        assert kind == DENIED
        # No process has such a connection.
        assert entries == [(0, *REFUSAL, 3)]
        assert since == sent[0][1]

    asyncio.run(test())


def test_a_burst_is_one_message() -> None:
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
        assert [message[2] for message in sent] == [[(0, *REFUSAL, 1)], [(0, *REFUSAL, 500)]]

    asyncio.run(test())
