"""Excerpts: all new text if it fits, else its head, its tail, and the size of the gap."""

from __future__ import annotations

import re

import anyio
import anyio.lowlevel
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shelld.output.excerpt import ExcerptReader, count_lines, last_line, last_lines
from shelld.output.reader import Read
from shelld.output.retention import ShellOutput

NOTICE = re.compile(r"<(\d+) (\d+)>\n")


def excerpt_reader(output: ShellOutput, limit: int) -> ExcerptReader:
    return ExcerptReader(
        output.stdout,
        limit=lambda: limit,
        notice=lambda start, end: f"<{start} {end}>",
    )


async def excerpt(
    data: bytes, limit: int, *, retain: int = 1 << 26, final: bool = True
) -> tuple[str, ShellOutput]:
    output = ShellOutput(retain)
    output.append(output.stdout, data)
    reader = excerpt_reader(output, limit)
    read = await reader.peek(final=final)
    reader.take(read)
    assert reader.is_cut == bool(NOTICE.search(read.text))
    return read.text, output


async def test_fitting_text_is_returned_unchanged() -> None:
    assert (await excerpt(b"0123456789", 10))[0] == "0123456789"
    assert (await excerpt(b"", 10))[0] == ""


async def test_output_dropped_after_reading_stays_in_excerpt() -> None:
    output = ShellOutput(1 << 26)
    output.append(output.stdout, b"x" * 100_000)
    reader = excerpt_reader(output, 200_000)
    reads: list[Read] = []

    async def peek() -> None:
        reads.append(await reader.peek(final=True))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(peek)
        # During this checkpoint, the reader reads the text, and lets other tasks run before it
        # returns.
        await anyio.lowlevel.checkpoint()
        output.forget()
    assert (len(reads[0].text), reads[0].dropped) == (100_000, 0)


async def test_excerpt_has_head_tail_and_a_notice() -> None:
    text, output = await excerpt(b"x" * 50 + b"y" * 50, 20)
    assert text == "x" * 10 + "\n<10 90>\n" + "y" * 10
    assert output.stdout.read_position == 100


async def test_excerpt_prefers_whole_lines_if_cheap() -> None:
    data = "".join(f"line {number:03}\n" for number in range(100)).encode()
    text, _ = await excerpt(data, 100)
    head, start, end, tail = re.split(r"<(\d+) (\d+)>\n", text)
    assert head == data[: int(start)].decode()
    assert tail == data[int(end) :].decode()
    assert head.endswith("\n")
    assert tail.startswith("line")
    assert 80 <= len(head) + len(tail) <= 100


async def test_long_line_is_cut_to_fill_excerpt() -> None:
    text, _ = await excerpt(b"x" * 1_000 + b"\nyy", 100)
    assert text.endswith("x" * 47 + "\nyy")
    text, _ = await excerpt(b"yy\n" + b"x" * 1_000, 100)
    assert text.startswith("yy\n" + "x" * 47)


async def test_characters_are_counted_and_not_bytes() -> None:
    data = ("ä" * 50_000).encode()
    text, _ = await excerpt(data, 30_000)
    head, start, end, tail = re.split(r"\n<(\d+) (\d+)>\n", text)
    assert 27_000 <= len(head) + len(tail) <= 30_000
    assert (head + tail).strip("ä") == ""
    assert (2 * len(head), len(data) - 2 * len(tail)) == (int(start), int(end))
    assert (await excerpt(data, 50_000))[0] == data.decode()


async def test_escape_sequences_take_no_room() -> None:
    data = b"\x1b[31mx\x1b[0m" * 1_000
    assert (await excerpt(data, 1_000))[0] == "x" * 1_000
    text, _ = await excerpt(data, 500)
    assert "\x1b" not in text
    assert 400 <= text.count("x") <= 500


async def test_overwritten_line_takes_room_of_last_state() -> None:
    data = b"".join(b"\rprogress %06d" % number for number in range(100_000)) + b"\ndone\n"
    assert (await excerpt(data, 100))[0] == "progress 099999\ndone\n"


@pytest.mark.parametrize("limit", range(100, 125))
async def test_no_escape_sequence_is_cut_in_two(limit: int) -> None:
    data = b"\x1b[38;5;123mXX\x1b[0m" * 500
    text, _ = await excerpt(data, limit)
    head, start, end, tail = re.split(r"\n<(\d+) (\d+)>\n", text)
    assert (head + tail).strip("X") == ""
    # The omitted part begins where the head ends, and ends where the tail begins.
    assert len(head) + data[int(start) : int(end)].count(b"X") + len(tail) == 1_000


@pytest.mark.parametrize("limit", range(1, 8))
async def test_no_character_of_a_short_excerpt_is_cut(limit: int) -> None:
    assert "\ufffd" not in (await excerpt("äöüäöü日本語".encode(), limit))[0]


async def test_no_character_is_cut_in_two() -> None:
    for limit in range(100, 110):
        text, _ = await excerpt("€".encode() * 1_000, limit)
        head, _, _, tail = re.split(r"\n<(\d+) (\d+)>\n", text)
        assert (head + tail).strip("€") == ""


@pytest.mark.parametrize("limit", [2_000, 10_000])
async def test_a_gap_is_between_head_and_tail(limit: int) -> None:
    data = b"".join(b"%07d\n" % number for number in range(100_000))
    text, output = await excerpt(data, limit, retain=4_096)
    head, start, end, tail = re.split(r"<(\d+) (\d+)>\n", text)
    assert data.startswith(head.encode())
    assert data.endswith(tail.encode())
    assert len(head) + len(tail) <= limit
    assert (int(start), int(end)) == (len(head), len(data) - len(tail))
    assert output.stdout.store.dropped > 0


async def test_every_gap_is_reported() -> None:
    output = ShellOutput(4_096)
    output.append(output.stdout, b"a" * 100_000)
    reader = excerpt_reader(output, 1 << 20)
    read = await reader.peek(final=True)
    assert read.dropped == output.stdout.store.dropped > 0
    assert read.end == 100_000
    assert NOTICE.search(read.text)


async def test_head_that_does_not_fit_is_left_out() -> None:
    output = ShellOutput(1 << 18)
    # The gap cuts the control string. The rest of the control string is a single unit.
    data = b"a" * 15_000 + b"\x1b]" + b"x" * 60_000 + b"\n" * 400_000 + b"tail\n"
    output.append(output.stdout, data)
    output.stdout.read_position = 15_000
    reader = excerpt_reader(output, 100)
    read = await reader.peek(final=False)
    assert (read.start, read.end) == (15_000, len(data))
    assert len(NOTICE.sub("", read.text)) <= 100
    assert read.text.endswith("tail\n")


async def test_excerpt_beginning_in_gap_begins_after_it() -> None:
    output = ShellOutput(4_096)
    output.append(output.stdout, b"first\n" * 400)
    reader = excerpt_reader(output, 10_000)
    reader.take(await reader.peek(final=False))
    output.append(output.stdout, b"".join(b"%07d\n" % number for number in range(10_000)))
    reader = excerpt_reader(output, 1_000)
    read = await reader.peek(final=False)
    head, _, _, tail = NOTICE.split(read.text)
    assert read.dropped == 400 * 6 + 80_000 - 2_400 - output.stdout.store.tail_bytes
    assert 900 <= len(head) + len(tail) <= 1_000
    assert re.fullmatch(r"(\d{7}\n)+", head)
    assert tail.endswith("0009999\n")


async def test_an_unfinished_character_is_left_for_later() -> None:
    output = ShellOutput()
    output.append(output.stdout, b"x" * 100 + "ä".encode()[:1])
    reader = excerpt_reader(output, 20)
    read = await reader.peek(final=False)
    reader.take(read)
    assert (read.end, read.text[-1]) == (100, "x")


async def test_next_excerpt_has_only_new_output() -> None:
    output = ShellOutput()
    output.append(output.stdout, b"a" * 100)
    for data, text in ((b"", "aa\n<2 98>\naa"), (b"bbb", "bbb"), (b"", "")):
        output.append(output.stdout, data)
        reader = excerpt_reader(output, 4)
        read = await reader.peek(final=False)
        reader.take(read)
        assert read.text == text


@pytest.mark.parametrize("final", [True, False])
@given(
    data=st.lists(
        st.sampled_from(
            [b"a", b"bb\n", b"\xc3\xa4", "€".encode(), b"\xff", b"\x1b[1m", b"\r", b"\n"]
        ),
        max_size=60,
    ).map(b"".join),
    limit=st.integers(0, 40),
)
async def test_excerpt_is_bounded_and_reports_every_omission(
    final: bool, data: bytes, limit: int
) -> None:
    text, output = await excerpt(data, limit, final=final)
    parts = NOTICE.split(text)
    assert len(parts) in (1, 4)
    if len(parts) == 4:
        head, start, end, tail = parts
        assert len(head.removesuffix("\n")) + len(tail) <= limit
        assert 0 <= int(start) <= int(end) <= len(data)
        assert tail in text
    else:
        assert len(text) <= limit
    assert output.stdout.read_position <= len(data)
    if final:
        assert output.stdout.read_position == len(data)


@pytest.mark.parametrize(
    ("data", "line"),
    [
        (b"", ""),
        (b"one", "one"),
        (b"one\ntwo\n", "two"),
        (b"one\ntw", "tw"),
        (b"one\n\n  \n", "one"),
        (b"10 %\r20 %\r", "20 %"),
        (b"10 %\r20 %", "20 %"),
        (b"\x1b[32mgreen\x1b[0m\r\n", "green"),
        (b"Name? bo\b \b\b \b", "Name?"),
        (b"Name? bob\b\b\bann\r\n", "Name? ann"),
        (b"busy |\b/\b-", "busy -"),
        (b"\b\b\bx\b", "x"),
        ("zwölf €\n".encode(), "zwölf €"),
        (b"\xff\xfe\n", "\ufffd\ufffd"),
        (b"x" * 10_000, "x" * 20),
        (b"x" * 10_000 + b"end", "x" * 17 + "end"),
        (b"long ago\n" + b"\n" * 100_000, ""),
        (b"a\n" * 100_000 + b"last\n", "last"),
    ],
)
def test_last_line_shows_the_progress(data: bytes, line: str) -> None:
    output = ShellOutput()
    output.append(output.stdout, data)
    assert last_line(output.stdout.store, 20) == line


@pytest.mark.parametrize(
    ("data", "start", "end", "count", "lines"),
    [
        (b"", 0, 0, 0, ""),
        (b"one\ntwo\n", 0, 8, 2, "one\ntwo"),
        (b"one\ntwo\nthree", 4, 13, 2, "two\nthree"),
        (b"one\ntwo\nthree\n", 4, 8, 1, "two"),
        (b"\x1b[31mred\x1b[0m\r\n10%\r20%\n", 0, 24, 2, "red\r\n20%"),
        (b"a line of some length\nlast\n", 0, 27, 2, "last"),
        (b"a line that has no room", 0, 23, 1, "has no room"),
    ],
)
async def test_last_lines_are_whole_and_counted(
    data: bytes, start: int, end: int, count: int, lines: str
) -> None:
    output = ShellOutput()
    output.append(output.stdout, data)
    assert await count_lines(output.stdout.store, start, end) == count
    assert last_lines(output.stdout.store, start, end, 11) == lines
    assert last_lines(output.stdout.store, start, end, 0) == ""


async def test_dropped_lines_are_not_counted() -> None:
    output = ShellOutput(400)
    output.append(output.stdout, b"".join(b"%09d\n" % number for number in range(1_000)))
    assert await count_lines(output.stdout.store, 0, 10_000) == 40
    assert last_lines(output.stdout.store, 0, 10_000, 25) == "000000998\n000000999"
