"""Loads a policy from a TOML file, whose keys are the members of a policy.

```toml
mode = "workspace"
write = [".", "~/.cache/pip"]
deny_write = [".git/hooks"]
deny_read = ["~/.ssh"]
```

`load` rejects an invalid file and reports the line.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import msgspec

from shelld_protocol.sandboxes import SandboxPolicy


class PolicyFileError(Exception):
    """The message tells the operator what is wrong, and in which line of the file."""


def load(path: Path) -> SandboxPolicy:
    """Return the policy in a file. Raises `PolicyFileError` if it is invalid or unreadable."""
    try:
        # Reading a FIFO or a device may never end.
        if not path.is_file():
            raise PolicyFileError(f"no such policy or file: {path}")
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        raise PolicyFileError(f"cannot read the policy of the sandbox: {path}") from None
    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        line = re.search(r"at line (\d+)", str(error))
        number = int(line[1]) if line else text.count("\n") + 1
        raise PolicyFileError(f"{path}:{number}: no valid TOML") from None
    try:
        return msgspec.convert(content, SandboxPolicy)
    except msgspec.ValidationError as error:
        where = re.search(r"`\$\.?(\w+)", str(error)) or re.search(r"field `(\w+)`", str(error))
        reason = str(error).partition(" - at ")[0]
        number = _line_of(text, content, where[1] if where else "")
        raise PolicyFileError(f"{path}:{number}: {reason}") from None


def _line_of(text: str, content: dict[str, Any], key: str) -> int:
    """Return the line number of `key`, or else of an unknown key, or else 1."""
    unknown = [name for name in content if name not in SandboxPolicy.__struct_fields__]
    for name in (key, *unknown):
        for number, line in enumerate(text.splitlines(), 1):
            if name and re.match(rf"\s*\[*\s*{re.escape(name)}\b", line):
                return number
    return 1
