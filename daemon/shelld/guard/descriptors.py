"""Gives a number to each descriptor that bash opens for ``{name}<file``. Pure."""

from __future__ import annotations

import re
from typing import Final

# The number is the digit 1, followed by three digits for each character of the name.
_NUMBERED: Final = re.compile(r"1((?:\d{3})+)")


def descriptor_for(name: str) -> str:
    """Return the number that stands for the descriptor of ``{name}<file``.

    Bash chooses a free descriptor and stores its number in the variable. The guard does not know
    this number, and uses a number that encodes the name of the variable. So two variables never get
    the same number, and `name_of_descriptor` can find the variable.
    """
    return "1" + "".join(f"{ord(character):03}" for character in name)


def name_of_descriptor(number: str) -> str:
    """Return the name from which `descriptor_for` made a number, or "" for any other number."""
    match = _NUMBERED.fullmatch(number)
    if match is None:
        return ""
    digits = match[1]
    return "".join(chr(int(digits[at : at + 3])) for at in range(0, len(digits), 3))
