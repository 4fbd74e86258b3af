"""A command's output becomes the same text, however it arrives and is read.

The first bytes of the input say how large the reads are, and how large the pieces of arriving
output are. The other bytes of the input are the output.
"""

from __future__ import annotations

from unittest import mock

import anyio

from shelld.output.head import TRUNCATED_SUFFIX, read_head
from shelld.output.reader import StreamReader
from shelld.output.retention import ShellOutput
from shelld.output.text import last_states, read_text

# The sizes are small, so that inputs reach every kind of boundary.
RETAIN_BYTES = 400
STEP_BYTES = 16
_SETTINGS = 4


def check(program: bytes) -> None:
    """Use the first bytes of `program` as settings, and the rest as output. Raise AssertionError if
    a promise is broken.
    """
    settings, data = program[:_SETTINGS].ljust(_SETTINGS, b"\1"), program[_SETTINGS:]
    arriving, reading, limit = (max(1, number) for number in settings[:3])
    strip = bool(settings[3] & 1)
    with (
        mock.patch("shelld.output.head.STEP_BYTES", STEP_BYTES),
        mock.patch("shelld.output.reader.STEP_BYTES", STEP_BYTES),
    ):
        anyio.run(_check_all, data, arriving, reading, limit, strip)


async def _check_all(data: bytes, arriving: int, reading: int, limit: int, strip: bool) -> None:
    await _check_reads(data, arriving, reading, strip)
    await _check_head(data, max(20, limit), strip)
    await _check_bounded(data, arriving, reading, strip)


def _whole(data: bytes, strip: bool) -> str:
    output = ShellOutput()
    output.append(output.stdout, data)
    store = output.stdout.store
    return read_text(store, 0, len(data), len(data) + 1, strip=strip, final=True).text


def _same(text: str, whole: str, strip: bool) -> None:
    if strip:
        assert "\x1b" not in text
        text = last_states(text)
    # A read drops carriage returns at its end only if it knows that no output follows.
    assert text.rstrip("\r") == whole.rstrip("\r")


async def _check_reads(data: bytes, arriving: int, reading: int, strip: bool) -> None:
    output = ShellOutput()
    stream = output.stdout
    texts: list[str] = []
    while stream.store.written < len(data):
        written = stream.store.written
        output.append(stream, data[written : written + arriving])
        texts.append(await _read(output, reading, strip, final=False))
    while stream.read_position < len(data):
        before = stream.read_position
        texts.append(await _read(output, reading, strip, final=True))
        assert stream.read_position > before
    _same("".join(texts), _whole(data, strip), strip)


async def _read(output: ShellOutput, max_bytes: int, strip: bool, *, final: bool) -> str:
    stream = output.stdout
    made = StreamReader(stream, offset=None, max_bytes=max_bytes, strip=strip, line_filter=None)
    read = await made.peek(final=final)
    assert read.start == stream.read_position
    made.take(read)
    return read.text


async def _check_head(data: bytes, limit: int, strip: bool) -> None:
    output = ShellOutput()
    output.append(output.stdout, data)
    store = output.stdout.store
    head = await read_head(store, limit, strip=strip, final=True)
    assert len(head.text.encode()) <= limit
    text = head.text
    if head.is_cut:
        text = text.removesuffix(TRUNCATED_SUFFIX)
        rest = read_text(store, head.end, len(data), len(data), strip=strip, final=True)
        text += rest.text
        assert rest.end == len(data)
    else:
        assert head.end == len(data)
    _same(text, _whole(data, strip), strip)


async def _check_bounded(data: bytes, arriving: int, reading: int, strip: bool) -> None:
    output = ShellOutput(RETAIN_BYTES)
    for start in range(0, len(data), arriving):
        output.append(output.stdout, data[start : start + arriving])
    stream = output.stdout
    assert stream.store.kept == min(len(data), RETAIN_BYTES)
    dropped = 0
    while stream.read_position < len(data):
        made = StreamReader(stream, offset=None, max_bytes=reading, strip=strip, line_filter=None)
        read = await made.peek(final=True)
        assert read.end > read.start
        dropped += read.dropped
        made.take(read)
    assert dropped == stream.store.dropped
