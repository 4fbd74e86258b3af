"""Programs in a mount namespace of their own, which sees other files than the machine."""

from __future__ import annotations

import subprocess

import pytest


def run_after(script: str, *arguments: str) -> list[str]:
    """Return the start of a command line: run `script` and the rest in a new mount namespace."""
    prefix = ["unshare", "-m", "/bin/sh", "-c", f'{script} && shift {len(arguments)} && exec "$@"']
    prefix += ["sh", *arguments]
    if subprocess.run([*prefix, "true"], capture_output=True, check=False).returncode:
        pytest.skip("needs a mount namespace in which this can be mounted")
    return prefix
