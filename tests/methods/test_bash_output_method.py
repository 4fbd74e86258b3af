"""The body of `bash_output`: turns for large answers, and what is kept for readers."""

from __future__ import annotations

import weakref
from types import SimpleNamespace
from typing import Any, cast

import anyio
import pytest
from anyio.lowlevel import checkpoint

from shelld.methods.bash import bash, run_for_answer
from shelld.methods.bash_output import bash_output, wait_and_read
from shelld.methods.context import Daemon, LargeAnswers, RequestContext
from shelld.output.reader import STEP_BYTES, Read, StreamReader
from shelld.output.retention import OutputStream
from shelld.process.options import Options
from shelld.shells.manager import Manager
from shelld.shells.options import ManagerOptions
from shelld.shells.shell import Shell
from shelld.tools.bash_output import BashOutputTool
from shelld_protocol.shell_methods import BashOutputParams, BashParams, BashResult
from shelld_protocol.structs import FilterEngine
from shelld_protocol.tools import ExecutionContext
from terminal import stored

ENDED = cast(Shell, SimpleNamespace(has_ended=True, output_is_complete=True))
PARAMS = BashOutputParams(bash_id="a")


class EverythingPasses:
    engine: FilterEngine = "re2"

    def __init__(self) -> None:
        self.renewed = 0

    def renew(self) -> None:
        self.renewed += 1

    async def lines(self, text: str) -> str:
        return text


class Text(str):
    """A string that supports weak references, to tell whether it is still referenced."""


class NotingReader(StreamReader):
    """A reader that records the text of each look."""

    def __init__(self, data: bytes) -> None:
        super().__init__(
            OutputStream(stored(data, 1 << 24)),
            offset=0,
            max_bytes=1 << 24,
            strip=False,
            line_filter=EverythingPasses(),
        )
        self.texts: list[weakref.ref[Text]] = []

    async def look(self, *, final: bool) -> Read:
        read = await super().look(final=final)
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

    with anyio.fail_after(20):
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


async def test_every_filtered_look_has_the_full_budget() -> None:
    line_filter = EverythingPasses()
    reader = StreamReader(
        OutputStream(stored(b"x\n" * 3, 100)),
        offset=0,
        max_bytes=2,
        strip=False,
        line_filter=line_filter,
    )
    for looks in (1, 2, 3):
        reader.skip(await reader.look(final=True))
        assert line_filter.renewed == looks


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
            with anyio.fail_after(20):
                # A call may be answered before its shell is released.
                while manager.list_shells() != [shell]:
                    await checkpoint()
        await bash(context, BashParams("true"))
        with anyio.fail_after(20):
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

        async def look(reader: StreamReader, *, final: bool) -> Read:
            pinned.append(shell.output.is_pinned)
            return await original(reader, final=final)

        original = StreamReader.look
        monkeypatch.setattr(StreamReader, "look", look)
        await bash_output(context, BashOutputParams(first.bash_id, filter="f.*"))
        tool = BashOutputTool(context.daemon)
        await tool.execute(ExecutionContext("/"), bash_id=first.bash_id)
        assert set(pinned) == {True}
        assert len(pinned) == 4
