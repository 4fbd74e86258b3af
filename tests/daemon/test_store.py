"""The store against the simplest model there is: all the bytes in one string."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from shelld.output.store import StreamStore

pieces = st.lists(st.binary(max_size=50), max_size=30)
limits = st.integers(2, 100)


@given(pieces, limits, st.integers(0, 600), st.integers(1, 200))
def test_a_read_gives_what_was_written_there(
    written: list[bytes], limit: int, start: int, size: int
) -> None:
    store = StreamStore(limit)
    for piece in written:
        store.append(piece)
    whole = b"".join(written)
    assert store.written == len(whole)
    kept = store.read(start, size)
    assert kept.data == whole[kept.start : kept.start + len(kept.data)]
    assert kept.start == start + kept.dropped
    assert len(kept.data) <= size


@given(pieces, limits)
def test_reading_on_covers_every_byte_once_as_kept_or_dropped(
    written: list[bytes], limit: int
) -> None:
    store = StreamStore(limit)
    for piece in written:
        store.append(piece)
    whole = b"".join(written)
    position = dropped = 0
    data = b""
    while position < store.written:
        kept = store.read(position, 7)
        assert kept.data
        position = kept.start + len(kept.data)
        dropped += kept.dropped
        data += kept.data
    assert dropped == store.dropped
    assert len(data) + dropped == len(whole)
    if dropped:
        head, tail = limit // 2, limit - limit // 2
        assert data == whole[:head] + whole[-tail:]
    else:
        assert data == whole


def test_offsets_go_past_what_32_bits_hold() -> None:
    store = StreamStore(1 << 20)
    store.append(b"head" + b"x" * (1 << 20))
    store.written += 1 << 33
    store.append(b"tail")
    assert store.read(store.written - 4, 10) == (store.written - 4, b"tail", 0)
    assert store.dropped == store.written - (1 << 20)


def test_a_million_small_writes_are_few_objects() -> None:
    store = StreamStore(1 << 20)
    for _ in range(100_000):
        store.append(b"0123456789")
    assert len(store._head) + len(store._tail) < 40  # pyright: ignore[reportPrivateUsage]


def test_a_read_at_the_end_finds_nothing() -> None:
    store = StreamStore()
    store.append(b"abc")
    assert store.read(3, 10).data == b""
    assert store.read(30, 10).data == b""
