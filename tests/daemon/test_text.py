"""Bytes to text: the same text for every way to read the bytes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shelld.output.store import StreamStore
from shelld.output.text import (
    MAX_SEQUENCE_BYTES,
    TRUNCATED_SUFFIX,
    read_limited_text,
    read_text,
    strip_escapes,
    whole_units,
)


def stored(data: bytes, limit: int = 1 << 20) -> StreamStore:
    store = StreamStore(limit)
    store.append(data)
    return store


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("\x1b[0m", ""),
        ("\x1b[1;38;5;12mx\x1b[m", "x"),
        ("\x1b[?25lx\x1b[2K", "x"),
        ("\x1b]0;title\x07x", "x"),
        ("\x1b]8;;http://a\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1bPq#0\x1b\\x", "x"),
        ("\x1b_apc\x1b\\x\x1b^pm\x1b\\\x1bXsos\x1b\\", "x"),
        ("\x1b(Bx\x1b)0", "x"),
        ("\x1b7x\x1b8\x1bc\x1b=", "x"),
        ("a[31mb", "a[31mb"),
        ("\x1b", "\x1b"),
        ("\x1b[", "\x1b["),
        ("\x1b]never ended", "\x1b]never ended"),
        ("\x1b[\x1b[31mx", "\x1b[x"),
        ("\x1b[31\nm", "\x1b[31\nm"),
    ],
)
def test_escape_sequences_are_removed_and_nothing_else(text: str, plain: str) -> None:
    assert strip_escapes(text) == plain


@pytest.mark.parametrize(
    ("data", "whole"),
    [
        (b"", 0),
        (b"abc", 3),
        ("ä".encode()[:1], 0),
        (b"a" + "€".encode()[:2], 1),
        (b"a" + "😀".encode()[:3], 1),
        ("€".encode(), 3),
        (b"a\xff", 2),
        (b"a\x80\x80\x80", 4),
        (b"a\xed\xa0", 3),
        (b"a\xc0", 2),
        (b"a\x1b", 1),
        (b"a\x1b[", 1),
        (b"a\x1b[31;1", 1),
        (b"a\x1b[31m", 6),
        (b"a\x1b]0;title", 1),
        (b"a\x1b]0;title\x1b", 1),
        (b"a\x1b]0;title\x1b\\", 12),
        (b"a\x1b]0;title\x07", 11),
        (b"a\x1b]0;x\x07\x1b", 7),
        (b"a\x1b(", 1),
        (b"a\x1b(B", 4),
        (b"a\x1bc", 3),
        (b"a\x1b[31\n", 6),
    ],
)
def test_an_unfinished_unit_at_the_end_is_left(data: bytes, whole: int) -> None:
    assert whole_units(data, final=False) == whole
    assert whole_units(data, final=True) == len(data)


@pytest.mark.parametrize("data", [b"\xe0\xa0", b"\x1b[31", b"\x1b]0;title", b"\xf0\x9f\x98"])
def test_what_is_unfinished_at_the_very_end_is_returned_in_the_end(data: bytes) -> None:
    store = stored(data)
    waiting = read_text(store, 0, len(data), 1, strip=True, final=False)
    assert waiting == ("", 0, 0)
    ended = read_text(store, 0, len(data), 1, strip=True, final=True)
    assert ended.end == len(data)


def test_a_sequence_that_never_ends_is_not_waited_for_for_ever() -> None:
    endless = b"\x1b]0;" + b"x" * MAX_SEQUENCE_BYTES
    assert whole_units(endless, final=False) == len(endless)
    piece = read_text(stored(endless * 3), 0, 3 * len(endless), 10, strip=True, final=False)
    assert piece.end > 0


units = st.one_of(
    st.text(max_size=3).filter(lambda text: text.isprintable()).map(str.encode),
    st.sampled_from(
        [
            "\x1b[31m",
            "\x1b[0m",
            "\x1b]8;;http://x\x1b\\",
            "\x1b]0;t\x07",
            "\x1b(B",
            "\x1bc",
            "\n",
            "\r",
        ]
    ).map(str.encode),
    st.binary(max_size=2).filter(lambda data: b"\x1b" not in data),
)


@given(st.lists(units, max_size=20).map(b"".join), st.integers(1, 9), st.booleans())
def test_reads_of_any_size_give_the_text_of_one(data: bytes, size: int, strip: bool) -> None:
    store = stored(data)
    whole = read_text(store, 0, len(data), len(data) + 1, strip=strip, final=True)
    texts: list[str] = []
    position = 0
    while position < len(data):
        piece = read_text(store, position, len(data), size, strip=strip, final=True)
        assert piece.end > position
        texts.append(piece.text)
        position = piece.end
    assert "".join(texts) == whole.text


@given(st.lists(units, max_size=20).map(b"".join), st.lists(st.integers(0, 60), max_size=5))
def test_what_arrives_in_pieces_reads_as_what_arrives_at_once(
    data: bytes, arrivals: list[int]
) -> None:
    store = stored(data)
    texts: list[str] = []
    position = 0
    for stop in [*sorted(min(arrival, len(data)) for arrival in arrivals), len(data)]:
        final = stop == len(data)
        piece = read_text(store, position, stop, 1000, strip=True, final=final)
        texts.append(piece.text)
        position = piece.end
    whole = read_text(store, 0, len(data), 1000, strip=True, final=True)
    assert "".join(texts) == whole.text
    assert position == len(data)


@given(st.lists(units, max_size=30).map(b"".join), st.integers(20, 60), st.booleans())
def test_a_limited_text_fits_and_the_rest_follows_where_it_was_cut(
    data: bytes, limit: int, strip: bool
) -> None:
    store = stored(data)
    whole = read_text(store, 0, len(data), len(data) + 1, strip=strip, final=True).text
    text, end, cut = read_limited_text(store, len(data), limit, strip=strip, final=True)
    assert len(text.encode()) <= limit
    if not cut:
        assert (text, end) == (whole, len(data))
        return
    assert len(whole.encode()) > limit
    head = text.removesuffix(TRUNCATED_SUFFIX)
    rest = read_text(store, end, len(data), len(data), strip=strip, final=True).text
    assert head + rest == whole
    # Not a character less than fits. One unit has at most 20 bytes here.
    assert len(head.encode()) > limit - len(TRUNCATED_SUFFIX) - 20 or not head


def test_the_gap_is_never_inside_a_limited_text() -> None:
    store = stored(b"h" * 100 + b"-" * 1000 + b"t" * 100, limit=200)
    text, end, cut = read_limited_text(store, 1200, 1000, strip=True, final=True)
    assert (text, end, cut) == ("h" * 100 + TRUNCATED_SUFFIX, 100, True)
    rest = read_text(store, end, 1200, 1000, strip=True, final=True)
    assert (rest.text, rest.dropped, rest.end) == ("t" * 100, 1000, 1200)


@pytest.mark.parametrize("size", [65_536, 1_048_576, 3_000_000])
def test_a_text_of_the_limits_size_is_not_cut(size: int) -> None:
    store = stored(b"x" * size, 1 << 23)
    assert read_limited_text(store, size, size, strip=True, final=True)[2] is False
    text, end, cut = read_limited_text(store, size, size - 1, strip=True, final=True)
    assert (len(text), end, cut) == (size - 1, size - 1 - len(TRUNCATED_SUFFIX), True)
