"""What counts as a unit or an escape sequence depends on the bytes alone, not on the pieces in
which they arrive.
"""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shelld.output.escapes import (
    MAX_SEQUENCE_BYTES,
    first_unit,
    rest_of_unit,
    whole_units,
    without_escapes,
)


def stripped(data: bytes) -> bytes:
    return b"".join(without_escapes(data, is_end=True))


@pytest.mark.parametrize(
    ("data", "plain"),
    [
        (b"\x1b[0m", b""),
        (b"\x1b[1;38;5;12mx\x1b[m", b"x"),
        (b"\x1b[38:2::255:0:0mx", b"x"),
        (b"\x1b[?25lx\x1b[2K", b"x"),
        (b"\x1b[ qx\x1b[!p\x1b[>4;2m", b"x"),
        (b"\x1b]0;title\x07x", b"x"),
        (b"\x1b]8;;http://a\x1b\\link\x1b]8;;\x1b\\", b"link"),
        (b"\x1b]0;two\nlines\x07x", b"x"),
        (b"\x1bPq#0;2;0\x1b\\x", b"x"),
        (b"\x1b_Gf=100;AAAA\x1b\\x\x1b^pm\x1b\\\x1bXsos\x1b\\", b"x"),
        (b"\x1bP a\x07b\x1b\\x", b"x"),
        (b"\x1b(Bx\x1b)0\x1b*A\x1b-A\x1b$(C", b"x"),
        (b"\x1b%Gx\x1b#8\x1b F", b"x"),
        (b"\x1b7x\x1b8\x1bc\x1b=\x1b>\x1bM\x1bD\x1b\\", b"x"),
        (b"\xc2\x9b31mx\xc2\x9b0m", b"x"),
        ("€\x1b[1mä\x1b[m😀".encode(), "€ä😀".encode()),
        # These bytes are not an escape sequence, so only the ESC is removed.
        (b"a[31mb", b"a[31mb"),
        (b"\x1b]never ended", b"]never ended"),
        (b"\x1b[\x1b[31mx", b"[x"),
        (b"\x1b[31\nm", b"[31\nm"),
        (b"\xc2\x9b\x1b[m", b"\xc2\x9b"),
        (b"\x1b\nx", b"\nx"),
        (b"\x1b\x1b\x1bcx", b"x"),
        (b"\x1b]0;a\x1b[31mb", b"]0;ab"),
        # The end of the output cuts these sequences short.
        (b"x\x1b", b"x"),
        (b"x\x1b[", b"x"),
        (b"x\x1b[3;1", b"x"),
        (b"x\xc2\x9b3", b"x"),
        (b"x\x1b(", b"x"),
    ],
)
def test_escape_sequences_are_removed_and_nothing_else(data: bytes, plain: bytes) -> None:
    assert stripped(data) == plain


@given(st.binary(max_size=200))
def test_no_escape_is_ever_left(data: bytes) -> None:
    assert b"\x1b" not in stripped(data)


@given(st.binary(max_size=200).map(lambda data: data.replace(b"\x1b", b"").replace(b"\xc2", b"")))
def test_text_without_escapes_is_unchanged(data: bytes) -> None:
    assert stripped(data) == data


UNFINISHED = [
    (b"", 0),
    ("ä".encode()[:1], 0),
    (b"a" + "€".encode()[:2], 1),
    (b"a" + "😀".encode()[:3], 1),
    (b"a\x1b", 1),
    (b"a\x1b[", 1),
    (b"a\x1b[31;1", 1),
    (b"a\x1b[?25", 1),
    (b"a\x1b[1 ", 1),
    (b"a\x1b]0;title", 1),
    (b"a\x1b]0;title\x1b", 1),
    (b"a\x1b]0;x\x07\x1b", 7),
    (b"a\x1bPq\x1b", 1),
    (b"a\x1b_x\x07", 1),
    (b"a\x1b(", 1),
    (b"a\x1b$(", 1),
    (b"a\xc2\x9b31", 1),
    (b"a\xc2", 1),
    (b"a\x1b]0;\xe2\x82", 1),
]
FINISHED = [
    b"abc",
    "€".encode(),
    b"a\xff",
    b"a\x80\x80\x80",
    b"a\xed\xa0",
    b"a\xc0",
    b"a\xf5\x80",
    b"a\x1b[31m",
    b"a\x1b]0;title\x1b\\",
    b"a\x1b]0;title\x07",
    b"a\x1b(B",
    b"a\x1bc",
    b"a\x1b[31\n",
    b"a\x1b[31\x1b[m",
    b"a\r",
]


@pytest.mark.parametrize(("data", "whole"), UNFINISHED)
def test_whole_units_excludes_unfinished_unit_at_end(data: bytes, whole: int) -> None:
    assert whole_units(data) == whole


@pytest.mark.parametrize("data", FINISHED)
def test_complete_units_are_not_held_back(data: bytes) -> None:
    assert whole_units(data) == len(data)


@pytest.mark.parametrize(("data", "whole"), UNFINISHED)
def test_unfinished_unit_is_not_returned(data: bytes, whole: int) -> None:
    assert first_unit(data[whole:]) == 0


@pytest.mark.parametrize(
    ("data", "size"),
    [
        (b"abc", 1),
        ("€a".encode(), 3),
        ("😀a".encode(), 4),
        (b"\xed\xa0\x80", 1),
        (b"\xc2\x1b[m", 1),
        (b"\xe2\x82x", 2),
        (b"\xf0\x9f\x98\xc3", 3),
        (b"\xc2\xc2", 1),
        (b"\xffa", 1),
        (b"\x1b[31ma", 5),
        (b"\x1b]0;t\x1b\\a", 7),
        (b"\xc2\x9b31ma", 5),
        (b"\x1b\nm", 1),
        (b"\x1b[31\nm", 1),
    ],
)
def test_first_unit_is_character_or_sequence(data: bytes, size: int) -> None:
    assert first_unit(data) == size


# Bytes from which many valid and broken sequences arise by chance.
_NOISE = (
    *(b"\x1b", b"[", b"]", b"P", b"(", b"\\", b"\x07", b"3", b";", b"m", b" ", b"\n", b"\r", b"x"),
    *(b"\xc3", b"\xa4", b"\xe2\x82", b"\xac", b"\xc2\x9b", b"\xff"),
)
noise = st.lists(st.sampled_from(_NOISE), max_size=24).map(b"".join)


def text_of(data: bytes, *, is_end: bool) -> str:
    # Bytes on both sides of a sequence must not be decoded together.
    pieces = without_escapes(data, is_end=is_end)
    return "".join(piece.decode("utf-8", "replace") for piece in pieces)


@given(noise | st.binary(max_size=60), st.integers(0, 60))
def test_a_cut_between_units_changes_nothing(data: bytes, position: int) -> None:
    cut = whole_units(data[:position])
    text = text_of(data[:cut], is_end=False) + text_of(data[cut:], is_end=True)
    assert text == text_of(data, is_end=True)


@given(noise | st.binary(max_size=60))
def test_units_add_up_to_the_text(data: bytes) -> None:
    text, rest = "", data
    while size := first_unit(rest):
        text += text_of(rest[:size], is_end=False)
        rest = rest[size:]
    assert text + text_of(rest, is_end=True) == text_of(data, is_end=True)
    assert whole_units(rest) == 0


@pytest.mark.parametrize("opener", [b"\x1b]0;", b"\x1bP", b"\x1b_", b"\x1b[", b"\x1b("])
def test_endless_sequence_is_given_up(opener: bytes) -> None:
    endless = opener + b"1" * MAX_SEQUENCE_BYTES if opener != b"\x1b(" else opener + b" " * 100
    assert whole_units(endless) == len(endless)
    assert first_unit(endless) == 1


@pytest.mark.parametrize("end", [b"\x07", b"\x1b\\"])
def test_control_string_limit_is_independent_of_cuts(end: bytes) -> None:
    longest = MAX_SEQUENCE_BYTES - 4
    for size, is_sequence in ((longest, True), (longest + 1, False)):
        data = b"\x1b]" + b"x" * size + end
        assert (stripped(data) == b"") is is_sequence
        assert (whole_units(data[: -len(end)]) == 0) is is_sequence
        assert (first_unit(data) == len(data)) is is_sequence


@pytest.mark.parametrize(
    "data",
    [
        b"\x1b" * 1_000_000,
        b"\x1b]" * 500_000,
        b"\x1b[" * 500_000,
        b"\x1b]" + b"x" * 1_000_000,
        (b"\x1bP" + b"x" * 1000) * 1000,
        b"\xc2\x9b" * 500_000,
    ],
    ids=["ESC", "OSC", "CSI", "long OSC", "DCS", "C1"],
)
def test_hostile_output_takes_linear_time(data: bytes) -> None:
    began = time.process_time()
    stripped(data)
    whole_units(data)
    # Quadratic time would take hours.
    assert time.process_time() - began < 10


UNITS = [
    b"x",
    "\u00e4".encode(),
    "\u20ac".encode(),
    b"\x1b[1m",
    b"\x1b]0;t\x07",
    b"\x1b]0;t\x1b\\",
    b"\x1b(B",
    b"\n",
]


@given(st.lists(st.sampled_from(UNITS), min_size=1, max_size=8), st.data())
def test_rest_of_a_cut_unit_is_found(units: list[bytes], data: st.DataObject) -> None:
    whole = b"".join(units)
    cut = data.draw(st.integers(1, len(whole)))
    ends = [len(b"".join(units[: count + 1])) for count in range(len(units))]
    following = next(end for end in ends if end >= cut)
    assert rest_of_unit(whole[:cut], whole[cut:]) == following - cut


@pytest.mark.parametrize(("data", "rest"), [(b"x", 0), (b"\x84x", 1), (b"\x82\xacx", 2), (b"", 0)])
def test_rest_of_character_is_found_after_a_gap(data: bytes, rest: int) -> None:
    assert rest_of_unit(b"", data) == rest
