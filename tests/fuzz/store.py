"""A stream's store, compared with a model that keeps everything.

The input lists operations on the store. Each operation has two bytes: its kind, and its size.
"""

from __future__ import annotations

from unittest import mock

from shelld.output import store as store_module
from shelld.output.store import MemoryBlocks, StreamStore

# The sizes are small, so that inputs reach every boundary.
BLOCK_BYTES = 16
HEAD_BYTES = 40
_MAX_BYTES = 4_000
_PATTERN = bytes(range(1, 251)) * (_MAX_BYTES // 250 + 2)


def check(program: bytes) -> None:
    """Do the operations in `program`. Raise AssertionError if a promise is broken."""
    with mock.patch.object(store_module, "BLOCK_BYTES", BLOCK_BYTES):
        _run(program)


def _run(program: bytes) -> None:
    store = StreamStore(HEAD_BYTES, MemoryBlocks())
    finished = False
    for operation, size in zip(program[::2], program[1::2], strict=False):
        before, kept = store.written, store.kept
        match operation % 4:
            case 0 | 1 if not finished and before < _MAX_BYTES:
                store.append(_PATTERN[before : before + size])
                assert store.written == before + size
            case 2:
                assert store.drop(size) == kept - store.kept
                assert store.written == before
            case 3 if size % 8 == 0:
                store.finish()
                finished = True
            case _:
                pass
        _check_reads(store, size + 1)


def _check_reads(store: StreamStore, step: int) -> None:
    """Check that kept data equals the data written at its offset, and that the store counts all
    dropped bytes.
    """
    assert store.kept + store.dropped == store.written
    position = found = dropped = 0
    while position < store.written:
        kept = store.read(position, step)
        assert kept.data == _PATTERN[kept.start : kept.start + len(kept.data)]
        assert kept.start - position == kept.dropped
        if not kept.data and not kept.dropped:
            break
        dropped += kept.dropped
        found += len(kept.data)
        position = kept.start + len(kept.data)
    assert (found, dropped) == (store.kept, store.dropped)
    assert store.dropped_between(0, store.written) == store.dropped
