"""What a client remembers for the next daemon, after a daemon has died. Pure.

Owns what the client has configured, and the last known directory of each session. Never starts
anything: `AsyncClient` does.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
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


class Memory:
    """The targets and the rules of sessions, and the directories that results have told."""

    def __init__(self) -> None:
        self._configured: list[Call[Any]] = []
        self._directories: dict[str, str] = {}

    def note(self, call: Call[Any], result: object) -> None:
        """Take a call and its result."""
        params = call.params
        if call.method in ("add_target", "configure_session"):
            self._configured.append(call)
        elif call.method == "remove_target":
            self._forget(params["name"], "name", "target")
        elif isinstance(result, CloseSessionResult):
            self._forget(result.session, "session")
            self._directories.pop(result.session, None)
        elif isinstance(result, BashResult) and result.session_cwd and ":" not in result.bash_id:
            # The ids of targets have a colon: such a session has its directory there.
            session: str = params.get("session", DEFAULT_SESSION)
            self._directories[session] = result.session_cwd

    def _forget(self, value: str, *names: str) -> None:
        self._configured = [
            call
            for call in self._configured
            if value not in (call.params.get(name) for name in names)
        ]

    @property
    def configured(self) -> Sequence[Call[Any]]:
        """The calls that configure the next daemon as the last one."""
        return tuple(self._configured)

    @property
    def directories(self) -> Mapping[str, str]:
        return dict(self._directories)


def enter(session: str, directory: str) -> Call[AnyBashResult]:
    """Return the call that creates a session in a directory, if the directory still exists."""
    return calls.bash(f"cd -- {shlex.quote(directory)}", {"session": session})
