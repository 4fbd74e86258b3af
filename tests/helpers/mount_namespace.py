"""Programs in their own mount namespace, where they see different files than the rest of the
machine.
"""

from __future__ import annotations

import subprocess

import pytest


def run_after(script: str, *arguments: str) -> list[str]:
    """Return the first part of a command line, to which the caller appends a command. The command
    line makes a new mount namespace, and runs `script` and then the command in it.
    """
    prefix = ["unshare", "-m", "/bin/sh", "-c", f'{script} && shift {len(arguments)} && exec "$@"']
    prefix += ["sh", *arguments]
    if subprocess.run([*prefix, "true"], capture_output=True, check=False).returncode:
        pytest.skip("needs a mount namespace in which this can be mounted")
    return prefix
