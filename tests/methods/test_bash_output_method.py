"""The method `bash_output` makes only one large answer at a time, and keeps output while a request
reads it.
"""

from __future__ import annotations

import weakref
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import anyio
import anyio.to_thread
import pytest
from anyio.lowlevel import checkpoint

from shelld.filters.filter import LineFilter
from shelld.methods.bash import bash, run_for_answer
from shelld.methods.bash_output import bash_output, wait_and_read
from shelld.methods.context import Daemon, LargeAnswers, RequestContext
from shelld.methods.input import write_stdin
from shelld.output.reader import Read, StreamReader
from shelld.output.retention import OutputStream
from shelld.output.text import STEP_BYTES
from shelld.process.options import Options
from shelld.shells.lifecycle import ShellStatus
from shelld.shells.manager import Manager
from shelld.shells.options import ManagerOptions
from shelld.shells.shell import Shell
from shelld.tools.bash_output import BashOutputTool
from shelld.tools.execution import ShellTool
from shelld.tools.interactive import BashInputTool
from shelld.tools.text import excerpt_readers
from shelld_protocol.input_methods import WriteStdinParams
from shelld_protocol.shell_methods import BackgroundResult, BashOutputParams, BashParams, BashResult
from shelld_protocol.structs import FilterEngine
from shelld_protocol.tools import ExecutionContext
from support import Gate
from terminal import stored


async def never_waits(condition: Callable[[], bool]) -> None:
    assert condition(), "the read waits, although there is more to read"


def fake_shell(*, has_ended: bool) -> Shell:
    """Return a fake shell. Reading its output fails if the read waits."""
    return cast(
        Shell,
        SimpleNamespace(has_ended=has_ended, output_is_complete=has_ended, wait_until=never_waits),
    )


RUNNING, ENDED = fake_shell(has_ended=False), fake_shell(has_ended=True)
PARAMS = BashOutputParams(bash_id="a")
LONG_WAIT = BashOutputParams(bash_id="a", wait=600_000)


class EverythingPasses:
    engine: FilterEngine = "re2"

    def __init__(self) -> None:
        self.renewed = 0

    def renew(self) -> None:
        self.renewed += 1

    async def lines(self, text: str) -> str:
        return text


class OnlyLastPasses(EverythingPasses):
    """A filter that matches the line "last". It never lets other tasks run."""

    async def lines(self, text: str) -> str:
        return "last\n" * ("last" in text)


class Text(str):
    """A string that supports weak references, so that a test can see whether anything refers
    to it.
    """


class NotingReader(StreamReader):
    """A reader that records the text that each call of `peek` returns."""

    def __init__(self, data: bytes) -> None:
        super().__init__(
            OutputStream(stored(data, 1 << 24)),
            offset=0,
            max_bytes=1 << 24,
            strip=False,
            line_filter=EverythingPasses(),
        )
        self.texts: list[weakref.ref[Text]] = []

    async def peek(self, *, final: bool) -> Read:
        read = await super().peek(final=final)
        text = Text(read.text)
        self.texts.append(weakref.ref(text))
        return read._replace(text=text)


async def no_wait() -> None:
    return None


def context_of(answers: LargeAnswers) -> RequestContext:
    return RequestContext(cast(Any, None), large_answers=answers)


@pytest.mark.parametrize(
    "line", ["x" * 99 + "\n", "\N{SNOWMAN}" * 33 + "\n"], ids=["ascii", "other"]
)
async def test_filtered_reads_hold_no_text_while_they_wait(line: str) -> None:
    text = line * (STEP_BYTES // len(line.encode()) + 100)
    answers = LargeAnswers(no_wait)
    other = context_of(answers)
    await other.begin_large_answer()
    readers = [NotingReader(text.encode()) for _ in range(3)]
    results: list[str] = []

    async def read(reader: NotingReader) -> None:
        context = context_of(answers)
        reads = await wait_and_read(ENDED, PARAMS, {"stdout": reader}, context)
        results.append(reads["stdout"].text)
        context.end_large_answer()

    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            for reader in readers:
                tasks.start_soon(read, reader)
            while not all(reader.texts for reader in readers):
                await checkpoint()
            for _ in range(100):
                await checkpoint()
            assert not results
            assert [reader.texts[0]() for reader in readers] == [None] * 3
            other.end_large_answer()
    assert results == [text] * 3
    assert [len(reader.texts) for reader in readers] == [2] * 3


async def test_every_filtered_read_has_the_full_time_budget() -> None:
    line_filter = EverythingPasses()
    reader = StreamReader(
        OutputStream(stored(b"x\n" * 3, 100)),
        offset=0,
        max_bytes=2,
        strip=False,
        line_filter=line_filter,
    )
    for peeks in (1, 2, 3):
        reader.skip(await reader.peek(final=True))
        assert line_filter.renewed == peeks


def small_reader(data: bytes, line_filter: LineFilter | None = None) -> StreamReader:
    """Return a reader that takes five bytes in one call of `peek`."""
    return StreamReader(
        OutputStream(stored(data, 1 << 24)),
        offset=None,
        max_bytes=5,
        strip=True,
        line_filter=line_filter,
    )


@pytest.mark.parametrize("shell", [RUNNING, ENDED], ids=["running", "ended"])
async def test_a_wait_goes_on_while_there_is_unread_output(shell: Shell) -> None:
    reader = small_reader(b"1234\n" * 100 + b"last\n", OnlyLastPasses())
    reads = await wait_and_read(shell, LONG_WAIT, {"stdout": reader})
    assert reads["stdout"][:5] == ("last\n", 0, 505, 0, False)


async def test_a_wait_goes_on_after_output_without_text() -> None:
    reader = small_reader(b"\x1b[31m" * 100 + b"text")
    reads = await wait_and_read(RUNNING, LONG_WAIT, {"stdout": reader})
    assert reads["stdout"][:5] == ("text", 0, 504, 0, False)


async def test_wait_ends_empty_once_all_output_of_an_ended_shell_is_read() -> None:
    reader = small_reader(b"1234\n" * 100, OnlyLastPasses())
    reads = await wait_and_read(ENDED, LONG_WAIT, {"stdout": reader})
    assert reads["stdout"][:5] == ("", 0, 500, 0, False)


async def test_a_read_without_wait_looks_once() -> None:
    reader = small_reader(b"1234\n" * 100, OnlyLastPasses())
    reads = await wait_and_read(ENDED, PARAMS, {"stdout": reader})
    assert reads["stdout"][:5] == ("", 0, 5, 0, True)


async def test_other_requests_run_while_a_wait_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = small_reader(b"1234\n" * 100 + b"last\n", OnlyLastPasses())
    skipped = 0
    # Before each turn of the other task, record how many reads have matched no line so far.
    turns: set[int] = set()
    skip = reader.skip

    def count(read: Read) -> None:
        nonlocal skipped
        skipped += 1
        skip(read)

    async def take_turns() -> None:
        while True:
            turns.add(skipped)
            await checkpoint()

    monkeypatch.setattr(reader, "skip", count)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(take_turns)
        await wait_and_read(RUNNING, LONG_WAIT, {"stdout": reader})
        tasks.cancel_scope.cancel()
    assert skipped == 100
    # The two tasks may start in any order.
    assert turns >= set(range(1, 100))


def do_in_first_peek(
    monkeypatch: pytest.MonkeyPatch, action: Callable[[], Awaitable[None]]
) -> None:
    """Run `action` at the end of the first call of `peek`, when the call has already read."""
    actions = [action]
    original = StreamReader.peek

    async def peek(reader: StreamReader, *, final: bool) -> Read:
        read = await original(reader, final=final)
        if actions:
            await actions.pop()()
        return read

    monkeypatch.setattr(StreamReader, "peek", peek)


async def read_plainly(context: RequestContext, bash_id: str) -> tuple[str, bool, bool]:
    result = await bash_output(context, BashOutputParams(bash_id, wait=60_000))
    return result.stdout, result.is_running, result.more


async def read_lines(context: RequestContext, bash_id: str) -> tuple[str, bool, bool]:
    result = await bash_output(context, BashOutputParams(bash_id, wait=60_000, filter="o"))
    return result.stdout, result.is_running, result.more


async def read_after_input(context: RequestContext, bash_id: str) -> tuple[str, bool, bool]:
    result = await write_stdin(context, WriteStdinParams(bash_id, text="x", wait=60_000))
    return result.stdout, result.is_running, result.more


async def use_tool(
    kind: type[ShellTool], context: RequestContext, bash_id: str, **params: Any
) -> tuple[str, bool, bool]:
    tool = kind(context.daemon)
    result = await tool.execute(ExecutionContext("/"), bash_id=bash_id, **params)
    assert result.success
    metadata = result.metadata
    return str(result.output), metadata["is_running"], metadata["more"]


@pytest.mark.parametrize(
    "read",
    [
        read_plainly,
        read_lines,
        read_after_input,
        partial(use_tool, BashOutputTool, wait=60_000),
        partial(use_tool, BashOutputTool, wait=60_000, filter="o"),
        # With a longer wait, this tool would wait for more output after its input, but no such
        # output comes.
        partial(use_tool, BashInputTool, wait=1, text="x"),
    ],
    ids=["plain", "filter", "write_stdin", "BashOutput", "BashOutput filter", "BashInput"],
)
async def test_last_output_of_bash_is_returned_with_its_end(
    read: Callable[[RequestContext, str], Awaitable[tuple[str, bool, bool]]],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    gate = Gate(tmp_path / "gate")
    async with Manager() as manager:
        context = RequestContext(Daemon(Options(), manager))
        command = f"echo one; {gate.wait}; echo two"
        started = await bash(context, BashParams(command, run_in_background=True, open_stdin=True))
        assert isinstance(started, BackgroundResult)
        shell = manager.get(started.bash_id)

        async def end() -> None:
            await anyio.to_thread.run_sync(gate.open)
            await shell.wait_until(lambda: shell.has_ended)

        do_in_first_peek(monkeypatch, end)
        output, is_running, more = await read(context, shell.id)
    assert output.startswith("one\ntwo\n")
    assert not is_running
    assert not more


def ended_shell(output: bytes) -> Shell:
    """Return a shell that has ended while one of its processes still runs."""
    shell = Shell("a")
    shell.output.append(shell.stdout, output)
    shell.status, shell.is_empty, shell.leftover = ShellStatus.COMPLETED, False, [1]
    return shell


async def test_output_of_a_leftover_process_during_a_read_is_announced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shell = ended_shell(b"one\n")
    readers = excerpt_readers(shell, 100)

    async def write() -> None:
        shell.output.append(shell.stdout, b"late\n")

    do_in_first_peek(monkeypatch, write)
    reads = await wait_and_read(shell, PARAMS, readers)
    assert reads["stdout"][:5] == ("one\n", 0, 4, 0, True)
    reads = await wait_and_read(shell, PARAMS, excerpt_readers(shell, 100))
    assert reads["stdout"][:5] == ("late\n", 4, 9, 0, False)


async def test_line_that_a_leftover_process_ends_during_a_read_is_announced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shell = ended_shell(b"one\ntwo")

    def reader() -> StreamReader:
        return StreamReader(
            shell.stdout, offset=None, max_bytes=100, strip=True, line_filter=EverythingPasses()
        )

    async def end_leftover() -> None:
        shell.leftover = []

    do_in_first_peek(monkeypatch, end_leftover)
    reads = await wait_and_read(shell, PARAMS, {"stdout": reader()})
    assert reads["stdout"][:5] == ("one\n", 0, 4, 0, True)
    reads = await wait_and_read(shell, PARAMS, {"stdout": reader()})
    assert reads["stdout"][:5] == ("two", 4, 7, 0, False)


@pytest.mark.parametrize("is_cancelled", [False, True])
async def test_shell_is_kept_while_it_is_read(is_cancelled: bool) -> None:
    async with Manager(ManagerOptions(max_retained=1)) as manager:
        context = RequestContext(Daemon(Options(), manager))
        first = await bash(context, BashParams("echo first"))
        assert isinstance(first, BashResult)
        shell = manager.get(first.bash_id)

        async def look(_: Shell) -> None:
            assert len(manager.list_shells()) == 2
            if is_cancelled:
                scope.cancel()
                await checkpoint()

        with manager.reading(shell):
            with anyio.CancelScope() as scope:
                await run_for_answer(context, BashParams("true"), look)
            with anyio.fail_after(60):
                # A call may have its answer before the daemon releases the shell of the call.
                while manager.list_shells() != [shell]:
                    await checkpoint()
        await bash(context, BashParams("true"))
        with anyio.fail_after(60):
            while first.bash_id in [shell.id for shell in manager.list_shells()]:
                await checkpoint()


async def test_output_is_pinned_while_it_is_filtered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with Manager() as manager:
        context = RequestContext(Daemon(Options(), manager))
        first = await bash(context, BashParams("echo first"))
        assert isinstance(first, BashResult)
        shell = manager.get(first.bash_id)
        pinned: list[bool] = []

        async def peek(reader: StreamReader, *, final: bool) -> Read:
            pinned.append(shell.output.is_pinned)
            return await original(reader, final=final)

        original = StreamReader.peek
        monkeypatch.setattr(StreamReader, "peek", peek)
        await bash_output(context, BashOutputParams(first.bash_id, filter="f.*"))
        tool = BashOutputTool(context.daemon)
        await tool.execute(ExecutionContext("/"), bash_id=first.bash_id)
        assert set(pinned) == {True}
        assert len(pinned) == 4


async def test_large_answer_turn_ends_at_the_second_call_if_the_first_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(_turn: anyio.Semaphore) -> None:
        raise MemoryError

    answers = LargeAnswers(no_wait)
    first, second = context_of(answers), context_of(answers)
    await first.begin_large_answer()
    with monkeypatch.context() as patch:
        patch.setattr(type(anyio.Semaphore(1)), "release", fail)
        with pytest.raises(MemoryError):
            first.end_large_answer()
    first.end_large_answer()
    with anyio.fail_after(60):
        await second.begin_large_answer()
    assert answers.is_turn_of(second)
