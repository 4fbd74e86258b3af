"""Expands the variables in a makefile as make does, if the makefile sets them. Pure."""

from __future__ import annotations

import re
from typing import Final

from shelld.guard.markers import UNKNOWN

_SET: Final = re.compile(r"^(?:export[ \t]++)?([A-Za-z_]\w*+)[ \t]*+[:?]{0,3}=[ \t]*+(.*)$", re.M)
# Matches a dollar for the shell (``$$``), a variable of the makefile, or an automatic variable such
# as ``$@`` and ``$<``. Automatic variables stand for the target or the sources of a rule.
_USED: Final = re.compile(r"\$\$|\$[({]([A-Za-z_]\w*+)[)}]|\$(?:[@<^+*?%]|\([@<^+*?%][DF]?\))")
# The maximum length of a chain of variables that refer to each other.
_MAX_NESTED: Final = 4
_MAX_EXPANDED: Final = 16 * 1024
# The maximum length of a value in characters. A longer value counts as unknown.
_MAX_VALUE: Final = 256


def with_variables(makefile: str) -> str:
    """Replace the variables in a makefile by their values.

    A variable that the makefile does not set may come from the environment. So the result refers to
    this variable in shell syntax.
    """
    values = {
        match[1]: match[2] if len(match[2]) <= _MAX_VALUE else UNKNOWN
        for match in _SET.finditer(makefile)
    }

    def one(match: re.Match[str]) -> str:
        name = match[1]
        if name is not None:
            return values.get(name, f"${{{name}}}")
        return match[0] if match[0] == "$$" else UNKNOWN

    for _ in range(_MAX_NESTED):
        expanded = _USED.sub(one, makefile)
        if expanded == makefile or len(expanded) > _MAX_EXPANDED:
            break
        makefile = expanded
    return makefile.replace("$$", "$")
