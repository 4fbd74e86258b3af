"""Numbers the descriptors that bash chooses for ``{name}<file``. Pure."""

from __future__ import annotations

import re
from typing import Final

# The characters of a name as numbers of three digits, behind a digit that is not 0.
_NUMBERED: Final = re.compile(r"1((?:\d{3})+)")


def descriptor_for(name: str) -> str:
    """Return the number that stands for the descriptor of ``{name}<file``.

    Bash chooses a free descriptor and stores it in the variable. This number contains the name, so
    no two variables get the same number, and `name_of_descriptor` finds the variable.
    """
    return "1" + "".join(f"{ord(character):03}" for character in name)


def name_of_descriptor(number: str) -> str:
    """Return the variable that `descriptor_for` gave a number to, "" if none."""
    match = _NUMBERED.fullmatch(number)
    if match is None:
        return ""
    digits = match[1]
    return "".join(chr(int(digits[at : at + 3])) for at in range(0, len(digits), 3))
