"""Expands words as bash would, as far as the result can be known before anything runs.

Pure, except that it asks its `Scope` for the values of names and the output of substitutions. A
word expands to fields, which are strings that can contain the characters of `markers`. `UNKNOWN`
stands for any text, and `ANY`, `ONE` and `SET` stand for ``*``, ``?`` and ``[`` that bash would
match against file names. Quoted or escaped globs stay ordinary characters.

Reference: bash(1), EXPANSION.
"""

from __future__ import annotations

import re
from typing import Final

from shelld.guard.arithmetic import arithmetic
from shelld.guard.ends import Ends, is_arithmetic
from shelld.guard.escapes import ansi_c
from shelld.guard.extended_globs import alternatives
from shelld.guard.fields import Piece, fields_of, separators_of
from shelld.guard.markers import ACTIVE, BREAK, GLOBS, UNKNOWN, plain
from shelld.guard.parameters import expand_parameter
from shelld.guard.scope import Scope
from shelld.guard.units import (
    MAX_FIELDS,
    TooLarge,
    expand_braces,
)

# The maximum length of a word in characters. A longer word with special characters expands to
# `UNKNOWN`. The guard parses only scripts up to the same length (`MAX_PARSED`). So no word in a
# parsed script exceeds the limit, and the guard follows the substitutions in every word.
MAX_WORD: Final = 64 * 1024
# The maximum total length of all values in a word, in characters. Values beyond this limit become
# `UNKNOWN`.
MAX_EXPANDED: Final = 256 * 1024
# A value of at most this many characters does not count towards any limit.
_SHORT: Final = 200
_SPECIAL: Final = re.compile(r"[\\'\"$`<>*?\[{~]")


def expand_word(word: str, scope: Scope) -> list[str]:
    """Return the fields of a word. There may be none. Raises `ExpansionError`."""
    if not _SPECIAL.search(word):
        # Most words have no special characters, and expand to themselves.
        return [word]
    if len(word) > MAX_WORD:
        return [UNKNOWN]
    fields: list[str] = []
    separators = separators_of(scope)
    try:
        words = expand_braces(word, scope.spend)
    except TooLarge:
        return [UNKNOWN]
    for each in words:
        fields += fields_of(_pieces(each, scope), separators)
        if len(fields) > MAX_FIELDS:
            # Bash has no such limit, and still runs the command.
            return [*fields[:MAX_FIELDS], UNKNOWN]
    return fields


def expand_text(word: str, scope: Scope, *, is_assigned: bool = False) -> str:
    """Expand a word to one field, as bash does in a here-string, redirection or assignment.

    In the value of an assignment, bash also expands a tilde after a colon.
    """
    if not _SPECIAL.search(word):
        return word
    if len(word) > MAX_WORD:
        return UNKNOWN
    pieces = _pieces(word, scope, is_assigned=is_assigned)
    return "".join(piece.text.replace(BREAK, " ") for piece in pieces)


def expand_heredoc(body: str, scope: Scope) -> str:
    """Return the expanded body of a here-document with an unquoted delimiter."""
    if len(body) > MAX_WORD and _NO_LITERAL_IN_QUOTES.search(body):
        return UNKNOWN
    scanner = _Scanner(body, scope)
    scanner.read_quoted(None)
    return "".join(piece.text.replace(BREAK, " ") for piece in scanner.pieces)


# -- one word ---------------------------------------------------------------------------------


def _pieces(word: str, scope: Scope, *, is_assigned: bool = False) -> list[Piece]:
    scanner = _Scanner(word, scope)
    scanner.read_word(is_assigned=is_assigned)
    return scanner.pieces


_NO_LITERAL: Final = re.compile(r"[\\'\"$`<>*?\[]|(?<=:)~")
_NO_LITERAL_IN_QUOTES: Final = re.compile(r'[\\"$`]')


def _end_of_literal(text: str, position: int, special: re.Pattern[str]) -> int:
    match = special.search(text, position + 1)
    return len(text) if match is None else match.start()


# Bash treats a word that begins like this as an assignment, even if the word is an argument of a
# command.
_ASSIGNS: Final = re.compile(r"[A-Za-z_]\w*\+?=")
_USER: Final = r"~([A-Za-z_][\w-]*|[+-]?\d+|[+-])?"
_TILDE: Final = re.compile(_USER + r"(?=/|$)")
_TILDE_IN_VALUE: Final = re.compile(_USER + r"(?=[/:]|$)")


class _Scanner:
    def __init__(self, text: str, scope: Scope) -> None:
        self.pieces: list[Piece] = []
        self._text = text
        self._ends = Ends(text)
        self._scope = scope
        self._words = _Words(scope)
        self._position = 0
        self._length = 0

    def _add(self, text: str, *, quoted: bool = False, splits: bool = False) -> None:
        self.pieces.append(Piece(text, quoted, splits))

    def read_word(self, *, is_assigned: bool) -> None:
        text = self._text
        if not is_assigned and (name := _ASSIGNS.match(text)) is not None:
            self._add(name[0])
            self._position = name.end()
            is_assigned = True
        tilde = _TILDE_IN_VALUE if is_assigned else _TILDE
        self._read_tilde(tilde)
        while self._position < len(text):
            character = text[self._position]
            if character == "\\":
                following = text[self._position + 1 : self._position + 2]
                if following != "\n":
                    self._add(following, quoted=True)
                self._position += 2
            elif character == "'":
                end = self._ends.of_quotes(self._position)
                self._add(text[self._position + 1 : end].removesuffix("'"), quoted=True)
                self._position = end
            elif character == '"' or text.startswith('$"', self._position):
                self._position += 1 if character == '"' else 2
                self._add("", quoted=True)
                self.read_quoted('"')
            elif text.startswith("$'", self._position):
                end = self._ends.of_ansi(self._position + 1)
                self._add(ansi_c(text[self._position + 2 : end].removesuffix("'")), quoted=True)
                self._position = end
            elif character in "$`":
                self._read_expansion(quoted=False)
            elif character in "<>" and text.startswith("(", self._position + 1):
                end = self._ends.of_substitution(self._position + 1)
                script = text[self._position + 2 : end - 1]
                path = self._scope.file_of(script, is_read=character == "<")
                self._add(path, quoted=True)
                self._position = end
            elif character in GLOBS or character in "<>":
                self._add(GLOBS.get(character, character))
                self._position += 1
            else:
                end = _end_of_literal(text, self._position, _NO_LITERAL)
                self._add(text[self._position : end])
                self._position = end
                if is_assigned and text[end - 1] == ":":
                    self._read_tilde(tilde)

    def _read_tilde(self, tilde: re.Pattern[str]) -> None:
        match = tilde.match(self._text, self._position)
        if match is None:
            return
        user = match[1]
        if user is None:
            home = self._scope.value_of("HOME")
            home = self._scope.home if home is None else home
            self._add(UNKNOWN if home is None else home, quoted=True)
        elif user == "root":
            self._add("/root", quoted=True)
        elif user in "+-":
            value = self._scope.value_of("PWD" if user == "+" else "OLDPWD")
            self._add(UNKNOWN if value is None else value, quoted=True)
        elif user[0] in "+-0123456789":
            stack = self._scope.list_of("DIRSTACK")
            index = index_in_stack(user, len(stack))
            self._add(match[0] if index is None else stack[index], quoted=True)
        else:
            self._add(f"/home/{user}", quoted=True)
        self._position = match.end()

    def read_quoted(self, end: str | None) -> None:
        """Read up to the double quote `end`.

        If `end` is None, read a here-document, in which quotes are ordinary characters.
        """
        text = self._text
        while self._position < len(text):
            character = text[self._position]
            if character == end:
                self._position += 1
                return
            if character == "\\":
                following = text[self._position + 1 : self._position + 2]
                special = following in '$`\\\n"' if end else following in "$`\\\n"
                if not special:
                    self._add("\\" + following, quoted=True)
                elif following != "\n":
                    self._add(following, quoted=True)
                self._position += 2
            elif character in "$`":
                self._read_expansion(quoted=True)
            else:
                stop = _end_of_literal(text, self._position, _NO_LITERAL_IN_QUOTES)
                self._add(text[self._position : stop], quoted=True)
                self._position = stop

    def _read_expansion(self, *, quoted: bool) -> None:
        text, start = self._text, self._position
        if text[start] == "`":
            end = self._ends.of_backticks(start)
            script = re.sub(r"\\([$`\\])", r"\1", text[start + 1 : end].removesuffix("`"))
            self._add_value(self._scope.output_of(script), quoted=quoted)
        elif text.startswith("$[", start):
            end = text.find("]", start) + 1 or len(text)
            self._add_value(calculated(text[start + 2 : end - 1], self._scope), quoted=quoted)
        elif text.startswith("$(", start):
            end = self._ends.of_substitution(start + 1)
            script = text[start + 2 : end].removesuffix(")")
            if script.startswith("(") and is_arithmetic(script):
                value = calculated(script[1:].removesuffix(")"), self._scope)
            else:
                value = self._scope.output_of(script)
            self._add_value(value, quoted=quoted)
        elif text.startswith("${", start):
            end = self._ends.of_parameter(start + 1)
            parameter = text[start + 2 : end].removesuffix("}")
            self._add_value(
                expand_parameter(parameter, self._words, quoted=quoted),
                quoted=quoted,
            )
        else:
            match = re.compile(r"[A-Za-z_]\w*|[0-9@*#?$!_-]").match(text, start + 1)
            end = start + 1 if match is None else match.end()
            if match is None:
                self._add("$", quoted=quoted)
            else:
                value = expand_parameter(match[0], self._words, quoted=quoted)
                self._add_value(value, quoted=quoted)
        self._position = end

    def _add_value(self, value: str, *, quoted: bool) -> None:
        if len(value) > _SHORT:
            self._length += len(value)
            if self._length > MAX_EXPANDED:
                value = UNKNOWN
            self._scope.spend(len(value))
        if not quoted:
            value = alternatives(value).translate(ACTIVE)
        if value or not quoted:
            self._add(value, quoted=quoted, splits=not quoted)


# An index in the stack of directories. No such stack is so large that an index has more than nine
# digits.
_ENTRY: Final = re.compile(r"[+-]?(\d{1,9})")


def index_in_stack(text: str, length: int) -> int | None:
    """Return the index that ``N``, ``+N`` or ``-N`` stands for. Return None if there is no such
    entry.
    """
    match = _ENTRY.fullmatch(text)
    if match is None or int(match[1]) >= length:
        return None
    return length - 1 - int(match[1]) if text.startswith("-") else int(match[1])


class _Words:
    """Implements `parameters.Words`."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope

    def text(self, word: str) -> str:
        return expand_text(word, self.scope)

    def joined(self, word: str) -> str:
        return plain(" ".join(fields_of(_pieces(word, self.scope)))) if word else ""

    def heredoc(self, body: str) -> str:
        return expand_heredoc(body, self.scope)


def calculated(text: str, scope: Scope) -> str:
    """Return the value of an arithmetic expression. Perform its assignments."""
    return arithmetic(expand_text(text, scope), scope)
