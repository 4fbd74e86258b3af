"""Parses the numbers on a command line. Imports nothing that takes time."""

from __future__ import annotations

from collections.abc import Callable


def number_of(text: str, minimum: int, maximum: int, factor: int = 1) -> int:
    """Return the number in `text`, multiplied by `factor`.

    Raises ValueError if `text` has other characters than ASCII digits, or if the result is out of
    range.
    """
    # int() also accepts signs, spaces, underscores and non-ASCII digits.
    if not (text.isascii() and text.isdigit()):
        raise ValueError
    value = int(text) * factor
    if not minimum <= value <= maximum:
        raise ValueError
    return value


def integer_type(minimum: int, maximum: int) -> Callable[[str], int]:
    """Return a function that parses an integer in this range."""

    def integer(text: str) -> int:
        return number_of(text, minimum, maximum)

    integer.__name__ = f"integer from {minimum} to {maximum}"
    return integer
