"""Joins characters without a width to the character before them, which the emulator cannot do.

Characters without a width are called marks here. The emulator gives every character at least one
column. So the emulator gets a stand-in for a character and its marks. The stand-in is one character
of the same width, from a range that hardly any program uses.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from shelld.terminals.characters import is_mark

# The ranges of the stand-ins, by their width. Width 1: characters for private use. Width 2: wide
# characters that are not assigned. If a program writes a character of these ranges, this character
# also gets a stand-in.
_STAND_INS: Final = {1: range(0x100000, 0x10FFFE), 2: range(0x32400, 0x3FFFE)}
# If a character has more marks than this, the further marks are dropped.
_MAX_MARKS: Final = 16
# Matches a character that may be a mark or a stand-in. The excluded ranges contain neither marks
# nor stand-ins. They are Latin, symbols, box drawing, Chinese, Japanese and Korean.
_UNUSUAL: Final = re.compile(
    r"[^\0-\u02ff\u2070-\u20cf\u2100-\u2cee\u3030-\u3098\u309b-\ua66e\uac00-\ud7af]"
)
_CONTROLS: Final = r"\x00-\x1f\x80-\x9f"
# Matches an escape sequence that lacks only its last character.
_SEQUENCE: Final = re.compile(r"(?:\x1b\[|\x9b)[ -?]*|\x1b[ -/]*")
_MAX_SEQUENCE: Final = 256
# Terminals ignore this character.
_DELETE: Final = "\x7f"


class Marks:
    """Joins the marks in the output of one program.

    `width` returns how many columns the emulator gives a character.
    """

    def __init__(self, width: Callable[[str], int]) -> None:
        self._width = width
        self._free = {cols: iter(places) for cols, places in _STAND_INS.items()}
        self._stand_ins: dict[str, str] = {}
        # Maps each stand-in to its text, in the form for `str.translate`.
        self._texts: dict[int, str] = {}
        # The last character and its marks, held back because more marks may follow.
        self._held = ""
        # The last characters before `_held`. An escape sequence may begin there.
        self._before = ""

    def join(self, text: str) -> str:
        """Return text for the emulator. Hold back the last character, because marks may follow."""
        text = self._held + (text.replace(_DELETE, "") if _DELETE in text else text)
        last = max(len(text) - 1, 0)
        while last and is_mark(text[last]):
            last -= 1
        self._held = text[last : last + 1 + _MAX_MARKS]
        return self._joined(text[:last])

    def release(self) -> str:
        """Return the text that was held back.

        If more combining marks for the last character of this text come later, they are dropped.
        """
        held, self._held = self._held, ""
        return self._joined(held)

    def shown(self, line: str) -> str:
        """Return a line of the emulator, with each stand-in replaced by its text."""
        return line.translate(self._texts) if self._texts else line

    def _joined(self, text: str) -> str:
        before = self._before
        self._before = (before + text)[-_MAX_SEQUENCE:]
        # Return early, because ordinary output must be processed quickly.
        if text.isascii() or not _UNUSUAL.search(text):
            return text
        if not (pattern := _pattern(set(text))):
            return text

        def joined(match: re.Match[str]) -> str:
            whole, start = match[0], match.start()
            if is_mark(whole[0]):
                return ""
            earlier = text[max(0, start - _MAX_SEQUENCE) : start]
            if start < _MAX_SEQUENCE:
                earlier = before + earlier
            begun = max(earlier.rfind("\x1b"), earlier.rfind("\x9b"))
            if begun >= 0 and _SEQUENCE.fullmatch(earlier, begun):
                # The end of an escape sequence is not shown, so it has no marks.
                return whole[0]
            return self._stand_in(whole[: 1 + _MAX_MARKS])

        return re.sub(pattern, joined, text)

    def _stand_in(self, text: str) -> str:
        """Return the stand-in for a character and its marks.

        If no stand-in is free, return the character.
        """
        if text not in self._stand_ins:
            place = next(self._free[self._width(text[0])], None)
            if place is None:
                return text[0]
            self._stand_ins[text] = chr(place)
            self._texts[place] = text
        return self._stand_ins[text]


def _pattern(characters: set[str]) -> str:
    """Some of these characters may be stand-ins or marks. Return a pattern that matches them, or ""
    if there are none.
    """
    marks = "".join(sorted(filter(is_mark, characters)))
    reserved = "".join(sorted(filter(_is_stand_in, characters)))
    patterns = [rf"[^{_CONTROLS}{marks}][{marks}]+|[{marks}]+"] if marks else []
    return "|".join([*patterns, f"[{reserved}]"] if reserved else patterns)


def _is_stand_in(character: str) -> bool:
    return any(ord(character) in places for places in _STAND_INS.values())
