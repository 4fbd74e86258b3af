"""The bytes that one stream of a command wrote: head and tail, under absolute offsets.

Pure. Owns what is kept, and the count of all that was written. Knows nothing of readers, text or
time.

Invariants:

* ``kept + dropped == written``; what is dropped is one gap between head and tail.
* At most `retain_bytes` are kept. The head is never given up, the tail slides.
* An append costs by its own size, not by what is kept.
"""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

DEFAULT_RETAIN_BYTES: Final = 64 * 1024 * 1024

# Small writes are joined to chunks of this size, so that a million one-byte writes are not a
# million objects, and a chunk that leaves the tail does not have to be large.
CHUNK_BYTES: Final = 64 * 1024


class Kept(NamedTuple):
    """What a read found: `data` begins at `start`, after `dropped` bytes that are gone."""

    start: int
    data: bytes
    dropped: int


class StreamStore:
    """`written` is the number of bytes appended so far: the offset of the next one."""

    def __init__(self, retain_bytes: int = DEFAULT_RETAIN_BYTES) -> None:
        self.written = 0
        self._head_limit = retain_bytes // 2
        self._tail_limit = retain_bytes - self._head_limit
        self._head: deque[bytearray] = deque()
        self._head_size = 0
        self._tail: deque[bytearray] = deque()
        self._tail_size = 0

    @property
    def kept(self) -> int:
        return self._head_size + self._tail_size

    @property
    def dropped(self) -> int:
        return self.written - self.kept

    def append(self, data: bytes) -> None:
        self.written += len(data)
        room = self._head_limit - self._head_size
        if room > 0:
            head = data[:room]
            _join(self._head, head)
            self._head_size += len(head)
            data = data[room:]
        if data:
            _join(self._tail, data)
            self._tail_size += len(data)
            self._trim()

    def _trim(self) -> None:
        excess = self._tail_size - self._tail_limit
        while excess > 0:
            first = self._tail[0]
            if len(first) > excess:
                # CPython drops the front of a bytearray without moving the rest.
                del first[:excess]
                self._tail_size -= excess
                return
            self._tail.popleft()
            self._tail_size -= len(first)
            excess -= len(first)

    def read(self, start: int, max_bytes: int) -> Kept:
        """Return up to `max_bytes` that are contiguous and kept, from `start` or after the gap.

        A read never joins the two sides of the gap: one that begins before it ends there.
        `start` may lie beyond what was written; nothing is found there.
        """
        if start < self._head_size:
            data = _slice(self._head, start, max_bytes)
            if len(data) < max_bytes and not self.dropped:
                data += _slice(self._tail, 0, max_bytes - len(data))
            return Kept(start, data, 0)
        tail_start = self.written - self._tail_size
        begin = max(start, tail_start)
        data = _slice(self._tail, begin - tail_start, max_bytes)
        return Kept(begin, data, begin - start)


def _join(chunks: deque[bytearray], data: bytes) -> None:
    if not data:
        return
    if chunks and len(chunks[-1]) + len(data) <= CHUNK_BYTES:
        chunks[-1] += data
    else:
        chunks.append(bytearray(data))


def _slice(chunks: deque[bytearray], start: int, length: int) -> bytes:
    pieces: list[memoryview] = []
    for chunk in chunks:
        if length <= 0:
            break
        if start >= len(chunk):
            start -= len(chunk)
            continue
        piece = memoryview(chunk)[start : start + length]
        pieces.append(piece)
        length -= len(piece)
        start = 0
    return b"".join(pieces)
