"""Walks through a script word by word, to the parenthesis that ends it. Pure.

On the way, finds syntax that the parser does not know. `ends.Ends.rewritten` rewrites this syntax.

Reference: parse.y of bash.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from shelld.guard.descriptors import descriptor_for
from shelld.guard.extended_globs import simplified
from shelld.guard.parts import Parts

_SEPARATOR: Final = re.compile(r";;&|;[;&]|[;&|]")
_REDIRECT: Final = re.compile(r"<<<|<<-?|>>|<>|[<>]&|>\||[<>]")
_DESCRIPTOR: Final = re.compile(r"\{[A-Za-z_]\w*\}", re.A)
_BLANKS: Final = re.compile(r"[ \t]*")
_QUOTE: Final = re.compile(r"['\"\\]")
# Another reserved word can follow one of these reserved words.
_OPENING: Final = frozenset(
    {"{", "}", "if", "then", "elif", "else", "fi", "while", "until", "do", "done"}
)
# A name follows one of these reserved words.
_NAMING: Final = frozenset({"for", "select", "function", "coproc"})
# A compound command begins with one of these words.
_COMPOUND: Final = frozenset({"{", "if", "while", "until", "for", "select", "case", "[["})
# The parser does not know ``!`` before these commands.
_NOT_NEGATED: Final = (_COMPOUND | _NAMING) - {"[["}
# The constructs that can be open in a script: parentheses around commands, a pattern or an array,
# and the parts of ``case``.
_COMMANDS, _WORDS, _ARRAY, _SUBJECT, _IN, _PATTERN, _BODY = range(7)
_CASE: Final = frozenset({_SUBJECT, _IN, _PATTERN, _BODY})


class Walk:
    """Walks through a script, to the parenthesis that ends it."""

    def __init__(self, ends: Parts, text: str, position: int, *, is_whole: bool = False) -> None:
        # Each replacement has a beginning, an end, and a new text.
        self.edits: list[tuple[int, int, str]] = []
        self._ends = ends
        self._text = text
        self._at = position
        # If true, the script ends at the end of the text, not at a parenthesis.
        self._is_whole = is_whole
        self._open: list[int] = []
        # `_starts` is true if a reserved word can come next. `_names` is true if the next word is a
        # name.
        self._starts = True
        self._names = False
        # `_loops` is true if the last word was the variable of a ``for`` or ``select`` loop.
        # `_is_loop` is true if the next name will be the variable of such a loop.
        self._loops = self._is_loop = False
        # `_is_fresh` is true right before a pattern of ``case``.
        self._is_fresh = False
        # The positions at which ``coproc NAME`` begins and ends.
        self._coprocess: tuple[int, int] | None = None
        # The positions of ``time``, of its options, and of each ``!`` right before the next
        # command.
        self._timing: list[tuple[int, int]] = []
        self._negations: list[tuple[int, int]] = []
        # The here-documents that begin at the next line. Each has a delimiter, and a flag that is
        # true if bash removes leading tabs from the lines of the here-document.
        self._heredocs: list[tuple[str, bool]] = []

    def end(self) -> int | None:
        """Return the position after the closing parenthesis, or None if there is none."""
        text = self._text
        while self._at < len(text):
            character = text[self._at]
            if character in " \t":
                self._at += 1
            elif character == "\n":
                self._read_line_end()
            elif character == "#":
                self._at = text.find("\n", self._at)
                if self._at < 0:
                    break
            elif (separator := _SEPARATOR.match(text, self._at)) is not None:
                self._at = separator.end()
                self._read_separator(separator[0])
            elif character == "(":
                self._read_opening()
            elif character == ")":
                self._at += 1
                if self._closes():
                    return self._at
            elif character in "<>" and not text.startswith("(", self._at + 1):
                self._read_redirect()
            else:
                self._read_word()
        return None

    @property
    def _top(self) -> int:
        return self._open[-1] if self._open else _COMMANDS

    def _begin(self) -> None:
        self._loops = False
        self._starts = self._top not in (_WORDS, _ARRAY)
        self._names = False
        self._coprocess = None
        self._timing.clear()
        self._negations.clear()

    def _read_line_end(self) -> None:
        self._begin()
        self._at += 1
        for delimiter, strips in self._heredocs:
            end = self._ends.of_heredoc(self._at, delimiter, strips=strips)
            # If no line ends the here-document, ``<<`` is a shift in an arithmetic expression.
            self._at = self._at if end is None else end
        self._heredocs.clear()

    def _read_separator(self, separator: str) -> None:
        self._begin()
        if self._top in (_SUBJECT, _IN):
            # The word ``case`` did not begin a ``case`` command.
            self._open.pop()
        elif self._top == _BODY and len(separator) > 1:
            self._open[-1] = _PATTERN
            self._is_fresh = True

    def _read_opening(self) -> None:
        text, start = self._text, self._at
        self._at += 1
        if self._top == _PATTERN and self._is_fresh:
            self._is_fresh = False
            return
        if self._top in (_SUBJECT, _IN):
            self._open.pop()
        if self._coprocess is not None:
            self._name_coprocess(*self._coprocess)
        self._remove_prefix(is_negated=text.startswith("((", start))
        is_command = self._starts and self._top != _PATTERN
        self._begin()
        if is_command and text.startswith("((", start):
            end = self._ends.of_pair(start + 1)
            if text.startswith(")", end):
                self._at = end + 1
                return
        is_in_words = self._top in (_PATTERN, _WORDS, _ARRAY)
        self._open.append(_WORDS if is_in_words else _COMMANDS)

    def _closes(self) -> bool:
        """Read a closing parenthesis. Return whether it ends the script."""
        if self._top == _PATTERN:
            self._open[-1] = _BODY
            self._begin()
            return False
        while self._top in _CASE:
            # The word ``case`` did not begin a ``case`` command, or the script is invalid.
            self._open.pop()
        if not self._open:
            self._begin()
            return not self._is_whole
        closed = self._open.pop()
        self._begin()
        self._starts = closed == _COMMANDS
        if closed != _COMMANDS and self._text.startswith("#", self._at):
            # After this parenthesis, ``#`` continues the word. After any other parenthesis, ``#``
            # would begin a comment.
            self.edits.append((self._at, self._at + 1, r"\#"))
            self._at += 1
        return False

    def _read_redirect(self) -> None:
        match = _REDIRECT.match(self._text, self._at)
        operator = match[0] if match else ""
        start = self._at = _end_of(_BLANKS, self._text, self._at + len(operator))
        self._at = self._ends.of_word(start)
        self._starts = False
        self._remove_prefix(is_negated=False)
        if self._text.startswith("(", self._at) and self._text[self._at - 1] in "?*+@!":
            self._replace_glob(self._text[start : self._at])
        if operator in ("<<", "<<-") and start < self._at:
            delimiter = _QUOTE.sub("", self._text[start : self._at])
            self._heredocs.append((delimiter, operator == "<<-"))
            if self._text.startswith((";", "&"), self._at):
                # The parser would read the separator as part of the delimiter.
                self.edits.append((self._at, self._at, " "))

    def _read_word(self) -> None:
        start = self._at
        self._at = max(self._ends.of_word(start), start + 1)
        word = self._text[start : self._at]
        if self._text.startswith(("<", ">"), self._at) and _DESCRIPTOR.fullmatch(word):
            # In ``{fd}>file``, bash stores a new descriptor in the variable ``fd``.
            self.edits.append((start, self._at, descriptor_for(word[1:-1])))
            return
        if self._loops:
            self._loops = False
            if word == "do":
                self.edits.append((start, start, "; "))
                self._starts = True
                return
        if self._starts and not self._names and self._top in (_COMMANDS, _BODY):
            if self._is_prefix(word, start):
                return
            begins_function = self._text.startswith("(", _end_of(_BLANKS, self._text, self._at))
            self._remove_prefix(is_negated=word not in _NOT_NEGATED and not begins_function)
        if self._text.startswith("(", self._at) and word[-1] in "?*+@!=":
            # The parenthesis begins an array, or belongs to a pattern such as ``@(a|b)``.
            self._starts = False
            if word[-1] == "=" or not self._replace_glob(word):
                self._open.append(_ARRAY if word[-1] == "=" else _WORDS)
                self._at += 1
        elif self._top in (_SUBJECT, _IN, _PATTERN):
            self._read_word_of_case(word)
        elif self._starts:
            self._read_first_word(word, start)

    def _replace_glob(self, word: str) -> bool:
        """The last character of `word` begins an extended glob. Replace this glob with other globs.

        Return whether the glob was replaced. ``f+( )`` is not a glob, because it defines a
        function.
        """
        start, end = self._at + 1, self._ends.of_pair(self._at) - 1
        content = self._text[start:end]
        is_pattern = self._text[end : end + 1] == ")" and content.strip() != ""
        if not is_pattern or self._top not in (_COMMANDS, _BODY, _ARRAY):
            return False
        substitutions = "".join(self._substitutions(start, end))
        new = simplified(word[-1], content, substitutions, is_assigned="=" in word)
        self.edits.append((start - 2, end + 1, new))
        self._at = end + 1
        return True

    def _substitutions(self, start: int, end: int) -> Iterator[str]:
        """Yield the substitutions in a part of the text, even substitutions in double quotes."""
        position = start
        while position < end:
            stop = position + 1
            if self._text[position] != '"':
                stop = self._ends.of_unit(position)
            if self._text.startswith(("$(", "`", "<(", ">("), position):
                yield self._text[position:stop]
            position = stop

    def _is_prefix(self, word: str, start: int) -> bool:
        """Return whether a word is a prefix of a command: ``time``, its options, or ``!``.

        Record the position of the word.
        """
        if word == "!":
            self._negations.append((start, self._at))
        elif word == "time" or (self._timing and word in ("-p", "--")):
            self._timing.append((start, self._at))
        else:
            if word.startswith("-"):
                # With other options, bash does not run ``time`` as a program, but other shells do.
                self._timing.clear()
            return False
        return True

    def _remove_prefix(self, *, is_negated: bool) -> None:
        """Remove ``time`` and ``!`` before the command that begins here.

        If `is_negated` is true, and the number of ``!`` is odd, leave one ``!``.
        """
        kept = len(self._negations) % 2 if is_negated else 0
        removed = self._timing + self._negations[kept:]
        self.edits += ((start, end, "") for start, end in removed)
        self._timing.clear()
        self._negations.clear()

    def _read_word_of_case(self, word: str) -> None:
        if self._top == _SUBJECT:
            self._open[-1] = _IN
        elif self._top == _IN:
            if word == "in":
                self._open[-1] = _PATTERN
                self._is_fresh = True
            else:
                # The word ``case`` did not begin a ``case`` command.
                self._open.pop()
        elif self._is_fresh:
            self._is_fresh = False
            if word == "esac":
                self._open.pop()
                self._starts = True

    def _name_coprocess(self, start: int, end: int) -> None:
        """Replace ``coproc`` before a compound command with ``coproc NAME |``.

        The compound command then is the second member of a pipeline.
        """
        words = self._text[start:end].split()
        name = words[1] if len(words) > 1 else "COPROC"
        self.edits.append((start, end, f"coproc {name} |"))

    def _read_first_word(self, word: str, start: int) -> None:
        if self._coprocess is not None and word in _COMPOUND:
            self._name_coprocess(*self._coprocess)
            self._coprocess = None
        elif self._names:
            # This word is a name that follows a reserved word such as ``for``. If a compound
            # command comes right after ``coproc``, there is no name, and the branch above handles
            # this case.
            self._names = False
            if self._coprocess is not None:
                self._coprocess = (self._coprocess[0], self._at)
            self._loops = self._is_loop
            return
        self._names = word in _NAMING
        self._is_loop = word in ("for", "select")
        self._coprocess = (start, self._at) if word == "coproc" else None
        if word == "case":
            self._open.append(_SUBJECT)
            self._starts = False
        elif word == "esac" and self._top == _BODY:
            self._open.pop()
        else:
            self._starts = word in _OPENING or word in _NAMING


def _end_of(pattern: re.Pattern[str], text: str, position: int) -> int:
    match = pattern.match(text, position)
    return position if match is None else match.end()
