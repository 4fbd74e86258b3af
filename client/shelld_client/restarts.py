"""What a client remembers for the next daemon, after a daemon has died. Pure.

Owns what the client has configured, and the last known directory of each session. Never starts
anything: `AsyncClient` does. Invariant: each target and each session has one configuration.
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
        # By method and name. A target comes before the sessions at this target.
        self._configured: dict[tuple[str, str], Call[Any]] = {}
        self._directories: dict[str, str] = {}

    def note(self, call: Call[Any], result: object) -> None:
        """Take a call and its result."""
        params = call.params
        if call.method == "add_target":
            self._configured["target", params["name"]] = call
        elif call.method == "configure_session":
            # The daemon, too, forgets all that an earlier call has set.
            self._configured.pop(("session", params["session"]), None)
            self._configured["session", params["session"]] = call
        elif call.method == "remove_target":
            self._forget_target(params["name"])
        elif isinstance(result, CloseSessionResult):
            self._configured.pop(("session", result.session), None)
            self._directories.pop(result.session, None)
        elif isinstance(result, BashResult) and result.session_cwd and ":" not in result.bash_id:
            # An id with a colon names a shell at a target, and the directory is there, too.
            session: str = params.get("session", DEFAULT_SESSION)
            self._directories[session] = result.session_cwd

    def _forget_target(self, name: str) -> None:
        """Forget a target, the targets behind it, and the sessions at all of them."""
        self._configured = {
            key: call
            for key, call in self._configured.items()
            if key != ("target", name)
            and not f"{call.params.get('target') or ''}:".startswith(f"{name}:")
        }

    @property
    def configured(self) -> Sequence[Call[Any]]:
        """The calls that configure the next daemon as the last one."""
        return tuple(self._configured.values())

    @property
    def directories(self) -> Mapping[str, str]:
        return dict(self._directories)


def enter(session: str, directory: str) -> Call[AnyBashResult]:
    """Return the call that creates a session in a directory, if the directory still exists."""
    return calls.bash(f"cd -- {shlex.quote(directory)}", {"session": session})
