"""Reads facts about the user who runs the daemon and its commands."""

from __future__ import annotations

import os
import pwd
from collections.abc import Mapping
from functools import cache


def home_without_variable(env: Mapping[str, str]) -> str | None:
    """Return the directory that bash uses for ``~`` if `env` has no HOME; otherwise None."""
    return None if "HOME" in env else home_of_user()


@cache
def home_of_user() -> str:
    """Return the home directory in the user database."""
    try:
        return pwd.getpwuid(os.getuid()).pw_dir
    except KeyError:
        # Bash also uses this directory for a user who is not in the database.
        return "/"
