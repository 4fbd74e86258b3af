"""Programs in their own mount namespace, where they see different files than the rest of the
machine.
"""

from __future__ import annotations

import subprocess

import pytest


def run_after(script: str, *arguments: str) -> list[str]:
    """Return the beginning of a command line. In a new mount namespace, the command line runs
    `script`, and then the command that the caller appends.
    """
    prefix = ["unshare", "-m", "/bin/sh", "-c", f'{script} && shift {len(arguments)} && exec "$@"']
    prefix += ["sh", *arguments]
    if subprocess.run([*prefix, "true"], capture_output=True, check=False).returncode:
        pytest.skip("needs a mount namespace in which this can be mounted")
    return prefix
