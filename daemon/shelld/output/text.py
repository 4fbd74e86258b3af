"""Bytes of a terminal program to text: where they may be cut, how they are decoded and stripped.

Pure. A text is always made from a range of bytes that begins and ends between two units, where a
unit is a character or an escape sequence; so the same bytes give the same text however they were
read.

Escape sequences are those of ECMA-48 (CSI, control strings, two- and three-byte escapes) with
xterm's habit of ending OSC with BEL.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from shelld.output.store import StreamStore

# The longest unfinished sequence that is waited for. A control string that is longer (a
# hyperlink's URL, an inline image) is cut; anything else this long is not a sequence.
MAX_SEQUENCE_BYTES: Final = 4096

TRUNCATED_SUFFIX: Final = "... (truncated)"

# How much of a stream is looked at at a time while its head is measured.
_STEP_BYTES: Final = 64 * 1024

_SEQUENCE: Final = re.compile(
    r"""\x1b(?:
        \[ [\x30-\x3f]* [\x20-\x2f]* [\x40-\x7e]           # CSI
      | \] [^\x07\x1b]* (?: \x07 | \x1b\\ )                # OSC
      | [PX^_] [^\x1b]* \x1b\\                             # DCS, SOS, PM, APC
      | [\x20-\x2f]+ [\x30-\x7e]                           # charset and other nF escapes
      | [\x30-\x4f\x51-\x57\x59\x5a\x5c\x60-\x7e]          # two bytes
    )""",
    re.VERBOSE,
)

# The same sequences, unfinished at the end of the data.
_UNFINISHED: Final = re.compile(
    rb"""\x1b(?:
        \[ [\x30-\x3f]* [\x20-\x2f]*
      | \] [^\x07\x1b]* \x1b?
      | [PX^_] [^\x1b]* \x1b?
      | [\x20-\x2f]*
    )?\Z""",
    re.VERBOSE,
)


class Piece(NamedTuple):
    """`text` is of the bytes up to the offset `end`, `dropped` of which were no longer kept."""

    text: str
    end: int
    dropped: int


def strip_escapes(text: str) -> str:
    return _SEQUENCE.sub("", text) if "\x1b" in text else text


def whole_units(data: bytes, *, final: bool) -> int:
    """Return how many bytes of `data` end on a unit; `final`: nothing will follow them."""
    if final or not data:
        return len(data)
    window = max(0, len(data) - MAX_SEQUENCE_BYTES)
    escape = data.rfind(b"\x1b", window)
    if escape >= 0 and _UNFINISHED.match(data, escape):
        # An escape at the very end may be half of the ST that ends a control string.
        opener = data.rfind(b"\x1b", window, escape)
        return opener if opener >= 0 and _UNFINISHED.match(data, opener) else escape
    return len(data) - _unfinished_character(data)


def _unfinished_character(data: bytes) -> int:
    """Return how many bytes at the end begin a UTF-8 character that is not complete yet."""
    for length in range(1, min(3, len(data)) + 1):
        byte = data[-length]
        if byte < 0x80:
            return 0
        if byte >= 0xC0:
            need = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            if length >= need:
                return 0
            # Only what a decoder would still wait for: ED A0 can never become a character.
            try:
                data[-length:].decode()
            except UnicodeDecodeError as error:
                return length if error.reason == "unexpected end of data" else 0
    return 0


def read_text(
    store: StreamStore, start: int, stop: int, max_bytes: int, *, strip: bool, final: bool
) -> Piece:
    """Turn up to `max_bytes` from `start`, but not beyond `stop`, into text.

    At least one unit is returned if there is one, even if it has more bytes than `max_bytes`.
    With `final` false an unfinished unit at `stop` is left for later. A read ends at the gap that
    the retention limit has made; the next one tells its size.
    """
    want = min(max_bytes, stop - start)
    if want <= 0:
        return Piece("", start, 0)
    kept = store.read(start, want)
    if kept.start >= stop:
        return Piece("", stop, stop - start)
    data = kept.data[: stop - kept.start]
    reached = kept.start + len(data)
    # What the gap has cut in two will never be whole.
    last = (final and reached == stop) or (len(data) < want and reached < stop)
    data = data[: whole_units(data, final=last)]
    if not data:
        data = _first_unit(store, kept.start, stop, final=final)
    text = data.decode("utf-8", "replace")
    return Piece(strip_escapes(text) if strip else text, kept.start + len(data), kept.dropped)


def _first_unit(store: StreamStore, start: int, stop: int, *, final: bool) -> bytes:
    """Return the unit at `start`, which the room given was too small for.

    Empty if it is unfinished at `stop`, unless that is final.
    """
    size = min(8, stop - start)
    while True:
        data = store.read(start, size).data
        whole = whole_units(data, final=len(data) >= MAX_SEQUENCE_BYTES)
        if whole:
            return _shortest_unit(data[:whole])
        if size == stop - start:
            return data if final else b""
        size = min(size * 2, MAX_SEQUENCE_BYTES, stop - start)


def _shortest_unit(data: bytes) -> bytes:
    for size in range(1, len(data)):
        if whole_units(data[:size], final=False) == size:
            return data[:size]
    return data


def read_limited_text(
    store: StreamStore, stop: int, max_text_bytes: int, *, strip: bool, final: bool
) -> tuple[str, int, bool]:
    """Return the head of a stream as at most `max_text_bytes` of UTF-8, suffix included.

    Returns the text, the offset where it was cut (or ended), and whether it was cut.
    """
    pieces: list[Piece] = []
    position = size = 0
    while True:
        piece = read_text(store, position, stop, _STEP_BYTES, strip=strip, final=final)
        if piece.end == position:
            return "".join(piece.text for piece in pieces), position, False
        pieces.append(piece)
        size += _utf8_size(piece.text)
        if size > max_text_bytes or piece.dropped:
            break
        position = piece.end
    room = max_text_bytes - len(TRUNCATED_SUFFIX)
    while pieces and (size > room or pieces[-1].dropped):
        size -= _utf8_size(pieces.pop().text)
    position = pieces[-1].end if pieces else 0
    last = _longest_fitting(store, position, stop, room - size, strip=strip)
    text = "".join(piece.text for piece in (*pieces, last))
    return text + TRUNCATED_SUFFIX, last.end, True


def _longest_fitting(store: StreamStore, start: int, stop: int, room: int, *, strip: bool) -> Piece:
    """Return the longest piece of one step from `start` whose text has at most `room` bytes."""
    best = Piece("", start, 0)
    low, high = 0, min(_STEP_BYTES, stop - start)
    while low < high:
        middle = (low + high + 1) // 2
        piece = read_text(store, start, stop, middle, strip=strip, final=False)
        if not piece.dropped and _utf8_size(piece.text) <= room:
            best, low = piece, middle
        else:
            high = middle - 1
    return best


def _utf8_size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())
