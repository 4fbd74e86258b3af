"""The characters that stand for more than text in a field: of a private range of Unicode.

`UNKNOWN` is any text, and `ANY`, `ONE` and `SET` are ``*``, ``?`` and ``[`` that bash would match
file names with. Quoted or escaped ones are the characters themselves.
"""

from __future__ import annotations

import re
from typing import Final

UNKNOWN: Final = "\ue000"
ANY: Final = "\ue001"
ONE: Final = "\ue002"
SET: Final = "\ue003"
# Between the fields of "$@".
BREAK: Final = "\ue004"

GLOBS: Final = {"*": ANY, "?": ONE, "[": SET}
ACTIVE: Final = {ord(written): active for written, active in GLOBS.items()}
_ALL: Final = re.compile("[\ue000-\ue004]")
_PLAIN: Final = str.maketrans({ANY: "*", ONE: "?", SET: "["})


def cleaned(text: str) -> str:
    """Return text from outside, in which such a character would be no more than itself."""
    return _ALL.sub("?", text)


def plain(field: str) -> str:
    """Return a field with its globs as the characters they were written with."""
    return field.translate(_PLAIN)
