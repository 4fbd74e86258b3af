"""How waits share the looks at processes, and that none of them waits for its turn for ever."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager

import anyio
import anyio.abc
import pytest

from shelld.eventloop.turns import Turns
from shelld.inspection import ports
from shelld.inspection.ports import Listening
from shelld.shells.shell import Shell
from shelld.terminals.input import PipeInput
from shelld.waits import listening, prompts
from shelld.waits.listening import listening_ports, wait_for_port
from shelld.waits.pauses import Pauses
from shelld.waits.prompts import State, wait_for_prompt
from shelld_protocol.structs import Listener, Prompt

STEPS = 5
PROMPT = Prompt("proved", True, None, None, 1, "program", 500, "")


@pytest.fixture
def shell() -> Shell:
    shell = Shell("shell_a")
    shell.started()
    shell.pid = 1
    # Nothing is written to it.
    shell.input = PipeInput(-1)
    return shell


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The steps of looks that have been taken. Each is a slice; the last one finds a port."""
    taken = list[int]()

    def find(_top: int, _port: int | None) -> Iterator[Listening | None]:
        for number in range(STEPS):
            taken.append(number)
            yield None
        yield Listening(80, "::1", 1, "server")

    monkeypatch.setattr(listening, "_SLICE_S", -1.0)
    monkeypatch.setattr(ports, "find", find)
    return taken


async def hold_turn(looks: Turns, *, task_status: anyio.abc.TaskStatus[None]) -> None:
    async with looks.turn():
        task_status.started()
        await anyio.sleep_forever()


@asynccontextmanager
async def looks_of_others() -> AsyncGenerator[Turns]:
    """Turns of which somebody else has one all the time."""
    looks = Turns()
    async with anyio.create_task_group() as tasks:
        await tasks.start(hold_turn, looks)
        with anyio.fail_after(30):
            yield looks
        tasks.cancel_scope.cancel()


@pytest.mark.parametrize("wait_s", [0, 0.05])
async def test_wait_for_a_port_ends_although_another_has_the_turn(
    shell: Shell, steps: list[int], wait_s: float
) -> None:
    async with looks_of_others() as looks:
        # The last look does not need a turn.
        found = await wait_for_port(shell, None, anyio.current_time() + wait_s, looks)
        assert found == [Listener(80, "::1", 1, "server")]
        assert len(steps) == STEPS


async def test_wait_for_a_prompt_ends_although_another_has_the_turn(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    def state_of(_shell: Shell) -> State:
        return State(PROMPT, is_stopped=False)

    monkeypatch.setattr(prompts, "state_of", state_of)
    async with looks_of_others() as looks:
        assert await wait_for_prompt(shell, anyio.current_time() + 0.05, Pauses(looks)) is PROMPT


async def test_long_look_leaves_turns_to_others(shell: Shell, steps: list[int]) -> None:
    looks, seen = Turns(), list[int]()

    async def take_turns() -> None:
        while len(seen) < STEPS:
            async with looks.turn():
                seen.append(len(steps))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(take_turns)
        assert await listening_ports(shell, None, Pauses(looks))
    assert len(set(seen)) == STEPS
