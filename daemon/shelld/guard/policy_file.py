"""Loads the rules of the daemon's operator from a TOML file: more commands to block or to allow.

```toml
disable = ["mv-system"]            # built-in rules to turn off
allow = ["mkfs.ext4 disk.img"]     # patterns for the whole text of a command

[[block]]
name = "no-force-push"
program = "git"
arguments = ["push", "--force*"]   # patterns; each must match one of the arguments
reason = "it rewrites what others have"
```

`load` rejects an invalid file and reports the line.
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
    """The message tells the operator what is wrong, and in which line of the file."""


def load(path: Path) -> Policy:
    """Return the policy in a file. Raises `PolicyError` if it is invalid or unreadable."""
    try:
        # Reading a FIFO or a device may never end.
        if not path.is_file():
            raise PolicyError("the rules of the guard are not in a file")
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
    """Return the line number of `key`, or else of an unknown key, or else 1."""
    unknown = [name for name in content if name not in Policy.__struct_fields__]
    for name in (key, *unknown):
        for number, line in enumerate(text.splitlines(), 1):
            if name and re.match(rf"\s*\[*\s*{re.escape(name)}\b", line):
                return number
    return 1
