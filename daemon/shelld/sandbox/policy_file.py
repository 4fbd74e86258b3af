"""Loads a policy from a TOML file, whose keys are the members of a policy.

```toml
mode = "workspace"
write = [".", "~/.cache/pip"]
deny_write = [".git/hooks"]
deny_read = ["~/.ssh"]
network = "hosts"
hosts = ["pypi.org:443", "*.github.com"]
```

`load` rejects an invalid file and reports the line.
"""

from __future__ import annotations

from pathlib import Path

from shelld.process.toml_file import read_toml
from shelld_protocol.sandboxes import SandboxPolicy


def load(path: Path) -> SandboxPolicy:
    """Return the policy in a file. Raises `TomlError` if it is invalid or unreadable."""
    no_file = f"no such policy or file: {path}"
    file = read_toml(path, no_file, f"cannot read the policy of the sandbox: {path}")
    return file.converted(SandboxPolicy)
