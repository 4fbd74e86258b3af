"""Bytes become the same text, in whatever pieces they are read."""

from __future__ import annotations

import codecs
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shelld.output.escapes import MAX_SEQUENCE_BYTES, without_escapes
from shelld.output.store import StreamStore
from shelld.output.text import (
    Piece,
    begins_within_line,
    has_text,
    last_states,
    plain_text,
    read_text,
)
from terminal import outputs, stored, text_of

STRIP = pytest.mark.parametrize("strip", [True, False])


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"\xff", "\ufffd"),
        (b"\xed\xa0\x80", "\ufffd\ufffd\ufffd"),
        (b"\xe2\x82", "\ufffd"),
        (b"\xf0\x9f\x98", "\ufffd"),
        (b"a\x00b\x07\x08\x0b\x7f", "a\x00b\x07\x08\x0b\x7f"),
        (b"\xef\xbb\xbfa", "\ufeffa"),
        # Two halves of a character do not become one character if an escape sequence is between
        # them.
        (b"\xe2\x82\x1b[m\xac", "\ufffd\ufffd"),
    ],
)
def test_invalid_bytes_are_replaced_and_controls_kept(data: bytes, text: str) -> None:
    assert text_of(data) == text
    assert json.loads(json.dumps(text_of(data))) == text


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("10%\r50%\r100%\n", "100%\n"),
        ("10%\r50%", "50%"),
        ("long state\rshort\n", "short\n"),
        ("a\r1\r2\nb\r3\n", "2\n3\n"),
        ("\rfirst", "first"),
        # In these lines, no text follows the last carriage return. So nothing overwrites the text
        # before this carriage return.
        ("a\r\nb\r\n", "a\r\nb\r\n"),
        ("50%\r", "50%\r"),
        ("a\rb\r\n", "b\r\n"),
        ("a\r\r\nb", "a\r\r\nb"),
        ("\r\n\r\n", "\r\n\r\n"),
        ("no return\n", "no return\n"),
    ],
)
def test_overwritten_line_shows_last_state(text: str, left: str) -> None:
    assert last_states(text) == left


def test_overwriting_text_is_marked() -> None:
    assert last_states("\r50%\r60%\n70%\r80%", continues=True) == "\r60%\n80%"
    assert last_states(" more\r60%", continues=True) == "\r60%"
    assert last_states(" more\n1\r2", continues=True) == " more\n2"


states = st.text("ab\r\n", max_size=40)


@given(states, states)
def test_states_found_in_parts_equal_those_of_whole(before: str, after: str) -> None:
    continues = before != "" and not before.endswith("\n")
    apart = last_states(before) + last_states(after, continues=continues)
    assert last_states(apart) == last_states(before + after)


@given(states)
def test_finding_last_states_twice_changes_nothing(text: str) -> None:
    assert last_states(last_states(text)) == last_states(text)


def test_million_line_states_take_linear_time() -> None:
    text = "".join(f"{number}%\r" for number in range(1_000_000)) + "done\n"
    assert last_states(text) == "done\n"
    assert last_states("\r" * 1_000_000 + "\n") == "\r" * 1_000_000 + "\n"


@pytest.mark.parametrize("data", [b"\xe0\xa0", b"\x1b[31", b"\x1b]0;title", b"\xf0\x9f\x98", b"\r"])
def test_unfinished_unit_is_returned_at_the_end(data: bytes) -> None:
    store = stored(data)
    waiting = read_text(store, 0, len(data), 1, strip=True, final=False)
    assert waiting[:3] == ("", 0, 0)
    assert not has_text(store, 0, len(data), strip=True, final=False)
    ended = read_text(store, 0, len(data), 1, strip=True, final=True)
    assert ended.end == len(data)


@pytest.mark.parametrize(
    ("data", "final", "piece"),
    [
        (b"50X\r", False, ("50X", 3, 0)),
        (b"50X\r", True, ("50X", 4, 0)),
        (b"X", False, ("X", 1, 0)),
        (b" ", False, (" ", 1, 0)),
        (b"\r", False, ("", 0, 0)),
        (b"\r", True, ("", 1, 0)),
    ],
)
def test_only_carriage_return_is_held_back(
    data: bytes, final: bool, piece: tuple[str, int, int]
) -> None:
    assert read_text(stored(data), 0, len(data), 100, strip=True, final=final)[:3] == piece


@pytest.mark.parametrize(
    ("data", "strip", "expected"),
    [
        *((b"\r", True, False), (b"\r", False, True), (b"\r\xe2", True, False)),
        *((b"X", True, True), (b"", True, False), (b"\ra", True, True)),
    ],
)
def test_has_text_ignores_unfinished_unit(data: bytes, strip: bool, expected: bool) -> None:
    assert has_text(stored(data), 0, len(data), strip=strip, final=False) == expected


def test_carriage_return_waits_for_next_byte() -> None:
    store = stored(b"50%\r")
    first = read_text(store, 0, 4, 100, strip=True, final=False)
    assert first[:3] == ("50%", 3, 0)
    store.append(b"\x1b[K")
    assert read_text(store, 3, 7, 100, strip=True, final=False)[:3] == ("", 3, 0)
    store.append(b"60%\r")
    second = read_text(store, 3, 11, 100, strip=True, final=False)
    assert second[:3] == ("\r60%", 10, 0)
    assert read_text(store, 10, 11, 100, strip=True, final=True)[:3] == ("", 11, 0)


@pytest.mark.parametrize(
    ("before", "continues"), [(b"", False), (b"x\n", False), (b"x", True), (b"x\ny", True)]
)
def test_only_text_within_a_line_is_marked_overwriting(before: bytes, continues: bool) -> None:
    store = stored(before + b"1\r2\n3\r4")
    start = len(before)
    assert begins_within_line(store, start) is continues
    piece = read_text(store, start, store.written, 100, strip=True, final=True)
    assert piece.text == "\r" * continues + "2\n4"


def test_line_state_is_unknown_after_the_gap() -> None:
    store = stored(b"a" + b"-" * 10 + b"1\r2", head_limit=1)
    store.drop(10)
    assert not begins_within_line(store, 11)
    assert read_text(store, 1, 14, 100, strip=True, final=True)[:3] == ("2", 14, 10)
    assert read_text(store, 11, 14, 100, strip=True, final=True)[:3] == ("2", 14, 0)


@STRIP
def test_nothing_beyond_the_end_is_read(strip: bool) -> None:
    store = stored(b"0123456789" * 3, head_limit=10)
    store.drop(10)
    assert read_text(store, 0, 5, 100, strip=strip, final=False)[:3] == ("01234", 5, 0)
    assert read_text(store, 8, 23, 100, strip=strip, final=False)[:3] == ("89", 10, 0)
    assert read_text(store, 10, 23, 100, strip=strip, final=False)[:3] == ("012", 23, 10)
    assert read_text(store, 25, 27, 100, strip=strip, final=False)[:3] == ("56", 27, 0)
    assert read_text(store, 7, 5, 100, strip=strip, final=False)[:3] == ("", 7, 0)
    unfinished = stored(b"\xe2\x82\xac")
    assert read_text(unfinished, 0, 2, 100, strip=strip, final=False)[:3] == ("", 0, 0)
    assert not has_text(unfinished, 0, 2, strip=strip, final=False)


def test_unstripped_bytes_pass_through() -> None:
    data = b"1%\r2%\r\x1b[31mx\x1b]0;t\x07\r\n\r"
    assert text_of(data, strip=False).encode() == data
    store = stored(data)
    raw = read_text(store, 0, len(data), 100, strip=False, final=False)
    assert raw.text.encode() == data


def joined(pieces: list[str], *, strip: bool) -> str:
    return last_states("".join(pieces)) if strip else "".join(pieces)


def read_to_end(store: StreamStore, size: int, *, strip: bool) -> list[str]:
    texts: list[str] = []
    position = 0
    while position < store.written:
        piece = read_text(store, position, store.written, size, strip=strip, final=True)
        assert piece.end > position
        texts.append(piece.text)
        position = piece.end
    return texts


@given(outputs, st.integers(1, 9), st.booleans())
def test_reads_of_any_size_give_the_same_text(data: bytes, size: int, strip: bool) -> None:
    texts = read_to_end(stored(data), size, strip=strip)
    whole = text_of(data, strip=strip)
    text = joined(texts, strip=strip)
    # The end of the output also ends the last line. A read drops a carriage return before this end
    # only if the read knows that the output ends there.
    assert text.rstrip("\r") == whole.rstrip("\r")


@given(outputs, st.lists(st.integers(0, 60), max_size=5), st.booleans())
def test_text_is_independent_of_arrival(data: bytes, arrivals: list[int], strip: bool) -> None:
    store = StreamStore(1 << 20)
    texts: list[str] = []
    position = 0
    for stop in [*sorted(min(arrival, len(data)) for arrival in arrivals), len(data)]:
        store.append(data[store.written : stop])
        piece = read_text(store, position, stop, 1000, strip=strip, final=False)
        texts.append(piece.text)
        position = piece.end
    last = read_text(store, position, len(data), 1000, strip=strip, final=True)
    assert last.end == len(data)
    text = joined([*texts, last.text], strip=strip)
    assert text.rstrip("\r") == text_of(data, strip=strip).rstrip("\r")


@given(outputs, st.integers(0, 60), st.booleans(), st.booleans())
def test_has_text_agrees_with_read_text(data: bytes, start: int, strip: bool, final: bool) -> None:
    store = stored(data)
    found = read_text(store, start, len(data), 1 << 20, strip=strip, final=final)
    expected = has_text(store, start, len(data), strip=strip, final=final)
    # If only escape sequences follow a carriage return, the reader holds the carriage return back,
    # although the sequences are complete.
    if "\r" not in data.decode("latin-1"):
        assert (found.end > start) is expected


@STRIP
def test_overlong_unit_is_returned_whole(strip: bool) -> None:
    title = b"\x1b]0;" + b"x" * 20_000 + b"\x07"
    data = title + "€".encode() + b"y"
    store = stored(data)
    first = read_text(store, 0, len(data), 1, strip=strip, final=False)
    assert first == Piece("" if strip else title.decode(), len(title), 0)
    second = read_text(store, first.end, len(data), 1, strip=strip, final=False)
    assert second == Piece("€", len(title) + 3, 0)


def test_a_sequence_that_never_ends_hides_nothing() -> None:
    data = b"\x1b]0;" + b"x" * (3 * MAX_SEQUENCE_BYTES) + b"\nafter"
    store = stored(data)
    texts: list[str] = []
    position = 0
    while position < len(data):
        piece = read_text(store, position, len(data), 1000, strip=True, final=False)
        texts.append(piece.text)
        position = piece.end
    assert "".join(texts) == data[1:].decode()


def test_units_never_span_the_gap() -> None:
    euro = "€".encode()
    store = stored(b"a" + euro + b"b" * 10 + b"\x1b[1" + b"3mx" + euro, head_limit=2)
    store.drop(15)
    head = read_text(store, 0, store.written, 100, strip=True, final=True)
    assert head[:3] == ("a\ufffd", 2, 0)
    tail = read_text(store, 2, store.written, 100, strip=True, final=True)
    assert tail[:3] == ("3mx€", store.written, 15)


def test_gap_at_the_end_is_reported() -> None:
    store = stored(b"head" + b"x" * 10, head_limit=4)
    store.drop(10)
    assert has_text(store, 4, 14, strip=True, final=False)
    assert read_text(store, 4, 14, 100, strip=True, final=True)[:3] == ("", 14, 10)


def test_plain_text_drops_unfinished_sequence_at_end() -> None:
    assert plain_text(b"x\x1b[3", strip=True, is_end=True) == "x"
    assert plain_text(b"x\x1b[3", strip=True, is_end=False) == "x[3"


@given(st.binary(max_size=40) | outputs, st.booleans())
def test_invalid_bytes_are_those_that_are_replaced(data: bytes, strip: bool) -> None:
    count = 0

    def replace(error: UnicodeError) -> tuple[str, int]:
        nonlocal count
        assert isinstance(error, UnicodeDecodeError)
        count += error.end - error.start
        return "\ufffd", error.end

    codecs.register_error("counted", replace)
    pieces = without_escapes(data, is_end=True) if strip else [data]
    for each in pieces:
        each.decode("utf-8", "counted")
    piece = read_text(stored(data), 0, len(data), 1 << 20, strip=strip, final=True)
    assert piece.invalid == count
