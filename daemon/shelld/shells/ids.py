"""Shell ids: never reused, and recognised without a list.

``shell_``, a count in hexadecimal, and eight check digits that depend on this process. Whether an
unknown id was ever given can thus be told from the id itself.
"""

from __future__ import annotations

import os
import zlib
from typing import Final

_PREFIX: Final = "shell_"
_CHECK_LENGTH: Final = 8
_MAX_LENGTH: Final = 40


class ShellIds:
    """`given` is how many there are so far."""

    def __init__(self) -> None:
        self.given = 0
        self._salt = os.urandom(8)

    def next(self) -> str:
        """Return an id that no shell has had."""
        self.given += 1
        number = f"{self.given:x}"
        return f"{_PREFIX}{number}{self._check_digits(number)}"

    def was_given(self, shell_id: str) -> bool:
        """Whether `next` has returned it."""
        number = shell_id.removeprefix(_PREFIX)[:-_CHECK_LENGTH]
        digits = shell_id[-_CHECK_LENGTH:]
        return len(shell_id) < _MAX_LENGTH and bool(number) and digits == self._check_digits(number)

    def _check_digits(self, number: str) -> str:
        # Not a secret: it only distinguishes ids that were given out from invented ones.
        return f"{zlib.crc32(self._salt + number.encode()):08x}"
