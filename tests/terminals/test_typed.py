"""The lines that are typed into a terminal, derived from the bytes written to it."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shelld.terminals.line_editor import MAX_KEPT
from shelld.terminals.typed import Dropped, Typed, last_line, readings, typed


@pytest.mark.parametrize(
    ("before", "data", "lines", "rest"),
    [
        (b"", b"", [], b""),
        (b"", b"ls\n", [b"ls"], b""),
        (b"l", b"s\rpw", [b"ls"], b"pw"),
        (b"", b"a\r\nb\n", [b"a", b"b"], b""),
        (b"", b"\n\n", [b"", b""], b""),
        # The kernel drops its line at these keys, but a shell may keep the line.
        (b"a", b"\x15b\x1cc\n", [b"a\x15b\x1cc"], b""),
        (b"a", b"b\x03c\n", [None, b"c"], b""),
        # Quoted interrupts are text.
        (b"a", b"b\x16\x03c\n", [b"ab\x16\x03c"], b""),
        (b"a", b"b\x11\x03c\n", [b"ab\x11\x03c"], b""),
        (b"a", b"bQ\x03c\n", [b"abQ\x03c"], b""),
    ],
)
def test_line_ends_and_interrupts_are_followed(
    before: bytes, data: bytes, lines: list[bytes | None], rest: bytes
) -> None:
    found = typed(before, data, interrupt=b"\x03", lnext=b"Q")
    assert found[:4] == Typed(lines, rest, is_passed_on=False, parts=[])[:4]


@given(
    st.lists(
        st.sampled_from([b"a", b"\r", b"\n", b"\x1b[200~", b"\x1b", b"\x11", b"\x16", b"\x03"])
    ),
    st.integers(0, 8),
    st.booleans(),
)
def test_last_line_equals_the_unfinished_line_after_all_keys(
    keys: list[bytes], at: int, is_long: bool
) -> None:
    # An unfinished line comes before the text of the next write.
    before = typed(b"", b"".join(keys[:at])).rest
    data = b"".join(keys[at:]) + b"\n" + b"".join(keys[:at]) + b"b" * (MAX_KEPT * is_long)
    last = last_line(before, data)
    if last is not None:
        assert last == typed(before, data).rest


def test_last_line_of_plain_text_is_found() -> None:
    assert last_line(b"a", b"b\r\nc\rd") == b"d"
    assert last_line(b"a", b"b\n") == b""
    assert last_line(b"", b"\n" + b"a" * (MAX_KEPT + 1)) == b"a" * MAX_KEPT


@pytest.mark.parametrize(
    ("before", "data", "lines", "rest", "parts"),
    [
        (b"", b"<a\nb>", [], b"<a\nb>", [b"<a", b"<a\n"]),
        (b"", b"<a\n>b\nc\n", [b"<a\n>b", b"c"], b"", [b"<a"]),
        (b"", b"<a\rb\r\nc>\r", [b"<a\rb\r\nc>"], b"", [b"<a", b"b"]),
        (b"<a\nb", b"c\nd", [], b"<a\nbc\nd", [b"bc", b"<a\nbc\n"]),
        (b"<a\nb>", b"c", [], b"<a\nb>c", [b"<a\n"]),
        (b"<a\nb>", b"c\n", [b"<a\nb>c"], b"", []),
        # A write may end within the sequence that begins or ends a paste.
        (b"\x1b[20", b"0~a\n", [], b"<a\n", [b"<a", b"<a\n"]),
        (b"<a\n\x1b[201", b"~\n", [b"<a\n>"], b"", []),
        # An interrupt ends a paste.
        (b"", b"<a\n\x03b\n", [None, b"b"], b"", [b"<a"]),
        # Quoted newlines are text.
        (b"", b"a\x16\nb", [], b"a\x16\nb", [b"a\x16", b"a\x16\n"]),
        (b"", b"a\x11\nb", [], b"a\x11\nb", [b"a\x11", b"a\x11\n"]),
        (b"aQ", b"\nb\n", [b"aQ\nb"], b"", [b"aQ"]),
    ],
)
def test_pasted_and_quoted_newlines_stay_in_the_line(
    before: bytes, data: bytes, lines: list[bytes | None], rest: bytes, parts: list[bytes]
) -> None:
    def bracketed(text: bytes) -> bytes:
        return text.replace(b"<", b"\x1b[200~").replace(b">", b"\x1b[201~")

    found = typed(bracketed(before), bracketed(data), interrupt=b"\x03", lnext=b"Q")
    expected = [None if line is None else bracketed(line) for line in lines]
    whole = Typed(expected, bracketed(rest), is_passed_on=False, parts=[*map(bracketed, parts)])
    assert found[:4] == whole[:4]


def test_beginning_of_a_long_line_is_shown_before_it_is_dropped() -> None:
    kept = b"x" * MAX_KEPT
    assert typed(b"", kept) == Typed([], kept, is_passed_on=False, parts=[])
    assert typed(b"ls", kept) == Typed([], kept, is_passed_on=False, parts=[b"ls" + kept])


def test_key_that_the_terminal_swallows_quotes_nothing() -> None:
    data = b"a\x11\x03b\x11\nc\x16\x03\n"
    found = typed(b"", data, interrupt=b"\x03", lnext=b"\x16", swallowed=b"\x11\x13")
    assert found.lines == [None, b"b\x11", b"c\x16\x03"]
    found = typed(b"", b"a\x16\x03b\n", interrupt=b"\x03", swallowed=b"\x16\x11")
    assert found.lines == [None, b"b"]


def test_interrupt_without_effect_stays_in_the_line() -> None:
    assert typed(b"a", b"\x03b\n").lines == [b"a\x03b"]
    assert typed(b"a\x03", b"b\n", interrupt=b"\x03").lines == [b"a\x03b"]
    assert typed(b"a\x16", b"\x03\n", interrupt=b"\x03").lines == [b"a\x16\x03"]


@pytest.mark.parametrize(
    ("data", "readable"),
    [
        (b"ls", []),
        (b"ls\x04", [b"ls\x04"]),
        (b"ls\x0f", [b"ls\x0f"]),
        (b"a\nls\x04", [b"a", b"ls\x04"]),
    ],
)
def test_unfinished_line_is_readable_once_it_is_passed_on(
    data: bytes, readable: list[bytes]
) -> None:
    assert typed(b"", data).readable == readable


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (b"ls", ["ls"]),
        (b"", [""]),
        (b"lx\x7fs", ["ls", "lxs", "lx", "s"]),
        (b"\x08\x08c", ["c"]),
        # The last of the possible lines is the line as the kernel edits it. The kernel's C-w erases
        # only letters and digits.
        (b"ls  -l \x17-a", ["ls  -a", "ls  -l -a", "ls  -l ", "-a", "ls  --a"]),
        (b"ls /tmp\x17", ["ls ", "ls /tmp", "ls /"]),
        (b"\x1b[0nls /tmp\x17", ["ls ", "nls ", "ls /tmp", "\x1b[0nls /", "ls /"]),
        # If readline does not know a key, it takes the last bytes of the key as text.
        (b"ls \x1b[15~", ["ls ", "ls ~"]),
        (b"ls\x1b[24;5~x", ["lsx", "ls~x", "ls", "x"]),
        (b"ls\x1b[15 /", ["ls15 /", "ls /", "ls", "15 /"]),
        (b"s\x1b[1;2HX\x1b[1~l", ["lsX", "lsHX", "sHX~l", "sXl", "s", "lX", "X", "l"]),
        (b"ls \x1b[A\x1b[3~\x1bOQ", ["ls "]),
        # A quoted key is text, except for a shell that knows no quoting.
        (b"ls\x16\x7fx\x7f", ["ls\x7f", "l", "lsx", "ls", "x"]),
        (b"ls\x11\x7fx\x7f", ["ls\x7f", "l", "lsx", "ls", "x"]),
        # Either the terminal keeps C-q to itself, or the shell knows neither C-q nor C-v.
        (b"ls\x11\x16\x7f\x7f", ["l", "ls"]),
        (
            b"ls -a\x11\x03pwdx\x02\x0b",
            [
                *("ls -a\x03pwd", "ls -apwd", "ls -apwdx"),
                *("ls -a", "pwd", "pwdx", "pwdx\x02\x0b"),
            ],
        ),
        # Some terminals erase a byte, and not a whole character.
        ("l\xe9\x7fs".encode(), ["ls", "l\xe9s", "l\xe9", "s", "l\ufffds"]),
        (b"l\xff\xc3\xa9\x7f\x7f\x7fs", ["s", "l\ufffd\xe9s", "l\ufffd\xe9", "ls"]),
        # Readline drops the bytes of an incomplete character.
        (b"ls \xf0\x9f", ["ls \ufffd", "ls "]),
        # A terminal drops the end of a long line.
        (b"x" * 4_095 + b"yz", ["x" * 4_095 + "yz", "x" * 4_095]),
        (b"x" * 4_095, ["x" * 4_095]),
        (b"ls\x17pwd", ["pwd", "lspwd", "ls"]),
        (b"one\x01two", ["twoone", "onetwo", "one", "two"]),
        (b"one\x1bOC\x1b[Dtwo", ["ontwoe", "onetwo", "one", "two"]),
        (b"one\x1bdtwo", ["onetwo", "one", "two"]),
        (b"\x1b[200~ls\x1b[201~", ["ls"]),
        (b"a\tb", ["a\tb", "ab"]),
        (b"\xff", ["\ufffd"]),
        (b"\x1b[200~one\rtwo\x1b[201~\x01x", ["xone\ntwo", "one\ntwox", "one\ntwo", "x"]),
        (b"\x7f" * 5_000 + b"a", ["a"]),
    ],
)
def test_possible_readings_of_a_line_contain_no_keys(line: bytes, expected: list[str]) -> None:
    assert list(readings(line)) == expected


@pytest.mark.parametrize(
    "line",
    [
        b"a\x15" + b"\x19\x19\x15" * 1_000,
        b"word " * 12_000 + b"\x01\x05" * 2_000,
        b"a" * 60_000 + b"\x01\x1bu" * 2_000,
        b"word " * 100 + b"\x1bb\x1b[A" * 2_000,
        b"a" * 60_000 + b"\x1b[D\x1b[C" * 2_000,
        (b"x" + "\u0301".encode() * 20_000 + b"\x02\x06" * 1_000),
        b"a" * 60_000 + b"\x16\x01\x16\x05" * 2_000,
    ],
)
def test_hostile_keys_take_little_time(line: bytes) -> None:
    began = time.thread_time()
    assert sum(map(len, readings(line))) < 1_000_000
    assert time.thread_time() - began < 0.5


def test_each_part_is_a_reading_even_if_there_are_many() -> None:
    numbers = [b"%d" % number for number in range(1_000)]
    whole, *parts = readings(b"\x07".join(numbers))
    assert whole == b"".join(numbers).decode()
    assert parts == [number.decode() for number in numbers]


PIECES = [b"a", b"b", b"\n", b"\x15", b"\x03", b"ls", b"\x1b[200~", b"\x1b[20", b"1~", b"\x16"]


@given(st.lists(st.sampled_from(PIECES), max_size=30))
def test_typed_lines_do_not_depend_on_the_pieces_of_writes(pieces: list[bytes]) -> None:
    lines, rest = list[bytes | None](), b""
    for piece in pieces:
        part = typed(rest, piece, interrupt=b"\x03")
        lines += part.lines
        rest = part.rest
    whole = typed(b"", b"".join(pieces), interrupt=b"\x03")
    assert (lines, rest) == (whole.lines, whole.rest)


def test_line_right_after_interrupt_may_keep_dropped_line() -> None:
    found = typed(b"xrm", b" -rf\x03a\rb\r", interrupt=b"\x03")
    assert found.kept == ((1, b"xrma"), (1, b"xrm -rfa"))
    assert (found.rest, found.dropped) == (b"", None)
    # The next write may continue the line that the interrupt should have dropped.
    found = typed(b"xrm", b"\x03a", interrupt=b"\x03")
    assert (found.kept, found.rest, found.dropped) == ((), b"a", Dropped(b"xrm", b"xrm"))
    assert typed(found.rest, b"b\r", dropped=found.dropped).kept == ((0, b"xrmab"),)


def test_every_interrupt_may_keep_dropped_line() -> None:
    found = typed(b"xa", b"\x03b\x03c\r", interrupt=b"\x03")
    assert found.kept == ((2, b"xac"), (2, b"xabc"))
    assert typed(b"", b"\x03b\r", interrupt=b"\x03").kept == ((1, b"b"),)


def test_line_that_is_passed_on_may_keep_dropped_line() -> None:
    found = typed(b"xa", b"\x03b\x0f", interrupt=b"\x03")
    assert found.kept == ((1, b"xab\x0f"),)
