"""The line that is being typed: what was written to a program since the last line end.

A terminal cuts a longer line, and the guard judges a whole one. The program may edit its line in
ways that cannot be seen from here, such as with the history of a shell; this follows the keys that
the kernel knows.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

from shelld_protocol.errors import invalid_params

# The kernel's line editor (N_TTY) drops what does not fit, without notice.
MAX_LINE_BYTES: Final = 4_095

_CTRL_U: Final = b"\x15"
_BACKSPACE: Final = re.compile(rb"[\x08\x7f]")
# With more of them, a line is judged as if nothing had been erased.
_MAX_BACKSPACES: Final = 4_096


class Typed(NamedTuple):
    """`lines`: the lines that are complete now. `rest`: the beginning of the next one.

    `longest`: the most bytes that any of them had at any moment, if nothing was erased.
    """

    lines: list[bytes]
    rest: bytes
    longest: int


def typed(before: bytes, data: bytes, clears: Iterable[bytes] = (_CTRL_U,)) -> Typed:
    """Return what comes of `data`, typed after `before`. `clears`: keys that drop the line."""
    drops = re.escape(b"".join(clears))
    lines: list[bytes] = []
    longest = 0
    for line in re.split(rb"\r\n?|\n", before + data):
        parts = re.split(b"[%s]" % drops, line) if drops else [line]
        longest = max(longest, *map(len, parts))
        lines.append(_erased(parts[-1]))
    rest = lines.pop()
    return Typed(lines, rest, longest)


def _erased(line: bytes) -> bytes:
    """Return a line without what its backspaces have erased."""
    kept, *others = _BACKSPACE.split(line, _MAX_BACKSPACES + 1)
    if len(others) > _MAX_BACKSPACES:
        return line
    for part in others:
        kept = kept[:-1] + part
    return kept


def check_length(given: Typed, parameter: str) -> None:
    """Refuse a line that a terminal would cut. Raises `RpcError` (invalid_params)."""
    if given.longest > MAX_LINE_BYTES:
        sentence = f"Invalid value for {parameter}: a terminal takes {MAX_LINE_BYTES} bytes a line"
        raise invalid_params(sentence, parameter)


def check_lines(data: bytes, parameter: str) -> None:
    """Refuse text with such a line, typed at the start. Raises `RpcError` (invalid_params)."""
    check_length(typed(b"", data), parameter)
