"""The line that is being typed, from what is written."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shelld.terminals.typed import Typed, readings, typed

CTRL_U = b"\x15"


@pytest.mark.parametrize(
    ("before", "data", "lines", "rest", "longest"),
    [
        (b"", b"", [], b"", 0),
        (b"", b"ls\n", [b"ls"], b"", 2),
        (b"l", b"s\rpw", [b"ls"], b"pw", 2),
        (b"", b"a\r\nb\n", [b"a", b"b"], b"", 1),
        (b"", b"\n\n", [b"", b""], b"", 0),
        (b"rm -rf /", b"\x15ls\n", [b"ls"], b"", 8),
        (b"a", b"b\x03c\n", [None, b"c"], b"", 2),
        (b"", b"\x1c\x1c", [None, None], b"", 0),
        (b"", b"a" * 5_000 + b"\n", [b"a" * 5_000], b"", 5_000),
    ],
)
def test_line_ends_and_dropped_lines_are_followed(
    before: bytes, data: bytes, lines: list[bytes | None], rest: bytes, longest: int
) -> None:
    found = typed(before, data, kill=CTRL_U, interrupts=[b"\x03", b"\x1c"])
    assert found == Typed(lines, rest, longest, is_passed_on=False)


def test_keys_without_a_meaning_stay_in_the_line() -> None:
    assert typed(b"a", b"\x15\x03b\n").lines == [b"a\x15\x03b"]


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
        (b"lx\x7fs", ["ls"]),
        (b"\x08\x08c", ["c"]),
        (b"ls  -l \x17-a", ["ls  -a"]),
        (b"ls\x17pwd", ["pwd"]),
        (b"one\x01two", ["onetwo", "one", "two"]),
        (b"one\x1bOC\x1b[Dtwo", ["onetwo", "one", "two"]),
        (b"one\x1bdtwo", ["onetwo", "one", "two"]),
        (b"\x1b[200~ls\x1b[201~", ["ls", "ls"]),
        (b"a\tb", ["a\tb"]),
        (b"\xff", ["\ufffd"]),
        (b"\x7f" * 5_000 + b"a", ["a", "a"]),
    ],
)
def test_readings_leave_out_keys(line: bytes, expected: list[str]) -> None:
    assert list(readings(line)) == expected


@given(st.lists(st.sampled_from([b"a", b"b", b"\n", CTRL_U, b"\x03", b"ls"]), max_size=30))
def test_pieces_give_the_same_lines(pieces: list[bytes]) -> None:
    lines, rest = list[bytes | None](), b""
    for piece in pieces:
        part = typed(rest, piece, kill=CTRL_U, interrupts=[b"\x03"])
        lines += part.lines
        rest = part.rest
    whole = typed(b"", b"".join(pieces), kill=CTRL_U, interrupts=[b"\x03"])
    assert (lines, rest) == (whole.lines, whole.rest)
