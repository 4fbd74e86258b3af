"""Replaces the extended globs of bash, such as ``!(a|b)``, by other globs and braces. Pure.

The result matches all paths that the extended glob matches, and perhaps more. So the guard misses
no dangerous path.
"""

from __future__ import annotations

import re
from typing import Final

# The name of a variable that does not exist. The guard writes an expansion of this variable in
# place of an extended glob with substitutions. The expansion is always empty, but the guard follows
# the substitutions in it.
FOLLOWED: Final = "__shelld_glob"

_ALTERNATIVES: Final = re.compile(r"""(?>(?:[\w.*?|\[\]/:@%^+-]|"[^"$`\\]*+"|'[^']*+')+)""")
_TOKEN: Final = re.compile(r"""\||"[^"]*+"|'[^']*+'|[^|"']++""")


# An extended glob in a value. The glob must not contain another extended glob.
_IN_VALUE: Final = re.compile(r"([!@+*?])\(([^()\s]*+)\)")
_MAX_ALTERNATIVES: Final = 64


def alternatives(value: str) -> str:
    """Replace each extended glob in a value by another glob or by several words."""
    return value if "(" not in value else re.sub(r"\S++", _as_words, value)


def _as_words(match: re.Match[str]) -> str:
    words = [""]
    parts = _IN_VALUE.split(match[0])
    for text, kind, content in zip(parts[::3], [*parts[1::3], ""], [*parts[2::3], ""], strict=True):
        words = [word + text for word in words]
        if kind in ("!", "+", "*"):
            words = [f"{word}*" for word in words]
        elif kind:
            names = content.split("|") + [""] * (kind == "?")
            words = [word + name for word in words for name in names]
        if len(words) > _MAX_ALTERNATIVES:
            return "*"
    return " ".join(words)


def simplified(kind: str, content: str, substitutions: str, *, is_assigned: bool) -> str:
    """Return a glob or braces that replace the extended glob ``kind(content)``.

    `substitutions` are the substitutions in the content, which bash always runs. `is_assigned` is
    true if the glob is in an assignment, in which bash does not expand braces.
    """
    if substitutions:
        return f"*${{{FOLLOWED}+{substitutions}}}"
    if kind in "!+*" or is_assigned or not _ALTERNATIVES.fullmatch(content):
        return "*"
    if "|" in content and "[" in content:
        # Inside of brackets, ``|`` is an ordinary character, and does not separate alternatives.
        return "*"
    names = [""]
    for token in _TOKEN.findall(content):
        if token == "|":
            names.append("")
        else:
            names[-1] += token
    if kind == "?":
        names.insert(0, "")
    return names[0] if len(names) == 1 else f"{{{','.join(names)}}}"
