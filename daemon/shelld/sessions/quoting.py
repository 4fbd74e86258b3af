"""Quotes words for bash, and unquotes words that bash has quoted. Pure."""

from __future__ import annotations

import re
from typing import Final

_ESCAPED: Final = re.compile(rb"\\(.)", re.DOTALL)
_ANSI_C: Final = re.compile(rb"\\([0-7]{1,3}|x[0-9A-Fa-f]{1,2}|.)", re.DOTALL)
_ANSI_C_LETTERS: Final = {
    b"a": b"\a",
    b"b": b"\b",
    b"e": b"\x1b",
    b"E": b"\x1b",
    b"f": b"\f",
    b"n": b"\n",
    b"r": b"\r",
    b"t": b"\t",
    b"v": b"\v",
}


def quote(value: bytes) -> bytes:
    """Return `value` as one quoted word of bash."""
    return b"'" + value.replace(b"'", rb"'\''") + b"'"


def unquote(word: bytes) -> bytes:
    """Return the value of a word that bash has quoted as "..." or $'...'."""
    if word[:1] == b'"':
        return _ESCAPED.sub(rb"\1", word[1:-1])
    return _ANSI_C.sub(_ansi_c, word[2:-1])


def _ansi_c(match: re.Match[bytes]) -> bytes:
    code = match[1]
    if code[:1].isdigit():
        return bytes([int(code, 8) & 0xFF]) if code[0] < ord("8") else code
    if len(code) > 1:
        return bytes([int(code[1:], 16)])
    return _ANSI_C_LETTERS.get(code, code)
