"""The body of `bash_output`, where many requests wait for their turn to make a large answer."""

from __future__ import annotations

import weakref
from types import SimpleNamespace
from typing import Any, cast

import anyio
import pytest
from anyio.lowlevel import checkpoint

from shelld.methods.bash_output import wait_and_read
from shelld.methods.context import Context, LargeAnswers
from shelld.output.reader import STEP_BYTES, Read, StreamReader
from shelld.output.retention import OutputStream
from shelld.shells.process import ShellProcess
from shelld_protocol.shell_methods import BashOutputParams
from shelld_protocol.structs import FilterEngine
from terminal import stored

ENDED = cast(ShellProcess, SimpleNamespace(has_ended=True, is_empty=True, leftover=0))
PARAMS = BashOutputParams(bash_id="a")


class EverythingPasses:
    engine: FilterEngine = "re2"

    def renew(self) -> None:
        """It takes no time."""

    async def lines(self, text: str) -> str:
        return text


class Text(str):
    """A text of which can be told whether anybody still has it."""


class NotingReader(StreamReader):
    """Notes the text of each look."""

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


def context_of(answers: LargeAnswers) -> Context:
    return Context(cast(Any, None), large_answers=answers)


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
