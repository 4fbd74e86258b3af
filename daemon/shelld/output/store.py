"""The bytes that one stream of a command wrote: head and tail, under absolute offsets.

Owns what is kept, and the count of all that was written. The block that is being filled is in
memory, full ones are given to `Blocks`. Knows nothing of readers, text or time, and never fails:
what cannot be kept is dropped, and counted.

Invariants:

* ``kept + dropped == written``; what is dropped is one gap between head and tail.
* The head is what came first, and the tail slides. The head only shrinks when somebody else needs
  the room and there is no tail to give.
* An append costs by its own size and a read by what it returns, not by what is kept.
"""

from __future__ import annotations

import errno
from typing import Final, NamedTuple, Protocol

from shelld.output.spool import BLOCK_BYTES

# Bytes kept of a stream whose blocks cannot be stored: the first, and the last.
MEMORY_BLOCKS: Final = 4

# The rest of an ended stream stays in memory if it is smaller than this.
WINDOW_BYTES: Final = 4 * 1024


class Blocks(Protocol):
    """Where full blocks go. `put` returns None if there is no room; both raise OSError."""

    def put(self, data: bytes | bytearray | memoryview) -> int | None: ...

    def get(self, block: int, offset: int, length: int) -> bytes: ...

    def free(self, block: int) -> None: ...


class MemoryBlocks:
    """For a stream of its own, without any other shell or disk."""

    def __init__(self) -> None:
        self._content: dict[int, bytes] = {}
        self._next = 0

    def put(self, data: bytes | bytearray | memoryview) -> int | None:
        self._next += 1
        self._content[self._next] = bytes(data)
        return self._next

    def get(self, block: int, offset: int, length: int) -> bytes:
        return self._content[block][offset : offset + length]

    def free(self, block: int) -> None:
        del self._content[block]


class Kept(NamedTuple):
    """What a read found: `data` begins at `start`, after `dropped` bytes that are gone."""

    start: int
    data: bytes
    dropped: int


class StreamStore:
    """`written` is the number of bytes appended so far: the offset of the next one.

    At most `head_limit` bytes are head. How long the tail gets is up to those who call `drop`.
    `error`: the name of the errno for which something was dropped that should have been kept.
    """

    def __init__(self, head_limit: int, blocks: Blocks | None = None) -> None:
        self.written = 0
        self.error: str | None = None
        # Why the last block was not taken, if that was an error.
        self._refusal: str | None = None
        self._blocks = MemoryBlocks() if blocks is None else blocks
        # What is dropped. While nothing is, it is the empty range where the head will end.
        self._gap_start = self._gap_end = head_limit
        # The bytes since the last block's end.
        self._window = bytearray()
        # Block n of the stream has the bytes from n * BLOCK_BYTES: which of `Blocks` it is.
        self._stored: dict[int, int] = {}
        # Those that `Blocks` did not take.
        self._in_memory: dict[int, bytes] = {}
        # All of the tail that is stored or in memory has this number or a higher one.
        self._oldest = _block_after(head_limit)

    @property
    def dropped(self) -> int:
        return self._gap_end - self._gap_start

    @property
    def kept(self) -> int:
        return self.written - self.dropped

    def dropped_between(self, start: int, end: int) -> int:
        """Return how many bytes of that range are dropped."""
        return max(0, min(end, self._gap_end) - max(start, self._gap_start))

    @property
    def tail_bytes(self) -> int:
        """How much there is to `drop`."""
        return max(0, self.written - self._gap_end)

    @property
    def stored_blocks(self) -> int:
        """How much there is to `give_up`."""
        return len(self._stored)

    # -- writing ----------------------------------------------------------------------------

    def append(self, data: bytes | memoryview) -> None:
        view = memoryview(data)
        while view:
            room = BLOCK_BYTES - len(self._window)
            if room == BLOCK_BYTES and len(view) >= room:
                # As it is, without a copy.
                self.written += room
                self._store(self.written // BLOCK_BYTES - 1, view[:room])
            else:
                self._window += view[:room]
                self.written += min(room, len(view))
                if len(self._window) == BLOCK_BYTES:
                    self._store(self.written // BLOCK_BYTES - 1, self._window)
                    self._window = bytearray()
            view = view[room:]

    def finish(self) -> None:
        """Nothing more will be appended: hold no more than `WINDOW_BYTES` in memory, if possible.

        What has no room elsewhere stays in memory.
        """
        if len(self._window) > WINDOW_BYTES and self._put(
            self.written // BLOCK_BYTES, self._window
        ):
            self._window = bytearray()

    def _store(self, number: int, data: bytearray | memoryview) -> None:
        if not self._put(number, data):
            self._hold(number, bytes(data))

    def _put(self, number: int, data: bytearray | memoryview) -> bool:
        self._refusal = None
        try:
            block = self._blocks.put(data)
        except OSError as error:
            self._refusal = _name_of(error)
            return False
        if block is None:
            return False
        self._stored[number] = block
        return True

    def _hold(self, number: int, data: bytes) -> None:
        """Keep a block in memory that cannot be stored, as the last one of a short tail."""
        if not self.dropped:
            # The head ends with its last stored block, or with the first block.
            end = max(number, 1) * BLOCK_BYTES
            if end < self._gap_start:
                self._gap_start = self._gap_end = end
                self._oldest = _block_after(end)
        self._in_memory[number] = data
        if len(self._in_memory) > MEMORY_BLOCKS:
            first = next(held for held in self._in_memory if held >= self._oldest)
            self._drop_to((first + 1) * BLOCK_BYTES)
            self.error = self._refusal or self.error

    # -- dropping ---------------------------------------------------------------------------

    def drop(self, count: int) -> int:
        """Drop up to `count` of the oldest bytes of the tail; return how many."""
        count = min(count, self.tail_bytes)
        self._drop_to(self._gap_end + count)
        return count

    def give_up(self, count: int, error: str | None = None) -> None:
        """Free up to `count` blocks that are stored: the tail's oldest, then the head's newest."""
        if error is not None and self._stored:
            self.error = error
        tail = [number for number in self._stored if number >= self._oldest][:count]
        if tail:
            self._drop_to(self._end_of(tail[-1]))
        # If that was not enough, all that is left is head.
        for number in list(reversed(self._stored))[: count - len(tail)]:
            self._lose(number)

    def forget(self) -> None:
        """Free all that is stored."""
        self._gap_start, self._gap_end = 0, self.written
        self._window = bytearray()
        self._free_gap()

    def _drop_to(self, offset: int) -> None:
        self._gap_end = max(self._gap_end, min(offset, self.written))
        while self._end_of(self._oldest) <= self._gap_end:
            self._free(self._oldest)
            self._oldest += 1

    def _end_of(self, number: int) -> int:
        end = (number + 1) * BLOCK_BYTES
        # The last block of a stream that has ended may be shorter.
        return min(end, self.written) if number in self._stored else end

    def _lose(self, number: int) -> None:
        """Drop the bytes of one block, and what of the tail or the head is cut off by that."""
        end = self._end_of(number)
        if number >= self._oldest:
            self._drop_to(end)
            return
        if not self.dropped:
            # From here on, what follows is the tail.
            self._gap_end = end
            self._oldest = number + 1
        self._gap_start = number * BLOCK_BYTES
        self._gap_end = max(self._gap_end, end)
        self._free_gap()

    def _free_gap(self) -> None:
        for number in [*self._stored, *self._in_memory]:
            start, end = number * BLOCK_BYTES, self._end_of(number)
            if self._gap_start <= start and end <= self._gap_end:
                self._free(number)

    def _free(self, number: int) -> None:
        self._in_memory.pop(number, None)
        block = self._stored.pop(number, None)
        if block is not None:
            self._blocks.free(block)

    # -- reading ----------------------------------------------------------------------------

    def read(self, start: int, max_bytes: int) -> Kept:
        """Return up to `max_bytes` that are contiguous and kept, from `start` or after the gap.

        A read never joins the two sides of the gap: a read that begins before the gap ends there.
        `start` may lie beyond what was written; nothing is found there.
        """
        while True:
            begin = self._gap_end if self._gap_start <= start < self._gap_end else start
            is_head = begin < self._gap_start and self.dropped
            stop = min(begin + max_bytes, self._gap_start if is_head else self.written)
            try:
                data = self._load(begin, stop)
            except _UnreadableError as error:
                self.error = _name_of(error.cause)
                self._lose(error.number)
            else:
                return Kept(begin, data, begin - start)

    def _load(self, start: int, stop: int) -> bytes:
        pieces: list[bytes] = []
        while start < stop:
            number, offset = divmod(start, BLOCK_BYTES)
            length = min(BLOCK_BYTES - offset, stop - start)
            block = self._stored.get(number)
            if block is not None:
                try:
                    pieces.append(self._blocks.get(block, offset, length))
                except OSError as error:
                    raise _UnreadableError(number, error) from None
            else:
                held = self._in_memory.get(number, self._window)
                pieces.append(bytes(held[offset : offset + length]))
            start += length
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)


class _UnreadableError(Exception):
    def __init__(self, number: int, cause: OSError) -> None:
        super().__init__(number)
        self.number = number
        self.cause = cause


def _name_of(error: OSError) -> str:
    return errno.errorcode.get(error.errno or 0, "EIO")


def _block_after(offset: int) -> int:
    """Return the first block that has no byte before `offset`."""
    return -(-offset // BLOCK_BYTES)
