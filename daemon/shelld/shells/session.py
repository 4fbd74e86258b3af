"""What a session is: a name that shells belong to, and the place its commands start from.

Every session starts from the daemon's own environment and working directory, and so does each of
its commands: a session groups shells, it does not carry state from one command to the next.
"""

from __future__ import annotations

import os

from msgspec import Struct

DEFAULT_SESSION = "main"


class Session(Struct):
    """`cwd` is absolute; `env` is the complete environment, as bytes."""

    name: str | None
    cwd: str
    env: dict[bytes, bytes]

    def resolve(self, cwd: str | None) -> str:
        """Return the working directory of a command; a relative one is the session's."""
        return self.cwd if cwd is None else os.path.join(self.cwd, cwd)

    def environment(self, changes: dict[str, str | None] | None) -> dict[bytes, bytes]:
        """Return the environment of a command: the session's with `changes`, None removing."""
        if not changes:
            return self.env
        env = dict(self.env)
        for name, value in changes.items():
            key = os.fsencode(name)
            if value is None:
                env.pop(key, None)
            else:
                env[key] = os.fsencode(value)
        return env
