"""Tells how to start another process of this shelld. Imports nothing that takes time."""

from __future__ import annotations

import os
import sys

import shelld


def is_bundled() -> bool:
    """Return whether this process runs from a bundle.

    A bundle starts Python with -I and -S. An installed shelld could not be imported with -S.
    """
    return bool(sys.flags.isolated and sys.flags.no_site)


def own_command() -> list[str]:
    """Return the command that starts the same shelld with the same Python, without arguments."""
    if not is_bundled():
        # Without -P, Python would import modules from the working directory.
        return [sys.executable, "-P", "-m", "shelld"]
    from shelld.targets.bundle_main import START  # noqa: PLC0415

    directory = os.path.dirname(os.path.dirname(os.path.abspath(shelld.__file__)))
    return [sys.executable, "-I", "-S", "-c", START, directory]
