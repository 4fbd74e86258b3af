"""What is typed into a program: its lines, and what a shell may read in one of them.

A terminal cuts a line that is too long, and the guard judges a whole one. The program may edit its
line in ways that cannot be seen from here, such as with the history of a shell. This follows the
keys that the kernel's line editor knows, and shows the guard the text beside all other keys.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from shelld_protocol.errors import invalid_params

# The kernel's line editor (N_TTY) drops what does not fit, without notice.
MAX_LINE_BYTES: Final = 4_095
# How much of an unfinished line is remembered: more than the guard follows.
MAX_REST_BYTES: Final = 64 * 1024 + 1

# Ctrl-D and Ctrl-O (operate-and-get-next of GNU readline) pass on a line that has no end.
_PASSING_ON: Final = re.compile(rb"[\x04\x0f]")
_ERASING: Final = re.compile(rb"([\x08\x7f\x17])")
_CTRL_W: Final = b"\x17"
_BLANKS: Final = b" \t"
# Escape sequences, Escape with the character after it, and the control characters but tabs.
_KEY: Final = re.compile(
    rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|O[ -~]|.)?|[\x00-\x08\x0a-\x1f\x7f]", re.DOTALL
)
# With more of them, a line is read as if nothing had been erased.
_MAX_ERASURES: Final = 4_096


class Typed(NamedTuple):
    """`lines`: the lines that are complete now; None for an interrupt, which drops the line before
    it and all that a shell has collected. `rest`: the beginning of the next line.

    `longest`: the most bytes that any line had at any moment, if nothing was erased.
    `is_passed_on`: the program may read the rest before its end.
    """

    lines: list[bytes | None]
    rest: bytes
    longest: int
    is_passed_on: bool

    @property
    def readable(self) -> list[bytes | None]:
        """What a shell may act upon now: the lines, and the rest if it does not wait for more."""
        return [*self.lines, self.rest] if self.rest and self.is_passed_on else self.lines


def typed(
    before: bytes, data: bytes, *, kill: bytes = b"", interrupts: Iterable[bytes] = ()
) -> Typed:
    """Return what comes of `data`, typed after `before`.

    `kill`: the key that drops the line. `interrupts`: those that also interrupt the program.
    """
    dropping = frozenset(interrupts)
    ends = rb"(\r\n?|\n|[%s])" % re.escape(b"".join(dropping) or b"\n")
    lines: list[bytes | None] = []
    longest = 0
    # An end of a line follows each but the last.
    *complete, last = re.split(ends, before + data)
    for line, end in zip(complete[::2], complete[1::2], strict=True):
        longest = max(longest, *map(len, _parts(line, kill)))
        lines.append(None if end in dropping else _parts(line, kill)[-1])
    parts = _parts(last, kill)
    longest = max(longest, *map(len, parts))
    return Typed(lines, parts[-1], longest, bool(_PASSING_ON.search(data)))


def _parts(line: bytes, kill: bytes) -> list[bytes]:
    return line.split(kill) if kill else [line]


def check_length(given: Typed, parameter: str) -> None:
    """Refuse a line that a terminal would cut. Raises `RpcError` (invalid_params)."""
    if given.longest > MAX_LINE_BYTES:
        sentence = f"Invalid value for {parameter}: a terminal takes {MAX_LINE_BYTES} bytes a line"
        raise invalid_params(sentence, parameter)


def readings(line: bytes) -> Iterator[str]:
    """Yield the texts that a shell may read in a line, the likeliest first.

    That is the line without its keys, and each part between two keys: a key may have dropped what
    stands before it. The first one may be empty; no other is.
    """
    kept = _without_erased(line)
    yield _KEY.sub(b"", kept).decode("utf-8", "replace")
    parts = _KEY.split(kept)
    if len(parts) > 1:
        yield from (part.decode("utf-8", "replace") for part in parts if part.strip())


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
