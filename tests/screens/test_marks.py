"""The characters that join the character before them."""

from __future__ import annotations

import unicodedata

import pytest

from shelld.screens.marks import Marks

# Format characters that take a column in every terminal, such as the Arabic sign for a number.
SHOWN = "\u0600\u0601\u0602\u0603\u0604\u0605\u06dd\u070f\u0890\u0891\u08e2\U000110bd\U000110cd"


def all_of(marks: Marks, text: str) -> str:
    return marks.join(text) + marks.release()


@pytest.mark.slow
def test_every_mark_joins_and_nothing_else_does() -> None:
    characters = [*map(chr, range(0x300, 0x20000)), *map(chr, range(0xE0000, 0xE0200))]
    expected = [
        character
        for character in characters
        if (unicodedata.category(character) in {"Mn", "Me", "Cf"} and character not in SHOWN)
        or "\u1160" <= character < "\u1200"
        or "\ud7b0" <= character < "\ud800"
    ]
    marks = Marks(lambda _: 1)
    assert [each for each in characters if len(all_of(marks, "e" + each)) == 1] == expected


@pytest.mark.slow
def test_marks_are_dropped_once_no_stand_in_is_free() -> None:
    marks = Marks(lambda _: 1)
    assert all_of(marks, "a\u0300") != "a"
    letters = map(chr, range(0x4E00, 0x9E00))
    all_of(marks, "".join(f"{each}\u0300{each}\u0301{each}\u0302{each}\u0303" for each in letters))
    assert all_of(marks, "a\u0300") != "a"
    assert all_of(marks, "b\u0300") == "b"
