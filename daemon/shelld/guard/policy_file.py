"""Loads the rules of the daemon's operator from a TOML file. The rules block or allow commands.

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

from pathlib import Path

from shelld.guard.policy import Policy
from shelld.guard.rules import RULES
from shelld.process.toml_file import TomlError, read_toml


def load(path: Path) -> Policy:
    """Return the policy in a file. Raises `TomlError` if the file is invalid or unreadable."""
    no_file = f"the rules of the guard are not a file: {path}"
    file = read_toml(path, no_file, f"cannot read the rules of the guard: {path}")
    policy = file.converted(Policy)
    for name in sorted(policy.disable - RULES):
        raise TomlError(f"{file.at('disable')}: no such rule: {name}")
    return policy
