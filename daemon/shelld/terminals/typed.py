"""Splits typed input into lines, and finds the texts that a shell may read in a line.

The program may edit its line in ways that cannot be seen from here, such as with the history of a
shell. This module shows the guard the text between all keys.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

# How many bytes of an unfinished line to remember: more than the guard follows.
MAX_REST_BYTES: Final = 64 * 1024 + 1

# Ctrl-D and Ctrl-O (operate-and-get-next of GNU readline) pass on a line before its end.
_PASSING_ON: Final = re.compile(rb"[\x04\x0f]")
_ERASING: Final = re.compile(rb"([\x08\x7f\x17])")
_CTRL_W: Final = b"\x17"
_BLANKS: Final = b" \t"
# Escape sequences, Escape with the character after it, and all control characters except tabs.
_KEY: Final = re.compile(
    rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|O[ -~]|.)?|[\x00-\x08\x0a-\x1f\x7f]", re.DOTALL
)
# With more erasures than this, a line is read as if nothing had been erased.
_MAX_ERASURES: Final = 4_096
_MAX_PARTS: Final = 100


class Typed(NamedTuple):
    """`lines`: the lines that are complete now; None for an interrupt, which drops the line before
    it and all that a shell has collected. `rest`: the beginning of the next line.

    `is_passed_on`: the program may read the rest before the line ends.
    """

    lines: list[bytes | None]
    rest: bytes
    is_passed_on: bool

    @property
    def readable(self) -> list[bytes | None]:
        """What a shell may act on now: the lines, and the rest if it was passed on."""
        return [*self.lines, self.rest] if self.rest and self.is_passed_on else self.lines


def typed(before: bytes, data: bytes, *, interrupt: bytes = b"", lnext: bytes = b"") -> Typed:
    """Return the result of typing `data` after `before`.

    `interrupt`: a key that makes the program drop the line, unless the key `lnext` quotes it.
    """
    end = rb"\r\n?|\n"
    if interrupt:
        end += rb"|(?<![\x16%s])%s" % (re.escape(lnext), re.escape(interrupt))
    lines: list[bytes | None] = []
    whole, start = before + data, 0
    # An interrupt in `before` had no effect.
    for match in re.compile(end).finditer(whole, len(before)):
        lines.append(None if match[0] == interrupt else whole[start : match.start()])
        start = match.end()
    return Typed(lines, whole[start:][-MAX_REST_BYTES:], bool(_PASSING_ON.search(data)))


def readings(line: bytes) -> Iterator[str]:
    """Yield the texts that a shell may read in a line, the likeliest first.

    These are the line without the text that its keys erase, the line without its keys, and each
    part between two keys: a key may have dropped the text before it, or may have done nothing. More
    than `_MAX_PARTS` parts make up one reading: a command of several lines. Only the first reading
    may be empty.
    """
    kept = _without_erased(line)
    texts = [_KEY.sub(b"", kept)]
    for whole in dict.fromkeys((kept, line)):
        parts = [part for part in _KEY.split(whole) if part.strip()]
        texts += [
            _KEY.sub(b"", whole),
            *(parts if len(parts) <= _MAX_PARTS else [b"\n".join(parts)]),
        ]
    first, *others = dict.fromkeys(texts)
    yield first.decode("utf-8", "replace")
    yield from (text.decode("utf-8", "replace") for text in others if text.strip())


def _without_erased(line: bytes) -> bytes:
    """Return a line without the characters and words that were erased."""
    first, *others = _ERASING.split(line, _MAX_ERASURES + 1)
    if len(others) > 2 * _MAX_ERASURES:
        return line
    kept = bytearray(first)
    for key, part in zip(others[::2], others[1::2], strict=True):
        end = len(kept) - 1
        if key == _CTRL_W:
            word = kept.rstrip(_BLANKS)
            end = max(word.rfind(b" "), word.rfind(b"\t")) + 1
        del kept[max(end, 0) :]
        kept += part
    return bytes(kept)
