"""Finds the ends of quotations, expansions and substitutions in a text.

Pure. Works on text alone and looks up no values. A parenthesis does not always end a substitution.
It can also end a pattern of ``case``, or be text in a here-document or in a comment. So the module
reads the script in a substitution word by word.

Reference: parse.y and subst.c of bash.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from functools import cached_property
from typing import Final

from shelld.guard.parts import Parts
from shelld.guard.walk import Walk

_NO_PARENTHESIS: Final = re.compile(r"""\\.|'[^']*+'|"(?>(?:[^"\\]|\\.)*)"|[^()]""", re.S)


def is_arithmetic(text: str) -> bool:
    """Return whether bash treats the text between ``$(`` and ``)`` as arithmetic.

    The text begins with a parenthesis. It is arithmetic if its last character closes this
    parenthesis.
    """
    depth = 0
    parentheses = _NO_PARENTHESIS.sub("", text)
    for index, parenthesis in enumerate(parentheses, 1):
        depth += 1 if parenthesis == "(" else -1
        if not depth:
            return index == len(parentheses) and text.endswith(")")
    return True


class Ends(Parts):
    """Finds the end of each quotation, expansion and substitution in one text.

    Stores the ends that it has found, so that finding all ends takes linear time.
    """

    def of_substitution(self, position: int) -> int:
        """Return the position after the parenthesis that ends a substitution.

        `position` is the position of the opening parenthesis.
        """
        end = self._substitutions.get(position)
        if end is None:
            # Bash reads the text after ``$((`` as arithmetic, even if it turns out to be a script.
            is_script = not self._text.startswith("((", position)
            end = Walk(self, self._text, position + 1).end() if is_script else None
            end = self.of_pair(position) if end is None else end
            self._substitutions[position] = end
        return end

    @cached_property
    def _lines(self) -> _Lines:
        return _Lines(self._text)

    def of_heredoc(self, position: int, delimiter: str, *, strips: bool) -> int | None:
        """Return the end of the here-document at `position`, or None if it does not end."""
        return self._lines.end_of(position, delimiter, strips=strips)

    def rewritten(self) -> str:
        """Rewrite the bash syntax that the parser does not know.

        Adds ``|`` to ``coproc NAME`` before a compound command. Removes the reserved word ``time``.
        Removes a ``!`` before a compound command. Puts a number in place of ``{name}`` before a
        redirection, see `descriptors`. Escapes a ``#`` right after an array or a pattern, because
        such a ``#`` does not begin a comment. Inserts a semicolon into ``for x do``, and a space
        between the delimiter of a here-document and a separator. Replaces extended globs by other
        globs. Does not change the content of substitutions.
        """
        walk = Walk(self, self._text, 0, is_whole=True)
        walk.end()
        parts: list[str] = []
        position = 0
        for start, end, new in sorted(walk.edits):
            parts += (self._text[position:start], new)
            position = end
        return "".join([*parts, self._text[position:]])


class _Lines:
    """Finds the line that ends a here-document."""

    def __init__(self, text: str) -> None:
        # These tables map the text of a line to the positions of all lines with this text. In
        # `_stripped`, leading tabs are removed from each line.
        self._whole: dict[str, list[int]] = {}
        self._stripped: dict[str, list[int]] = {}
        position = 0
        for line in text.split("\n"):
            # In bash, a line in which ")" follows the delimiter also ends a here-document, as in
            # `EOF )`.
            before, parenthesis, _ = line.partition(")")
            key = before.rstrip(" \t") if parenthesis else line
            self._whole.setdefault(key, []).append(position)
            without = key.lstrip("\t")
            self._stripped.setdefault(without, []).append(position + len(key) - len(without))
            position += len(line) + 1

    def end_of(self, position: int, delimiter: str, *, strips: bool) -> int | None:
        starts = (self._stripped if strips else self._whole).get(delimiter, [])
        index = bisect_left(starts, position)
        return starts[index] + len(delimiter) if index < len(starts) else None
