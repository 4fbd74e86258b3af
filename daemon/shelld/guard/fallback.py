"""Finds the simple commands in text that the parser cannot parse.

Pure. The guard uses this module for scripts with syntax errors, because bash may still run the
commands before the error. The guard also uses it for the few constructs that the parser does not
know. The module treats everything that could be a command as a command.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from shelld.guard.ends import Ends

MAX_COMMANDS: Final = 500

_RESERVED: Final = frozenset(
    {"if", "then", "elif", "else", "fi", "do", "done", "while", "until", "!", "{", "}", "time"}
)
_HEREDOC: Final = re.compile(r"(?<!<)<<-?\s*(['\"\\]?)(\w[\w#]*+)\1")
# A line that may end a here-document.
_DELIMITER: Final = re.compile(r"^[^\S\n]*(\w[\w#]*+)[^\S\n]*$", re.M)
_REDIRECT: Final = re.compile(r"\d*(?:&?>>?[|&]?|<>|<<<|<&?)")


class SimpleCommand(NamedTuple):
    """A command whose words are not expanded.

    `targets` are the files to which it redirects output.
    """

    words: list[str]
    targets: list[str]


def without_heredocs(text: str) -> str:
    """Return a script without its here-documents, in linear time."""
    parts: list[str] = []
    position = 0
    is_arithmetic = False
    while (start := _HEREDOC.search(text, position)) is not None:
        opening = text.rfind("((", position, start.start())
        closing = text.rfind("))", position, start.start())
        is_arithmetic = opening > closing or (is_arithmetic and closing < 0)
        if is_arithmetic:
            # In an arithmetic expression, such as ``$((1 << n))``, ``<<`` is a shift.
            parts.append(text[position : start.end()])
            position = start.end()
            continue
        line_end = text.find("\n", start.end())
        if line_end < 0:
            break
        parts += (text[position : start.start()], text[start.end() : line_end + 1])
        lines = _DELIMITER.finditer(text, line_end + 1)
        position = next((line.end() for line in lines if line[1] == start[2]), len(text))
    return "".join([*parts, text[position:]])


def simple_commands(text: str) -> list[SimpleCommand]:
    """Split text at command separators. Return the commands, with unexpanded words."""
    text = without_heredocs(text)
    ends = Ends(text)
    commands: list[SimpleCommand] = []
    words: list[str] = []
    targets: list[str] = []
    position = 0
    # The operator of a redirection, until the word after the operator has been read. Otherwise "".
    operator = ""

    def finish() -> None:
        nonlocal words, targets
        while words and words[0] in _RESERVED:
            words.pop(0)
        if words or targets:
            commands.append(SimpleCommand(words, targets))
        words, targets = [], []

    while position < len(text) and len(commands) < MAX_COMMANDS:
        character = text[position]
        redirect = _REDIRECT.match(text, position)
        if character in " \t":
            position += 1
        elif character == "#":
            end = text.find("\n", position)
            position = len(text) if end < 0 else end
        elif redirect is not None and not text.startswith(("<(", ">("), position):
            operator = redirect[0]
            position = redirect.end()
        elif character in "\n;&|()":
            finish()
            operator = ""
            position += 1
        else:
            start = position
            while position < len(text) and text[position] not in " \t\n;&|()":
                if text[position] in "<>" and not text.startswith("(", position + 1):
                    break
                position = ends.of_unit(position)
            position = max(position, start + 1)
            if not operator or ">" in operator:
                (targets if operator else words).append(text[start:position])
            operator = ""
    finish()
    return commands
