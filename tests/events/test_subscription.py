"""Tests of numbers, replays, slow clients and shortages. A subscription sends its events to the
test.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from msgspec.structs import replace

from shelld.events import subscription as module
from shelld.events.entries import FactEntry, Rows
from shelld.events.subscription import MAX_QUEUED_BYTES, Subscription, SubscriptionOptions
from shelld.shells.shell import Shell
from shelld_protocol.event_methods import (
    Event,
    EventName,
    PromptEvent,
    ScreenEvent,
    SubscriptionOver,
)
from shelld_protocol.screen_methods import ScreenCursor

OPTIONS = SubscriptionOptions(None, None, frozenset({"prompt"}), 0, 65_536, True)
ENTRY = FactEntry("x", None, "shell/prompt", PromptEvent, {"prompt": None})
CURSOR = ScreenCursor(0, 0, True)
FACTS = {"rows": 2, "cols": 80, "cursor": CURSOR, "alt_screen": False, "title": ""}


class Client:
    """A client that takes events. The first calls of `send` fail: `failures` is their number."""

    def __init__(self) -> None:
        self.backlog = 0
        self.received: list[Any] = []
        self.failures = 0
        self.has_read = anyio.Event()
        self.is_waited_for = anyio.Event()

    def send(self, method: str, params: Event | SubscriptionOver) -> None:
        if self.failures:
            self.failures -= 1
            raise MemoryError
        self.received.append(params)

    async def wait_until_read(self) -> None:
        self.is_waited_for.set()
        await self.has_read.wait()

    async def wait_below(self, size: int) -> None:
        raise NotImplementedError

    def read(self) -> None:
        self.backlog = 0
        self.has_read.set()

    @property
    def numbers(self) -> list[int]:
        return [each.seq for each in self.received]


class Tasks:
    """This object keeps the tasks that a subscription starts, so that the test can run them."""

    def __init__(self) -> None:
        self.waiting: list[Callable[[], Awaitable[None]]] = []
        self.failures = 0

    def start(self, task: Callable[[], Any]) -> None:
        if self.failures:
            self.failures -= 1
            raise MemoryError
        self.waiting.append(task)

    async def run(self) -> None:
        while self.waiting:
            await self.waiting.pop(0)()


@pytest.fixture
def client() -> Client:
    return Client()


@pytest.fixture
def tasks() -> Tasks:
    return Tasks()


@pytest.fixture
def subscription(client: Client, tasks: Tasks) -> Subscription:
    return Subscription("sub_1", OPTIONS, client, 1, tasks.start)


@pytest.mark.parametrize(
    ("events", "is_continued", "is_told"),
    [(["output"], True, True), (["output"], False, False), (["output", "exit"], True, False)],
)
def test_over_event_is_sent_only_for_continued_subscriptions_without_exit(
    client: Client, tasks: Tasks, events: list[EventName], *, is_continued: bool, is_told: bool
) -> None:
    options = replace(OPTIONS, events=frozenset(events))
    subscription = Subscription("sub_1", options, client, 1, tasks.start)
    if is_continued:
        subscription.continue_after(0, client, 2)
    subscription.send_over()
    told = SubscriptionOver(subscription="sub_1", request_id=2)
    assert client.received == [told] * is_told


def test_no_over_event_follows_if_an_ended_subscription_is_continued(
    client: Client, tasks: Tasks
) -> None:
    options = replace(OPTIONS, events=frozenset({"output"}))
    subscription = Subscription("sub_1", options, client, 1, tasks.start)
    subscription.continue_after(0, client, 2)
    subscription.is_over = True
    # The answer to this request says that the subscription is over.
    subscription.continue_after(0, client, 3)
    subscription.send_over()
    assert client.received == []


def publish(subscription: Subscription, count: int) -> None:
    for _ in range(count):
        subscription.publish(ENTRY)


# -- replays ----------------------------------------------------------------------------------


async def test_closed_subscription_sends_nothing_after_its_wait(
    subscription: Subscription, client: Client, tasks: Tasks
) -> None:
    publish(subscription, 3)
    client.backlog = MAX_QUEUED_BYTES
    subscription.continue_after(0, client, 2)
    async with anyio.create_task_group() as group:
        group.start_soon(tasks.run)
        await client.is_waited_for.wait()
        subscription.close()
        client.read()
    assert client.numbers == [1, 2, 3]


async def test_replay_ends_if_client_continues_at_newest_event(
    subscription: Subscription, client: Client, tasks: Tasks
) -> None:
    publish(subscription, 3)
    client.backlog = MAX_QUEUED_BYTES
    subscription.continue_after(0, client, 2)
    async with anyio.create_task_group() as group:
        group.start_soon(tasks.run)
        await client.is_waited_for.wait()
        subscription.continue_after(3, client, 3)
        client.read()
    publish(subscription, 1)
    assert client.numbers == [1, 2, 3, 4]


async def test_events_during_a_replay_come_after_it(
    subscription: Subscription, client: Client, tasks: Tasks
) -> None:
    publish(subscription, 2)
    subscription.continue_after(0, client, 2)
    publish(subscription, 1)
    assert client.numbers == [1, 2]
    await tasks.run()
    assert client.numbers == [1, 2, 1, 2, 3]


# -- shortages --------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_SHORTAGE_PAUSE_S", 0.0)


async def test_event_that_could_not_be_sent_is_sent_later_and_once(
    subscription: Subscription, client: Client, tasks: Tasks
) -> None:
    client.failures = 2
    publish(subscription, 2)
    assert client.numbers == []
    await tasks.run()
    assert client.numbers == [1, 2]


async def test_next_event_starts_the_replay_that_could_not_start(
    subscription: Subscription, client: Client, tasks: Tasks
) -> None:
    client.failures = tasks.failures = 1
    publish(subscription, 1)
    assert tasks.waiting == []
    publish(subscription, 1)
    await tasks.run()
    assert client.numbers == [1, 2]


async def test_flush_starts_the_replay_that_could_not_start(
    subscription: Subscription, client: Client, tasks: Tasks
) -> None:
    client.failures, tasks.failures = 1, 3
    publish(subscription, 1)
    async with anyio.create_task_group() as group:
        group.start_soon(subscription.flush)
        while not tasks.waiting:
            await anyio.lowlevel.checkpoint()
        await tasks.run()
    assert client.numbers == [1]


# -- slow clients -----------------------------------------------------------------------------


async def test_output_waits_for_a_client_that_reads(
    subscription: Subscription, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PATIENCE_S", 60.0)
    client.backlog = MAX_QUEUED_BYTES
    found: list[bool] = []

    async def wait() -> None:
        found.append(await subscription.wait_for_room())

    async with anyio.create_task_group() as group:
        group.start_soon(wait)
        await client.is_waited_for.wait()
        client.read()
    assert found == [True]


async def test_output_does_not_wait_a_second_time_for_a_slow_client(
    subscription: Subscription, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PATIENCE_S", 0.01)
    client.backlog = MAX_QUEUED_BYTES
    assert not await subscription.wait_for_room()
    client.is_waited_for = anyio.Event()
    assert not await subscription.wait_for_room()
    assert not client.is_waited_for.is_set()
    client.backlog = MAX_QUEUED_BYTES - 1
    assert await subscription.wait_for_room()


# -- screens ----------------------------------------------------------------------------------


@pytest.fixture
def shell() -> Shell:
    return Shell("x")


def show(subscription: Subscription, shell: Shell, version: int, lines: list[str]) -> None:
    """Publish a screen whose first row has changed."""
    facts = {**FACTS, "version": version}
    subscription.publish_screen(shell, facts, Rows(version, lines), lines[:1], [0])


def screens(client: Client) -> list[tuple[int, list[int], list[str]]]:
    found = [each for each in client.received if isinstance(each, ScreenEvent)]
    return [(each.version, each.changed, each.lines) for each in found]


async def test_replay_has_the_rows_of_the_last_screen(
    subscription: Subscription, client: Client, tasks: Tasks, shell: Shell
) -> None:
    show(subscription, shell, 1, ["one", ""])
    subscription.continue_after(0, client, 2)
    show(subscription, shell, 2, ["two", "rows"])
    client.received.clear()
    await tasks.run()
    assert screens(client) == [(1, [], []), (2, [0, 1], ["two", "rows"])]


async def test_continued_subscription_forgets_the_rows_it_has_sent(
    subscription: Subscription, client: Client, shell: Shell
) -> None:
    show(subscription, shell, 1, ["one", ""])
    assert subscription.shown_rows(shell) == Rows(1, ["one", ""])
    subscription.continue_after(1, client, 2)
    assert subscription.shown_rows(shell) is None
