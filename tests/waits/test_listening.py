"""All requests that wait for a port share the checks of the command's processes, and each of them
eventually gets a check.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import asynccontextmanager
from functools import partial

import anyio
import anyio.abc
import anyio.lowlevel
import pytest

from shelld.eventloop.turns import Turns
from shelld.inspection import ports, sockets
from shelld.inspection.ports import Listening
from shelld.inspection.socket_news import SocketNews, SocketWatch
from shelld.inspection.sockets import Socket
from shelld.shells.shell import Shell
from shelld.terminals.input import PipeInput
from shelld.waits import listening, prompts
from shelld.waits.listening import listening_ports, wait_for_port
from shelld.waits.pauses import Pauses
from shelld.waits.prompts import RunState, wait_for_prompt
from shelld_protocol.structs import Listener, Prompt

STEPS = 5
PROMPT = Prompt("proved", True, None, None, 1, "program", 500, "")


@pytest.fixture
def shell() -> Iterator[Shell]:
    """A running shell that takes input."""
    shell = Shell("shell_a")
    shell.started()
    shell.pid = 1
    read, write = os.pipe()
    shell.input = PipeInput(write)
    yield shell
    shell.input.end()
    os.close(read)


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The steps that all checks have taken so far. Each check takes `STEPS` steps, and then finds a
    port.
    """
    taken = list[int]()

    def find(*_: object) -> Iterator[Listening | None]:
        for number in range(STEPS):
            taken.append(number)
            yield None
        yield Listening(80, "::1", 1, "server")

    monkeypatch.setattr(listening, "_SLICE_S", -1.0)
    monkeypatch.setattr(ports, "find", find)
    return taken


async def hold_turn(turns: Turns, *, task_status: anyio.abc.TaskStatus[None]) -> None:
    async with turns.turn():
        task_status.started()
        await anyio.sleep_forever()


@asynccontextmanager
async def turns_of_others() -> AsyncGenerator[Turns]:
    """Yield a `Turns` object. Another task never gives its turn back, so no check gets a turn."""
    turns = Turns()
    async with anyio.create_task_group() as tasks:
        await tasks.start(hold_turn, turns)
        with anyio.fail_after(60):
            yield turns
        tasks.cancel_scope.cancel()


@pytest.mark.parametrize("wait_s", [0, 0.05])
async def test_wait_for_a_port_ends_although_another_has_the_turn(
    shell: Shell, steps: list[int], wait_s: float
) -> None:
    async with turns_of_others() as turns:
        # When the time of a wait is up, its last check does not wait for a turn.
        give_up_at = anyio.current_time() + wait_s
        found = await wait_for_port(shell, None, give_up_at, turns, SocketNews())
        assert found == [Listener(80, "::1", 1, "server")]
        assert len(steps) == STEPS


async def test_waits_that_end_together_share_the_last_check(shell: Shell, steps: list[int]) -> None:
    found: dict[int | None, list[Listener]] = {}

    async def wait(port: int | None) -> None:
        found[port] = await wait_for_port(shell, port, give_up_at, turns, SocketNews())

    async with turns_of_others() as turns, anyio.create_task_group() as tasks:
        give_up_at = anyio.current_time() + 0.05
        for port in (None, *range(71, 91)):
            tasks.start_soon(wait, port)
    # If a wait's time limit passes during a check, the wait shares the next check.
    assert len(steps) <= 2 * STEPS
    server = Listener(80, "::1", 1, "server")
    assert {port for port in found if found[port] == [server]} == {None, 80}


async def test_another_wait_finishes_the_last_check(shell: Shell, steps: list[int]) -> None:
    turns = Turns()
    with anyio.CancelScope() as first:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait_for_port, shell, None, 0.0, turns, SocketNews())
            while len(steps) < 2:
                await anyio.lowlevel.checkpoint()
            first.cancel()
    assert await wait_for_port(shell, None, 0.0, turns, SocketNews())


async def test_wait_for_a_prompt_ends_although_another_has_the_turn(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run_state_of(_shell: Shell) -> RunState:
        return RunState(PROMPT, is_stopped=False)

    monkeypatch.setattr(prompts, "run_state_of", run_state_of)
    async with turns_of_others() as turns:
        assert await wait_for_prompt(shell, anyio.current_time() + 0.05, Pauses(turns)) is PROMPT


async def test_long_check_lets_other_tasks_have_turns(shell: Shell, steps: list[int]) -> None:
    turns, seen = Turns(), list[int]()

    async def take_turns() -> None:
        while len(seen) < STEPS:
            async with turns.turn():
                seen.append(len(steps))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(take_turns)
        with SocketWatch(SocketNews(), shell.notify) as watch:
            assert await listening_ports(shell, Pauses(turns), watch)
    assert len(set(seen)) == STEPS


class _Machine:
    """Replaces the kernel's list of listening sockets, and the search for the ports of a command.
    `checks` counts the searches.
    """

    def __init__(self, patch: pytest.MonkeyPatch, shell: Shell) -> None:
        self.sockets: list[Socket] = []
        self.checks = 0
        self.ours: Socket | None = None
        self._shell = shell
        self.elsewhere: dict[int, str] = {}
        patch.setattr(sockets, "listening", self._list)
        patch.setattr(ports, "find", self._find)

    def _find(
        self, _top: int, _port: int | None, here: frozenset[Socket], elsewhere: dict[int, str]
    ) -> Iterator[Listening | None]:
        self.checks += 1
        elsewhere.update(self.elsewhere)
        if self.ours is not None and self.ours in here:
            yield Listening(self.ours.port, self.ours.address, 1, "server")

    def _list(self, _place: str) -> list[Socket]:
        return self.sockets

    def has_checked(self, times: int) -> bool:
        return self.checks >= times

    async def wait(self, turns: Turns, news: SocketNews) -> list[Listener]:
        return await wait_for_port(self._shell, None, anyio.current_time() + 30, turns, news)


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the pauses so long that only a change of the sockets causes another check."""
    monkeypatch.setattr(listening, "_FIRST_PAUSE_S", 3_600.0)
    monkeypatch.setattr(listening, "_LAST_PAUSE_S", 3_600.0)


@pytest.mark.usefixtures("patient")
async def test_wait_checks_the_command_only_when_a_socket_begins_to_listen(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = _Machine(monkeypatch, shell)
    news, found = SocketNews(), list[Listener]()

    async def wait() -> None:
        found.extend(await machine.wait(Turns(), news))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wait)
        for number in range(1, 4):
            await _until(partial(machine.has_checked, number))
            # The kernel lists the sockets several times, but no wait checks the command.
            await anyio.sleep(0.2)
            assert (machine.checks, found) == (number, [])
            other = Socket(number, 8_000 + number, "::")
            machine.sockets = [other]
            if number == 3:
                machine.ours = other
    assert machine.checks == 4
    assert [each.port for each in found] == [8_003]


async def test_pauses_grow_while_others_begin_to_listen(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = _Machine(monkeypatch, shell)
    pauses = list[float]()

    async def wait_for_sockets(
        _shell: Shell, watch: SocketWatch, _seen: int, least_s: float, _most_s: float
    ) -> None:
        pauses.append(least_s)
        # The seventh pause ends although no socket has changed.
        watch.count += len(pauses) != 7
        if len(pauses) == 8:
            shell.end(0, None)

    monkeypatch.setattr(listening, "_wait_for_sockets", wait_for_sockets)
    monkeypatch.setattr(Pauses, "shortest", 0.01)
    assert await machine.wait(Turns(), SocketNews()) == []
    assert pauses == [0.01, 0.02, 0.04, 0.08, 0.16, 0.2, 0.2, 0.01]


@pytest.mark.usefixtures("patient")
async def test_change_in_another_namespace_ends_the_pause_between_checks(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A check finds the network namespaces of the command's processes. Here, it finds a namespace
    # that can be opened only through a process that has already ended. This counts as a change of
    # the sockets, so it ends each pause.
    machine = _Machine(monkeypatch, shell)
    machine.elsewhere = {1: "/proc/0"}
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(machine.wait, Turns(), SocketNews())
        await _until(lambda: machine.checks >= 3)
        tasks.cancel_scope.cancel()


async def test_wait_checks_the_command_again_if_no_socket_changes(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Another process may pass a listening socket to the command. The list of sockets does not show
    # this.
    monkeypatch.setattr(listening, "_FIRST_PAUSE_S", 0.01)
    machine = _Machine(monkeypatch, shell)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(machine.wait, Turns(), SocketNews())
        await _until(lambda: machine.checks >= 3)
        tasks.cancel_scope.cancel()


async def _until(condition: Callable[[], bool]) -> None:
    with anyio.fail_after(60):
        while not condition():
            await anyio.sleep(0.005)
