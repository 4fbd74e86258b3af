"""What a client remembers for the next daemon, after a daemon has died. Pure.

Owns the last known directory of each session. Never starts anything: `AsyncClient` does.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any, NamedTuple

from shelld_client import calls
from shelld_client.calls import AnyBashResult, Call
from shelld_client.errors import DaemonExited
from shelld_protocol.session_methods import CloseSessionResult
from shelld_protocol.shell_methods import BashResult
from shelld_protocol.structs import DEFAULT_SESSION


class Restart(NamedTuple):
    """A new daemon has replaced one that died of `cause`.

    `directories`: the sessions that were created again, each with its directory. Their variables
    and functions are lost, and so is every other session.
    """

    cause: DaemonExited
    directories: Mapping[str, str]


class Directories:
    """The directories of the sessions, as the results of their commands have told them."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}

    def note(self, call: Call[Any], result: object) -> None:
        """Take a call and its result."""
        if isinstance(result, CloseSessionResult):
            self._known.pop(result.session, None)
        elif isinstance(result, BashResult) and result.session_cwd is not None:
            session: str = call.params.get("session", DEFAULT_SESSION)
            self._known[session] = result.session_cwd

    @property
    def known(self) -> Mapping[str, str]:
        return dict(self._known)


def enter(session: str, directory: str) -> Call[AnyBashResult]:
    """Return the call that creates a session in a directory, if the directory still exists."""
    return calls.bash(f"cd -- {shlex.quote(directory)}", {"session": session})
