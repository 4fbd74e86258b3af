"""The daemon kills a command whose call is abandoned or cancelled just before the client closes."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial
from typing import Any

import anyio
import pytest

from both_clients import Attach, client_of
from lasting import Lasting
from shelld_client import (
    AsyncClient,
    Client,
    calls,
)
from shelld_client.connection import Connection
from support import stopped, wait_for

pytestmark = [pytest.mark.slow, pytest.mark.timeout(method="thread")]


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
