"""Chooses which variables of the daemon's environment a new session gets. Pure.

So secrets need not reach programs that print or send their environment. But a command that may read
the daemon's files in /proc can still read the secrets there.
"""

from __future__ import annotations

import re
from fnmatch import translate
from typing import Final, NamedTuple

from shelld.process.options import EnvironmentMode

# The variables that programs need to find their files, to name their user, and to write in the
# user's language.
CORE: Final = (
    *("HOME", "LANG", "LANGUAGE", "LC_*", "LOGNAME", "PATH", "PWD", "SHELL", "SHLVL", "TEMP"),
    *("TERM", "TMP", "TMPDIR", "TZ", "USER"),
)


class EnvironmentRules(NamedTuple):
    """The rules of one session.

    `remove` and `keep` are patterns for names, such as `*_TOKEN`. Case does not matter.

    A session always takes a variable that matches `keep`. It takes no other variable that matches
    `remove`. In the mode `core`, all other variables must also match `CORE`.
    """

    mode: EnvironmentMode = "inherit"
    remove: tuple[str, ...] = ()
    keep: tuple[str, ...] = ()

    def apply(self, env: dict[bytes, bytes]) -> dict[bytes, bytes]:
        """Return the variables that a session takes from `env`."""
        if self.mode == "inherit" and not self.remove:
            return env
        taken = _matching(CORE if self.mode == "core" else ("*",))
        removed, kept = _matching(self.remove), _matching(self.keep)
        return {
            name: value
            for name, value in env.items()
            if kept.fullmatch(name) or (taken.fullmatch(name) and not removed.fullmatch(name))
        }


INHERIT: Final = EnvironmentRules()


def _matching(patterns: tuple[str, ...]) -> re.Pattern[bytes]:
    """Return one regular expression, which matches a name if any of the patterns matches it."""
    expressions = (translate(pattern).encode() for pattern in patterns)
    # Without patterns, the regular expression must match nothing.
    return re.compile(b"|".join(expressions) or b"(?!)", re.IGNORECASE)
