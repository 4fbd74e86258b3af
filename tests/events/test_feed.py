"""A feed follows one shell: output, end, and whatever else looks at the shell."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any, cast

import anyio
import anyio.lowlevel
from msgspec import structs

from shelld.events.feed import Feed
from shelld.events.subscription import MAX_QUEUED_BYTES, Subscription, SubscriptionOptions
from shelld.shells.manager import Manager
from shelld.shells.shell import Shell
from shelld_protocol.event_methods import Event, ExitEvent, OutputEvent

OPTIONS = SubscriptionOptions(None, None, frozenset({"output", "exit"}), 0, 65_536, True)


class FakeManager:
    def reading(self, _shell: Shell) -> AbstractContextManager[None]:
        return nullcontext()


class Client:
    def __init__(self) -> None:
        self.backlog = 0
        self.received: list[Event] = []

    def send(self, method: str, params: Event) -> None:
        self.received.append(params)

    async def wait_until_read(self) -> None:
        assert self.backlog, "it has read everything"


def feed_of(shell: Shell, client: Client) -> Feed:
    subscription = Subscription("sub_1", OPTIONS, client, 1, lambda _task: None)
    return Feed(shell, subscription, cast("Manager", FakeManager()))


def running_shell() -> Shell:
    shell = Shell("x", is_empty=False)
    shell.started()
    return shell


def write(shell: Shell, text: str) -> None:
    shell.output.append(shell.stdout, text.encode())
    shell.notify()


def end(shell: Shell) -> None:
    shell.end(0, None)
    shell.become_empty()


async def test_follower_that_fails_runs_again_and_holds_up_nothing() -> None:
    shell, client = running_shell(), Client()
    feed = feed_of(shell, client)
    failures: list[OSError] = []
    ran_again = anyio.Event()

    async def fail_once() -> None:
        if not failures:
            failures.append(OSError("no look"))
            raise failures[0]
        ran_again.set()

    feed.add_follower(fail_once)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(feed.run)
        await ran_again.wait()
        write(shell, "out")
        end(shell)
    output, last = client.received
    assert isinstance(output, OutputEvent)
    assert output.text == "out"
    assert isinstance(last, ExitEvent)


async def test_end_counts_only_the_output_that_was_sent() -> None:
    shell, client = running_shell(), Client()
    feed = feed_of(shell, client)

    async def write_after_the_last_output(*_args: Any) -> None:
        await shell.wait_until(lambda: bool(client.received))
        write(shell, "from a leftover process")

    feed.add_follower(write_after_the_last_output)
    shell.output.append(shell.stdout, b"out")
    shell.end(0, None)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(feed.run)
        while not any(isinstance(each, ExitEvent) for each in client.received):
            shell.notify()
            await anyio.lowlevel.checkpoint()
        feed.close()
    sent = sum(len(each.text) for each in client.received if isinstance(each, OutputEvent))
    (last,) = [each for each in client.received if isinstance(each, ExitEvent)]
    assert last.stdout_bytes == sent


async def test_skipped_output_ends_where_a_sequence_does() -> None:
    shell, client = running_shell(), Client()
    feed = feed_of(shell, client)
    client.backlog = MAX_QUEUED_BYTES
    # The second line end is inside a title.
    shell.output.append(shell.stdout, b"skipped\n\x1b]0;title\nmore")
    await feed.send_output()
    client.backlog = 0
    shell.output.append(shell.stdout, b" title\x07text\n")
    await feed.send_output()
    (output,) = client.received
    assert isinstance(output, OutputEvent)
    assert (output.start, output.skipped, output.text) == (8, 8, "text\n")


async def test_skipped_output_does_not_end_in_a_string_that_began_long_before() -> None:
    shell, client = running_shell(), Client()
    feed = feed_of(shell, client)
    client.backlog = MAX_QUEUED_BYTES
    title, rest = b"\x1b]0;" + b"t" * 60_000 + b"\n" + b"t" * 1_000 + b"\x07", b"x" * 110_000
    shell.output.append(shell.stdout, b"first\n" + title + rest)
    await feed.send_output()
    client.backlog = 0
    shell.output.append(shell.stdout, b"last\n")
    await feed.send_output()
    (output,) = client.received
    assert isinstance(output, OutputEvent)
    assert output.text == "last\n"


async def test_subscription_is_over_before_its_last_event_is_sent() -> None:
    shell, client = running_shell(), Client()
    options = structs.replace(OPTIONS, bash_id="x")
    tasks: list[Any] = []
    subscription = Subscription("sub_1", options, client, 1, tasks.append)
    feed = Feed(shell, subscription, cast("Manager", FakeManager()))
    write(shell, "out")
    await feed.send_output()
    # From now on, the journal is being sent again.
    subscription.continue_after(0, client, 2)
    end(shell)
    async with anyio.create_task_group() as group:
        group.start_soon(feed.run)
        while subscription.seq < 2:
            await anyio.lowlevel.checkpoint()
        assert subscription.is_over
        assert not any(isinstance(each, ExitEvent) for each in client.received)
        await tasks[0]()
    assert isinstance(client.received[-1], ExitEvent)
