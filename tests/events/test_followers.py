"""The moments at which a follower checks a command's processes, and the events that it sends."""

from __future__ import annotations

import os
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import anyio
import pytest
from msgspec.structs import replace

from shelld.eventloop.turns import Turns
from shelld.events import followers
from shelld.events.followers import PortFollower, PromptFollower
from shelld.inspection import sockets
from shelld.inspection.socket_news import SocketNews, SocketWatch
from shelld.inspection.sockets import Socket
from shelld.shells.shell import Shell
from shelld.terminals.input import PipeInput
from shelld.waits import pauses
from shelld.waits.pauses import Pauses
from shelld_protocol.structs import Listener, Prompt


class Reader:
    """A subscription to a client that seems slow. The first calls of `wait_for_room` return False:
    `refusals` is their number.
    """

    def __init__(self, refusals: int = 0) -> None:
        self._refusals = refusals
        self.waits = 0

    async def wait_for_room(self) -> bool:
        self._refusals -= 1
        return self._refusals < 0

    async def wait_for_slow_client(self, _shell: Shell, _is_enough: object) -> None:
        self.waits += 1


FIRST, SECOND = Socket(1, 80, "::1"), Socket(2, 81, "::1")


@pytest.mark.parametrize(("anyway_s", "expected"), [(60.0, [0, 2, 4]), (-1.0, [0, 1, 2, 3, 4])])
async def test_follower_checks_ports_when_sockets_change(
    monkeypatch: pytest.MonkeyPatch, anyway_s: float, expected: list[int]
) -> None:
    lists = [[FIRST], [FIRST], [FIRST, SECOND], [SECOND, FIRST], [SECOND]]
    shell = Shell("shell_a")
    shell.started()
    taken, checked, told = 0, list[int](), list[list[Listener]]()

    def listening(_place: str) -> list[Socket]:
        return lists[taken]

    async def listening_ports(
        _shell: Shell, _pauses: Pauses, _watch: SocketWatch
    ) -> list[Listener]:
        checked.append(taken)
        found = sorted(lists[taken], key=lambda each: each.port)
        return [Listener(each.port, each.address, 1, "server") for each in found]

    async def pause(_pauses: Pauses, shell: Shell, _is_due: object) -> None:
        nonlocal taken
        taken += 1
        if taken == len(lists):
            shell.end(0, None)

    async def tell(_name: str, _type: type, *, listening: list[Listener]) -> None:
        told.append(listening)

    monkeypatch.setattr(sockets, "listening", listening)
    monkeypatch.setattr(followers, "listening_ports", listening_ports)
    monkeypatch.setattr(followers, "_PORTS_ANYWAY_S", anyway_s)
    monkeypatch.setattr(Pauses, "pause", pause)
    feed: Any = SimpleNamespace(shell=shell, send_fact=tell, subscription=Reader())
    await PortFollower(Turns(), SocketNews(), feed).run()
    assert checked == expected
    assert [[each.port for each in found] for found in told] == [[80], [80, 81], [81]]


async def test_ports_are_told_once_a_slow_client_has_read(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [[FIRST], [FIRST, SECOND]]
    shell, told = Shell("shell_a"), list[int]()
    shell.started()

    async def listening_ports(
        _shell: Shell, _pauses: Pauses, _watch: SocketWatch
    ) -> list[Listener]:
        return [Listener(each.port, each.address, 1, "server") for each in found.pop(0)]

    async def tell(_name: str, _type: type, *, listening: list[Listener]) -> None:
        told.extend(each.port for each in listening)
        shell.end(0, None)

    monkeypatch.setattr(followers, "listening_ports", listening_ports)
    subscription = Reader(refusals=1)
    feed: Any = SimpleNamespace(shell=shell, send_fact=tell, subscription=subscription)
    with anyio.fail_after(60):
        await PortFollower(Turns(), SocketNews(), feed).run()
    assert (told, subscription.waits) == ([80, 81], 1)


async def test_new_socket_ends_a_long_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    shell, listening = Shell("shell_a"), list[Socket]()
    shell.started()
    told = list[list[Listener]]()

    def listed(_place: str) -> list[Socket]:
        return listening

    async def listening_ports(
        _shell: Shell, _pauses: Pauses, _watch: SocketWatch
    ) -> list[Listener]:
        return [Listener(each.port, each.address, 1, "server") for each in listening]

    def next_pause(_pauses: Pauses, _shell: Shell) -> float:
        # The follower pauses here. The new socket must end the follower's pause.
        listening[:] = [FIRST]
        return 3_600.0

    async def tell(_name: str, _type: type, *, listening: list[Listener]) -> None:
        told.append(listening)
        shell.end(0, None)
        shell.notify()

    monkeypatch.setattr(sockets, "listening", listed)
    monkeypatch.setattr(followers, "listening_ports", listening_ports)
    monkeypatch.setattr(Pauses, "next", next_pause)
    feed: Any = SimpleNamespace(shell=shell, send_fact=tell, subscription=Reader())
    with anyio.fail_after(60):
        await PortFollower(Turns(), SocketNews(), feed).run()
    assert [[each.port for each in found] for found in told] == [[80]]


@pytest.fixture
def shell() -> Iterator[Shell]:
    """A running shell that takes input."""
    shell = Shell("shell_a")
    shell.started()
    readable, writable = os.pipe()
    shell.input = PipeInput(writable)
    yield shell
    shell.input.end()
    os.close(readable)


async def test_prompt_of_a_program_with_a_clock_is_not_withdrawn(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = Prompt("proved", False, None, None, os.getpid(), "top", 200, "Key?")
    # The program has just drawn its clock, so it has been silent for a moment only.
    drawn = replace(asked, since_ms=1)
    prompts = [asked, drawn, asked, drawn, None]
    told: list[Prompt | None] = []

    async def tell(_name: str, _type: type, *, prompt: Prompt | None) -> None:
        told.append(prompt)

    def prompt_of(_shell: Shell) -> Prompt | None:
        found = prompts.pop(0)
        if not prompts:
            shell.end(0, None)
        return found

    monkeypatch.setattr(followers, "settled_prompt_of", prompt_of)
    monkeypatch.setattr(followers, "prompt_of", prompt_of)
    feed: Any = SimpleNamespace(shell=shell, send_fact=tell)
    await PromptFollower(Turns(), feed).run()
    assert told == [asked, None]


async def test_prompt_ends_if_input_closes_while_the_event_is_sent(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = Prompt("proved", True, None, None, os.getpid(), "bash", 0, "Name?")
    told: list[Prompt | None] = []

    async def tell(_name: str, _type: type, *, prompt: Prompt | None) -> None:
        told.append(prompt)
        assert isinstance(shell.input, PipeInput)
        shell.input.end()

    def prompt_of(_shell: Shell) -> Prompt:
        return asked

    monkeypatch.setattr(followers, "settled_prompt_of", prompt_of)
    feed: Any = SimpleNamespace(shell=shell, send_fact=tell)
    await PromptFollower(Turns(), feed).run()
    assert not shell.has_ended
    assert told == [asked, None]


async def test_prompt_that_is_older_than_the_subscription_is_reported(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = Prompt("proved", True, None, None, os.getpid(), "bash", 100_000_000, "Name?")

    async def tell(_name: str, _type: type, *, prompt: Prompt | None) -> None:
        assert prompt is asked
        shell.end(0, None)

    def prompt_of(_shell: Shell) -> Prompt:
        return asked

    monkeypatch.setattr(followers, "settled_prompt_of", prompt_of)
    monkeypatch.setattr(Shell, "quiet_s", 100_000.0)
    monkeypatch.setattr(pauses, "_LAST_PAUSE_S", 3_600.0)
    feed: Any = SimpleNamespace(shell=shell, send_fact=tell)
    with anyio.fail_after(60):
        await PromptFollower(Turns(), feed).run()
    assert shell.has_ended
