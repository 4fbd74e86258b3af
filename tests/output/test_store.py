"""One stream, compared with the simplest model: all bytes in one string."""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from shelld.output.spool import BLOCK_BYTES
from shelld.output.store import MEMORY_BLOCKS, WINDOW_BYTES, MemoryBlocks, StreamStore


def pattern(start: int, stop: int) -> bytes:
    """Return bytes that depend on the offset in the stream, not only on the offset in the block."""
    return bytes((offset * 2_654_435_761 >> 13) & 0xFF for offset in range(start, stop))


_PATTERN = pattern(0, 1 << 21)


class FaultyBlocks(MemoryBlocks):
    """Memory blocks in which a test can cause faults.

    If `full`, no block can be added. If `failing`, adding a block raises an error. Reading a block
    in `lost` raises an error.
    """

    def __init__(self) -> None:
        super().__init__()
        self.full = False
        self.failing = False
        self.lost: set[int] = set()

    def put(self, data: bytes | bytearray | memoryview) -> int | None:
        if self.failing:
            raise OSError(errno.ENOSPC, "no space")
        return None if self.full else super().put(data)

    def get(self, block: int, offset: int, length: int) -> bytes:
        if block in self.lost:
            raise OSError(errno.EIO, "gone")
        return super().get(block, offset, length)


def read_all(store: StreamStore, step: int) -> tuple[bytes, int]:
    """Read everything from the beginning; return the kept data and the count of dropped bytes."""
    data, dropped, position = b"", 0, 0
    while position < store.written:
        kept = store.read(position, step)
        assert kept.start == position + kept.dropped
        assert len(kept.data) <= step
        assert kept.data == _PATTERN[kept.start : kept.start + len(kept.data)]
        position = kept.start + len(kept.data)
        data += kept.data
        dropped += kept.dropped
        assert kept.data or kept.dropped
    return data, dropped


class StoreMachine(RuleBasedStateMachine):
    """Reads return the right bytes, and every byte is counted. This holds even if the store drops
    data, loses data or gives up, and even if its blocks refuse data.
    """

    def __init__(self) -> None:
        super().__init__()
        self.blocks = FaultyBlocks()
        self.store = StreamStore(3 * BLOCK_BYTES + 100, self.blocks)
        self.finished = False

    def may_write(self) -> bool:
        return not self.finished and self.store.written < len(_PATTERN) - 4 * BLOCK_BYTES

    @precondition(may_write)
    @rule(size=st.sampled_from([1, 100, BLOCK_BYTES - 1, BLOCK_BYTES, 3 * BLOCK_BYTES + 7]))
    def append(self, size: int) -> None:
        before = self.store.written
        self.store.append(_PATTERN[before : before + size])
        assert self.store.written == before + size

    @rule(count=st.sampled_from([1, 5000, BLOCK_BYTES, 5 * BLOCK_BYTES]))
    def drop(self, count: int) -> None:
        kept = self.store.kept
        assert self.store.drop(count) == kept - self.store.kept

    @rule(count=st.integers(1, 5))
    def give_up(self, count: int) -> None:
        before = self.store.stored_blocks
        self.store.give_up(count)
        assert self.store.stored_blocks <= max(0, before - count)

    @rule(full=st.booleans(), failing=st.booleans())
    def change_faults(self, full: bool, failing: bool) -> None:
        self.blocks.full, self.blocks.failing = full, failing

    @rule(data=st.data())
    def lose(self, data: st.DataObject) -> None:
        if self.blocks._content:  # pyright: ignore[reportPrivateUsage]
            known = sorted(self.blocks._content)  # pyright: ignore[reportPrivateUsage]
            self.blocks.lost.add(data.draw(st.sampled_from(known)))

    @rule()
    def finish(self) -> None:
        self.store.finish()
        self.finished = True

    @rule(step=st.sampled_from([1000, BLOCK_BYTES, 10 * BLOCK_BYTES]))
    def read(self, step: int) -> None:
        if step == 1000 and self.store.kept > 3 * BLOCK_BYTES:
            return
        # The store notices lost data only when the data is read. After this read, the counts are
        # final.
        read_all_quietly(self.store)
        data, dropped = read_all(self.store, step)
        assert (len(data), dropped) == (self.store.kept, self.store.dropped)

    @invariant()
    def all_is_counted(self) -> None:
        assert 0 <= self.store.dropped <= self.store.written
        assert self.store.kept + self.store.dropped == self.store.written

    @invariant()
    def no_block_is_held_for_nothing(self) -> None:
        held = len(self.blocks._content)  # pyright: ignore[reportPrivateUsage]
        assert held == self.store.stored_blocks
        assert held <= self.store.kept // BLOCK_BYTES + 3

    def teardown(self) -> None:
        self.store.forget()
        assert not self.blocks._content  # pyright: ignore[reportPrivateUsage]


def read_all_quietly(store: StreamStore) -> None:
    position = 0
    while position < store.written:
        kept = store.read(position, BLOCK_BYTES)
        position = kept.start + len(kept.data)
        if not kept.data and not kept.dropped:
            position = store.written


TestStoreMachine = StoreMachine.TestCase
TestStoreMachine.settings = settings(max_examples=60, stateful_step_count=25)


@given(
    st.lists(st.binary(max_size=50), max_size=30),
    st.integers(2, 100),
    st.integers(0, 600),
    st.integers(1, 200),
)
def test_read_returns_the_written_bytes(
    written: list[bytes], limit: int, start: int, size: int
) -> None:
    store = StreamStore(limit)
    for piece in written:
        store.append(piece)
    whole = b"".join(written)
    assert store.written == len(whole)
    kept = store.read(start, size)
    assert kept.data == whole[start : start + size]
    assert (kept.start, kept.dropped) == (start, 0)


def test_the_head_stays_and_the_tail_slides() -> None:
    store = StreamStore(100)
    store.append(_PATTERN[:1000])
    assert store.drop(5000) == 900
    assert read_all(store, 77) == (_PATTERN[:100], 900)
    store.append(_PATTERN[1000:1500])
    assert store.drop(200) == 200
    assert read_all(store, 77) == (_PATTERN[:100] + _PATTERN[1200:1500], 1100)


def test_read_never_crosses_the_gap() -> None:
    store = StreamStore(100)
    store.append(_PATTERN[:1000])
    store.drop(300)
    assert store.read(90, 500) == (90, _PATTERN[90:100], 0)
    assert store.read(100, 5) == (400, _PATTERN[400:405], 300)
    assert store.read(250, 5) == (400, _PATTERN[400:405], 150)
    assert store.read(400, 5) == (400, _PATTERN[400:405], 0)


@pytest.mark.parametrize(
    ("start", "end", "dropped"),
    [
        *((0, 100, 0), (0, 101, 1), (99, 101, 1), (100, 400, 300), (250, 300, 50), (0, 1000, 300)),
        *((399, 500, 1), (400, 500, 0), (300, 250, 0), (100, 100, 0), (5000, 6000, 0)),
    ],
)
def test_dropped_bytes_of_range_are_counted(start: int, end: int, dropped: int) -> None:
    store = StreamStore(100)
    store.append(_PATTERN[:1000])
    assert store.dropped_between(start, end) == 0
    store.drop(300)
    assert store.dropped_between(start, end) == dropped


def test_offsets_exceed_32_bits() -> None:
    store = StreamStore(1 << 20)
    chunk = bytes(1 << 20)
    # Simulate a long run; writing that much would take a minute.
    store.append(chunk * 2)
    store.drop(1 << 20)
    store.written += 1 << 33
    store._gap_end += 1 << 33  # pyright: ignore[reportPrivateUsage]
    store._oldest += (1 << 33) // BLOCK_BYTES  # pyright: ignore[reportPrivateUsage]
    store.append(b"x" * BLOCK_BYTES + b"tail")
    assert store.read(store.written - 6, 10) == (store.written - 6, b"xxtail", 0)
    assert store.written == (1 << 33) + (2 << 20) + BLOCK_BYTES + 4
    assert store.dropped == (1 << 33) + (1 << 20)


def test_a_read_at_the_end_finds_nothing() -> None:
    store = StreamStore(100)
    store.append(b"abc")
    assert store.read(3, 10).data == b""
    assert store.read(30, 10).data == b""


@pytest.mark.parametrize("finish", [True, False])
@pytest.mark.parametrize("count", [5, 6, 7, 8, 20])
def test_memory_keeps_head_and_tail_if_blocks_fail(count: int, finish: bool) -> None:
    blocks = FaultyBlocks()
    blocks.failing = True
    store = StreamStore(1 << 20, blocks)
    size = count * BLOCK_BYTES + 5000
    for start in range(0, size, 10_000):
        store.append(_PATTERN[start : min(size, start + 10_000)])
    if finish:
        store.finish()
    data, dropped = read_all(store, 100_000)
    assert data[:BLOCK_BYTES] == _PATTERN[:BLOCK_BYTES]
    assert data[BLOCK_BYTES:] == _PATTERN[size - len(data) + BLOCK_BYTES : size]
    assert len(data) == MEMORY_BLOCKS * BLOCK_BYTES + 5000
    assert (dropped, store.error) == (size - len(data), "ENOSPC")


def test_failed_block_kept_in_memory_is_no_error() -> None:
    blocks = FaultyBlocks()
    blocks.failing = True
    store = StreamStore(1 << 20, blocks)
    store.append(_PATTERN[: MEMORY_BLOCKS * BLOCK_BYTES + 5000])
    store.finish()
    assert (store.dropped, store.error) == (0, None)
    blocks.failing = False
    store = StreamStore(1 << 20, blocks)
    store.append(_PATTERN[: 8 * BLOCK_BYTES])
    blocks.failing = True
    store.append(_PATTERN[8 * BLOCK_BYTES : 12 * BLOCK_BYTES])
    assert store.error is None
    store.append(_PATTERN[12 * BLOCK_BYTES : 13 * BLOCK_BYTES])
    assert store.error == "ENOSPC"


def test_reaching_the_limit_of_blocks_is_no_error() -> None:
    blocks = FaultyBlocks()
    blocks.full = True
    store = StreamStore(1 << 20, blocks)
    store.append(_PATTERN[: 20 * BLOCK_BYTES])
    assert store.dropped == 16 * BLOCK_BYTES
    assert store.error is None
    assert len(store._in_memory) == MEMORY_BLOCKS  # pyright: ignore[reportPrivateUsage]


def test_error_without_errno_has_a_name() -> None:
    class BrokenBlocks(MemoryBlocks):
        def put(self, data: bytes | bytearray | memoryview) -> int | None:
            raise OSError

    store = StreamStore(1 << 20, BrokenBlocks())
    store.append(_PATTERN[: 5 * BLOCK_BYTES])
    assert store.error == "EIO"


def lose_head(store: StreamStore, blocks: FaultyBlocks) -> None:
    blocks.lost.add(2)


def lose_tail(store: StreamStore, blocks: FaultyBlocks) -> None:
    blocks.lost.add(7)


@pytest.mark.parametrize(
    ("lose", "gap"), [(lose_head, (1, 2)), (lose_tail, (4, 7))], ids=["head", "tail"]
)
def test_unreadable_blocks_are_dropped_and_counted(
    lose: Callable[[StreamStore, FaultyBlocks], None], gap: tuple[int, int]
) -> None:
    blocks = FaultyBlocks()
    store = StreamStore(4 * BLOCK_BYTES, blocks)
    store.append(_PATTERN[: 10 * BLOCK_BYTES])
    lose(store, blocks)
    read_all_quietly(store)
    start, end = gap[0] * BLOCK_BYTES, gap[1] * BLOCK_BYTES
    assert read_all(store, 100_000) == (
        _PATTERN[:start] + _PATTERN[end : 10 * BLOCK_BYTES],
        end - start,
    )
    assert store.error == "EIO"


def test_block_with_both_sides_of_the_gap_is_lost_last() -> None:
    blocks = FaultyBlocks()
    store = StreamStore(3 * BLOCK_BYTES + 100, blocks)
    store.append(_PATTERN[: 4 * BLOCK_BYTES + 7])
    store.drop(1)
    # Lose the whole head first, and then the block in which the tail begins.
    for lost, begin in ((1, 3 * BLOCK_BYTES + 101), (4, 4 * BLOCK_BYTES)):
        blocks.lost.add(lost)
        read_all_quietly(store)
        assert read_all(store, 1000) == (_PATTERN[begin : 4 * BLOCK_BYTES + 7], begin)


def test_ended_stream_holds_little_memory() -> None:
    blocks = MemoryBlocks()
    short, long = StreamStore(1 << 20, blocks), StreamStore(1 << 20, blocks)
    short.append(_PATTERN[:WINDOW_BYTES])
    long.append(_PATTERN[: WINDOW_BYTES + 1])
    for store in (short, long):
        store.finish()
    assert (short.stored_blocks, long.stored_blocks) == (0, 1)
    assert read_all(long, 1000) == (_PATTERN[: WINDOW_BYTES + 1], 0)


def test_giving_up_blocks_frees_oldest_tail_then_newest_head() -> None:
    store = StreamStore(3 * BLOCK_BYTES, MemoryBlocks())
    store.append(_PATTERN[: 6 * BLOCK_BYTES + 10])
    store.give_up(1, "ENOSPC")
    assert read_all(store, 1 << 20) == (
        _PATTERN[: 3 * BLOCK_BYTES] + _PATTERN[4 * BLOCK_BYTES : 6 * BLOCK_BYTES + 10],
        BLOCK_BYTES,
    )
    store.give_up(3, None)
    expected = _PATTERN[: 2 * BLOCK_BYTES] + _PATTERN[6 * BLOCK_BYTES : 6 * BLOCK_BYTES + 10]
    assert read_all(store, 1 << 20) == (expected, 4 * BLOCK_BYTES)
    assert store.error == "ENOSPC"


def test_small_writes_are_joined_into_blocks() -> None:
    blocks = MemoryBlocks()
    store = StreamStore(1 << 20, blocks)
    for _ in range(100_000):
        store.append(b"0123456789")
    assert store.stored_blocks == 1_000_000 // BLOCK_BYTES
