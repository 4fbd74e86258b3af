"""Reports to the daemon which connections the proxy has refused, and for which commands.

A command in a loop may be refused thousands of times a second. So refusals are collected, and
reported at most some 20 times a second.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from functools import partial
from typing import Final

from shelld.keeper.channel import Message
from shelld.proxy import DENIED, Reason
from shelld.proxy.owners import Peer, runners_of

_INTERVAL_S: Final = 0.05

# Host, port and reason.
Refusal = tuple[str, int, Reason]


class Reports:
    """`send` sends a message to the daemon; it returns False if the daemon does not read now.

    `first`: see `owners`.
    """

    def __init__(self, send: Callable[[Message], bool], first: int) -> None:
        self._send = send
        self._first = first
        # Refusals for the next message, each with its time (time.monotonic()).
        self._new: list[tuple[Peer, Refusal, float]] = []
        # The refusals that are not reported yet. A key has the pid of the runner, and the refusal.
        # The value has the number of such refusals, and a time.
        self._unsent: dict[tuple[int, Refusal], tuple[int, float]] = {}
        self._wanted = asyncio.Event()
        # Set when the refusals in `_new` and in `_unsent` have been reported to the daemon.
        self._reported = asyncio.Event()
        self._waiting: list[asyncio.Event] = []

    async def note(self, peer: Peer, refusal: Refusal) -> None:
        """Record one refusal. Returns once the refusal has been reported to the daemon."""
        self._new.append((peer, refusal, time.monotonic()))
        self._wanted.set()
        await self._reported.wait()

    async def run(self) -> None:
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            await self._tell()
            await asyncio.sleep(_INTERVAL_S)

    async def _tell(self) -> None:
        new, self._new = self._new, []
        self._waiting.append(self._reported)
        self._reported = asyncio.Event()
        loop = asyncio.get_running_loop()
        peers = {peer for peer, _, _ in new}
        # Looking at many processes takes long, and must not delay the connections to allowed hosts.
        runners = await loop.run_in_executor(None, partial(runners_of, self._first, peers))
        for peer, refusal, at in new:
            key = runners.get(peer, 0), refusal
            count, before = self._unsent.get(key, (0, at))
            # If the command is known, keep the time of its latest refusal, because the refused
            # process still waits for the proxy's answer. Otherwise, keep the time of the first
            # refusal.
            self._unsent[key] = count + 1, at if key[0] else before
        entries = [
            (runner, *refusal, count, at) for (runner, refusal), (count, at) in self._unsent.items()
        ]
        # If the daemon does not read now, the loop in `run` sends the report later, and the clients
        # wait until then.
        if self._send((DENIED, entries)):
            self._unsent.clear()
            while self._waiting:
                self._waiting.pop().set()
        else:
            self._wanted.set()
