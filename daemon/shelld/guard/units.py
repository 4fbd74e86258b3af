"""Where the parts of a word begin and end: quotations, expansions, braces.

Pure, and without values: what is found here is text still.
"""

from __future__ import annotations

import re
from typing import Final

# What a brace expansion may make of one word.
MAX_FIELDS: Final = 1024
_MAX_BRACE_STEPS: Final = 500_000


class ExpansionError(Exception):
    """Bash would give up here: ``${x:?}`` without a value, or a word that is none."""


def expand_braces(word: str) -> list[str]:
    """Return what ``{a,b}`` and ``{1..3}`` make of a word, before anything else is looked at."""
    if "{" not in word:
        return [word]
    results = [""]
    position = attempts = 0
    while position < len(word):
        end = end_of_unit(word, position)
        if word[position] == "{":
            attempts += 1
            if attempts * len(word) > _MAX_BRACE_STEPS:
                # Each looks for its end.
                raise ExpansionError
            alternatives, end = _alternatives(word, position)
            if alternatives is not None:
                results = [before + each for before in results for each in alternatives]
                if len(results) > MAX_FIELDS:
                    raise ExpansionError
                position = end
                continue
            end = position + 1
        results = [before + word[position:end] for before in results]
        position = end
    return results


def _alternatives(word: str, start: int) -> tuple[list[str] | None, int]:
    """Return what the braces at `start` stand for, and where they end; None if they are text."""
    parts: list[str] = []
    begin = position = start + 1
    depth = 1
    while position < len(word):
        character = word[position]
        if character == "{":
            depth += 1
        elif character == "}":
            depth -= 1
            if not depth:
                parts.append(word[begin:position])
                break
        elif character == "," and depth == 1:
            parts.append(word[begin:position])
            begin = position + 1
        position = end_of_unit(word, position) if character not in "{}," else position + 1
    else:
        return None, start + 1
    if len(parts) == 1:
        parts = _sequence(parts[0])
        if not parts:
            return None, start + 1
    return [each for part in parts for each in expand_braces(part)], position + 1


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
    """Return a script without the line ends that a backslash takes away, which can part a word."""
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


_CONTINUED: Final = re.compile(r"\\.|['\"#]", re.S)


def end_of_unit(text: str, position: int) -> int:  # noqa: PLR0911 - a table of cases
    """Return where what begins at `position` ends: a character, or a quotation or expansion."""
    character = text[position]
    if character == "\\":
        return min(len(text), position + 2)
    if character in "'\"":
        return end_of_quotes(text, position)
    if character == "`":
        return end_of_backticks(text, position)
    if character in "$<>" and position + 1 < len(text):
        following = text[position + 1]
        if following == "(":
            return end_of_parentheses(text, position + 1)
        if character == "$" and following == "{":
            return end_of_parameter(text, position + 1)
        if character == "$" and following == "'":
            return end_of_ansi(text, position + 1)
    return position + 1


def end_of_ansi(text: str, position: int) -> int:
    position += 1
    while position < len(text) and text[position] != "'":
        position += 2 if text[position] == "\\" else 1
    return min(len(text), position + 1)


def end_of_quotes(text: str, position: int) -> int:
    quote = text[position]
    position += 1
    while position < len(text) and text[position] != quote:
        position = position + 1 if quote == "'" else _end_in_quotes(text, position)
    return min(len(text), position + 1)


def _end_in_quotes(text: str, position: int) -> int:
    return position + 1 if text[position] in "'<>" else end_of_unit(text, position)


def end_of_backticks(text: str, position: int) -> int:
    position += 1
    while position < len(text) and text[position] != "`":
        position += 2 if text[position] == "\\" else 1
    return min(len(text), position + 1)


def end_of_parentheses(text: str, position: int) -> int:
    """Return the position behind the parenthesis that closes the one at `position`."""
    depth = 0
    while position < len(text):
        character = text[position]
        if character == "(":
            depth += 1
        elif character == ")":
            depth -= 1
            if not depth:
                return position + 1
        elif character == "#" and text[position - 1] in " \t\n;(":
            position = text.find("\n", position)
            if position < 0:
                return len(text)
        if character in "()":
            position += 1
        else:
            position = max(position + 1, end_of_unit(text, position))
    return len(text)


def end_of_parameter(text: str, position: int) -> int:
    """Return the position behind the brace that closes the one at `position`."""
    position += 1
    while position < len(text) and text[position] != "}":
        position = end_of_unit(text, position)
    return min(len(text), position + 1)
