"""The line that is being typed, from what is written."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shelld.terminals.typed import Typed, typed


@pytest.mark.parametrize(
    ("before", "data", "expected"),
    [
        (b"", b"", Typed([], b"", 0)),
        (b"", b"ls\n", Typed([b"ls"], b"", 2)),
        (b"l", b"s\rpw", Typed([b"ls"], b"pw", 2)),
        (b"", b"a\r\nb\n", Typed([b"a", b"b"], b"", 1)),
        (b"", b"\n\n", Typed([b"", b""], b"", 0)),
        (b"rm -rf /", b"\x15ls\n", Typed([b"ls"], b"", 8)),
        (b"", b"lx\x7fs\n", Typed([b"ls"], b"", 4)),
        (b"ab", b"\x08\x08\x08\x08c\n", Typed([b"c"], b"", 7)),
        (b"", b"a" * 5_000 + b"\n", Typed([b"a" * 5_000], b"", 5_000)),
        (b"", b"\x7f" * 5_000 + b"\n", Typed([b"\x7f" * 5_000], b"", 5_000)),
    ],
)
def test_line_ends_and_edits_are_followed(before: bytes, data: bytes, expected: Typed) -> None:
    assert typed(before, data) == expected


def test_given_keys_drop_the_line() -> None:
    assert typed(b"a", b"b\x03c\n", [b"\x03", b"\x1c"]) == Typed([b"c"], b"", 2)
    assert typed(b"a", b"\x15b\n", []) == Typed([b"a\x15b"], b"", 3)


@given(st.lists(st.sampled_from([b"a", b"b", b"\n", b"\x15", b"\x7f", b"ls"]), max_size=30))
def test_pieces_give_the_same_lines(pieces: list[bytes]) -> None:
    lines, rest = list[bytes](), b""
    for piece in pieces:
        part = typed(rest, piece)
        lines += part.lines
        rest = part.rest
    whole = typed(b"", b"".join(pieces))
    assert (lines, rest) == (whole.lines, whole.rest)
