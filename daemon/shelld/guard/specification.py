"""A line of `vocabulary` taken apart."""

from __future__ import annotations

from functools import cache
from typing import Final

from msgspec import Struct


class Specification(Struct, frozen=True):
    """`letters` and `names` are options that take a value; `marks` are the words without one.

    `options` are, by what is said of them, the names of options and the like: ``cd:D`` is ``D`` in
    `options["cd"]`.
    """

    letters: str
    names: frozenset[str]
    options: dict[str, tuple[str, ...]]
    marks: frozenset[str]
    operands: int

    def has(self, kind: str, name: str) -> bool:
        return name in self.options.get(kind, ())


# Every operand comes before the program.
ALL_OPERANDS: Final = 99
# The kinds of options that take no value.
_WITHOUT_VALUE: Final = frozenset({"idle", "if", "sub", "order", "env", "default"})


@cache
def specification(line: str) -> Specification:
    """Return what a line says. Results are cached: there are only as many as lines."""
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
