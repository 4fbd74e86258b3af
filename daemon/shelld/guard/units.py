"""Expands braces, joins continued lines, and rewrites syntax that the parser does not know.

Pure. Works on text alone and looks up no values.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable
from itertools import pairwise
from typing import Final

from shelld.guard.ends import Ends

# The brace expansion of one word may have at most `MAX_FIELDS` fields, which may together have at
# most `_MAX_CHARACTERS` characters.
MAX_FIELDS: Final = 1024
_MAX_CHARACTERS: Final = 256 * 1024
_MAX_NESTED_BRACES: Final = 64
# The maximum length of a sequence such as ``{1..100}``, in characters. Real sequences are shorter,
# because their numbers have only a few digits.
_MAX_SEQUENCE: Final = 64
# Finding the parts of a word costs this many times as much as copying the word.
_SCANNING: Final = 30


class ExpansionError(Exception):
    """An expansion fails in bash, because of an unset variable in ``${x:?}`` or an invalid form."""


class TooLarge(Exception):
    """The braces of a word expand to more text than the guard processes. Bash has no such limit."""


def _spend_nothing(_characters: int) -> None: ...


def expand_braces(word: str, spend: Callable[[int], None] = _spend_nothing) -> list[str]:
    """Return the words to which the braces of a word expand, as in ``{a,b}`` and ``{1..3}``.

    Bash expands braces before anything else. `spend` counts processed characters.
    Raises `TooLarge`.
    """
    if "{" not in word:
        return [word]
    spend(len(word) * _SCANNING)
    return _Braces(word, spend).expand(0, len(word), 0)


class _Braces:
    """Expands one word, in time linear in the lengths of the word and of the result."""

    def __init__(self, word: str, spend: Callable[[int], None]) -> None:
        self._word = word
        self._spend = spend
        self._characters = 0
        self._marks = _marks_of(word)
        self._starts = sorted(self._marks)

    def expand(self, start: int, end: int, depth: int) -> list[str]:
        if depth > _MAX_NESTED_BRACES:
            raise TooLarge
        results = [""]
        literal = position = start
        while (index := bisect_left(self._starts, position)) < len(self._starts):
            brace = self._starts[index]
            if brace >= end:
                break
            alternatives = self._alternatives(brace, depth)
            if alternatives is None:
                position = brace + 1
                continue
            results = self._combined(results, [self._word[literal:brace]])
            results = self._combined(results, alternatives)
            literal = position = self._marks[brace][-1] + 1
        return self._combined(results, [self._word[literal:end]])

    def _alternatives(self, brace: int, depth: int) -> list[str] | None:
        """Return the expansion of the braces that begin at `brace`. Return None for plain text."""
        marks = self._marks[brace]
        if len(marks) == 2:
            if marks[1] - brace > _MAX_SEQUENCE:
                return None
            return _sequence(self._word[brace + 1 : marks[1]]) or None
        found: list[str] = []
        for before, behind in pairwise(marks):
            found += self.expand(before + 1, behind, depth + 1)
            if len(found) > MAX_FIELDS:
                raise TooLarge
        return found

    def _combined(self, firsts: list[str], seconds: list[str]) -> list[str]:
        if seconds == [""]:
            return firsts
        if len(firsts) * len(seconds) > MAX_FIELDS:
            raise TooLarge
        characters = sum(map(len, firsts)) * len(seconds) + sum(map(len, seconds)) * len(firsts)
        self._characters += characters
        self._spend(characters)
        if self._characters > _MAX_CHARACTERS:
            raise TooLarge
        return [first + second for first in firsts for second in seconds]


def _marks_of(word: str) -> dict[int, list[int]]:
    """For each pair of braces, map the position of the opening brace to a list of positions.

    The list has the positions of the opening brace, of the commas in this pair, and of the closing
    brace.
    """
    marks: dict[int, list[int]] = {}
    open_braces: list[list[int]] = []
    ends = Ends(word)
    position = 0
    while position < len(word):
        character = word[position]
        if character == "{":
            open_braces.append([position])
        elif character == "," and open_braces:
            open_braces[-1].append(position)
        elif character == "}" and open_braces:
            pair = open_braces.pop()
            marks[pair[0]] = [*pair, position]
        position = position + 1 if character in "{,}" else ends.of_unit(position)
    return marks


def _sequence(text: str) -> list[str]:
    match = re.fullmatch(r"(-?\d+|[A-Za-z])\.\.(-?\d+|[A-Za-z])(?:\.\.(-?\d+))?", text)
    if match is None or match[1].isalpha() != match[2].isalpha():
        return []
    is_letters = match[1].isalpha()
    first, last = (ord(match[1]), ord(match[2])) if is_letters else (int(match[1]), int(match[2]))
    step = abs(int(match[3] or 1)) or 1
    numbers = range(first, last + 1, step) if first <= last else range(first, last - 1, -step)
    return [chr(n) if is_letters else str(n) for n in numbers[: MAX_FIELDS + 1]]


def joined_lines(text: str) -> str:
    """Return a script without its line continuations, which can split a word."""
    if "\\\n" not in text:
        return text
    parts: list[str] = []
    start = position = 0
    quoted = False
    for match in _CONTINUED.finditer(text):
        if match.start() < position:
            continue
        token = match[0]
        if token == "\\\n":
            parts.append(text[start : match.start()])
            start = match.end()
        elif token == '"':
            quoted = not quoted
        elif token == "'" and not quoted:
            end = text.find("'", match.end())
            position = len(text) if end < 0 else end + 1
        elif token == "#" and not quoted and text[match.start() - 1 : match.start()].strip() == "":
            end = text.find("\n", match.end())
            position = len(text) if end < 0 else end
    return "".join([*parts, text[start:]])


_UNKNOWN_SYNTAX: Final = re.compile(
    r"coproc|\btime\b|![ \t]|[!@+?*]\(|\{\w++\}[<>]|\)#|\b(?:for|select)[ \t]++\w++[ \t]++do\b"
    r"|<<-?[ \t]*+[^\s;&|<>()]++[;&]"
)
_CONTINUED: Final = re.compile(r"\\.|['\"#]", re.S)


def rewritten(text: str) -> str:
    """Rewrite a script in the syntax that the parser knows. See `Ends.rewritten`."""
    return Ends(text).rewritten() if _UNKNOWN_SYNTAX.search(text) else text
