"""Evaluates arithmetic expressions, including their assignments.

Reference: bash(1), ARITHMETIC EVALUATION. An expression that is too long, or that uses an unknown
value, evaluates to `UNKNOWN`. Variables that such an expression assigns also become `UNKNOWN`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from operator import eq, ge, gt, le, lt, ne
from typing import Final, Protocol

from shelld.guard.markers import UNKNOWN, plain

# The maximum length of an expression in characters. A longer expression evaluates to `UNKNOWN`.
MAX_EXPRESSION: Final = 200
# The maximum depth of nested values. Values nest if the value of a variable is another expression,
# such as the name of another variable.
_MAX_NESTED: Final = 8


class Variables(Protocol):
    def value_of(self, name: str) -> str | None: ...

    def assign(self, name: str, value: str) -> None: ...

    def list_of(self, name: str) -> list[str]: ...

    def substituted(self, text: str) -> None: ...


_TOKEN: Final = re.compile(
    r"\s*(\d+#\w+|0[xX][0-9a-fA-F]+|\d+|[A-Za-z_]\w*|\*\*|<<=|>>=|<<|>>|[<>=!]=|&&|\|\||\+\+|--"
    r"|[-+*/%&|^]=|.)",
    re.S,
)
# This pattern does not backtrack, and tries to match each name only once, because the text may be
# long.
_ASSIGNED: Final = re.compile(
    r"(?<!\w)([A-Za-z_]\w*+)\s*+(?:\[[^]\[]*+\]\s*+)?(?:(?:[-+*/%&|^]|<<|>>)?=(?!=)|\+\+|--)"
    r"|(?:\+\+|--)\s*+([A-Za-z_]\w*+)"
)


def _wrapped(value: int) -> int:
    """Return a number wrapped to a signed 64-bit integer."""
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)


def _divided(value: int, other: int) -> int:
    quotient = abs(value) // abs(other)
    return quotient if value * other >= 0 else -quotient


def _power(value: int, other: int) -> int:
    if other < 0:
        raise ValueError
    return pow(value, other, 1 << 64)


_OPERATORS: Final[dict[str, tuple[int, Callable[[int, int], int]]]] = {
    "|": (5, lambda value, other: value | other),
    "^": (6, lambda value, other: value ^ other),
    "&": (7, lambda value, other: value & other),
    "==": (8, eq),
    "!=": (8, ne),
    "<": (9, lt),
    "<=": (9, le),
    ">": (9, gt),
    ">=": (9, ge),
    "<<": (10, lambda value, other: value << (other & 63)),
    ">>": (10, lambda value, other: value >> (other & 63)),
    "+": (11, lambda value, other: value + other),
    "-": (11, lambda value, other: value - other),
    "*": (12, lambda value, other: value * other),
    "/": (12, _divided),
    "%": (12, lambda value, other: value - _divided(value, other) * other),
    "**": (13, _power),
}
_OR, _AND, _LOWEST = 3, 4, 3


def arithmetic(text: str, variables: Variables, depth: int = 0) -> str:
    """Evaluate an expression, including its assignments. Return its value, or `UNKNOWN`."""
    text = plain(text.strip())
    if "[" in text and depth <= _MAX_NESTED:
        # The text can be the value of a variable. If this value has subscripts, bash also runs the
        # substitutions in them.
        variables.substituted(text)
    if UNKNOWN not in text and len(text) <= MAX_EXPRESSION and depth <= _MAX_NESTED:
        try:
            return str(_Expression(text, variables, depth).value())
        except (ValueError, ZeroDivisionError, RecursionError):
            pass
    for match in _ASSIGNED.finditer(text):
        variables.assign(match[1] or match[2], UNKNOWN)
    return UNKNOWN


class _Expression:
    def __init__(self, text: str, variables: Variables, depth: int) -> None:
        self._tokens = [match[1] for match in _TOKEN.finditer(text) if match[1].strip()]
        self._tokens.reverse()
        self._variables = variables
        self._depth = depth
        # This counter is above 0 while the evaluation reads a part of the expression that bash does
        # not evaluate, such as the right side of ``0 && x``.
        self._skips = 0

    def value(self) -> int:
        value = self._list() if self._tokens else 0
        if self._tokens:
            raise ValueError
        return value

    def _next(self) -> str:
        return self._tokens[-1] if self._tokens else ""

    def _take(self, token: str) -> bool:
        if self._next() != token:
            return False
        self._tokens.pop()
        return True

    def _list(self) -> int:
        value = self._assignment()
        while self._take(","):
            value = self._assignment()
        return value

    def _assignment(self) -> int:
        tokens = self._tokens
        operator = tokens[-2] if len(tokens) > 1 and tokens[-1].isidentifier() else ""
        if operator == "=" or (operator.endswith("=") and operator not in _OPERATORS):
            name = tokens.pop()
            tokens.pop()
            before = 0 if operator == "=" else self._variable(name)
            value = self._assignment()
            if operator != "=" and not self._skips:
                value = _wrapped(int(_OPERATORS[operator[:-1]][1](before, value)))
            return self._assign(name, value)
        return self._condition()

    def _assign(self, name: str, value: int) -> int:
        if not self._skips:
            self._variables.assign(name, str(value))
        return value

    def _condition(self) -> int:
        value = self._binary(_LOWEST)
        if not self._take("?"):
            return value
        first = self._skipping(self._list, skips=not value)
        if not self._take(":"):
            raise ValueError
        second = self._skipping(self._condition, skips=bool(value))
        return first if value else second

    def _skipping(self, part: Callable[[], int], *, skips: bool) -> int:
        self._skips += skips
        try:
            return part()
        finally:
            self._skips -= skips

    def _binary(self, level: int) -> int:
        value = self._unary()
        while True:
            operator = self._next()
            if operator in ("||", "&&"):
                own = _OR if operator == "||" else _AND
                if own < level:
                    return value
                self._tokens.pop()
                decides = bool(value) is (operator == "||")
                other = self._skipping(lambda own=own: self._binary(own + 1), skips=decides)  # type: ignore[misc]
                value = int(bool(value) if decides else bool(other))
                continue
            own, function = _OPERATORS.get(operator, (0, None))
            if function is None or own < level:
                return value
            self._tokens.pop()
            other = self._binary(own if operator == "**" else own + 1)
            if not self._skips or operator == "**":
                # Bash computes a power even in a part of the expression that it skips. So a
                # negative exponent is also an error in such a part.
                value = _wrapped(int(function(value, other)))

    def _unary(self) -> int:  # noqa: PLR0911 - a table of cases
        if not self._tokens:
            raise ValueError
        token = self._tokens.pop()
        if token in ("++", "--") and self._next().isidentifier():
            name = self._tokens.pop()
            return self._assign(name, self._variable(name) + (1 if token == "++" else -1))
        if token in ("+", "++", "--"):
            return self._unary()
        if token == "-":
            return -self._unary()
        if token == "!":
            return int(not self._unary())
        if token == "~":
            return ~self._unary()
        if token == "(":
            value = self._list()
            if not self._take(")"):
                raise ValueError
            return value
        if token[0].isdecimal():
            return _number(token)
        if not token.isidentifier():
            raise ValueError
        return self._postfix(token)

    def _postfix(self, name: str) -> int:
        if self._take("["):
            index = self._list()
            if not self._take("]"):
                raise ValueError
            members = self._variables.list_of(name)
            if not -len(members) <= index < len(members):
                return 0
            return self._evaluated(members[index])
        value = self._variable(name)
        if self._next() in ("++", "--"):
            self._assign(name, value + (1 if self._tokens.pop() == "++" else -1))
        return value

    def _variable(self, name: str) -> int:
        return self._evaluated(self._variables.value_of(name) or "0")

    def _evaluated(self, text: str) -> int:
        if self._skips:
            return 0
        return int(text) if text == "0" else int(arithmetic(text, self._variables, self._depth + 1))


def _number(token: str) -> int:
    base, _, digits = token.rpartition("#")
    if base:
        return int(digits, int(base))
    return int(token, 16 if token[:2].lower() == "0x" else 8 if token[0] == "0" else 10)
