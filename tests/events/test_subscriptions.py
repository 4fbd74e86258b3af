"""The table of all subscriptions, with a manager that the test provides."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from contextlib import contextmanager
from typing import Any, cast

import anyio
import anyio.abc
import anyio.lowlevel
import pytest
from msgspec.structs import replace

from shelld.events.subscription import MAX_QUEUED_BYTES, SubscriptionOptions
from shelld.events.subscriptions import MAX_LOST, Subscriptions
from shelld.shells.manager import Manager
from shelld.shells.shell import Shell
from shelld_protocol.errors import RpcError, shell_not_found
from shelld_protocol.event_methods import MAX_SUBSCRIPTIONS, Event, SubscriptionOver

OPTIONS = SubscriptionOptions(None, None, frozenset({"exit"}), 0, 65_536, True)


class FakeManager:
    def __init__(self, tasks: anyio.abc.TaskGroup) -> None:
        self._tasks = tasks
        self.on_start: Callable[[Shell], None] | None = None
        self.on_forget: list[Any] = []

    def attend(self, task: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._tasks.start_soon(task)

    def get(self, shell_id: str) -> Shell:
        raise shell_not_found(shell_id, expired=True)

    @contextmanager
    def reading(self, _shell: Shell) -> Generator[None]:
        yield


class Client:
    def __init__(self) -> None:
        self.backlog = 0
        self.received: list[Any] = []
        self.has_read = anyio.Event()
        self.is_waited_for = anyio.Event()

    def send(self, method: str, params: Event | SubscriptionOver) -> None:
        self.received.append(params)

    async def wait_until_read(self) -> None:
        self.is_waited_for.set()
        await self.has_read.wait()

    async def wait_below(self, size: int) -> None:
        raise NotImplementedError


async def test_events_count_as_delivered_once_the_replay_has_arrived() -> None:
    client = Client()
    async with anyio.create_task_group() as tasks:
        subscriptions = Subscriptions(cast("Manager", FakeManager(tasks)))
        shell = Shell("x", is_empty=False)
        shell.started()
        added = subscriptions.add(OPTIONS, client, 1, [shell])
        shell.end(0, None)
        client.backlog = MAX_QUEUED_BYTES
        shell.notify()
        while not client.received:
            await anyio.lowlevel.checkpoint()
        added.continue_after(0, client, 2)
        await client.is_waited_for.wait()
        is_settled = False

        async def settle() -> None:
            nonlocal is_settled
            await subscriptions.settle()
            is_settled = True

        tasks.start_soon(settle)
        await anyio.wait_all_tasks_blocked()
        assert not is_settled
        client.backlog = 0
        client.has_read.set()
    assert [each.seq for each in client.received] == [1, 1]


async def test_events_are_settled_once_all_shells_have_ended() -> None:
    async with anyio.create_task_group() as tasks:
        subscriptions = Subscriptions(cast("Manager", FakeManager(tasks)))
        shell, client = Shell("x", is_empty=False), Client()
        shell.started()
        subscriptions.add(OPTIONS, client, 1, [shell])

        async def end() -> None:
            await anyio.wait_all_tasks_blocked()
            assert not client.received
            shell.end(0, None)
            shell.become_empty()

        tasks.start_soon(end)
        await subscriptions.settle()
        assert len(client.received) == 1


async def test_key_is_free_once_its_shell_is_no_longer_retained() -> None:
    async with anyio.create_task_group() as tasks:
        subscriptions = Subscriptions(cast("Manager", FakeManager(tasks)))
        shell, client = Shell("x", is_empty=False), Client()
        options = replace(OPTIONS, bash_id="x")
        first = subscriptions.add(options, client, 1, [shell], "mine")
        assert subscriptions.find("mine") is None
        second = subscriptions.add(OPTIONS, client, 2, [], "mine")
        subscriptions.remove(first.name)
        assert subscriptions.find("mine") is second
        subscriptions.remove(second.name)
        assert subscriptions.find("mine") is None


async def test_subscriptions_of_lost_clients_make_room() -> None:
    async with anyio.create_task_group() as tasks:
        subscriptions = Subscriptions(cast("Manager", FakeManager(tasks)))
        client = Client()
        first, second, *_ = [
            subscriptions.add(OPTIONS, client, number, []).name
            for number in range(MAX_SUBSCRIPTIONS)
        ]
        with pytest.raises(RpcError) as refused:
            subscriptions.add(OPTIONS, client, 1, [])
        assert refused.value.data["limit"] == "subscriptions"
        subscriptions.lose_client()
        # This is now the latest subscription.
        subscriptions.continue_after(subscriptions.get(first), 0, client, 1)
        subscriptions.lose_client()
        for number in range(MAX_SUBSCRIPTIONS - 1):
            subscriptions.add(OPTIONS, client, number, [])
        assert subscriptions.get(first)
        with pytest.raises(RpcError) as unknown:
            subscriptions.get(second)
        assert unknown.value.data["parameter"] == "subscription"
        subscriptions.add(OPTIONS, client, 1, [])
        with pytest.raises(RpcError):
            subscriptions.get(first)
        with pytest.raises(RpcError):
            subscriptions.add(OPTIONS, client, 1, [])


async def test_few_subscriptions_of_lost_clients_are_kept() -> None:
    async with anyio.create_task_group() as tasks:
        subscriptions = Subscriptions(cast("Manager", FakeManager(tasks)))
        client = Client()
        first, second, *_ = [
            subscriptions.add(OPTIONS, client, number, []).name for number in range(MAX_LOST + 1)
        ]
        subscriptions.lose_client()
        assert subscriptions.get(first)
        subscriptions.add(OPTIONS, client, 1, [])
        with pytest.raises(RpcError):
            subscriptions.get(first)
        assert subscriptions.get(second)


async def test_subscription_to_a_single_shell_makes_room_at_the_limit() -> None:
    async with anyio.create_task_group() as tasks:
        subscriptions = Subscriptions(cast("Manager", FakeManager(tasks)))
        client, options = Client(), replace(OPTIONS, bash_id="")
        first, second, *_ = [
            subscriptions.add(options, client, number, []).name
            for number in range(MAX_SUBSCRIPTIONS)
        ]
        subscriptions.lose_client()
        subscriptions.add(options, client, 1, [])
        with pytest.raises(RpcError):
            subscriptions.get(first)
        assert subscriptions.get(second)
