"""Finds the ends of quotations, expansions and words in a text.

Pure. Works on text alone and looks up no values.

Reference: subst.c of bash.
"""

from __future__ import annotations

import abc
import re
from typing import Final

_NO_UNIT: Final = re.compile(r"[^()\\'\"`$<>]+")
_NO_METACHARACTER: Final = re.compile(r"[^ \t\n;&|()<>\\'\"`$]+")


class Parts(abc.ABC):
    """Finds the quotations, expansions and words of one text.

    Remembers where each parenthesis ends, so that the time grows only linearly with the text.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        # Both dicts map the position of a "(" to the position after the matching ")".
        self._pairs: dict[int, int] = {}
        self._substitutions: dict[int, int] = {}

    @abc.abstractmethod
    def of_substitution(self, position: int) -> int:
        """Return the position after the parenthesis that ends a substitution.

        `position` is the position of the opening parenthesis.
        """

    @abc.abstractmethod
    def of_heredoc(self, position: int, delimiter: str, *, strips: bool) -> int | None:
        """Return the end of the here-document at `position`, or None if it does not end."""

    def of_unit(self, position: int) -> int:  # noqa: PLR0911 - a table of cases
        """Return the end of the character, quotation or expansion that begins at `position`."""
        text = self._text
        character = text[position]
        if character == "\\":
            return min(len(text), position + 2)
        if character in "'\"":
            return self.of_quotes(position)
        if character == "`":
            return self.of_backticks(position)
        if character in "$<>" and position + 1 < len(text):
            following = text[position + 1]
            if following == "(":
                return self.of_substitution(position + 1)
            if character == "$" and following == "{":
                return self.of_parameter(position + 1)
            if character == "$" and following == "'":
                return self.of_ansi(position + 1)
        return position + 1

    def of_ansi(self, position: int) -> int:
        return self._of_escaped(position, "'")

    def of_backticks(self, position: int) -> int:
        return self._of_escaped(position, "`")

    def _of_escaped(self, position: int, last: str) -> int:
        text = self._text
        position += 1
        while position < len(text) and text[position] != last:
            position += 2 if text[position] == "\\" else 1
        return min(len(text), position + 1)

    def of_quotes(self, position: int) -> int:
        text = self._text
        quote = text[position]
        if quote == "'":
            return text.find("'", position + 1) + 1 or len(text)
        position += 1
        while position < len(text) and text[position] != quote:
            position = position + 1 if text[position] in "'<>" else self.of_unit(position)
        return min(len(text), position + 1)

    def of_parameter(self, position: int) -> int:
        """Return the position after the brace that closes the brace at `position`."""
        text = self._text
        position += 1
        while position < len(text) and text[position] != "}":
            position = self.of_unit(position)
        return min(len(text), position + 1)

    def of_pair(self, position: int) -> int:
        """Return the position after the ")" that closes the "(" at `position`.

        The text between them is not a script.
        """
        text, pairs = self._text, self._pairs
        if position in pairs:
            return pairs[position]
        opened: list[int] = []
        at = position
        while at < len(text):
            character = text[at]
            if character == "(":
                opened.append(at)
                at += 1
            elif character == ")":
                at += 1
                pairs[opened.pop()] = at
                if not opened:
                    return at
            else:
                plain = _NO_UNIT.match(text, at)
                at = self.of_unit(at) if plain is None else plain.end()
        pairs.update(dict.fromkeys(opened, len(text)))
        return len(text)

    def of_word(self, position: int) -> int:
        text = self._text
        while position < len(text):
            plain = _NO_METACHARACTER.match(text, position)
            if plain is not None:
                position = plain.end()
            elif text[position] in " \t\n;&|()" or (
                text[position] in "<>" and not text.startswith("(", position + 1)
            ):
                break
            else:
                position = self.of_unit(position)
        return position
