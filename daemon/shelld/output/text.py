"""Kept bytes to text: cut between units, decoded, stripped of escape sequences and overwritten
states.

Pure, and the only place where bytes of a command become text. The same range gives the same text,
and ranges that follow each other give texts that do: to join them and to read them at once is the
same, but for the states of a line that was overwritten between two reads, which begin with a
carriage return (`last_states` of the joined text removes them).
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from shelld.output.escapes import (
    MAX_SEQUENCE_BYTES,
    first_unit,
    open_string,
    whole_units,
    without_escapes,
)
from shelld.output.store import StreamStore

# Up to the last carriage return of a line that something visible follows. The one of a line end
# stays, as text that has them is often compared, or written back.
_OVERWRITTEN = re.compile(r"(?m)^[^\n]*\r(?=[^\r\n])")

# Bytes in one read that may begin an escape sequence. To look at one takes as long as to look at a
# hundred bytes of text.
MAX_INTRODUCERS: Final = 4_096

# Control strings that are tried as what holds a line end. Only hostile output has more in a row.
_STRINGS: Final = 1_000


class Piece(NamedTuple):
    """`text` is of the bytes up to the offset `end`, `dropped` of which were no longer kept."""

    text: str
    end: int
    dropped: int


def plain_text(data: bytes, *, strip: bool, is_end: bool) -> str:
    """Decode whole units, replacing what is not UTF-8; `strip`: without escape sequences."""
    if not strip:
        return data.decode("utf-8", "replace")
    # Decode them apart: text on both sides of a sequence does not belong together.
    pieces = without_escapes(data, is_end=is_end)
    return "".join([piece.decode("utf-8", "replace") for piece in pieces])


def last_states(text: str, *, continues: bool = False) -> str:
    """Return each line as a progress bar leaves it: the text after its last carriage return.

    `continues`: the text begins within a line. If that is overwritten, the text begins with a
    carriage return, as what it overwrites was in a text before.
    """
    if "\r" not in text:
        return text
    overwritten = continues and _OVERWRITTEN.match(text) is not None
    return "\r" * overwritten + _OVERWRITTEN.sub("", text)


class JoinedText:
    """Pieces of text that follow each other, as one; of each line the last state, as above.

    Adding a piece takes as long as the piece is, however much there is already.
    """

    def __init__(self, *, strip: bool, continues: bool) -> None:
        self._strip = strip
        # What the first line continues was in a text before.
        self._continues = strip and continues
        self._begins_overwritten = False
        self._lines: list[str] = []
        # The last line, as far as it has come.
        self._line: list[str] = []

    def add(self, text: str) -> None:
        if not self._strip:
            self._lines.append(text)
            return
        end = text.find("\n") + 1
        self._add_to_line(text[:end] if end else text)
        if end:
            last = text.rfind("\n") + 1
            self._lines += [*self._line, last_states(text[end:last])]
            self._line = []
            self._continues = False
            self._add_to_line(text[last:])

    def _add_to_line(self, text: str) -> None:
        state = last_states(text)
        returned = self._line and self._line[-1].endswith("\r")
        if len(state) < len(text) or (returned and state and state[0] not in "\r\n"):
            self._line = []
            self._begins_overwritten = self._begins_overwritten or self._continues
        if state:
            self._line.append(state)

    def joined(self, *, is_end: bool) -> str:
        """Return the text. `is_end`: nothing follows, so a carriage return at the end is none."""
        text = "\r" * self._begins_overwritten + "".join([*self._lines, *self._line])
        return text.rstrip("\r") if self._strip and is_end else text


def read_text(
    store: StreamStore,
    start: int,
    stop: int,
    max_bytes: int,
    *,
    strip: bool,
    final: bool,
    lines: bool = False,
) -> Piece:
    """Turn up to `max_bytes` from `start`, but not beyond `stop`, into text.

    At least one unit is returned if there is one, even if it has more bytes than `max_bytes`.
    With `final` false an unfinished unit at `stop` is left for later. A read ends at the gap that
    the retention limit has made; the next one tells its size. With `strip`, a read also ends early
    where escape sequences are dense.

    With `lines`, a unit is a line. One that has no room is not returned at all.
    """
    want = min(max_bytes, stop - start)
    if want <= 0:
        return Piece("", start, 0)
    kept = store.read(start, want)
    if kept.start >= stop:
        return Piece("", stop, stop - start)
    data = kept.data[: stop - kept.start]
    while strip and data.count(b"\x1b") + data.count(b"\x9b") > MAX_INTRODUCERS:
        want = len(data) // 2
        data = data[:want]
    if lines:
        is_end = _is_end(kept.start, stop, data, want, final=final)
        data = data if is_end else data[: whole_lines(data)]
    else:
        data, is_end = _whole(store, kept.start, stop, data, want, final=final)
    open_end = strip and not final and kept.start + len(data) == stop
    if open_end:
        # What a carriage return is for is not known before something follows.
        data = data.rstrip(b"\r")
    text = plain_text(data, strip=strip, is_end=is_end)
    if not data or (open_end and text and not text.strip("\r")):
        return Piece("", start, 0)
    if strip and "\r" in text:
        continues = not kept.dropped and begins_within_line(store, start)
        text = last_states(text.rstrip("\r") if is_end else text, continues=continues)
    return Piece(text, kept.start + len(data), kept.dropped)


def begins_within_line(store: StreamStore, start: int) -> bool:
    """Whether the byte before `start` is there and ends no line."""
    before = store.read(max(0, start - 1), 1)
    return start > 0 and not before.dropped and before.data != b"\n"


def _whole(
    store: StreamStore, start: int, stop: int, data: bytes, want: int, *, final: bool
) -> tuple[bytes, bool]:
    """Return the whole units of `data`, or the first one if there is no room for it.

    And whether nothing can follow them: the end of the output, or the gap.
    """
    is_end = _is_end(start, stop, data, want, final=final)
    if is_end:
        return data, True
    if size := whole_units(data):
        return data[:size], False
    want = min(MAX_SEQUENCE_BYTES, stop - start)
    data = store.read(start, want).data[:want]
    is_end = _is_end(start, stop, data, want, final=final)
    size = first_unit(data)
    if is_end and not size:
        size = len(data)
    return data[:size], is_end and size == len(data)


def _is_end(start: int, stop: int, data: bytes, want: int, *, final: bool) -> bool:
    # What the gap has cut in two will never be whole.
    reached = start + len(data)
    return final if reached == stop else len(data) < want


def whole_lines(data: bytes) -> int:
    """Return how many bytes of `data` are lines that have ended; 0 if that takes long to tell."""
    size = data.rfind(b"\n") + 1
    # A line end can be part of a control string.
    for _ in range(_STRINGS):
        begin = open_string(data, size)
        if begin is None:
            return size
        size = data.rfind(b"\n", 0, begin) + 1
    return 0


def has_text(store: StreamStore, start: int, stop: int, *, strip: bool, final: bool) -> bool:
    """Whether a read from `start` would return something or tell of a gap."""
    if start >= stop or final:
        return start < stop
    for want in (8, MAX_SEQUENCE_BYTES):
        kept = store.read(start, min(want, stop - start))
        data = kept.data.lstrip(b"\r") if strip else kept.data
        if kept.dropped or first_unit(data):
            return True
    return False
