"""What a journal keeps of output: a range, whose text is read again when it is sent again."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from shelld.events.entries import Header, OutputEntry
from shelld.output.store import StreamStore
from shelld_protocol.event_methods import OutputEvent

HEADER = Header("sub_1", 1, "x", None, 1)
SIZE = 3_000


@given(
    head=st.integers(0, SIZE),
    dropped=st.integers(0, SIZE),
    ends=st.tuples(st.integers(0, SIZE), st.integers(0, SIZE)),
)
def test_output_that_was_lost_since_is_counted(
    head: int, dropped: int, ends: tuple[int, int]
) -> None:
    start, end = sorted(ends)
    data = "".join(f"{number:07d}\n" for number in range(SIZE // 8)).ljust(SIZE, "x")
    store = StreamStore(head)
    store.append(data.encode())
    gap_end = head + store.drop(dropped)
    entry = OutputEntry("x", None, "stdout", store, start, end, 0, True, SIZE, True)
    event = entry.event(HEADER)
    assert isinstance(event, OutputEvent)
    assert event.text == data[start : min(end, head)] + data[max(start, gap_end) : end]
    assert event.dropped == end - start - len(event.text)
    assert (event.start, event.end) == (start, end)
