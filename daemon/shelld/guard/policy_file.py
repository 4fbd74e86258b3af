"""The rules of those who run the daemon, from a TOML file: what else to block, what not to.

```toml
disable = ["mv-system"]            # rules that do not apply here
allow = ["mkfs.ext4 disk.img"]     # commands that may run, as patterns of the whole text

[[block]]
name = "no-force-push"
program = "git"
arguments = ["push", "--force*"]   # each a pattern that one of the arguments has to match
reason = "it rewrites what others have"
```

A file that is broken is refused, with its line.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import msgspec

from shelld.guard.policy import Policy
from shelld.guard.rules import RULES


class PolicyError(Exception):
    """The text is for who starts the daemon: what is wrong, and in which line of the file."""


def load(path: Path) -> Policy:
    """Return the policy of a file. Raises `PolicyError`, also if it cannot be read."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        raise PolicyError("cannot read the rules of the guard") from None
    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        line = re.search(r"at line (\d+)", str(error))
        number = int(line[1]) if line else text.count("\n") + 1
        raise PolicyError(f"{path}:{number}: no valid TOML") from None
    try:
        policy = msgspec.convert(content, Policy)
    except msgspec.ValidationError as error:
        where = re.search(r"`\$\.?(\w+)", str(error)) or re.search(r"field `(\w+)`", str(error))
        key = where[1] if where else ""
        reason = str(error).partition(" - at ")[0]
        raise PolicyError(f"{path}:{_line_of(text, content, key)}: {reason}") from None
    for name in sorted(policy.disable - RULES):
        raise PolicyError(f"{path}:{_line_of(text, content, 'disable')}: no such rule: {name}")
    return policy


def _line_of(text: str, content: dict[str, Any], key: str) -> int:
    """Return the line that a key is in, or the first."""
    unknown = [name for name in content if name not in Policy.__struct_fields__]
    for name in (key, *unknown):
        for number, line in enumerate(text.splitlines(), 1):
            if name and re.match(rf"\s*\[*\s*{re.escape(name)}\b", line):
                return number
    return 1
