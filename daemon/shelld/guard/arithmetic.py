"""Arithmetic expansion, as far as it is constant."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from shelld.guard.markers import UNKNOWN, plain

# A longer one is not known.
MAX_EXPRESSION: Final = 200

ValueOf = Callable[[str], "str | None"]

_TOKEN: Final = re.compile(r"\s*(\d+#\w+|0[xX][0-9a-fA-F]+|\d+|[A-Za-z_]\w*|\*\*|<<|>>|.)", re.S)
_BINARY: Final[tuple[tuple[str, ...], ...]] = (("+", "-"), ("*", "/", "%"))


def arithmetic(text: str, value_of: ValueOf) -> str:
    """Return the value of an expression of + - * / % and names; `UNKNOWN` for all others."""
    text = text.strip()
    if UNKNOWN in text or len(text) > MAX_EXPRESSION:
        return UNKNOWN
    tokens = [match[1] for match in _TOKEN.finditer(plain(text)) if match[1].strip()]
    try:
        value, rest = _sum(tokens, value_of, 0)
    except (ValueError, ZeroDivisionError, IndexError, RecursionError):
        return UNKNOWN
    return UNKNOWN if rest else str(value)


def _sum(tokens: list[str], value_of: ValueOf, level: int) -> tuple[int, list[str]]:
    if level == len(_BINARY):
        return _atom(tokens, value_of)
    value, tokens = _sum(tokens, value_of, level + 1)
    while tokens and tokens[0] in _BINARY[level]:
        operator = tokens[0]
        other, tokens = _sum(tokens[1:], value_of, level + 1)
        if operator in "/%":
            quotient = abs(value) // abs(other) * (1 if value * other >= 0 else -1)
            value = quotient if operator == "/" else value - quotient * other
        else:
            value = {"+": value + other, "-": value - other, "*": value * other}[operator]
    return value, tokens


def _atom(tokens: list[str], value_of: ValueOf) -> tuple[int, list[str]]:
    first, *rest = tokens
    if first == "(":
        value, rest = _sum(rest, value_of, 0)
        if rest[0] != ")":
            raise ValueError
        return value, rest[1:]
    if first in "+-":
        value, rest = _atom(rest, value_of)
        return (-value if first == "-" else value), rest
    if first[0].isdecimal():
        base, _, digits = first.rpartition("#")
        if base:
            return int(digits, int(base)), rest
        return int(first, 16 if first[:2].lower() == "0x" else 8 if first[0] == "0" else 10), rest
    if first.isidentifier():
        return int(value_of(first) or 0), rest
    raise ValueError
