"""A feed sends the output and the end of one shell, and runs the followers of this shell."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, cast

import anyio
import anyio.lowlevel
import pytest
from msgspec import structs

from shelld.events.feed import Feed
from shelld.events.followers import ScreenFollower
from shelld.events.subscription import MAX_QUEUED_BYTES, Subscription, SubscriptionOptions
from shelld.screens.screen import View
from shelld.shells.manager import Manager
from shelld.shells.shell import Shell
from shelld.terminals.input import TerminalInput
from shelld.terminals.pty import Size
from shelld_protocol.event_methods import (
    Event,
    ExitEvent,
    LeftoverEvent,
    OutputEvent,
    ScreenEvent,
    SubscriptionOver,
)

OPTIONS = SubscriptionOptions(None, None, frozenset({"output", "exit"}), 0, 65_536, True)


class FakeManager:
    def __init__(self) -> None:
        self.is_reading = False

    @contextmanager
    def reading(self, _shell: Shell) -> Generator[None]:
        self.is_reading = True
        yield
        self.is_reading = False


class Client:
    def __init__(self) -> None:
        self.backlog = 0
        self.received: list[Any] = []

    def send(self, method: str, params: Event | SubscriptionOver) -> None:
        self.received.append(params)

    async def wait_until_read(self) -> None:
        assert self.backlog, "it has read everything"

    async def wait_below(self, size: int) -> None:
        raise NotImplementedError


class SlowClient(Client):
    def __init__(self) -> None:
        super().__init__()
        self.is_waited_for = anyio.Event()

    async def wait_until_read(self) -> None:
        self.is_waited_for.set()
        await anyio.sleep_forever()


class BusyClient(Client):
    """A client that is known to be slow, and reads when `read` is called."""

    def __init__(self) -> None:
        super().__init__()
        self.backlog = MAX_QUEUED_BYTES
        self.is_waited_for, self._has_room = anyio.Event(), anyio.Event()

    async def wait_until_read(self) -> None:
        pass

    async def wait_below(self, size: int) -> None:
        assert size == MAX_QUEUED_BYTES
        self.is_waited_for.set()
        await self._has_room.wait()

    def read(self) -> None:
        self.backlog = MAX_QUEUED_BYTES - 1
        self._has_room.set()


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
            failures.append(OSError("no check"))
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


@pytest.mark.parametrize("half", ["\u20ac".encode()[:2], b"\x1b[3"])
async def test_half_a_character_is_not_sent_while_a_process_may_write(
    half: bytes,
) -> None:
    shell, client = running_shell(), Client()
    feed = feed_of(shell, client)
    shell.output.append(shell.stdout, b"out" + half)
    shell.leftover = [7]
    shell.end(0, None)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(feed.run)
        await feed.end_told.wait()
        feed.close()
    output, last = client.received
    assert isinstance(output, OutputEvent)
    assert (output.text, output.end, output.dropped) == ("out", 3, 0)
    assert isinstance(last, ExitEvent)
    assert (last.stdout_bytes, last.skipped) == (3, 0)


async def test_hurried_feed_skips_long_output_instead_of_waiting_for_the_client() -> None:
    shell, client = running_shell(), SlowClient()
    feed = feed_of(shell, client)
    feed.add_follower(anyio.sleep_forever)
    client.backlog = MAX_QUEUED_BYTES
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(feed.run)
        write(shell, "x" * (OPTIONS.max_bytes + 1))
        await client.is_waited_for.wait()
        client.backlog = 0
        feed.subscription.hurry()
        write(shell, "more")
        end(shell)
        while not client.received:
            await anyio.lowlevel.checkpoint()
        feed.hurry()
    output, last = client.received
    assert isinstance(output, OutputEvent)
    assert isinstance(last, ExitEvent)
    assert output.text == "more"
    assert output.skipped == last.skipped == OPTIONS.max_bytes + 1


async def test_hurried_feed_sends_short_output() -> None:
    shell, client = running_shell(), Client()
    feed = feed_of(shell, client)
    write(shell, "short")
    feed.subscription.hurry()
    end(shell)
    await feed.run()
    output, last = client.received
    assert isinstance(output, OutputEvent)
    assert isinstance(last, ExitEvent)
    assert (output.text, last.skipped) == ("short", 0)


async def test_skipped_output_ends_after_a_whole_sequence() -> None:
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


async def test_skipped_output_ends_outside_a_long_control_string() -> None:
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
    # From now on, the subscription sends its journal again.
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


async def test_leftovers_that_end_before_the_exit_event_is_sent_are_reported() -> None:
    shell, client = running_shell(), Client()
    options = structs.replace(
        OPTIONS, bash_id="x", events=frozenset({"output", "exit", "leftover"})
    )
    tasks: list[Any] = []
    subscription = Subscription("sub_1", options, client, 1, tasks.append)
    feed = Feed(shell, subscription, cast("Manager", FakeManager()))
    write(shell, "out")
    await feed.send_output()
    # From now on, the subscription sends its journal again.
    subscription.continue_after(0, client, 2)
    client.received.clear()
    shell.leftover = [7]
    shell.end(0, None)
    async with anyio.create_task_group() as group:
        group.start_soon(feed.run)
        while subscription.seq < 2:
            await anyio.lowlevel.checkpoint()
        shell.become_empty()
        await tasks[0]()
    _, last, gone = client.received
    assert isinstance(last, ExitEvent)
    assert last.leftover == [7]
    assert isinstance(gone, LeftoverEvent)
    assert gone.leftover == []
    assert subscription.is_over


async def test_leftovers_that_end_during_the_last_checks_are_reported() -> None:
    shell, client = running_shell(), Client()
    options = structs.replace(OPTIONS, bash_id="x", events=frozenset({"leftover"}))
    subscription = Subscription("sub_1", options, client, 1, lambda _task: None)
    feed = Feed(shell, subscription, cast("Manager", FakeManager()))

    async def wait_until_empty() -> None:
        await shell.wait_until(lambda: shell.is_empty)

    feed.add_follower(wait_until_empty)
    async with anyio.create_task_group() as group:
        group.start_soon(feed.run)
        await anyio.wait_all_tasks_blocked()
        shell.leftover = [7]
        shell.end(0, None)
        shell.notify()
        await anyio.wait_all_tasks_blocked()
        shell.leftover = []
        shell.become_empty()
    assert [each.leftover for each in client.received] == [[]]
    assert subscription.is_over


async def test_feed_is_woken_once_a_slow_client_has_read() -> None:
    shell, client = running_shell(), BusyClient()
    feed = feed_of(shell, client)
    async with anyio.create_task_group() as group:
        group.start_soon(feed.run)
        write(shell, "out\n")
        # The feed waits for the client, instead of asking again and again.
        with anyio.fail_after(60):
            await client.is_waited_for.wait()
        client.read()
        while not client.received:
            await anyio.lowlevel.checkpoint()
        end(shell)
    told, last = client.received
    assert isinstance(told, OutputEvent)
    assert (told.text, told.start, told.end, told.skipped) == ("", 4, 4, 4)
    assert isinstance(last, ExitEvent)
    assert last.skipped == 4


async def test_shell_is_retained_until_its_last_event_was_sent() -> None:
    shell, client = running_shell(), Client()
    options = structs.replace(OPTIONS, bash_id="x", events=frozenset({"exit", "leftover"}))
    tasks: list[Any] = []
    subscription = Subscription("sub_1", options, client, 1, tasks.append)
    manager = FakeManager()
    feed = Feed(shell, subscription, cast("Manager", manager))
    shell.leftover = [7]
    shell.end(0, None)
    async with anyio.create_task_group() as group:
        group.start_soon(feed.run)
        while subscription.seq < 2:
            await anyio.lowlevel.checkpoint()
        subscription.continue_after(0, client, 2)
        shell.become_empty()
        while subscription.seq < 3:
            await anyio.lowlevel.checkpoint()
        assert manager.is_reading
        await tasks[0]()
    told = [each.leftover for each in client.received if isinstance(each, LeftoverEvent)]
    assert told == [[7], [7], []]
    assert not manager.is_reading


def following_leftovers(shell: Shell, client: Client) -> tuple[Subscription, Feed]:
    """Subscribe to a shell's end and its leftover processes. Return the subscription and feed."""
    options = structs.replace(OPTIONS, bash_id="x", events=frozenset({"exit", "leftover"}))
    subscription = Subscription("sub_1", options, client, 1, lambda _task: None)
    return subscription, Feed(shell, subscription, cast("Manager", FakeManager()))


async def test_shell_without_leftover_processes_is_over_with_its_exit_event() -> None:
    shell, client = running_shell(), Client()
    subscription, feed = following_leftovers(shell, client)
    # The command has ended, but the owner of the shell has not released the shell yet.
    shell.end(0, None)
    async with anyio.create_task_group() as group:
        group.start_soon(feed.run)
        while not subscription.seq:
            await anyio.lowlevel.checkpoint()
        assert subscription.is_over
        shell.become_empty()
    assert [type(each) for each in client.received] == [ExitEvent]


async def test_last_leftover_event_waits_until_the_shell_is_empty() -> None:
    shell, client = running_shell(), Client()
    subscription, feed = following_leftovers(shell, client)
    shell.leftover = [7]
    shell.end(0, None)
    async with anyio.create_task_group() as group:
        group.start_soon(feed.run)
        while subscription.seq < 2:
            await anyio.lowlevel.checkpoint()
        # The last process has ended, but the owner of the shell has not released the shell yet.
        shell.leftover = []
        shell.notify()
        await anyio.wait_all_tasks_blocked()
        assert (subscription.seq, subscription.is_over) == (2, False)
        shell.become_empty()
        while subscription.seq < 3:
            await anyio.lowlevel.checkpoint()
        assert subscription.is_over
    assert client.received[-1].leftover == []


async def test_leftover_processes_are_told_once_a_slow_client_has_read() -> None:
    shell, client = running_shell(), BusyClient()
    _subscription, feed = following_leftovers(shell, client)
    shell.leftover = [7, 8]
    shell.end(0, None)
    async with anyio.create_task_group() as group:
        group.start_soon(feed.run)
        with anyio.fail_after(60):
            await client.is_waited_for.wait()
        shell.leftover = [8]
        shell.notify()
        await anyio.wait_all_tasks_blocked()
        assert [type(each) for each in client.received] == [ExitEvent]
        client.read()
        with anyio.fail_after(60):
            while len(client.received) < 2:
                await anyio.lowlevel.checkpoint()
        shell.become_empty()
    assert [each.leftover for each in client.received] == [[7, 8], [8], []]


async def test_last_leftover_event_does_not_wait_for_a_slow_client() -> None:
    shell, client = running_shell(), BusyClient()
    _subscription, feed = following_leftovers(shell, client)
    shell.leftover = [7]
    shell.end(0, None)
    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            group.start_soon(feed.run)
            await client.is_waited_for.wait()
            shell.become_empty()
    assert [each.leftover for each in client.received] == [[7], []]


class FakeScreens:
    """A screen of two rows. Only the first row changes. `capture` calls `on_capture`."""

    def __init__(self, on_capture: Callable[[int | None], None]) -> None:
        self._on_capture = on_capture
        self._version = 0

    @contextmanager
    def following(self, *_args: object) -> Generator[FakeScreens]:
        yield self

    async def capture(self, since: int | None, **_limits: float) -> View:
        self._on_capture(since)
        self._version += 1
        rows = [f"counter {self._version}", "unchanged"]
        changed = [0, 1] if since is None else [0]
        lines = [rows[row] for row in changed]
        return View(2, 80, lines, (0, 0, True), False, "", self._version, changed)


async def test_screen_is_sent_once_a_slow_client_has_read() -> None:
    shell, client = running_shell(), BusyClient()
    shell.input = TerminalInput(-1, Size(2, 80))
    subscription = Subscription(
        "sub_1", structs.replace(OPTIONS, events=frozenset({"screen"})), client, 1, lambda _: None
    )
    feed = Feed(shell, subscription, cast("Manager", FakeManager()))
    screens: Any = FakeScreens(lambda _since: None)
    feed.add_follower(ScreenFollower(screens, feed).run)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(feed.run)
        write(shell, "draws")
        # The follower waits for the client, instead of asking again and again.
        with anyio.fail_after(60):
            await client.is_waited_for.wait()
        assert not client.received
        client.read()
        while not client.received:
            await anyio.lowlevel.checkpoint()
        end(shell)
    (screen,) = client.received
    assert isinstance(screen, ScreenEvent)
    assert screen.lines == ["counter 1", "unchanged"]


async def test_end_of_a_shell_does_not_wait_for_a_slow_client() -> None:
    shell, client = running_shell(), BusyClient()
    shell.input = TerminalInput(-1, Size(2, 80))
    options = structs.replace(OPTIONS, events=frozenset({"screen", "exit"}))
    subscription = Subscription("sub_1", options, client, 1, lambda _: None)
    feed = Feed(shell, subscription, cast("Manager", FakeManager()))
    screens: Any = FakeScreens(lambda _since: None)
    feed.add_follower(ScreenFollower(screens, feed).run)
    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(feed.run)
            write(shell, "draws")
            await client.is_waited_for.wait()
            end(shell)
    (last,) = client.received
    assert isinstance(last, ExitEvent)


async def test_screen_is_whole_if_the_subscription_is_continued_during_a_capture() -> None:
    shell, client = running_shell(), Client()
    shell.input = TerminalInput(-1, Size(2, 80))
    feed = feed_of(shell, client)
    continued = False

    def continue_once(since: int | None) -> None:
        nonlocal continued
        if since is not None and not continued:
            continued = True
            feed.subscription.continue_after(feed.subscription.seq, client, 2)

    screens: Any = FakeScreens(continue_once)
    feed.add_follower(ScreenFollower(screens, feed).run)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(feed.run)
        for count in (1, 2):
            write(shell, "draws")
            while sum(isinstance(each, ScreenEvent) for each in client.received) < count:
                await anyio.lowlevel.checkpoint()
        end(shell)
    first, second = [each for each in client.received if isinstance(each, ScreenEvent)]
    assert continued
    assert (first.request_id, first.changed) == (1, [0, 1])
    assert (second.request_id, second.changed) == (2, [0, 1])
    assert second.lines[1] == "unchanged"
    shown = feed.subscription.shown_rows(shell)
    assert shown is not None
    assert shown.lines == second.lines
