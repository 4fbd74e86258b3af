"""Defines characters of a private use area of Unicode that have a special meaning in a field.

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
# This marker separates the fields of "$@".
BREAK: Final = "\ue004"
# In an array, this marker takes the place of a member that ``unset`` has removed.
HOLE: Final = "\ue005"

GLOBS: Final = {"*": ANY, "?": ONE, "[": SET}
ACTIVE: Final = {ord(written): active for written, active in GLOBS.items()}
# This marker stands at the end of text that a program writes repeatedly, without end.
ENDLESS: Final = "\ue006"
_ALL: Final = re.compile("[\ue000-\ue006]")
_PLAIN: Final = str.maketrans({ANY: "*", ONE: "?", SET: "["})


def cleaned(text: str) -> str:
    """Replace all markers with ``?`` in a text that comes from outside the guard.

    Characters of such text must not have a special meaning in the guard.
    """
    return _ALL.sub("?", text)


def plain(field: str) -> str:
    """In a field, replace the glob markers with ``*``, ``?`` and ``[``."""
    return field.translate(_PLAIN)
