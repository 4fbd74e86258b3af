"""For an output event, a journal keeps only the range of the output. To send the event again, the
journal reads the text from the store again.
"""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from shelld.events.entries import Header, OutputEntry
from shelld.output.store import StreamStore
from shelld.output.text import Piece, read_text
from shelld_protocol.event_methods import OutputEvent

HEADER = Header("sub_1", 1, "x", None, 1)
SIZE = 3_000


@given(
    head=st.integers(0, SIZE),
    dropped=st.integers(0, SIZE),
    ends=st.tuples(st.integers(0, SIZE), st.integers(0, SIZE)),
)
def test_event_counts_output_that_was_lost_after_it(
    head: int, dropped: int, ends: tuple[int, int]
) -> None:
    start, end = sorted(ends)
    data = "".join(f"{number:07d}\n" for number in range(SIZE // 8)).ljust(SIZE, "x")
    store = StreamStore(head)
    store.append(data.encode())
    gap_end = head + store.drop(dropped)
    entry = OutputEntry("x", None, "stdout", store, start, end, 0, True, SIZE, SIZE, True)
    event = entry.event(HEADER)
    assert isinstance(event, OutputEvent)
    assert event.text == data[start : min(end, head)] + data[max(start, gap_end) : end]
    assert event.dropped == end - start - len(event.text)
    assert (event.start, event.end) == (start, end)


parts = st.sampled_from(
    [
        *(b"a", b"bc", b"\n", b"\r", b"\r\n", b" "),
        *(b"\x1b[31m", b"\x1b]0;t\n\x07", b"\x1bP q\r", b"\x1b\\", b"\x1b", b"\x1b[", b"12", b"m"),
        *("\u00e9".encode(), b"\xc3", b"\xe2\x82", b"\xac", b"\xff", b"\x9b", b"\x9c", b"\xc2"),
    ]
)
chunks = st.lists(st.lists(parts, min_size=1, max_size=6).map(b"".join), min_size=1, max_size=6)


@pytest.mark.slow
@given(chunks, st.sampled_from([1, 2, 3, 5, 8, 1_000]), st.booleans(), st.integers(0, 40))
# The end of the range does not tell whether the last character or escape sequence is complete.
@example([b"\x1bP q\r\x1b[\xc2\x9c", b"12\xc2"], 8, True, SIZE)
# A carriage return before a gap has no effect.
@example([b"ab\r\n\x1b"], 8, True, 3)
def test_output_is_sent_again_with_the_same_text(
    written: list[bytes], max_bytes: int, strip: bool, head: int
) -> None:
    store = StreamStore(head)
    sent: list[tuple[OutputEntry, Piece]] = []
    position = 0
    for number, chunk in enumerate(written):
        store.append(chunk)
        if number == 0:
            # The store drops this output before anybody reads it.
            store.drop(3)
        stop, final = store.written, number == len(written) - 1
        while True:
            piece = read_text(store, position, stop, max_bytes, strip=strip, final=final)
            if piece.end == position:
                break
            start, position = position, piece.end
            entry = OutputEntry(
                "x", None, "stdout", store, start, position, 0, strip, stop, max_bytes, final
            )
            sent.append((entry, piece))
    for entry, piece in sent:
        event = entry.event(HEADER)
        assert isinstance(event, OutputEvent)
        assert (event.text, event.dropped) == (piece.text, piece.dropped)


def test_output_before_a_loss_is_sent_without_overwritten_text() -> None:
    store = StreamStore(6)
    store.append(b"old\r\xc3\x1b[")
    piece = read_text(store, 0, 7, 8, strip=True, final=False)
    assert (piece.text, piece.end) == ("\ufffd", 5)
    entry = OutputEntry("x", None, "stdout", store, 0, piece.end, 0, True, 7, 8, False)
    # After this loss, a read that begins at 0 would end at a different offset.
    store.drop(1)
    event = entry.event(HEADER)
    assert isinstance(event, OutputEvent)
    assert (event.text, event.dropped) == ("\ufffd", 0)
