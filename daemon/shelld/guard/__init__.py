"""The guard judges whether a command is dangerous.

The daemon asks the guard before it runs a command. In a dry run, the daemon only asks the guard,
and does not run the command.

The guard is pure: it runs nothing and reads no files. A verdict depends only on the text of the
command and the state of its shell. The guard follows what bash would do with the text. It expands
words, removes wrappers such as ``sudo``, and follows scripts within scripts. If a text is only
data, the guard does not treat it as a command.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec import Struct

# Examples of commands that must not run, in their plainest form. The rules also block other
# spellings of these commands, because the rules judge effects.
DANGEROUS_PATTERNS: Final = (
    "rm -rf /",
    "rm -rf /*",
    "mkfs.*",
    "dd if=* of=/dev/sd*",
    "> /dev/sd*",
    "chmod -R 777 /",
    ":(){:|:&};:",
    "mv / *",
    "chown -R * /",
)

# The guard processes the state of a large session in chunks. A chunk has at most `CHUNK_CHARACTERS`
# characters and at most `CHUNK_PARTS` parts.
CHUNK_CHARACTERS: Final = 32 * 1024
CHUNK_PARTS: Final = 1_000


class StartState(Struct, frozen=True):
    """The state of the shell that would run a command.

    `env` is the environment of the shell. `script` sets the rest of the shell's state: other
    variables, functions, aliases, and the directory stack. `stdin` is the input of the command, or
    None if unknown. `home` is the home directory of the user, or None if unknown. The guard uses
    `home` only if `env` has no HOME. `functions` names the functions that the shell exports to the
    commands that it starts. `parts` are scripts that run before `script`. If the state is larger
    than one chunk, it must be split into parts, or the guard cannot follow all of it. If the guard
    cannot follow a part, the variables that this part sets are unknown.
    """

    cwd: str
    env: Mapping[str, str]
    script: str = ""
    stdin: str | None = ""
    home: str | None = None
    functions: tuple[str, ...] = ()
    parts: tuple[str, ...] = ()
    expanded: tuple[str, ...] = ()
