"""Screens and their helper processes. A screen shows the same text after its helper process was
lost.
"""

from __future__ import annotations

import errno
import math
import os
import signal
import tty
from collections.abc import AsyncIterator, Awaitable, Callable

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest

from shelld.helpers.helper import Helper
from shelld.keeper.pool import RunnerPool
from shelld.output.store import StreamStore
from shelld.process import faults
from shelld.screens import screen as screen_module
from shelld.screens import screens as screens_module
from shelld.screens.screen import Screen
from shelld.screens.screens import Screens
from shelld.terminals.input import Resize, TerminalInput
from shelld.terminals.pty import NEW_MODES, Size
from shelld_protocol.errors import ErrorKind, RpcError
from support import running_below, wait_for


class Terminal:
    """A terminal whose output the test writes."""

    def __init__(
        self, screens: Screens, descriptor: int = -1, *, head_limit: int = 1 << 23
    ) -> None:
        self.output = StreamStore(head_limit)
        self.input = TerminalInput(descriptor, Size(3, 20))
        self._screens = screens

    @property
    def screen(self) -> Screen:
        return self._screens.of(self.input, self.output)

    def write(self, output: bytes) -> None:
        """Write output, which may contain questions to the terminal."""
        self.output.append(output)
        self.input.see(memoryview(output))

    async def lines(self) -> list[str]:
        return (await self.screen.capture()).lines

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


async def test_screen_keeps_its_text_if_its_helper_process_dies(screens: Screens) -> None:
    terminal = Terminal(screens)
    terminal.output.append(b"one")
    terminal.resize(4, 30)
    terminal.output.append(b"\r\ntwo")
    before = await terminal.screen.capture()
    kill_helper()
    after = await terminal.screen.capture(before.version)
    assert after.lines == before.lines == ["one", "two", "", ""]
    assert after.version > before.version
    assert (after.rows, after.cols) == (4, 30)


async def test_resize_applies_from_its_offset(screens: Screens) -> None:
    terminal = Terminal(screens)
    terminal.output.append(b"1234567890")
    terminal.resize(3, 5)
    terminal.output.append(b"\r\nabcdefg")
    assert (await terminal.screen.capture()).cols == 5
    assert (await terminal.lines())[-2:] == ["abcde", "fg"]


async def test_dropped_output_is_not_mixed_with_the_rest(screens: Screens) -> None:
    terminal = Terminal(screens, head_limit=5)
    terminal.output.append(b"one\r\n" + b"x" * 100 + b"\r\ntwo")
    assert terminal.output.drop(102) == 102
    assert await terminal.lines() == ["two", "", ""]


async def test_screen_shows_output_that_overtakes_it(
    screens: Screens, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = Terminal(screens, head_limit=5)
    terminal.output.append(b"12345old")
    ask = Helper.ask

    async def ask_while_more_comes(helper: Helper, data: bytes) -> bytes:
        if data == b"F[]\n12345":
            # The output that the next step would show is dropped before that step.
            terminal.output.append(b"\r\nnew")
            terminal.output.drop(5)
        return await ask(helper, data)

    monkeypatch.setattr(Helper, "ask", ask_while_more_comes)
    monkeypatch.setattr(screen_module, "_STEP_BYTES", 5)
    assert await terminal.lines() == ["new", "", ""]


async def test_head_before_a_gap_is_not_replayed(
    screens: Screens, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = Terminal(screens, head_limit=5)
    terminal.output.append(b"12345lost" + b"kept")
    terminal.output.drop(4)
    ask = Helper.ask
    asked: list[bytes] = []

    async def ask_and_note(helper: Helper, data: bytes) -> bytes:
        asked.append(data)
        return await ask(helper, data)

    monkeypatch.setattr(Helper, "ask", ask_and_note)
    assert await terminal.lines() == ["kept", "", ""]
    assert [data for data in asked if data.startswith(b"F")] == [b"F[]\nkept"]


async def test_output_that_crashes_the_helper_process_is_left_out(
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


async def test_size_that_crashes_the_helper_process_is_left_out(
    screens: Screens, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask = Helper.ask

    async def ask_or_die(helper: Helper, data: bytes) -> bytes:
        if data.startswith(b"S"):
            raise EOFError
        return await ask(helper, data)

    monkeypatch.setattr(Helper, "ask", ask_or_die)
    terminal = Terminal(screens)
    terminal.output.append(b"before")
    terminal.resize(2, 10)
    terminal.output.append(b"after")
    assert await terminal.lines() == ["after", ""]
    terminal.output.append(b"\r\nmore")
    assert await terminal.lines() == ["after", "more"]


async def test_wide_characters_survive_one_column(screens: Screens) -> None:
    terminal = Terminal(screens)
    terminal.output.append("earlier\r\n\u6f22".encode())
    assert await terminal.lines() == ["earlier", "\u6f22", ""]
    terminal.resize(3, 1)
    seen = await terminal.screen.capture()
    assert (seen.cols, "\u6f22" in seen.lines) == (1, True)
    terminal.resize(3, 20)
    assert "\u6f22" in await terminal.lines()


async def test_missing_process_reports_a_shortage(
    screens: Screens, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def ask(_helper: Helper, _data: bytes) -> bytes:
        raise EOFError

    monkeypatch.setattr(Helper, "ask", ask)
    with pytest.raises(RpcError) as error:
        await Terminal(screens).lines()
    assert error.value.kind is ErrorKind.RESOURCE_EXHAUSTED


async def test_screen_works_after_a_capture_is_cancelled(screens: Screens) -> None:
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


async def test_screen_without_descriptors_says_so(
    screens: Screens, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_pool: RunnerPool) -> None:
        raise OSError(errno.EMFILE, "")

    terminal = Terminal(screens)
    with monkeypatch.context() as short:
        short.setattr(RunnerPool, "acquire", refuse)
        with pytest.raises(RpcError) as caught:
            await terminal.lines()
    assert caught.value.data["limit"] == "files"
    assert await terminal.lines() == ["", "", ""]


async def test_number_of_processes_is_limited(
    screens: Screens, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(screens_module, "MAX_PROCESSES", 2)
    terminals = [Terminal(screens) for _ in range(4)]
    for number, terminal in enumerate(terminals):
        terminal.output.append(b"%d" % number)
    for _ in range(2):
        for number, terminal in enumerate(terminals):
            assert await terminal.lines() == [str(number), "", ""]
            wait_for(lambda: len(helpers()) <= 2, "the end of the oldest process")


@pytest.mark.slow
async def test_many_captures_at_once_share_the_helper_processes(
    screens: Screens, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit = screens_module.MAX_CAPTURES
    monkeypatch.setattr(screens_module, "MAX_PROCESSES", limit)
    terminals = [Terminal(screens) for _ in range(limit + 8)]
    most = 0

    async def capture(terminal: Terminal) -> None:
        nonlocal most
        assert await terminal.lines() == ["", "", ""]
        most = max(most, sum(each.screen.has_process for each in terminals))

    # In the second round, some screens already have processes while they wait for their turn.
    for _ in range(2):
        async with anyio.create_task_group() as tasks:
            for terminal in terminals:
                tasks.start_soon(capture, terminal)
    assert 0 < most <= limit


async def test_screens_keep_their_processes_between_captures(screens: Screens) -> None:
    terminals = [Terminal(screens) for _ in range(screens_module.MAX_CAPTURES + 4)]
    for terminal in terminals:
        await terminal.lines()
    first = set(helpers())
    assert len(first) == len(terminals)
    for terminal in terminals:
        await terminal.lines()
    assert set(helpers()) == first


async def test_unused_process_is_ended(screens: Screens, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal(screens)
    await terminal.lines()
    screens.trim()
    assert len(helpers()) == 1
    monkeypatch.setattr(screens_module, "IDLE_S", -1.0)
    screens.trim()
    wait_for(lambda: not helpers(), "the end of the process")
    assert await terminal.lines() == ["", "", ""]


async def test_forgotten_screen_ends_its_process(screens: Screens) -> None:
    terminal = Terminal(screens)
    await terminal.lines()
    screens.forget(terminal.input)
    wait_for(lambda: not helpers(), "the end of the process")


@pytest.mark.slow
async def test_resize_leaves_earlier_output_unchanged(screens: Screens) -> None:
    terminal = Terminal(screens)
    # The process could not take all this output at once, because its memory is limited.
    terminal.output.append(b"".join(b"%d\r\n" % number for number in range(600_000)))
    terminal.resize(4, 20)
    assert await terminal.lines() == ["599998", "599999", "", ""]


async def test_slow_output_is_shown_in_several_captures(
    screens: Screens, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(screen_module, "CAPTURE_TIMEOUT_S", 0)
    terminal = Terminal(screens)
    terminal.output.append(b"one")
    with pytest.raises(RpcError) as error:
        await terminal.lines()
    assert error.value.data["limit"] == "screen"
    (helper,) = helpers()
    monkeypatch.undo()
    assert await terminal.lines() == ["one", "", ""]
    assert helpers() == [helper]


async def test_cursor_position_matches_each_question(screens: Screens) -> None:
    master, slave = os.openpty()
    try:
        tty.setraw(slave)
        os.set_blocking(master, False)
        terminal = Terminal(screens, master)
        screens.watch(terminal.input, terminal.output)
        terminal.write(b"\x1b[2;3H\x1b[6n\x1b[5n\x1b[99;99H\x1b[6n\x1b[H")
        expected = b"\x1b[2;3R\x1b[0n\x1b[3;20R"
        answers = b""
        while len(answers) < len(expected):
            answers += await anyio.to_thread.run_sync(os.read, slave, 1000)
        assert answers == expected
        assert terminal.input.questions == []
    finally:
        os.close(master)
        os.close(slave)


@pytest.fixture
def frames(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The output that the daemon sends to helper processes, in frames."""
    ask = Helper.ask
    frames: list[bytes] = []

    async def ask_and_note(helper: Helper, data: bytes) -> bytes:
        if data.startswith(b"F"):
            frames.append(data.partition(b"\n")[2])
        return await ask(helper, data)

    monkeypatch.setattr(Helper, "ask", ask_and_note)
    return frames


async def test_many_questions_cost_one_step(
    screens: Screens, frames: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = Terminal(screens)
    reports: list[bytes] = []
    monkeypatch.setattr(terminal.input, "write", reports.append)
    monkeypatch.setattr(terminal.input, "modes", lambda: NEW_MODES._replace(line_mode=False))
    terminal.input.ask_position = lambda: None
    terminal.write(b"a\x1b[6n" * 15)
    await terminal.screen.answer_questions()
    assert reports == [b"\x1b[1;%dR" % (col + 2) for col in range(15)]
    assert len(frames) == 1


async def test_capture_that_is_cut_short_shows_the_wanted_output(
    screens: Screens, frames: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(screen_module, "_STEP_BYTES", 5)
    terminal = Terminal(screens)
    terminal.output.append(b"0123456789abcdefghij")
    cut = await terminal.screen.capture(least=7, cut_at=-math.inf)
    assert cut.lines == ["0123456789", "", ""]
    # Each further call of `capture` processes one more step of the output.
    cut = await terminal.screen.capture(cut.version, least=7, cut_at=-math.inf)
    assert cut.lines == ["0123456789abcde"]
    assert (await terminal.lines())[0] == "0123456789abcdefghij"
    assert len(frames) == 4


async def test_answers_to_questions_take_turns_with_captures(
    screens: Screens, frames: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(screen_module, "_STEP_BYTES", 5)
    monkeypatch.setattr(screen_module, "_TURN_S", -1.0)
    terminal = Terminal(screens)

    def ignore(_report: bytes) -> None:
        pass

    monkeypatch.setattr(terminal.input, "_answer", ignore)
    terminal.input.ask_position = lambda: None
    terminal.write(b"01234567\x1b[6n")
    for count in (1, 2):
        await terminal.screen.answer_questions()
        assert (len(frames), terminal.input.questions) == (count, [12])
    await terminal.screen.answer_questions()
    assert terminal.input.questions == []


async def test_captures_of_one_screen_delay_no_other_screen(screens: Screens) -> None:
    slow, other = Terminal(screens), Terminal(screens)
    await slow.lines()
    (helper,) = helpers()
    os.kill(helper, signal.SIGSTOP)
    async with anyio.create_task_group() as tasks:
        for _ in range(screens_module.MAX_CAPTURES):
            tasks.start_soon(slow.lines)
        await anyio.wait_all_tasks_blocked()
        assert await other.lines() == ["", "", ""]
        assert slow.screen.is_in_use
        os.kill(helper, signal.SIGCONT)


async def test_capture_of_a_forgotten_screen_ends(screens: Screens) -> None:
    terminal = Terminal(screens)
    await terminal.lines()
    (helper,) = helpers()
    os.kill(helper, signal.SIGSTOP)
    refused = list[ErrorKind]()

    async def capture() -> None:
        with pytest.raises(RpcError) as error:
            await terminal.lines()
        refused.append(error.value.kind)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(capture)
        while not terminal.screen.is_in_use:
            await anyio.lowlevel.checkpoint()
        await anyio.lowlevel.checkpoint()
        screens.forget(terminal.input)
    assert refused == [ErrorKind.SHUTTING_DOWN]
    wait_for(lambda: not helpers(), "the end of the process")


async def test_forgotten_screen_process_ends_after_answer(
    screens: Screens, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = Terminal(screens)
    ask = Helper.ask

    async def then_forget(self: Helper, data: bytes) -> bytes:
        answer = await ask(self, data)
        if data.startswith(b"V"):
            screens.forget(terminal.input)
        return answer

    monkeypatch.setattr(Helper, "ask", then_forget)
    screen = terminal.screen
    assert (await screen.capture()).lines == ["", "", ""]
    assert not screen.has_process


async def test_screen_is_unavailable_without_the_emulator(
    screens: Screens, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(screens_module, "directory_of_avt", lambda: "")
    terminal = Terminal(screens)
    with pytest.raises(RpcError) as error:
        await terminal.lines()
    assert error.value.kind is ErrorKind.UNAVAILABLE
    screens.watch(terminal.input, terminal.output)
    assert terminal.input.ask_position is None
