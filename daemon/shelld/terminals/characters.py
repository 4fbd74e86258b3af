"""Knows which characters have no width, and which characters belong to a word. Pure."""

from __future__ import annotations

import unicodedata
from functools import lru_cache
from typing import Final

# The Unicode categories of combining marks and of format characters.
_WITHOUT_WIDTH: Final = frozenset({"Mn", "Me", "Cf"})
# These format characters have a width. They are signs that stand before a number or around it.
_SHOWN: Final = frozenset(
    "\u0600\u0601\u0602\u0603\u0604\u0605\u06dd\u070f\u0890\u0891\u08e2\U000110bd\U000110cd"
)
# The vowels and finals of decomposed Korean syllables.
_JAMO: Final = (range(0x1160, 0x1200), range(0xD7B0, 0xD800))
# The Unicode categories of letters, digits, numbers written as letters (such as Roman numerals),
# and vowel signs with a width. The C library also counts letters in a circle as letters.
_IN_WORDS: Final = frozenset({"Lu", "Ll", "Lt", "Lm", "Lo", "Nd", "Nl", "Mc"})
_CIRCLED: Final = (
    *(range(0x24B6, 0x24EA), range(0x1F130, 0x1F14A)),
    *(range(0x1F150, 0x1F16A), range(0x1F170, 0x1F18A)),
)


def is_mark(character: str) -> bool:
    """Return whether a character has no width. Such a character belongs to the one before it."""
    # Below U+0300, only the soft hyphen is a format character, and it has a width.
    if character < "\u0300" or character in _SHOWN:
        return False
    return unicodedata.category(character) in _WITHOUT_WIDTH or any(
        ord(character) in jamo for jamo in _JAMO
    )


@lru_cache(4_096)
def is_in_word(character: str) -> bool:
    """Return whether a character is a part of a word, by the rules of the C library."""
    if character.isascii():
        return character.isalnum()
    return unicodedata.category(character) in _IN_WORDS or any(
        ord(character) in circled for circled in _CIRCLED
    )
