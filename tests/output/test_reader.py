"""A call reads the head or the new text of a stream, in steps that let other tasks run."""

from __future__ import annotations

import base64
import itertools
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shelld.filters.filter import Filters, LineFilter
from shelld.keeper.pool import RunnerPool
from shelld.output.escapes import first_unit
from shelld.output.head import TRUNCATED_SUFFIX, Head, read_head
from shelld.output.reader import Read, StreamReader
from shelld.output.retention import OutputStream
from shelld.output.store import Kept, StreamStore
from shelld.output.text import MAX_INTRODUCERS, STEP_BYTES, Piece, last_states, read_text
from terminal import outputs, stored, text_of


@pytest.fixture
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shelld.output.head.STEP_BYTES", 7)
    monkeypatch.setattr("shelld.output.reader.STEP_BYTES", 7)


def stream_of(data: bytes, head_limit: int = 1 << 24) -> OutputStream:
    return OutputStream(stored(data, head_limit))


def head_of(store: StreamStore, limit: int, *, strip: bool = True, final: bool = True) -> Head:
    async def read() -> Head:
        return await read_head(store, limit, strip=strip, final=final)

    return anyio.run(read)


def reader_of(
    stream: OutputStream,
    *,
    offset: int | None = None,
    max_bytes: int = 1 << 24,
    strip: bool = True,
    line_filter: LineFilter | None = None,
    in_base64: bool = False,
) -> StreamReader:
    return StreamReader(
        stream,
        offset=offset,
        max_bytes=max_bytes,
        strip=strip,
        line_filter=line_filter,
        in_base64=in_base64,
    )


def take(made: StreamReader, *, final: bool = True) -> Read:
    async def peek() -> Read:
        return await made.peek(final=final)

    read = anyio.run(peek)
    made.take(read)
    return read


@given(outputs, st.lists(st.integers(1, 40), min_size=1), st.integers(0, 30))
def test_reads_in_base64_join_to_all_bytes(data: bytes, sizes: list[int], step: int) -> None:
    stream = stream_of(data)
    parts: list[bytes] = []
    position = 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("shelld.output.reader._BASE64_STEP_BYTES", 3 * (1 + step))
        for size in itertools.cycle(sizes):
            read = take(reader_of(stream, offset=position, max_bytes=size, in_base64=True))
            parts.append(base64.b64decode(read.text, validate=True))
            assert len(parts[-1]) == read.end - position == min(size, len(data) - position)
            position = read.end
            assert read.more is (position < len(data))
            if not read.more:
                break
    assert b"".join(parts) == data


# -- the head ---------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.usefixtures("small_steps")
@given(outputs, st.integers(20, 60), st.booleans())
def test_rest_begins_where_the_head_was_cut(data: bytes, limit: int, strip: bool) -> None:
    store = stream_of(data).store
    whole = text_of(data, strip=strip)
    text, end, cut, _ = head_of(store, limit, strip=strip)
    assert len(text.encode()) <= limit
    if not cut:
        assert (text, end) == (whole, len(data))
        return
    head = text.removesuffix(TRUNCATED_SUFFIX)
    rest = read_text(store, end, len(data), len(data), strip=strip, final=True).text
    joined = last_states(head + rest) if strip else head + rest
    assert joined.rstrip("\r") == whole.rstrip("\r")
    # The room that the head leaves unused is smaller than a unit, which has at most 20 bytes here.
    assert len(head.encode()) > limit - len(TRUNCATED_SUFFIX) - 20 or "\r" in data.decode("latin-1")


@pytest.mark.parametrize("size", [65_536, 1_048_576, 3_000_000])
def test_text_of_exactly_the_limit_is_not_cut(size: int) -> None:
    store = stream_of(b"x" * size).store
    assert head_of(store, size)[:3] == ("x" * size, size, False)
    text, end, cut, _ = head_of(store, size - 1)
    assert (len(text), end, cut) == (size - 1, size - 1 - len(TRUNCATED_SUFFIX), True)
    assert text.endswith("x" + TRUNCATED_SUFFIX)


def test_the_gap_is_never_inside_a_head() -> None:
    store = stream_of(b"h" * 100 + b"-" * 1000 + b"t" * 100, head_limit=100).store
    store.drop(1000)
    assert head_of(store, 1000)[:3] == ("h" * 100 + TRUNCATED_SUFFIX, 100, True)
    assert head_of(store, 110)[:3] == ("h" * 95 + TRUNCATED_SUFFIX, 95, True)
    assert head_of(store, 50)[:3] == ("h" * 35 + TRUNCATED_SUFFIX, 35, True)


def test_stripped_or_overwritten_text_takes_no_room() -> None:
    states = b"".join(b"%d%%\r" % number for number in range(200_000))
    data = b"\x1b[31m" * 100_000 + b"a\n" + states + b"done\n" + b"b" * 1000
    store = stream_of(data).store
    assert head_of(store, 2000)[:3] == ("a\ndone\n" + "b" * 1000, len(data), False)


def test_head_without_room_contains_only_the_suffix() -> None:
    data = "😀".encode() * 10
    assert head_of(stream_of(data).store, 18)[:3] == (TRUNCATED_SUFFIX, 0, True)
    assert head_of(stream_of(data).store, 19)[:3] == ("😀" + TRUNCATED_SUFFIX, 4, True)


# -- new text ---------------------------------------------------------------------------------


def test_only_reads_without_offset_move_the_position() -> None:
    stream = stream_of(b"0123456789")
    assert take(reader_of(stream, offset=3, max_bytes=4))[:5] == ("3456", 3, 7, 0, True)
    assert stream.read_position == 0
    assert take(reader_of(stream, max_bytes=4))[:5] == ("0123", 0, 4, 0, True)
    assert take(reader_of(stream))[:5] == ("456789", 4, 10, 0, False)
    assert take(reader_of(stream))[:5] == ("", 10, 10, 0, False)
    assert take(reader_of(stream, offset=99))[:5] == ("", 99, 99, 0, False)


@pytest.mark.slow
@pytest.mark.usefixtures("small_steps")
@given(
    outputs,
    st.lists(st.tuples(st.integers(0, 60), st.integers(1, 30)), max_size=6),
    st.booleans(),
)
def test_reads_between_arrivals_return_all_output_once(
    data: bytes, reads: list[tuple[int, int]], strip: bool
) -> None:
    stream = stream_of(b"")
    texts: list[str] = []
    for arrived, max_bytes in [*reads, (60, 1), (60, 1000)]:
        stream.store.append(data[stream.store.written : stream.store.written + arrived])
        before = stream.read_position
        read = take(reader_of(stream, max_bytes=max_bytes, strip=strip), final=False)
        assert read.start == before
        assert stream.read_position == read.end
        arrived_bytes = data[before : stream.store.written]
        assert read.end - before <= max(max_bytes, first_unit(arrived_bytes))
        texts.append(read.text)
    stream.store.append(data[stream.store.written :])
    texts.append(take(reader_of(stream, strip=strip)).text)
    assert stream.read_position == len(data)
    text = "".join(texts)
    text = last_states(text) if strip else text
    assert text.rstrip("\r") == text_of(data, strip=strip).rstrip("\r")


@pytest.mark.parametrize(
    ("max_bytes", "text"), [(1, "a"), (2, "a"), (3, "aé"), (4, "aé"), (5, "aé"), (6, "aé世")]
)
def test_read_stops_before_unit_exceeding_max_bytes(max_bytes: int, text: str) -> None:
    read = take(reader_of(stream_of("aé世".encode()), offset=0, max_bytes=max_bytes))
    assert (read.text, read.end) == (text, len(text.encode()))


def test_a_first_unit_is_returned_whole() -> None:
    assert take(reader_of(stream_of("世a".encode()), offset=0, max_bytes=1)).text == "世"


def test_read_ends_at_gap_and_next_reports_it() -> None:
    stream = stream_of(b"h" * 10 + b"-" * 100 + b"t" * 10, head_limit=10)
    stream.store.drop(100)
    assert take(reader_of(stream))[:5] == ("h" * 10, 0, 10, 0, True)
    assert take(reader_of(stream))[:5] == ("t" * 10, 10, 120, 100, False)
    assert take(reader_of(stream, offset=50, max_bytes=3))[:5] == ("ttt", 50, 113, 60, True)


@pytest.mark.usefixtures("small_steps")
def test_output_dropped_during_read_ends_it() -> None:
    data = bytes(range(65, 91)) * 4
    stream = stream_of(data, head_limit=0)
    made = reader_of(stream, strip=False)

    async def peek() -> Read:
        found: list[Read] = []
        async with anyio.create_task_group() as tasks:

            async def read() -> None:
                found.append(await made.peek(final=True))

            tasks.start_soon(read)
            await anyio.lowlevel.checkpoint()
            stream.store.drop(50)
        return found[0]

    first = anyio.run(peek)
    made.take(first)
    assert 0 < first.end < 50
    assert first.text == data[: first.end].decode()
    second = take(reader_of(stream, strip=False))
    assert (second.start, second.dropped) == (first.end, 50 - first.end)
    assert second.text == data[50:].decode()


@pytest.mark.usefixtures("small_steps")
def test_read_restarts_where_the_read_that_overtook_it_ended() -> None:
    stream = stream_of(b"0123456789" * 3)
    slow, quick = reader_of(stream), reader_of(stream, max_bytes=20)

    async def peek() -> Read:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: slow.peek(final=True))
            await anyio.lowlevel.checkpoint()
            quick.take(await quick.peek(final=True))
        assert slow.was_overtaken
        # `quick` has not taken all text, so `slow` has text to read without waiting.
        assert slow.has_news
        return await slow.peek(final=True)

    assert anyio.run(peek)[:5] == ("0123456789", 20, 30, 0, False)


@pytest.mark.usefixtures("small_steps")
def test_gap_does_not_count_toward_max_bytes() -> None:
    stream = stream_of(b"-" * 100 + b"0123456789" * 5, head_limit=0)
    stream.store.drop(100)
    assert take(reader_of(stream, max_bytes=20))[:5] == ("0123456789" * 2, 0, 120, 100, True)
    assert take(reader_of(stream, max_bytes=30))[:5] == ("0123456789" * 3, 120, 150, 0, False)


async def turns_during(action: Callable[[], Awaitable[object]]) -> int:
    """Return how often other tasks ran during `action`."""
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            await anyio.lowlevel.checkpoint()
            turns += 1

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(count)
        await action()
        tasks.cancel_scope.cancel()
    return turns


async def test_large_read_yields_between_steps() -> None:
    stream = stream_of(b"some line of a log\n" * 200_000)
    steps = stream.store.written // STEP_BYTES
    everything = stream.store.written
    head = await turns_during(lambda: read_head(stream.store, everything, strip=True, final=True))
    assert head >= steps - 1
    plain = reader_of(stream)
    assert await turns_during(lambda: plain.peek(final=True)) >= steps - 1
    async with Filters(RunnerPool()).open("line") as line_filter:
        lines = reader_of(stream, line_filter=line_filter)
        assert await turns_during(lambda: lines.peek(final=True)) >= steps


@pytest.mark.parametrize("pattern", [None, "zz"])
async def test_other_tasks_run_between_the_steps_of_many_reads(
    pattern: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = stream_of(b"x" * 8 * STEP_BYTES)
    events = list[str]()

    def step(*args: Any, **options: Any) -> Piece:
        piece = read_text(*args, **options)
        if piece.text:
            events.append("step")
        return piece

    async def tick() -> None:
        while True:
            events.append("tick")
            await anyio.lowlevel.checkpoint()

    async def read(line_filter: LineFilter | None) -> None:
        await reader_of(stream, offset=0, line_filter=line_filter).peek(final=True)

    monkeypatch.setattr("shelld.output.reader.read_text", step)
    async with anyio.create_task_group() as tasks, Filters(RunnerPool()).open(pattern) as found:
        tasks.start_soon(tick)
        async with anyio.create_task_group() as readers:
            for _ in range(10):
                readers.start_soon(read, found)
        tasks.cancel_scope.cancel()
    assert events.count("step") >= 10 * 8
    assert "step step" not in " ".join(events)


async def run_beside_ticks(
    read: Callable[[], Coroutine[Any, Any, None]], events: list[str]
) -> None:
    """Run ten reads, and another task that adds "tick" to `events` at each of its turns."""

    async def tick() -> None:
        while True:
            events.append("tick")
            await anyio.lowlevel.checkpoint()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(tick)
        async with anyio.create_task_group() as reads:
            for _ in range(10):
                reads.start_soon(read)
        tasks.cancel_scope.cancel()


async def test_other_tasks_run_between_the_steps_of_many_reads_in_base64(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stream = stream_of(b"x" * STEP_BYTES)
    events = list[str]()
    encode = base64.b64encode

    def step(data: bytes) -> bytes:
        events.append("step")
        return encode(data)

    async def read() -> None:
        await reader_of(stream, offset=0, in_base64=True).peek(final=True)

    monkeypatch.setattr(base64, "b64encode", step)
    await run_beside_ticks(read, events)
    assert events.count("step") >= 10
    assert "step step" not in " ".join(events)


async def test_other_tasks_run_between_many_heads() -> None:
    stream = stream_of(b"x" * (STEP_BYTES // 2))
    events = list[str]()

    async def read() -> None:
        await read_head(stream.store, STEP_BYTES, strip=True, final=True)
        events.append("head")

    await run_beside_ticks(read, events)
    assert events.count("head") == 10
    assert "head head" not in " ".join(events)


@pytest.mark.parametrize("unit", [b"\x1b", b"\x1b\0", b"\xc2\x9b", b"\x1b]\n"], ids=repr)
async def test_reading_dense_escapes_yields_more_often(unit: bytes) -> None:
    sequences = 20 * MAX_INTRODUCERS
    stream = stream_of(unit * sequences)
    assert stream.store.written <= STEP_BYTES
    turns = sequences // MAX_INTRODUCERS
    head = await turns_during(lambda: read_head(stream.store, 1 << 24, strip=True, final=True))
    assert head >= turns - 1
    plain = reader_of(stream)
    assert await turns_during(lambda: plain.peek(final=True)) >= turns - 1


async def longest_turn(action: Callable[[], Awaitable[object]]) -> float:
    """Return the longest processor time, in seconds, between two turns of other tasks."""
    turns = [time.thread_time()]

    async def look_at_clock() -> None:
        while True:
            await anyio.lowlevel.checkpoint()
            turns.append(time.thread_time())

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(look_at_clock)
        await action()
        turns.append(time.thread_time())
        tasks.cancel_scope.cancel()
    return max(after - before for before, after in itertools.pairwise(turns))


LONG_LINES = {
    "full screen": b"\x1b[12;34Hsome text \x1b[1;31mred\x1b[0m",
    "unfinished": b"\x1b]",
    "overwritten": b"\r12%",
    "carriage returns": b"\r",
    "line ends in strings": b"\x1b]\n",
}


@pytest.mark.slow
@pytest.mark.parametrize("unit", LONG_LINES.values(), ids=LONG_LINES)
@pytest.mark.parametrize("pattern", [None, "zz"])
async def test_a_long_line_is_read_in_short_turns(unit: bytes, pattern: str | None) -> None:
    # A control string that does not end takes the longest to read, so use only a third of the
    # bytes.
    size = 4_000_000 if b"\x1b]" in unit else 12_000_000
    stream = stream_of(unit * (size // len(unit)))
    async with Filters(RunnerPool()).open(pattern) as line_filter:
        made = reader_of(stream, line_filter=line_filter)
        assert await longest_turn(lambda: made.peek(final=True)) < 0.15


async def test_a_growing_line_is_searched_once(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = stream_of(b"")
    bytes_read = 0
    read = stream.store.read

    def count(start: int, max_bytes: int) -> Kept:
        nonlocal bytes_read
        kept = read(start, max_bytes)
        bytes_read += len(kept.data)
        return kept

    monkeypatch.setattr(stream.store, "read", count)
    async with Filters(RunnerPool()).open("end") as line_filter:
        made = reader_of(stream, line_filter=line_filter)
        for _ in range(200):
            stream.store.append(b"\x1b[1;1Htext" * 2000)
            read_in_vain = await made.peek(final=False)
            assert read_in_vain.text == ""
            made.skip(read_in_vain)
        assert bytes_read < 2 * stream.store.written
        stream.store.append(b"end\nmore")
        found = await made.peek(final=False)
    assert found.text == "text" * 400_000 + "end\n"
    assert found.end == stream.store.written - len(b"more")


@pytest.mark.parametrize("pattern", [None, ""])
async def test_unfinished_sequence_longer_than_max_bytes_is_not_new_output(
    pattern: str | None,
) -> None:
    # This control string has no end and is longer than `max_bytes`.
    stream = stream_of(b"\x1b[0m\n" * 2 + b"\x1b]" + b"x" * 100)
    async with Filters(RunnerPool()).open(pattern) as line_filter:
        made = reader_of(stream, max_bytes=10, line_filter=line_filter)
        ends: list[int] = []
        while made.has_news and len(ends) < 10:
            read = await made.peek(final=False)
            ends.append(read.end)
            made.skip(read)
    assert set(ends) == {10}
    assert not made.has_news
    stream.store.append(b"x")
    assert made.has_news


# -- lines ------------------------------------------------------------------------------------


@pytest.fixture
async def everything() -> AsyncIterator[LineFilter]:
    """A filter that matches every line."""
    async with Filters(RunnerPool()).open("") as line_filter:
        assert line_filter is not None
        yield line_filter


async def take_lines(
    stream: OutputStream, line_filter: LineFilter, *, max_bytes: int = 1 << 20, final: bool = False
) -> Read:
    made = reader_of(stream, max_bytes=max_bytes, line_filter=line_filter)
    read = await made.peek(final=final)
    made.take(read)
    return read


@pytest.mark.usefixtures("small_steps")
async def test_unfinished_line_is_held_until_its_end(
    everything: LineFilter,
) -> None:
    stream = stream_of(b"one\ntwo is longer than a step")
    assert (await take_lines(stream, everything))[:5] == ("one\n", 0, 4, 0, False)
    assert (await take_lines(stream, everything))[:5] == ("", 4, 4, 0, False)
    stream.store.append(b"!\nthree")
    assert (await take_lines(stream, everything))[:5] == (
        "two is longer than a step!\n",
        4,
        31,
        0,
        False,
    )
    assert (await take_lines(stream, everything, final=True))[:5] == ("three", 31, 36, 0, False)


@pytest.mark.slow
@pytest.mark.usefixtures("small_steps")
async def test_peek_without_take_does_not_move_the_position(everything: LineFilter) -> None:
    made = reader_of(stream_of(b"one line\n" * 10_000 + b"prompt> "), line_filter=everything)
    first = await made.peek(final=False)
    assert first.text == "one line\n" * 10_000
    assert await made.peek(final=False) == first


async def test_only_max_bytes_cuts_a_line(everything: LineFilter) -> None:
    stream = stream_of(b"x" * 50 + b"\ny\nz\n")
    assert (await take_lines(stream, everything, max_bytes=20))[:5] == ("x" * 20, 0, 20, 0, True)
    # The rest of this line fits in the next call.
    assert (await take_lines(stream, everything, max_bytes=35))[:5] == (
        "x" * 30 + "\ny\nz\n",
        20,
        55,
        0,
        False,
    )


@pytest.mark.usefixtures("small_steps")
async def test_lines_continue_after_the_gap(everything: LineFilter) -> None:
    stream = stream_of(b"head\nhalf" + b"-" * 100 + b"other\ntail\nopen", head_limit=9)
    stream.store.drop(100)
    assert (await take_lines(stream, everything))[:5] == ("head\nhalf", 0, 9, 0, True)
    assert (await take_lines(stream, everything))[:5] == ("other\ntail\n", 9, 120, 100, False)
    assert (await take_lines(stream, everything, final=True))[:5] == ("open", 120, 124, 0, False)


async def test_line_end_inside_sequence_ends_no_line(everything: LineFilter) -> None:
    stream = stream_of(b"one\n\x1b]0;a\nb\nc")
    assert (await take_lines(stream, everything))[:5] == ("one\n", 0, 4, 0, False)
    stream.store.append(b"\x07two\n")
    assert (await take_lines(stream, everything))[:5] == ("two\n", 4, 18, 0, False)


async def test_a_line_is_matched_in_its_last_state() -> None:
    stream = stream_of(b"10%\r90%\n5%\r95%")
    async with Filters(RunnerPool()).open("^9") as line_filter:
        assert line_filter is not None
        assert (await take_lines(stream, line_filter)).text == "90%\n"
        # Another reader may have received the beginning of an overwritten line.
        stream.read_position = 10
        assert (await take_lines(stream, line_filter, final=True)).text == "\r95%"


@pytest.mark.slow
@pytest.mark.usefixtures("small_steps")
@given(outputs, st.integers(1, 40))
def test_filtered_reads_are_independent_of_arrival(data: bytes, arrived: int) -> None:
    async def read() -> str:
        stream = stream_of(b"")
        texts: list[str] = []
        async with Filters(RunnerPool()).open("") as line_filter:
            assert line_filter is not None
            while stream.store.written < len(data):
                written = stream.store.written
                stream.store.append(data[written : written + arrived])
                texts.append((await take_lines(stream, line_filter)).text)
            texts.append((await take_lines(stream, line_filter, final=True)).text)
        assert stream.read_position == len(data)
        return "".join(texts)

    assert anyio.run(read) == text_of(data)


async def test_short_read_lets_no_other_task_run() -> None:
    # Each turn of the event loop would delay the answer.
    stream = stream_of(b"one line\n")
    reading = StreamReader(stream, offset=None, max_bytes=1_000, strip=True, line_filter=None)
    peek = reading.peek(final=False)
    with pytest.raises(StopIteration) as ended:
        peek.send(None)
    assert ended.value.value.text == "one line\n"
