"""Screens and their helper processes: what is shown, and what becomes of a lost process."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable

import anyio
import pytest

from shelld.helpers.helper import Helper
from shelld.keeper.pool import RunnerPool
from shelld.output.store import StreamStore
from shelld.process import faults
from shelld.screens import screen as screen_module
from shelld.screens.screen import Screen, Screens
from shelld.terminals.input import Resize, TerminalInput
from shelld.terminals.pty import Size
from shelld_protocol.errors import ErrorKind, RpcError
from support import running_below, wait_for


class Terminal:
    """A terminal whose output the test writes."""

    def __init__(self, screens: Screens, head_limit: int = 1 << 20) -> None:
        self.output = StreamStore(head_limit)
        self.input = TerminalInput(-1, Size(3, 20))
        self._screens = screens

    @property
    def screen(self) -> Screen:
        return self._screens.of(self.input, self.output)

    async def lines(self) -> list[str]:
        return (await self.screen.look()).lines

    def resize(self, rows: int, cols: int) -> None:
        number = self.input.sizes[-1].number + 1
        self.input.sizes.append(Resize(number, self.output.written, Size(rows, cols)))


@pytest.fixture
async def screens() -> AsyncIterator[Screens]:
    pool = RunnerPool()
    async with anyio.create_task_group() as tasks:

        def start(task: Callable[[], Awaitable[None]]) -> None:
            tasks.start_soon(faults.run_once, task, "a test")

        screens = Screens(pool, start)
        try:
            yield screens
        finally:
            screens.close()
            pool.close()


def helpers() -> list[int]:
    return running_below(os.getpid(), "screens/main.py")


def kill_helper() -> None:
    (pid,) = helpers()
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: not helpers(), "the end of the process")


async def test_output_is_shown_as_it_grows(screens: Screens) -> None:
    terminal = Terminal(screens)
    assert await terminal.lines() == ["", "", ""]
    terminal.output.append(b"one\r\n")
    terminal.output.append(b"two")
    assert await terminal.lines() == ["one", "two", ""]
    terminal.output.append(b"\x1b[Hthree")
    assert await terminal.lines() == ["three", "two", ""]


async def test_lost_process_loses_nothing(screens: Screens) -> None:
    terminal = Terminal(screens)
    terminal.output.append(b"one")
    terminal.resize(4, 30)
    terminal.output.append(b"\r\ntwo")
    before = await terminal.screen.look()
    kill_helper()
    after = await terminal.screen.look(before.version)
    assert after.lines == before.lines == ["one", "two", "", ""]
    assert after.version > before.version
    assert (after.rows, after.cols) == (4, 30)


async def test_sizes_hold_from_their_place_in_the_output(screens: Screens) -> None:
    terminal = Terminal(screens)
    terminal.output.append(b"1234567890")
    terminal.resize(3, 5)
    terminal.output.append(b"\r\nabcdefg")
    assert (await terminal.screen.look()).cols == 5
    assert (await terminal.lines())[-2:] == ["abcde", "fg"]


async def test_dropped_output_is_not_mixed_with_the_rest(screens: Screens) -> None:
    terminal = Terminal(screens, head_limit=5)
    terminal.output.append(b"one\r\n" + b"x" * 100 + b"\r\ntwo")
    assert terminal.output.drop(102) == 102
    assert await terminal.lines() == ["two", "", ""]


async def test_output_that_ends_the_process_is_left_out(
    screens: Screens, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask = Helper.ask

    async def ask_or_die(helper: Helper, data: bytes) -> bytes:
        if b"hostile" in data:
            raise EOFError
        return await ask(helper, data)

    monkeypatch.setattr(Helper, "ask", ask_or_die)
    terminal = Terminal(screens)
    terminal.output.append(b"hostile")
    assert await terminal.lines() == ["", "", ""]
    terminal.output.append(b"fine")
    assert await terminal.lines() == ["fine", "", ""]


async def test_no_process_is_a_shortage(screens: Screens, monkeypatch: pytest.MonkeyPatch) -> None:
    async def ask(_helper: Helper, _data: bytes) -> bytes:
        raise EOFError

    monkeypatch.setattr(Helper, "ask", ask)
    with pytest.raises(RpcError) as error:
        await Terminal(screens).lines()
    assert error.value.kind is ErrorKind.RESOURCE_EXHAUSTED


async def test_cancelled_look_leaves_a_working_screen(screens: Screens) -> None:
    terminal = Terminal(screens)
    terminal.output.append(b"one")
    for checkpoints in range(12):
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(terminal.lines)
                for _ in range(checkpoints):
                    await anyio.lowlevel.checkpoint()
                scope.cancel()
        assert await terminal.lines() == ["one", "", ""]
    assert len(helpers()) == 1


async def test_number_of_processes_is_limited(
    screens: Screens, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(screen_module, "MAX_PROCESSES", 2)
    terminals = [Terminal(screens) for _ in range(4)]
    for number, terminal in enumerate(terminals):
        terminal.output.append(b"%d" % number)
    for _ in range(2):
        for number, terminal in enumerate(terminals):
            assert await terminal.lines() == [str(number), "", ""]
            wait_for(lambda: len(helpers()) <= 2, "the end of the oldest process")


async def test_unused_process_is_ended(screens: Screens, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal(screens)
    await terminal.lines()
    screens.trim()
    assert len(helpers()) == 1
    monkeypatch.setattr(screen_module, "IDLE_S", -1.0)
    screens.trim()
    wait_for(lambda: not helpers(), "the end of the process")
    assert await terminal.lines() == ["", "", ""]


async def test_forgotten_screen_ends_its_process(screens: Screens) -> None:
    terminal = Terminal(screens)
    await terminal.lines()
    screens.forget(terminal.input)
    wait_for(lambda: not helpers(), "the end of the process")


async def test_without_the_emulator_there_is_no_screen(
    screens: Screens, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(screen_module, "_directory_of_avt", lambda: "")
    terminal = Terminal(screens)
    with pytest.raises(RpcError) as error:
        await terminal.lines()
    assert error.value.kind is ErrorKind.UNAVAILABLE
    screens.watch(terminal.input, terminal.output)
    assert terminal.input.ask_position is None
