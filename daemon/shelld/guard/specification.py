"""Parses the lines in the tables of `vocabulary`.

The docstring of `vocabulary` explains the words of a line. Pure.
"""

from __future__ import annotations

from functools import cache
from typing import Final

from msgspec import Struct


class Specification(Struct, frozen=True):
    """The parsed form of a line. `letters` and `names` are the options that take a value.

    `marks` are words without a colon, such as ``joins``. `options` maps the part before a colon to
    the names after the colon, so ``cd:D`` adds ``D`` to `options["cd"]`.
    """

    letters: str
    names: frozenset[str]
    options: dict[str, tuple[str, ...]]
    marks: frozenset[str]
    operands: int

    def has(self, kind: str, name: str) -> bool:
        return name in self.options.get(kind, ())


# The value of `operands` for ``+all``. It means that all operands come before the program.
ALL_OPERANDS: Final = 99
# A kind is the part of a word before the colon. If the kind is in this set, the name after the
# colon is not an option that takes a value.
_WITHOUT_VALUE: Final = frozenset(
    {"idle", "shell", "if", "sub", "order", "env", "tells", "options", "default"}
)


@cache
def specification(line: str) -> Specification:
    """Return the parsed form of a line. The cache holds at most one entry for each line."""
    letters, *words = line.split()
    letters = letters.strip("-")
    names: set[str] = set()
    options: dict[str, tuple[str, ...]] = {}
    marks: set[str] = set()
    operands = 0
    for word in words:
        kind, colon, name = word.partition(":")
        if colon:
            options[kind] = (*options.get(kind, ()), name)
            if kind not in _WITHOUT_VALUE:
                letters += name if len(name) == 1 else ""
                names.add(name)
        elif word.startswith("+"):
            operands = ALL_OPERANDS if word == "+all" else int(word)
        elif word.startswith("key="):
            options["key"] = (*options.get("key", ()), word.removeprefix("key="))
        elif word.endswith("="):
            names.add(word[:-1])
        else:
            marks.add(word)
    return Specification(letters, frozenset(names), options, frozenset(marks), operands)
