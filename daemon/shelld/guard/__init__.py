"""Is this command dangerous? Asked before a command runs, and instead of it in a dry run.

Pure: a verdict is made from the text of a command and what its shell would know; nothing is run or
looked up. What is followed is what bash would do, not what the text looks like: words are expanded,
wrappers taken off, scripts within scripts followed. Text that is only data stays that.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec import Struct

# What must not run, in its plainest form. The rules are about what commands do, not how they look.
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


class StartState(Struct, frozen=True):
    """What the shell of a command would know.

    `env` is what it is started with. `script` makes the rest of its state: other variables,
    functions, aliases. `stdin` is what the command reads.
    """

    cwd: str
    env: Mapping[str, str]
    script: str = ""
    stdin: str = ""
