"""Replaces the backslash escapes of ``$'...'``, ``echo -e``, ``printf`` and prompts."""

from __future__ import annotations

import re
from typing import Final

from shelld.guard.markers import UNKNOWN, cleaned

_ESCAPES: Final = {
    "n": "\n",
    "t": "\t",
    "r": "\r",
    "a": "\a",
    "b": "\b",
    "f": "\f",
    "v": "\v",
    "e": "\x1b",
    "E": "\x1b",
    "\\": "\\",
    "'": "'",
    '"': '"',
    "?": "?",
}
_ESCAPE: Final = re.compile(
    r"\\(?:([ntrabfveE\\'\"?])|([0-7]{1,3})|x([0-9A-Fa-f]{1,2})|u([0-9A-Fa-f]{1,4})"
    r"|U([0-9A-Fa-f]{1,8})|c(.))",
    re.DOTALL,
)


# Maps the character of an escape in a prompt to the text that replaces the escape. ``\\[`` and
# ``\\]`` enclose characters that the terminal does not print.
_PROMPT: Final = {"\\": "\\\\", "$": "$", "n": "\n", "r": "\r", "e": "\x1b", "[": "", "]": ""}
_PROMPT_ESCAPE: Final = re.compile(r"\\(?:([0-7]{1,3})|(.))", re.DOTALL)


def prompted(text: str) -> str:
    """Replace each escape in a prompt by the text that bash shows for it. Bash does this before it
    expands the prompt.

    Reference: bash(1), PROMPTING.
    """

    def replaced(match: re.Match[str]) -> str:
        octal, letter = match.groups()
        if octal is not None:
            return cleaned(chr(int(octal, 8) & 0xFF))
        return _PROMPT.get(letter, UNKNOWN)

    return _PROMPT_ESCAPE.sub(replaced, text)


def ansi_c(text: str, *, octal_zero: bool = False) -> str:
    """Return the value of ``$'...'``. `octal_zero` also allows ``\\0nnn``, as in ``echo -e``."""

    def replaced(match: re.Match[str]) -> str:
        simple, octal, *hexes, control = match.groups()
        if simple is not None:
            return _ESCAPES[simple]
        if octal is not None:
            return chr(int(octal, 8) & 0xFF)
        if control is not None:
            return chr(ord(control) & 0x1F)
        number = int(next(each for each in hexes if each is not None), 16)
        return chr(number) if number < 0x110000 and not 0xD800 <= number < 0xE000 else "?"

    if octal_zero:
        text = re.sub(r"\\0([0-7]{1,3})", r"\\\1", text)
    return cleaned(_ESCAPE.sub(replaced, text))
