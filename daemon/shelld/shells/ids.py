"""Makes shell ids. An id is never reused. This module recognises its own ids without a list.

An id is ``shell_``, a count in hexadecimal, and eight check digits that depend on this process. So
the digits show whether this process has ever given out the id.
"""

from __future__ import annotations

import os
import zlib
from typing import Final

_PREFIX: Final = "shell_"
_CHECK_LENGTH: Final = 8
_MAX_LENGTH: Final = 40


class ShellIds:
    """Makes ids for one daemon. `given` is the number of ids that `next` has returned."""

    def __init__(self) -> None:
        self.given = 0
        self._salt = os.urandom(8)

    def next(self) -> str:
        """Return a new id."""
        self.given += 1
        number = f"{self.given:x}"
        return f"{_PREFIX}{number}{self._check_digits(number)}"

    def was_given(self, shell_id: str) -> bool:
        """Whether `next` has returned this id."""
        number = shell_id.removeprefix(_PREFIX)[:-_CHECK_LENGTH]
        digits = shell_id[-_CHECK_LENGTH:]
        return len(shell_id) < _MAX_LENGTH and bool(number) and digits == self._check_digits(number)

    def _check_digits(self, number: str) -> str:
        # The digits need not be secret, because they only distinguish real ids from invented ids.
        return f"{zlib.crc32(self._salt + number.encode()):08x}"
