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
from shelld_client.errors import (
    DaemonExited,
    InvalidParams,
    ResourceExhausted,
    SessionNotFound,
    ShellError,
    TargetLost,
)
from shelld_client.results import decode_or_none
from shelld_protocol.structs import DEFAULT_SESSION

T = TypeVar("T")


class _Ended(msgspec.Struct, rename={"session_cwd": "sessionCwd"}):
    """The members of a command's result that this module needs."""

    bash_id: str = ""
    session_cwd: str | None = None


class Restart(NamedTuple):
    """Describes the start of a new daemon. `cause` is the error that says how the previous daemon
    has died.

    `directories` has the directory of each session that was created again. The variables and
    functions of these sessions are lost. All other sessions are lost.
    """

    cause: DaemonExited
    directories: Mapping[str, str]


# The methods that concern one session, and have a param for the target of this session.
_ABOUT_SESSIONS: Final = frozenset({"bash", "close_session", "configure_session", "get_session"})
# The methods in `_ABOUT_SESSIONS` that begin a session.
_BEGINNING: Final = frozenset({"bash", "configure_session"})


class Memory:
    """Holds the targets and the settings of sessions. For each session, also holds its target, and
    the directory that a result has reported.
    """

    def __init__(self) -> None:
        # The calls that have configured the daemon, by kind and name. The call that adds a target
        # comes before the calls about sessions at this target.
        self._configured: dict[tuple[str, str], Call[Any]] = {}
        self._directories: dict[str, str] = {}
        # For each session that a call has begun at a target, the name of this target.
        self._targets: dict[str, str] = {}

    def noted(self, call: Call[T]) -> Call[T]:
        """Return the call as it must be sent. When the answer arrives, this object records what it
        says.

        If the call names no target, the returned call has the target of its session, because a new
        daemon does not know this target. Without the target, the session's next command would run
        at this daemon.

        If the call begins a session at a target, record the target now, because the daemon does so,
        too. The call may be cancelled, or its command may be killed, but the session stays at the
        target.
        """
        is_first = False
        session, target = call.params.get("session"), call.params.get("target")
        if call.method in _ABOUT_SESSIONS and isinstance(session, str):
            known = self._targets.get(session)
            if known is not None and target is None:
                call = call._replace(params={**call.params, "target": known})
            elif known is None and isinstance(target, str) and _begins(call):
                self._targets[session] = target
                is_first = True

        def note(answer: bytes | ShellError) -> None:
            if isinstance(answer, ShellError):
                self._note_error(call, answer, is_first=is_first)
            else:
                self._note(call, answer)

        return call._replace(note=note)

    def _note_error(self, call: Call[Any], error: ShellError, *, is_first: bool) -> None:
        is_refused = isinstance(error, InvalidParams | ResourceExhausted)
        is_unsent = isinstance(error, TargetLost) and not error.maybe_started
        is_unknown = call.method == "close_session" and isinstance(error, SessionNotFound)
        if is_unknown or (is_first and (is_refused or is_unsent)):
            self._targets.pop(call.params["session"], None)

    def _note(self, call: Call[Any], result: bytes) -> None:
        """Record what a call and its result say about the configuration and the directories.

        Call this method in the order in which the results arrive, because a later command may have
        changed the directory again.
        """
        params = call.params
        if call.method == "add_target":
            self._configured["target", params["name"]] = call
        elif call.method == "configure_session":
            # A later call replaces all settings of an earlier call, as in the daemon. But a call
            # without a target does not change the target.
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
            if target and session is not None and _begins(call):
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
        """The calls that give the new daemon the configuration of the old one."""
        return tuple(self._configured.values())

    @property
    def directories(self) -> Mapping[str, str]:
        return dict(self._directories)


def _begins(call: Call[Any]) -> bool:
    """Return whether a call would begin its session at a target, if the session is new."""
    params = call.params
    starts_nothing = params.get("dry_run") or params.get("key_must_exist")
    is_default = params.get("session", DEFAULT_SESSION) == DEFAULT_SESSION
    return call.method in _BEGINNING and not is_default and not starts_nothing


def enter(session: str, directory: str) -> Call[AnyBashResult]:
    """Return the call that creates a session in a directory, if this directory still exists."""
    return calls.bash(f"cd -- {shlex.quote(directory)}", {"session": session})
