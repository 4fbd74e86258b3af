"""Reads the new output of a stream, but returns only a limited number of characters: all of the
output, or its head and tail.

The result is for a reader that has room for little text, and wants to see how the output began and
how it looks now. The omitted middle counts as read. In place of the middle, the text has a notice
with the offsets at which a caller can read the middle.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

from anyio.lowlevel import checkpoint

from shelld.output.escapes import MAX_SEQUENCE_BYTES, rest_of_unit
from shelld.output.reader import Read, StreamReader
from shelld.output.retention import OutputStream
from shelld.output.store import StreamStore
from shelld.output.text import STEP_BYTES, begins_within_line, last_states, plain_text, read_text

# Heads and tails are cut to whole lines if this costs at most 1/_LINE_SHARE of their text. A head
# is cut at its end, and a tail at its beginning.
_LINE_SHARE: Final = 5

# At most this many bytes at the beginning and at the end are searched for text.
_WINDOW_BYTES: Final = 1024 * 1024

# Text may have fewer characters than bytes. If the excerpt is too short for this reason, more bytes
# are read, in at most `_ATTEMPTS` attempts.
_ATTEMPTS: Final = 5

# At most this many bytes at the end are searched for the line that shows the progress.
_GLANCE_BYTES: Final = 4096


class Notice(Protocol):
    def __call__(self, start: int, end: int) -> str:
        """Return the notice for the omitted bytes from `start` to `end`."""
        ...


class _Part(NamedTuple):
    text: str
    start: int
    end: int


class ExcerptReader(StreamReader):
    """Reads an excerpt. Each `peek` calls `limit`, which returns how many characters the excerpt
    may have besides the notice.

    The reader removes escape sequences from the text. With `end`, it reads all output up to this
    offset, and does not move the shared position.
    """

    def __init__(
        self,
        stream: OutputStream,
        *,
        limit: Callable[[], int],
        notice: Notice,
        end: int | None = None,
    ) -> None:
        offset = None if end is None else 0
        super().__init__(stream, offset=offset, max_bytes=STEP_BYTES, strip=True, line_filter=None)
        self._end = math.inf if end is None else end
        self._limit = limit
        self._notice = notice
        self.is_cut = False

    async def _peek_all(self, stop: int, *, final: bool) -> Read:
        store, start, limit = self._store, self._position, self._limit()
        stop = int(min(stop, self._end))
        whole = await _whole(store, start, stop, limit, final=final)
        self.is_cut = whole is None
        if whole is not None:
            # Some of these bytes may have been dropped from the store after they were read. Do not
            # count these bytes as dropped, because the text includes them.
            (text, _, end), dropped = whole
        else:
            head = _head(store, start, stop, limit // 2)
            if len(head.text) > limit // 2:
                # The head is a single unit, and this unit does not fit. For example, it is a
                # control string whose end was dropped.
                head = _Part("", start, start)
            room = limit - len(head.text)
            tail = _tail(store, head.end, stop, room, final=final)
            line_end = "" if not head.text or head.text.endswith("\n") else "\n"
            notice = self._notice(head.end, tail.start)
            text, end = f"{head.text}{line_end}{notice}\n{tail.text}", tail.end
            dropped = store.dropped_between(start, end)
        return Read(text, self._start, end, self._dropped + dropped, more=False)


async def _whole(
    store: StreamStore, start: int, stop: int, limit: int, *, final: bool
) -> tuple[_Part, int] | None:
    """Return all new text, and how many bytes were dropped before it.

    Return None if the text does not fit or has a gap.
    """
    text, position, dropped = "", start, 0
    while True:
        piece = read_text(store, position, stop, STEP_BYTES, strip=True, final=final)
        if piece.dropped and text:
            return None
        if piece.end == position:
            return _Part(text.rstrip("\r") if final else text, start, position), dropped
        text += piece.text
        dropped += piece.dropped
        if position > start:
            # Remove the earlier states of overwritten lines, because only the last state needs
            # room.
            text = last_states(text, continues=begins_within_line(store, start))
        if len(text) > limit:
            return None
        position = piece.end
        await checkpoint()


def _head(store: StreamStore, start: int, stop: int, room: int) -> _Part:
    def read(size: int) -> _Part:
        piece = read_text(store, start, stop, size, strip=True, final=False)
        return _Part(piece.text, start, piece.end)

    head = _most(read, room, stop - start)
    begin = store.read(start, 0).start
    data = store.read(begin, head.end - begin).data
    lines = data.rfind(b"\n") + 1
    if lines * _LINE_SHARE > len(data) * (_LINE_SHARE - 1):
        return read(lines)
    return head


def _tail(store: StreamStore, after: int, stop: int, room: int, *, final: bool) -> _Part:
    def read(size: int) -> _Part:
        return _from(store, max(after, stop - size), stop, final=final)

    tail = _most(read, room, stop - after)
    if tail.start == after:
        return tail
    kept = store.read(tail.start, len(tail.text) // _LINE_SHARE)
    lines = kept.data.find(b"\n") + 1
    if not lines:
        lines = _cut_bytes(store, after, kept.start, stop)
    return _from(store, kept.start + lines, stop, final=final)


def _cut_bytes(store: StreamStore, after: int, start: int, stop: int) -> int:
    """A unit may begin before `start` and end after `start`. Return how many bytes of this unit
    come after `start`, or 0 if there is no such unit.
    """
    begin = max(after, start - MAX_SEQUENCE_BYTES)
    before = store.read(begin, start - begin)
    is_adjacent = before.start + len(before.data) == start
    following = store.read(start, min(MAX_SEQUENCE_BYTES, stop - start)).data
    return rest_of_unit(before.data if is_adjacent else b"", following)


def _from(store: StreamStore, start: int, stop: int, *, final: bool) -> _Part:
    start = store.read(start, 0).start
    texts: list[str] = []
    position = start
    while True:
        piece = read_text(store, position, stop, STEP_BYTES, strip=True, final=final)
        if piece.end == position:
            break
        # Text before a gap is not part of the tail.
        texts = [piece.text] if piece.dropped else [*texts, piece.text]
        start = position + piece.dropped if piece.dropped else start
        position = piece.end
    return _Part(last_states("".join(texts)), start, position)


def _most(read: Callable[[int], _Part], room: int, available: int) -> _Part:
    """Return the longest result of `read` that has no more than `room` characters."""
    available = min(available, _WINDOW_BYTES)
    size = min(room, available)
    best = read(size)
    for _ in range(_ATTEMPTS):
        if len(best.text) > room * 0.9 or size == available:
            break
        # Escape sequences and multibyte characters have more bytes than characters. So if the text
        # has some of them, more than `room` bytes fit.
        size = min(available, max(size + 1, size * room // max(1, len(best.text))))
        more = read(size)
        if len(more.text) > room:
            break
        best = more
    return best


async def count_lines(store: StreamStore, start: int, end: int) -> int:
    """Return the number of kept lines from `start` to `end`, including an unfinished last line."""
    count, last = 0, b"\n"
    position = start
    while position < end:
        kept = store.read(position, min(STEP_BYTES, end - position))
        data = kept.data[: max(0, end - kept.start)]
        if not data:
            break
        count += data.count(b"\n")
        last = data[-1:]
        position = kept.start + len(data)
        await checkpoint()
    return count + (last != b"\n")


def last_lines(store: StreamStore, start: int, end: int, max_characters: int) -> str:
    """Return the end of the output from `start` to `end`: as many whole lines as fit. If not even
    the last line fits, return only the end of this line.
    """
    begin = max(start, end - _GLANCE_BYTES)
    kept = store.read(begin, end - begin)
    data = kept.data[: max(0, end - kept.start)]
    text = last_states(plain_text(data, strip=True, is_end=True)).rstrip()
    if len(text) > max_characters or kept.start > start:
        text = text[max(0, len(text) - max_characters) :]
        text = text[text.find("\n") + 1 :]
    return text


def last_line(store: StreamStore, max_characters: int) -> str:
    """Return the last non-blank line of a stream, or only its end if the line is too long.

    The result can be an unfinished line, because progress reports use the result. Returns "" if
    there is no such line near the end.
    """
    data = store.read(max(0, store.written - _GLANCE_BYTES), _GLANCE_BYTES).data
    text = last_states(plain_text(data, strip=True, is_end=True))
    found = (_with_backspaces(line).strip() for line in reversed(text.splitlines()))
    return next((line[-max_characters:] for line in found if line), "")


def _with_backspaces(line: str) -> str:
    """Return the line as a terminal shows it: text after a backspace overwrites earlier text.

    A terminal erases a typed character with a backspace, a space and another backspace.
    """
    if "\b" not in line:
        return line
    shown, at = list[str](), 0
    for character in line:
        if character == "\b":
            at = max(0, at - 1)
        else:
            shown[at : at + 1] = [character]
            at += 1
    return "".join(shown)
