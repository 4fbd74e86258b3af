"""Divides output into units, and finds escape sequences. This module is pure.

A unit is a UTF-8 character, an escape sequence, or a byte that is part of no character. At most
`MAX_SEQUENCE_BYTES` bytes of output determine where a unit ends, and nothing else does. So the
units are always the same, no matter how reads divide the output.

The escape sequences are those of ECMA-48 and ISO 2022: CSI, the control strings OSC, DCS, SOS, PM
and APC, designations of character sets, and two-byte escapes. As in xterm, BEL also ends an OSC
string. U+009B, the 8-bit form of CSI, is the only 8-bit form that this module knows, because
terminals accept no other 8-bit form in UTF-8.
"""

from __future__ import annotations

import re
from typing import Final

# A control string longer than this counts as text. Hyperlinks, clipboards and chunks of images are
# shorter. A read should not wait long for a control string that never ends.
MAX_SEQUENCE_BYTES: Final = 64 * 1024
_MAX_STRING: Final = MAX_SEQUENCE_BYTES - 4
_MAX_PARAMETERS: Final = 1024

_CSI: Final = rb"(?:\x1b\[|\xc2\x9b)[\x30-\x3f]{0,%d}[\x20-\x2f]{0,16}" % _MAX_PARAMETERS
_OSC: Final = rb"\x1b\][^\x07\x1b]{0,%d}" % _MAX_STRING
_STRING: Final = rb"\x1b[PX^_][^\x1b]{0,%d}" % _MAX_STRING
_NF: Final = rb"\x1b[\x20-\x2f]{1,16}"
_TWO_BYTES: Final = rb"\x1b[\x30-\x4f\x51-\x57\x59\x5a\x5c\x60-\x7e]"

_SEQUENCE: Final = re.compile(
    rb"%s[\x40-\x7e]|%s(?:\x07|\x1b\\)|%s\x1b\\|%s[\x30-\x7e]|%s"
    % (_CSI, _OSC, _STRING, _NF, _TWO_BYTES)
)
# Matches an incomplete escape sequence at the end of the data.
_UNFINISHED: Final = re.compile(rb"(?:%s|%s\x1b?|%s\x1b?|%s|\x1b)\Z" % (_CSI, _OSC, _STRING, _NF))
# Matches the beginning of a control string, which is the only sequence that can contain a line end.
_UNFINISHED_STRING: Final = re.compile(rb"(?:%s|%s)\Z" % (_OSC, _STRING))
# `without_escapes` removes sequences, and also an ESC that begins no sequence. The bytes after such
# an ESC are text. At the end of the output, `without_escapes` also removes an unfinished sequence,
# unless this sequence is a control string.
_STRIPPED: Final = re.compile(rb"%s|\x1b" % _SEQUENCE.pattern)
_STRIPPED_AT_END: Final = re.compile(rb"%s|(?:%s|%s)\Z|\x1b" % (_SEQUENCE.pattern, _CSI, _NF))


def without_escapes(data: bytes, *, is_end: bool) -> list[bytes]:
    """Return the pieces of `data` that are between escape sequences. The caller decodes each piece
    separately. `data` holds whole units.

    `is_end` says that no more data follows. In that case, the last unit may be incomplete.
    """
    if b"\x1b" in data or b"\x9b" in data:
        return (_STRIPPED_AT_END if is_end else _STRIPPED).split(data)
    return [data]


def whole_units(data: bytes) -> int:
    """Return how many bytes of `data` form whole units. More data may follow."""
    size = len(data) - _unfinished_character(data)
    window = max(0, len(data) - MAX_SEQUENCE_BYTES)
    # Searching for one byte is ten times faster than searching for two bytes.
    for position in (data.rfind(b"\x1b", window), data.rfind(b"\x9b", window) - 1):
        if position >= 0 and _UNFINISHED.match(data, position):
            size = min(size, position)
            # An ESC at the very end may be the first half of a string terminator.
            before = data.rfind(b"\x1b", window, position)
            if before >= 0 and _UNFINISHED.match(data, before):
                size = before
    return size


def open_string(data: bytes, line_end: int) -> int | None:
    """Return the start of the control string that continues after `line_end`, or None.

    `line_end` is the position after a "\\n". The search goes back from there to the last ESC.
    """
    position = data.rfind(b"\x1b", max(0, line_end - MAX_SEQUENCE_BYTES), line_end)
    if position >= 0 and _UNFINISHED_STRING.match(data, position, line_end):
        return position
    return None


def first_unit(data: bytes) -> int:
    """Return the size of the first unit; 0 if it is incomplete. More data may follow."""
    sequence = _SEQUENCE.match(data)
    if sequence is not None:
        return sequence.end()
    if _UNFINISHED.match(data):
        return 0
    for size in range(1, min(4, len(data)) + 1):
        if _unfinished_character(data[:size]) < size:
            # These bytes are a character, or cannot become a character even if more bytes follow.
            return size if _is_text(data[:size]) else max(1, size - 1)
    return 0


def rest_of_unit(before: bytes, data: bytes) -> int:
    """Return how many bytes of `data` belong to a unit that began before `data`.

    `before` holds the bytes before `data`. If those bytes were dropped, `before` is empty. In that
    case, this function recognises only the rest of a character, and not the rest of an escape
    sequence.
    """
    if not before:
        return next((at for at, byte in enumerate(data[:4]) if byte & 0xC0 != 0x80), 0)
    begun = before[whole_units(before) :]
    return max(0, first_unit(begun + data) - len(begun)) if begun else 0


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _unfinished_character(data: bytes) -> int:
    """If the data ends with an incomplete UTF-8 character, return its number of bytes; otherwise,
    return 0.
    """
    for length in range(1, min(3, len(data)) + 1):
        byte = data[-length]
        if byte < 0x80:
            return 0
        if byte >= 0xC0:
            # Count only bytes that may still become a character. For example, ED A0 can never
            # become a character.
            try:
                data[-length:].decode()
            except UnicodeDecodeError as error:
                return length if error.reason == "unexpected end of data" else 0
            return 0
    return 0
