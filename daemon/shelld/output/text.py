"""Converts kept bytes to text.

Splits the bytes only where a unit ends, decodes the units, and removes escape sequences and
overwritten text. This module is pure. Bytes of a command become text only in this module. The same
range always gives the same text. The joined texts of adjacent ranges are the text of the whole
range, with one exception. If a program overwrites a line between two reads, the text of the second
read begins with a carriage return, and the joined text still has the old state of the line.
`last_states` removes the old state from the joined text.
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

# Matches a line up to the last carriage return that has visible text after it. So it does not match
# the carriage return of a line end. Such carriage returns stay in the text, because programs often
# compare text that has these line ends, or write it back to a file.
_OVERWRITTEN = re.compile(r"(?m)^[^\n]*\r(?=[^\r\n])")
# Every overwritten line contains this pattern, which is found much faster than the pattern above.
_RETURN_BEFORE_TEXT = re.compile(r"\r[^\r\n]")

# One step converts at most this many bytes, which takes about a millisecond. Escape sequences take
# longer, so `read_text` converts fewer bytes in one step if they contain many escape sequences.
STEP_BYTES: Final = 256 * 1024

# The character that replaces bytes that are not UTF-8.
_REPLACEMENT: Final = "\ufffd"
# Many carriage returns are compared at once, because `str.rstrip` compares one character after the
# other.
_RETURNS: Final = "\r" * 65_536

# A read has at most this number of bytes that can begin an escape sequence. Each of these bytes
# takes as much time as a hundred bytes of text.
MAX_INTRODUCERS: Final = 4_096

# `whole_lines` gives up after it has found this number of control strings with a newline inside.
# Only hostile output has so many.
_STRINGS: Final = 1_000


class Piece(NamedTuple):
    """A piece of text. `text` covers the bytes up to the offset `end`. `dropped` is the number of
    these bytes that were not kept, and `invalid` is the number of kept bytes that are not UTF-8.
    """

    text: str
    end: int
    dropped: int
    invalid: int = 0


def plain_text(data: bytes, *, strip: bool, is_end: bool) -> str:
    """Decode whole units, replacing invalid UTF-8. With `strip`, remove escape sequences."""
    return _decoded(data, strip=strip, is_end=is_end)[0]


def _decoded(data: bytes, *, strip: bool, is_end: bool) -> tuple[str, int]:
    """Return the text of whole units, and how many of their bytes are not UTF-8."""
    # Decode the pieces separately, because bytes before and after an escape sequence never form one
    # character.
    pieces = list(without_escapes(data, is_end=is_end)) if strip else [data]
    texts = [piece.decode("utf-8", "replace") for piece in pieces]
    text = "".join(texts)
    if _REPLACEMENT not in text:
        return text, 0
    return text, sum(map(_invalid_bytes, pieces, texts))


def _invalid_bytes(data: bytes, text: str) -> int:
    """Return how many bytes of `data` were replaced by replacement characters in `text`."""
    replaced = text.count(_REPLACEMENT) - data.count(_REPLACEMENT.encode())
    return len(data) - len(text.encode()) + len(_REPLACEMENT.encode()) * replaced


def last_states(text: str, *, continues: bool = False) -> str:
    """Return only the last state of each line, as a terminal shows it: the text after the last
    carriage return.

    `continues` says that the text begins within a line. If the text overwrites this line, the
    result begins with a carriage return, because the earlier state of the line was in a previous
    text.
    """
    if _RETURN_BEFORE_TEXT.search(text) is None:
        return text
    overwritten = continues and _OVERWRITTEN.match(text) is not None
    return "\r" * overwritten + _OVERWRITTEN.sub("", text)


def without_final_returns(text: str) -> str:
    """Return `text` without the carriage returns at its end."""
    size = len(text)
    while text.endswith(_RETURNS, 0, size):
        size -= len(_RETURNS)
    return text[:size].rstrip("\r")


class JoinedText:
    """Joins adjacent pieces of text, and keeps only the last state of each line.

    The cost of adding a piece depends only on this piece.
    """

    def __init__(self, *, strip: bool, continues: bool) -> None:
        self._strip = strip
        # Whether the first line began in a previous text.
        self._continues = strip and continues
        self._begins_overwritten = False
        self._lines: list[str] = []
        # The pieces of the last line that were added so far.
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
        """Return the text. If `is_end` is true, no text follows, so carriage returns at the end
        overwrite nothing. With `strip`, the result leaves them out.
        """
        text = "\r" * self._begins_overwritten + "".join([*self._lines, *self._line])
        return without_final_returns(text) if self._strip and is_end else text


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
    """Convert the bytes between `start` and `stop` to text, but at most `max_bytes` bytes.

    Returns at least one unit if there is one, even if it exceeds `max_bytes`. Without `final`, it
    leaves an incomplete unit at `stop` for a later read. A read ends at the gap between the kept
    head and tail; the next read returns the size of the gap. With `strip`, a read ends early if the
    output has many escape sequences.

    With `lines`, this returns only whole lines that fit.
    """
    want = min(max_bytes, stop - start)
    if want <= 0:
        return Piece("", start, 0)
    kept = store.read(start, want)
    if kept.start >= stop:
        return Piece("", stop, stop - start)
    data = kept.data[: stop - kept.start]
    while strip and _introducers(data) > MAX_INTRODUCERS:
        want = len(data) // 2
        data = data[:want]
    if lines:
        is_end = _is_end(kept.start, stop, data, want, final=final)
        data = data if is_end else data[: whole_lines(data)]
    else:
        data, is_end = _whole(store, kept.start, stop, data, want, final=final)
    open_end = strip and not final and kept.start + len(data) == stop
    if open_end:
        # Leave a final carriage return for the next read, because its meaning depends on the next
        # byte.
        data = data.rstrip(b"\r")
    text, invalid = _decoded(data, strip=strip, is_end=is_end)
    if not data or (open_end and text and not text.strip("\r")):
        return Piece("", start, 0)
    if strip and "\r" in text:
        continues = not kept.dropped and begins_within_line(store, start)
        text = last_states(without_final_returns(text) if is_end else text, continues=continues)
    return Piece(text, kept.start + len(data), kept.dropped, invalid)


def _introducers(data: bytes) -> int:
    """Return the number of ESC and CSI bytes in `data`.

    Each of these bytes may begin an escape sequence.
    """
    # Searching takes a tenth of the time of counting, and most output has no such byte.
    return sum(data.count(byte) for byte in (b"\x1b", b"\x9b") if byte in data)


def begins_within_line(store: StreamStore, start: int) -> bool:
    """Whether the byte before `start` is kept and does not end a line."""
    before = store.read(max(0, start - 1), 1)
    return start > 0 and not before.dropped and before.data != b"\n"


def _whole(
    store: StreamStore, start: int, stop: int, data: bytes, want: int, *, final: bool
) -> tuple[bytes, bool]:
    """Return the whole units of `data`. If there are no whole units, read more bytes, and return
    the first unit.

    Also returns whether these units are the last ones of the output, or of the part before the gap.
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
    # If fewer bytes were read than wanted, the data ends at the gap. A unit that the gap has cut
    # can never become whole.
    reached = start + len(data)
    return final if reached == stop else len(data) < want


def whole_lines(data: bytes) -> int:
    """Return how many bytes of `data` are complete lines; 0 if the search would take too long."""
    size = data.rfind(b"\n") + 1
    # A newline inside a control string ends no line.
    for _ in range(_STRINGS):
        begin = open_string(data, size)
        if begin is None:
            return size
        size = data.rfind(b"\n", 0, begin) + 1
    return 0


def has_text(store: StreamStore, start: int, stop: int, *, strip: bool, final: bool) -> bool:
    """Whether a read from `start` would find anything, either text or a gap."""
    if start >= stop or final:
        return start < stop
    for want in (8, MAX_SEQUENCE_BYTES):
        kept = store.read(start, min(want, stop - start))
        data = kept.data.lstrip(b"\r") if strip else kept.data
        if kept.dropped or first_unit(data):
            return True
    return False
