"""Reads the part of a stream that one call returns: new output, or a range of offsets.

Plain readers have no offset of their own, and share one position in a stream. `peek` reads without
moving this position, and may be interrupted. `take` moves the position, and does not await. The
caller passes the result of a plain reader's `peek` to `take` only if this result starts at the
shared position. If another reader has moved the position since the `peek`, the caller first calls
`peek` again. So two readers never get the same bytes, and together they miss no bytes.

Large reads happen in steps. Other requests run between the steps.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple, TypeVar

from anyio.lowlevel import checkpoint

from shelld.eventloop.turns import do_serially
from shelld.filters.filter import LineFilter, portions
from shelld.output.escapes import MAX_SEQUENCE_BYTES
from shelld.output.retention import OutputStream
from shelld.output.store import StreamStore
from shelld.output.text import (
    STEP_BYTES,
    JoinedText,
    Piece,
    begins_within_line,
    has_text,
    last_states,
    read_text,
    whole_lines,
)

T = TypeVar("T")

# The size of a step in base64. It is a multiple of three, so that the texts of two steps can be
# joined.
_BASE64_STEP_BYTES: Final = 3 * STEP_BYTES // 4
# A read of at most this size does not wait for the steps of other reads.
_SMALL_BYTES: Final = 8 * 1024


# -- a range ----------------------------------------------------------------------------------


def read_all(store: StreamStore, start: int, *, strip: bool, final: bool) -> tuple[str, int]:
    """Return all kept text from `start` on, and the offset of its end.

    This blocks until all text is read. A caller with an event loop reads in steps instead.
    """
    texts: list[str] = []
    position = start
    while True:
        piece = read_text(store, position, store.written, STEP_BYTES, strip=strip, final=final)
        if piece.end == position:
            text = "".join(texts)
            continues = begins_within_line(store, start)
            return (last_states(text, continues=continues) if strip else text), position
        texts.append(piece.text)
        position = piece.end


async def do_step(convert: Callable[[], T], size: int, *, is_first: bool = True) -> T:
    """Do one step of a read.

    The step reads up to `size` bytes. A small first step does not wait for other reads.
    """
    return convert() if is_first and size <= _SMALL_BYTES else await do_serially(convert)


async def read_in_steps(
    store: StreamStore, start: int, stop: int, room: int, *, strip: bool, final: bool
) -> Piece:
    """Convert the bytes between `start` and `stop` to text, but at most `room` bytes.

    Converts at least one unit. `final` says that no output follows `stop`. In that case, this also
    converts an incomplete unit before `stop`. Other requests run between the steps.
    """
    is_gap = store.read(start, 0).start > start
    continues = not is_gap and begins_within_line(store, start)
    text = JoinedText(strip=strip, continues=continues)
    position, dropped, invalid = start, 0, 0
    while room > 0:
        step = min(room, STEP_BYTES)
        convert = partial(read_text, store, position, stop, step, strip=strip, final=final)
        piece = await do_step(convert, min(step, stop - start), is_first=position == start)
        size = piece.end - position - piece.dropped
        # Only the first unit may exceed the room.
        if piece.end == position or (position > start and (piece.dropped or size > room)):
            break
        text.add(piece.text)
        dropped += piece.dropped
        invalid += piece.invalid
        room -= size
        position = piece.end
        if position >= stop:
            break
    # Joining 16 MiB takes several milliseconds.
    join = partial(text.joined, is_end=final and position == stop)
    return Piece(await do_step(join, position - start), position, dropped, invalid)


async def read_in_base64(store: StreamStore, start: int, stop: int, room: int) -> Piece:
    """Return the bytes between `start` and `stop` in base64, but at most `room` bytes.

    A read ends at the gap between the kept head and tail. Other requests run between the steps.
    """
    texts: list[str] = []
    position, dropped = start, 0
    while room > 0 and position < stop:
        convert = partial(_base64_step, store, position, stop, room)
        piece = await do_step(convert, min(room, stop - start), is_first=position == start)
        if piece.dropped and position > start:
            break
        size = piece.end - position - piece.dropped
        texts.append(piece.text)
        dropped += piece.dropped
        room -= size
        position = piece.end
        if size % 3:
            # Stop, because the next step would begin in the middle of a base64 group.
            break
    return Piece("".join(texts), position, dropped)


def _base64_step(store: StreamStore, start: int, stop: int, room: int) -> Piece:
    kept = store.read(start, min(room, stop - start, _BASE64_STEP_BYTES))
    dropped = min(kept.start, stop) - start
    data = kept.data[: stop - kept.start] if kept.start < stop else b""
    return Piece(base64.b64encode(data).decode(), start + dropped + len(data), dropped)


# -- new output -------------------------------------------------------------------------------


class Read(NamedTuple):
    """The part of a stream for one call: `text` covers the bytes from `start` to `end`."""

    text: str
    start: int
    end: int
    dropped: int
    more: bool
    invalid: int = 0


class StreamReader:
    """Reads one stream for one call. Without `offset`, it reads from the shared position and moves
    this position. With `stops_at_match`, a peek ends soon after the first line that the filter
    matches. With `in_base64`, the text of its reads is base64, and there is no filter.
    """

    def __init__(
        self,
        stream: OutputStream,
        *,
        offset: int | None,
        max_bytes: int,
        strip: bool,
        line_filter: LineFilter | None,
        stops_at_match: bool = False,
        in_base64: bool = False,
    ) -> None:
        self._stops_at_match = stops_at_match
        self._in_base64 = in_base64
        self._stream = stream
        self._store = stream.store
        self._offset = offset
        self._max_bytes = max_bytes
        self._strip = strip
        self._filter = line_filter
        # The offset at which this call begins to read, and the offset at which the next peek
        # begins.
        self._start = self._position = stream.read_position if offset is None else offset
        self._dropped = self._invalid = 0
        # The number of bytes that had been written at the time of the last peek.
        self._seen = self._position
        # Whether the last skipped read has left bytes that the next peek can use at once.
        self._goes_on = False
        # Earlier peeks have searched the current line up to this offset and have not found its end.
        self._searched = 0
        # The value of `_searched` at the last `skip`. Every peek starts its search from this
        # offset. If the caller has neither skipped nor taken the bytes that the last peek returned,
        # the next peek reads the same bytes again.
        self._searched_for_good = 0

    @property
    def start(self) -> int:
        """The offset at which this call begins to read."""
        return self._start

    @property
    def has_news(self) -> bool:
        """Whether the next peek may return something new. This is so if bytes have arrived since
        the last peek, or if the last skipped read has left bytes that the next peek can use at
        once.
        """
        if self.was_overtaken:
            return self._store.written > self._stream.read_position
        return self._goes_on or self._store.written > self._seen

    @property
    def is_large(self) -> bool:
        """Whether the next peek takes more than one step.

        With a filter, this is always False, because only the peek itself finds out how much
        matches.
        """
        return (
            self._filter is None
            and min(self._max_bytes, self._store.written - self._position) > STEP_BYTES
        )

    @property
    def was_overtaken(self) -> bool:
        """Whether another reader has moved the shared position past the start of this read."""
        return self._offset is None and self._stream.read_position > self._start

    async def peek(self, *, final: bool) -> Read:
        """Read the output after the bytes that were skipped. Does not move the shared position.

        `final` says that the command will write no more output.
        """
        if self.was_overtaken:
            self._start = self._position = self._stream.read_position
            self._dropped = self._invalid = 0
        self._goes_on = False
        self._searched = self._searched_for_good
        self._seen = stop = self._store.written
        if self._in_base64:
            return await self._peek_bytes(stop)
        if self._filter is None:
            return await self._peek_all(stop, final=final)
        return await self._peek_lines(self._filter, stop, final=final)

    def goes_on_after(self, read: Read) -> bool:
        """Whether the next peek can use more bytes even if no new output comes.

        `read` is the result of the last peek. If the last peek could not use any bytes, the result
        is False, because the next peek would find the same bytes.
        """
        return read.more and read.end > self._position

    def has_more_after(self, read: Read, *, final: bool) -> bool:
        """Whether there is unread output after `read`. `read` is the result of the last peek.

        Without `final`, this includes output that arrived during the peek, even if it is not a
        whole unit.
        """
        written = self._store.written
        return written > read.end if final else read.more or written > self._seen

    def skip(self, read: Read) -> None:
        """Skip `read`, because it has no text for the caller. The next peek begins after `read`."""
        self._goes_on = self.goes_on_after(read)
        self._position, self._dropped, self._invalid = read.end, read.dropped, read.invalid
        self._searched_for_good = self._searched

    def take(self, read: Read) -> None:
        """Move the shared position past `read`, unless the reader has its own offset."""
        if self._offset is None:
            self._stream.read_position = read.end

    async def _peek_all(self, stop: int, *, final: bool) -> Read:
        piece = await self._text(self._position, stop, self._max_bytes, final=final)
        more = has_text(self._store, piece.end, stop, strip=self._strip, final=final)
        dropped, invalid = self._dropped + piece.dropped, self._invalid + piece.invalid
        return Read(piece.text, self._start, piece.end, dropped, more, invalid)

    async def _peek_bytes(self, stop: int) -> Read:
        piece = await read_in_base64(self._store, self._position, stop, self._max_bytes)
        dropped = self._dropped + piece.dropped
        return Read(piece.text, self._start, piece.end, dropped, more=piece.end < stop)

    async def _text(self, start: int, stop: int, room: int, *, final: bool) -> Piece:
        store, strip = self._store, self._strip
        return await read_in_steps(store, start, stop, room, strip=strip, final=final)

    async def _peek_lines(self, line_filter: LineFilter, stop: int, *, final: bool) -> Read:
        found: list[str] = []
        position, dropped, room = self._position, self._dropped, self._max_bytes
        invalid = self._invalid
        # The time limit of a filter applies to each peek separately, because a call may wait for
        # many minutes and peek many times.
        line_filter.renew()
        while room > 0:
            if found:
                await checkpoint()
            is_first = position == self._position
            piece = await self._next_lines(position, stop, room, final=final, may_cut=is_first)
            if piece.end == position or (piece.dropped and not is_first):
                break
            for text in portions(piece.text, STEP_BYTES):
                found.append(await line_filter.lines(text))
            dropped += piece.dropped
            invalid += piece.invalid
            room -= piece.end - position - piece.dropped
            position = piece.end
            if self._stops_at_match and any(found):
                break
        is_gone = position < stop <= self._store.read(position, 0).start
        more = is_gone or await self._size_of_lines(
            position, stop, self._max_bytes, final=final, may_cut=True
        )
        return Read("".join(found), self._start, position, dropped, bool(more), invalid)

    async def _next_lines(
        self, start: int, stop: int, room: int, *, final: bool, may_cut: bool
    ) -> Piece:
        """Return some whole lines. Returns no text if the first line has not ended or does not fit.

        With `may_cut`, this cuts a line that does not fit.
        """
        store, strip = self._store, self._strip
        step = min(room, STEP_BYTES)
        if self._searched < store.read(start, 0).start + step:
            read = partial(read_text, lines=True, strip=strip, final=final)
            piece = await do_step(partial(read, store, start, stop, step), min(step, stop - start))
            if piece.end > start:
                return piece
        size = await self._size_of_lines(start, stop, room, final=final, may_cut=may_cut)
        return await self._text(start, stop, size, final=final)

    async def _size_of_lines(
        self, start: int, stop: int, room: int, *, final: bool, may_cut: bool
    ) -> int:
        """Return the total size, in bytes, of the whole lines from `start` on.

        If output was dropped at `start`, the lines begin after the gap. Returns 0 if the first line
        has not ended, or does not fit. With `may_cut`, returns `room` if the first line does not
        fit. With `final`, the last line needs no line end. The search skips the bytes in which
        earlier peeks found no line end, so a long line costs little while it grows.
        """
        store = self._store
        position = max(start, self._searched)
        while True:
            # The gap may grow during the read.
            begin = store.read(start, 0).start
            limit = min(stop, begin + room)
            position = max(position, begin)
            if store.dropped_between(begin, position):
                position = self._searched = begin
            if position >= limit:
                break
            step = min(limit - position, STEP_BYTES)
            kept = store.read(position, step)
            if b"\n" in kept.data:
                # This newline may be part of a control string that began earlier.
                context = max(begin, position - MAX_SEQUENCE_BYTES)
                lines = store.read(context, kept.start + len(kept.data) - context)
                end = lines.start + whole_lines(lines.data)
                if end > position:
                    return end - begin
            position = kept.start + len(kept.data)
            if len(kept.data) < step:
                # The gap has cut the line, so the line ends at the gap.
                return position - begin
            self._searched = position
            await checkpoint()
        if begin + room < stop:
            return room if may_cut else 0
        return stop - begin if final else 0
