"""Keeps the bytes of one stream of a command: a head and a tail, at absolute offsets.

The store owns the kept bytes, and counts all bytes written. The last block is in memory, and full
blocks go to `Blocks`. The store knows nothing about readers, text or time. It raises no error
except MemoryError, because it drops and counts the bytes that it cannot keep.

Invariants:

* ``kept + dropped == written``. The dropped bytes form one gap between head and tail.
* The head stays. If bytes must be dropped, the tail loses its oldest bytes. The head shrinks only
  if another shell needs the room and no tail is left, or if a block of the head cannot be stored or
  read.
* The cost of an append depends on the size of its data, and the cost of a read depends on the size
  of its result. Both costs are independent of the number of kept bytes.
"""

from __future__ import annotations

import errno
from typing import Final, NamedTuple, Protocol

from shelld.output.spool import BLOCK_BYTES

# If blocks of a stream cannot be stored, at most this many blocks stay in memory. They are the
# first and the last blocks of the stream.
MEMORY_BLOCKS: Final = 4

# The last block of an ended stream stays in memory if it is no larger than this.
WINDOW_BYTES: Final = 4 * 1024


class Blocks(Protocol):
    """Stores full blocks. `put` returns None if there is no room. `put` and `get` raise OSError."""

    def put(self, data: bytes | bytearray | memoryview) -> int | None: ...

    def get(self, block: int, offset: int, length: int) -> bytes: ...

    def free(self, block: int) -> None: ...


class MemoryBlocks:
    """Stores blocks in memory. It is for streams that do not count towards the common limit of all
    shells.
    """

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
    """The result of a read.

    `data` begins at `start`, which is `dropped` bytes after the requested offset.
    """

    start: int
    data: bytes
    dropped: int


class StreamStore:
    """`written` is the number of bytes appended, which is the offset of the next byte.

    The head has at most `head_limit` bytes. Callers limit the tail with `drop`. If an error has
    made the store drop bytes that the limits allow, `error` is the name of this error, such as
    "ENOSPC". Otherwise, `error` is None.
    """

    def __init__(self, head_limit: int, blocks: Blocks | None = None) -> None:
        self.written = 0
        self.error: str | None = None
        # The error with which `Blocks` has refused the last block. None if `Blocks` has stored this
        # block, or has had no room for it.
        self._refusal: str | None = None
        self._blocks = MemoryBlocks() if blocks is None else blocks
        # The gap between head and tail. Until bytes are dropped, the gap is empty, and lies where
        # the head will end.
        self._gap_start = self._gap_end = head_limit
        # The bytes after the last full block.
        self._window = bytearray()
        # Maps a block of the stream to its number in `Blocks`. Block n begins at n * BLOCK_BYTES.
        self._stored: dict[int, int] = {}
        # The blocks that `Blocks` has refused.
        self._in_memory: dict[int, bytes] = {}
        # The lowest number that a block of the tail can have.
        self._oldest = _block_after(head_limit)

    @property
    def dropped(self) -> int:
        return self._gap_end - self._gap_start

    @property
    def kept(self) -> int:
        return self.written - self.dropped

    def dropped_between(self, start: int, end: int) -> int:
        """Return how many bytes of the range were dropped."""
        return max(0, min(end, self._gap_end) - max(start, self._gap_start))

    @property
    def tail_bytes(self) -> int:
        """The number of bytes that `drop` can drop."""
        return max(0, self.written - self._gap_end)

    @property
    def stored_blocks(self) -> int:
        """The number of blocks that `give_up` can free."""
        return len(self._stored)

    # -- writing ----------------------------------------------------------------------------

    def append(self, data: bytes | memoryview) -> None:
        """Add bytes. After a MemoryError, `written` shows how many of these bytes were added."""
        view = memoryview(data)
        while view:
            room = BLOCK_BYTES - len(self._window)
            if room == BLOCK_BYTES and len(view) >= room:
                # Store the block directly from `view`, without a copy.
                self.written += room
                try:
                    self._store(self.written // BLOCK_BYTES - 1, view[:room])
                except MemoryError:
                    self.written -= room
                    raise
            else:
                self._window += view[:room]
                self.written += min(room, len(view))
                if len(self._window) == BLOCK_BYTES:
                    self._store(self.written // BLOCK_BYTES - 1, self._window)
                    self._window = bytearray()
            view = view[room:]

    def finish(self) -> None:
        """End the stream, and keep no more than `WINDOW_BYTES` in memory, if possible.

        Bytes that `Blocks` refuses stay in memory.
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
        """Keep a refused block in memory, as the last block of a short tail."""
        if not self.dropped:
            # The head ends where this block begins. But if this is the first block of the stream,
            # the block is the head, and the head ends where the block ends.
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
        """Drop up to `count` of the oldest bytes of the tail. Return how many were dropped."""
        count = min(count, self.tail_bytes)
        self._drop_to(self._gap_end + count)
        return count

    def give_up(self, count: int, error: str | None = None) -> None:
        """Free up to `count` stored blocks: first the oldest of the tail, then the newest of the
        head.
        """
        if error is not None and self._stored:
            self.error = error
        tail = [number for number in self._stored if number >= self._oldest][:count]
        if tail:
            self._drop_to(self._end_of(tail[-1]))
        # If the tail had too few blocks, all blocks that are left belong to the head.
        for number in list(reversed(self._stored))[: count - len(tail)]:
            self._lose(number)

    def forget(self) -> None:
        """Free all blocks."""
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
        # The last stored block of a stream that has ended may be shorter than `BLOCK_BYTES`.
        return min(end, self.written) if number in self._stored else end

    def _lose(self, number: int) -> None:
        """Drop a block.

        In the tail, this also drops all older blocks. In the head, it also drops all newer blocks.
        """
        end = self._end_of(number)
        if number >= self._oldest:
            self._drop_to(end)
            return
        if not self.dropped:
            # The tail begins after this block.
            self._gap_end = end
            self._oldest = number + 1
        # The gap may already begin before this block, if an earlier part of the head is lost as
        # well.
        self._gap_start = min(self._gap_start, number * BLOCK_BYTES)
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

    def whole_from(self, start: int) -> int:
        """Return the lowest offset, at least `start`, after which no bytes are missing."""
        return max(start, self._gap_end) if self.dropped else start

    def read(self, start: int, max_bytes: int) -> Kept:
        """Return up to `max_bytes` contiguous bytes from `start`.

        If `start` is in the gap, the bytes begin at the end of the gap.
        A read never joins the two sides of the gap, so a read that reaches the gap ends there. If
        `start` is beyond the end, the read is empty.
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
    """Return the number of the first block that begins at or after `offset`."""
    return -(-offset // BLOCK_BYTES)
