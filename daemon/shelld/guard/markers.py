"""Characters with a special meaning in a field, from a private use area of Unicode.

`UNKNOWN` stands for any text. `ANY`, `ONE` and `SET` stand for active ``*``, ``?`` and ``[``, which
bash matches against file names. Quoted or escaped globs stay ordinary characters.
"""

from __future__ import annotations

import re
from typing import Final

UNKNOWN: Final = "\ue000"
ANY: Final = "\ue001"
ONE: Final = "\ue002"
SET: Final = "\ue003"
# Separates the fields of "$@".
BREAK: Final = "\ue004"
# Stands in an array for a member that ``unset`` has removed.
HOLE: Final = "\ue005"

GLOBS: Final = {"*": ANY, "?": ONE, "[": SET}
ACTIVE: Final = {ord(written): active for written, active in GLOBS.items()}
# Stands at the end of text that a program writes again and again, without end.
ENDLESS: Final = "\ue006"
_ALL: Final = re.compile("[\ue000-\ue006]")
_PLAIN: Final = str.maketrans({ANY: "*", ONE: "?", SET: "["})


def cleaned(text: str) -> str:
    """Return text from outside the guard, with any markers replaced by ``?``.

    In text from outside, these characters must have no special meaning.
    """
    return _ALL.sub("?", text)


def plain(field: str) -> str:
    """Return a field with its glob markers replaced by the original characters."""
    return field.translate(_PLAIN)
