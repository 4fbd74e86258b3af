"""Remembers the configuration that a new daemon needs after the old one has died. Pure.

Owns the configuration that the client has made, and the last known directory of each session. Never
starts a daemon; `AsyncClient` does this. Invariant: each target and each session has one
configuration.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from shelld_client import calls
from shelld_client.calls import AnyBashResult, Call
from shelld_client.errors import DaemonExited
from shelld_client.results import decode_or_none
from shelld_protocol.structs import DEFAULT_SESSION

T = TypeVar("T")


class _Ended(msgspec.Struct, rename={"session_cwd": "sessionCwd"}):
    """The members of the result of a command that are needed here."""

    bash_id: str = ""
    session_cwd: str | None = None


class Restart(NamedTuple):
    """Describes the start of a new daemon. `cause` is the error that says how the last one died.

    `directories` maps each session that was created again to its directory. The variables and
    functions of these sessions are lost. All other sessions are lost.
    """

    cause: DaemonExited
    directories: Mapping[str, str]


# The methods about a session that take the session's target.
_ABOUT_SESSIONS: Final = frozenset({"bash", "close_session", "configure_session", "get_session"})


class Memory:
    """Holds the targets, the settings of sessions, and where sessions are: their targets, and the
    directories that results reported.
    """

    def __init__(self) -> None:
        # The configuring calls by kind and name. A target comes before the sessions at this target.
        self._configured: dict[tuple[str, str], Call[Any]] = {}
        self._directories: dict[str, str] = {}
        # The targets of the sessions that a command has begun there.
        self._targets: dict[str, str] = {}

    def with_target(self, call: Call[T]) -> Call[T]:
        """Return the call with the target of its session, if the call names none.

        A new daemon does not know the target of a session that a command has begun. Without the
        target, the session's next command would run at this daemon.
        """
        target = self._targets.get(call.params.get("session") or "")
        if target is None or call.method not in _ABOUT_SESSIONS:
            return call
        named = call.params.get("target")
        return call._replace(params={**call.params, "target": named or target})

    def note(self, call: Call[Any], result: bytes) -> None:
        """Record what a call and its result say about the configuration and the directories.

        Call this in the order in which the results arrive, because a later command may have changed
        the directory again.
        """
        params = call.params
        if call.method == "add_target":
            self._configured["target", params["name"]] = call
        elif call.method == "configure_session":
            # A later call replaces all settings of an earlier call, as in the daemon. But it may
            # leave out the session's target, which then stays.
            earlier = self._configured.pop(("session", params["session"]), call)
            settings = {"target": earlier.params.get("target"), **params}
            self._configured["session", params["session"]] = call._replace(params=settings)
        elif call.method == "remove_target":
            self._forget_target(params["name"])
        elif call.method == "close_session":
            self._configured.pop(("session", params["session"]), None)
            self._directories.pop(params["session"], None)
            self._targets.pop(params["session"], None)
        elif call.method == "bash":
            ended = decode_or_none(_Ended, result)
            # An id without a colon names a shell of this daemon. With a colon, the shell and its
            # directory are at a target.
            if ended is None:
                return
            session: str | None = params.get("session", DEFAULT_SESSION)
            target = ended.bash_id.rpartition(":")[0]
            if target and session not in (None, DEFAULT_SESSION):
                self._targets[session] = target
            elif not target and session is not None and ended.session_cwd:
                self._directories[session] = ended.session_cwd

    def _forget_target(self, name: str) -> None:
        """Forget a target, the targets behind it, and the sessions at all these targets."""

        def is_gone(target: str) -> bool:
            return f"{target}:".startswith(f"{name}:")

        self._configured = {
            (kind, each): call
            for (kind, each), call in self._configured.items()
            if not is_gone(each if kind == "target" else call.params.get("target") or "")
        }
        self._targets = {
            session: target for session, target in self._targets.items() if not is_gone(target)
        }

    @property
    def configured(self) -> Sequence[Call[Any]]:
        """The calls that configure the new daemon like the old one."""
        return tuple(self._configured.values())

    @property
    def directories(self) -> Mapping[str, str]:
        return dict(self._directories)


def enter(session: str, directory: str) -> Call[AnyBashResult]:
    """Return the call that creates a session in a directory, if this directory still exists."""
    return calls.bash(f"cd -- {shlex.quote(directory)}", {"session": session})
