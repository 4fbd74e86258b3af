"""Explains the exit code 1 of programs that answer a question with their exit code. Pure.

This module looks at the words of a command, and runs nothing. If in doubt, it gives no explanation.
"""

from __future__ import annotations

import os.path
import re
import shlex
from collections.abc import Mapping
from typing import Final

# If a command is longer than this, its exit code is not explained.
_MAX_CHARACTERS: Final = 10_000

_NOTHING: Final = "{} found nothing, which is not an error"
_DIFFERENT: Final = "{} found a difference, which is not an error"
_FALSE: Final = "{} is false, which is not an error"
_MEANINGS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("grep", "egrep", "fgrep", "zgrep", "rg", "ag", "pgrep", "pidof"), _NOTHING),
    **dict.fromkeys(("which", "type", "git grep"), _NOTHING),
    **dict.fromkeys(("diff", "cmp", "git diff"), _DIFFERENT),
    **dict.fromkeys(("test", "[", "[["), _FALSE),
}

_ASSIGNMENT: Final = re.compile(r"[A-Za-z_]\w*\+?=")
# After a command with one of these words, the last program may not have run, or its exit code may
# not be the exit code of the whole command.
_UNSURE: Final = frozenset({"exit", "return", "set", "trap"})
# In a command, the name of another program follows each of these words.
_BEFORE: Final = frozenset({"time", "command", "env", "sudo"})


def meaning_of_one(command: str) -> str | None:
    """If the last program of a command answers a question with its exit code, return the meaning of
    exit code 1.
    """
    # In backquotes, the last program may belong to a substitution, as in parentheses.
    if len(command) > _MAX_CHARACTERS or "`" in command:
        return None
    program = _last_program(command)
    meaning = _MEANINGS.get(program)
    return None if meaning is None else meaning.format(program)


def _last_program(command: str) -> str:
    """Return the name of the program that ran last; "" if it is not known."""
    lexer = shlex.shlex(command.replace("\n", " ; "), posix=True, punctuation_chars=";&|()")
    lexer.whitespace_split = True
    lexer.commenters = ""
    words: list[str] = []
    last: list[str] = []
    try:
        for word in lexer:
            if not set(word) <= set(";&|()"):
                words.append(word)
                continue
            if set(word) & set("()"):
                # The words in parentheses may belong to a substitution, and then another program
                # gives the exit code.
                return ""
            if any(each in _UNSURE or each.startswith("#") for each in words):
                # After a `#`, the separator is perhaps part of a comment.
                return ""
            last, words = words or last, []
            if "&&" in word and last[:1] != ["cd"]:
                # The command before && may have failed, so the program that ran last is not known.
                # A cd before && is no problem, because cd prints an error if it fails.
                return ""
    except ValueError:
        # The command has an unclosed quote.
        return ""
    names = words or last
    while names and (names[0] in _BEFORE or _ASSIGNMENT.match(names[0])):
        names = names[1:]
    if not names:
        return ""
    name = os.path.basename(names[0])
    return " ".join([name, *names[1:2]]) if name == "git" else name
