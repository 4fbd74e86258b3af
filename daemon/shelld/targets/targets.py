"""Records all targets by name, and the target of each session.

Owns the connections to the targets. Never makes a connection before a request needs it.

Every session except the default session belongs either to this daemon, or to the target that the
first request of the session has named. This daemon and each target have a default session of their
own.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Final

import anyio
from msgspec import Raw

from shelld.keeper.pool import RunnerPool
from shelld_protocol.errors import ErrorKind, RpcError, invalid_params, resource_exhausted
from shelld_protocol.structs import DEFAULT_SESSION
from shelld_protocol.target_methods import (
    MAX_TARGETS,
    TargetInfo,
    TargetState,
    is_target_name,
    problem_with_argv,
)

if TYPE_CHECKING:
    from shelld.targets.link import Link

MAX_SESSIONS: Final = 10_000

# A function that runs a task beside the tasks of the shells, and starts the task again if it fails.
Attend = Callable[[Callable[[], Awaitable[None]]], None]


# The name of a session at a target, and the name of a further target. If the target itself has the
# session, the second name is empty. Otherwise, the session is at the further target, behind the
# first one. The second name is then `a` or `a:b`, for example.
Place = tuple[str, str]


class Configured:
    """Holds the settings of a session at a target: the params of its last ``configure_session``.

    `link` is the connection over which the target got the settings. While one request sends the
    settings over another connection, other requests of the session wait for `lock`.
    """

    def __init__(self, params: bytes, link: Link) -> None:
        self.params = params
        self.link = link
        self.lock = anyio.Lock()


class Target:
    """Holds a target.

    `link` is the target's latest connection, which may be over. It is None before the first
    connection. `configured` has the settings of sessions.
    """

    def __init__(self, name: str, argv: Sequence[str], *, bootstrap: bool) -> None:
        self.name = name
        self.bootstrap = bootstrap
        self.argv = tuple(argv)
        self.link: Link | None = None
        self.configured: dict[Place, Configured] = {}

    def connected(self, pool: RunnerPool, attend: Attend) -> Link:
        """Return the link. Start a new link if there is none, or if the link is over. The link may
        still be connecting.

        Raises OSError or `RpcError`.
        """
        if self.link is None or self.link.is_over:
            # Few daemons have targets, so import this module only when a target connects.
            from shelld.targets.link import Link  # noqa: PLC0415

            link = Link(self.name, self.argv, pool, bootstrap=self.bootstrap)
            try:
                attend(link.run)
            except BaseException:
                # If no task runs the link, nothing would ever end its calls.
                link.close()
                raise
            self.link = link
        return self.link

    @property
    def is_connected(self) -> bool:
        return self.link is not None and not self.link.is_over and self.link.greeting is not None

    @property
    def info(self) -> TargetInfo:
        link = self.link
        state: TargetState = "unused"
        if link is not None:
            is_there = link.greeting is not None
            state = "lost" if link.is_over else "connected" if is_there else "connecting"
        argv = [word.encode("utf-8", "replace").decode() for word in self.argv]
        version = None if link is None or link.greeting is None else link.greeting.version
        return TargetInfo(self.name, argv, state, version, self.bootstrap)


class _RemoteSession:
    """Records at which target a session is, and which requests use the session.

    `last_use` is the number of the latest request that used the session. `creators` are the numbers
    of the requests in flight that may create the session. It is empty once the session may exist.
    If `target` itself has the session, `further` is empty. Otherwise, the session is at a target
    behind `target`, and `further` is the name of that target, such as `a` or `a:b`.
    """

    __slots__ = ("creators", "further", "last_use", "target")

    def __init__(self, target: str, further: str, use: int) -> None:
        self.target = target
        self.further = further
        self.last_use = use
        self.creators = {use}


class Targets:
    """Holds the targets. `is_local` returns whether this daemon has a session of that name."""

    def __init__(self, is_local: Callable[[str], bool]) -> None:
        self._is_local = is_local
        self._targets: dict[str, Target] = {}
        # The sessions that are at a target, by name.
        self._sessions: dict[str, _RemoteSession] = {}
        self._uses = 0

    @property
    def is_empty(self) -> bool:
        return not self._targets

    def add(self, name: str, argv: Sequence[str], *, bootstrap: bool = False) -> None:
        """Add a target. Raises `RpcError` (invalid_params, resource_exhausted)."""
        if not is_target_name(name):
            raise invalid_params("Invalid value for name: not a valid name for a target", "name")
        if (problem := problem_with_argv(argv)) is not None:
            raise invalid_params(f"Invalid value for argv: {problem}", "argv")
        if name in self._targets:
            raise invalid_params(f"Invalid value for name: target {name} exists already", "name")
        if len(self._targets) >= MAX_TARGETS:
            raise resource_exhausted("targets", f"There are {MAX_TARGETS} targets already")
        self._targets[name] = Target(name, argv, bootstrap=bootstrap)

    def get(self, name: str) -> Target | None:
        return self._targets.get(name)

    def all(self) -> Sequence[Target]:
        """Return the targets in the order in which they were added."""
        return tuple(self._targets.values())

    def list(self) -> list[TargetInfo]:
        """Return descriptions of the targets, in the order in which they were added."""
        return [target.info for target in self._targets.values()]

    async def remove(self, target: Target) -> bool:
        """Forget a target and its sessions, and end its daemon.

        Return True if the daemon has ended in time by itself. Otherwise, its process was killed, or
        there was no connection to it.
        """
        others = {
            name: session
            for name, session in self._sessions.items()
            if session.target != target.name
        }
        link = target.link
        try:
            self._targets.pop(target.name, None)
            self._sessions = others
            if link is None or link.is_over:
                return False
            return await link.end()
        except BaseException:
            # Nobody else knows this link, so nobody else would cut it.
            if link is not None:
                link.cut()
            raise

    def hang_up(self) -> None:
        """Close the input of each target, because this daemon stops."""
        for target in self._targets.values():
            if target.link is not None and not target.link.is_over:
                target.link.hang_up()

    # -- sessions ---------------------------------------------------------------------------

    def place_of(self, session: str) -> tuple[str, str] | None:
        """Return two names, as in `_RemoteSession`: the session's target, and the further target
        behind it. Return None if the session is new, or at this daemon.
        """
        found = self._sessions.get(session)
        return None if found is None else (found.target, found.further)

    def last_use(self, session: str) -> int | None:
        """Return the number of the latest request that used a session at a target."""
        found = self._sessions.get(session)
        return None if found is None else found.last_use

    def check(self, session: str, target: str, further: str = "") -> None:
        """Raise `RpcError` (invalid_params) if the session is at this daemon or at another
        target.
        """
        present = self.place_of(session)
        if present is not None and present != (target, further):
            raise invalid_params(f"Session {session:.100} is at target {_path(*present)}", "target")
        if present is None and session != DEFAULT_SESSION and self._is_local(session):
            message = f"Session {session:.100} is at this daemon, not at target {target}"
            raise invalid_params(message, "target")

    def check_is_here(self, session: str | None) -> None:
        """Raise `RpcError` (invalid_params) if the session is at a target."""
        present = None if session is None else self.place_of(session)
        if present is not None:
            message = f"Session {session:.100} is at target {_path(*present)}"
            raise invalid_params(message, "session")

    def use(self, session: str, target: str, further: str = "") -> int | None:
        """Record that a request uses a session at a target, and return the number of this use.
        When the request has ended, the caller must pass the number to `settle`.

        If the request also names a target behind `target`, `further` is that name. Otherwise,
        `further` is empty.

        Return None for the default session, because it is here and at each target. Raises
        `RpcError`: resource_exhausted, or invalid_params if the session is at this daemon or at
        another target.
        """
        if session == DEFAULT_SESSION:
            return None
        self.check(session, target, further)
        found = self._sessions.get(session)
        if found is None and len(self._sessions) >= MAX_SESSIONS:
            message = f"Targets have {MAX_SESSIONS} sessions already"
            raise resource_exhausted("targets", message)
        self._uses += 1
        if found is None:
            self._sessions[session] = _RemoteSession(target, further, self._uses)
        else:
            found.last_use = self._uses
            if found.creators:
                found.creators.add(self._uses)
        return self._uses

    def settle(self, session: str, use: int, *, may_exist: bool) -> None:
        """Record whether the session may exist at its target, now that a request has ended. Forget
        the session if no request has created it.
        """
        found = self._sessions.get(session)
        # If the session was forgotten, another session may have its name.
        if found is None or use not in found.creators:
            return
        if may_exist:
            found.creators.clear()
            return
        found.creators.remove(use)
        if not found.creators:
            del self._sessions[session]

    def forget_further(self, target: Target, further: str) -> None:
        """`target` has removed its own target `further`. Forget the sessions there, and their
        settings.
        """
        self._sessions = {
            name: session
            for name, session in self._sessions.items()
            if session.target != target.name or not _is_within(session.further, further)
        }
        for place in [each for each in target.configured if _is_within(each[1], further)]:
            del target.configured[place]

    def forget_if_unused(self, session: str, last_use: int | None) -> None:
        """Forget a closed session, unless a request after `last_use` has used its name."""
        if self.last_use(session) == last_use:
            self._sessions.pop(session, None)


def _path(target: str, further: str) -> str:
    return f"{target}:{further}" if further else target


def _is_within(name: str, further: str) -> bool:
    """Return whether `name` is `further`, or a target behind `further`."""
    return f"{name}:".startswith(f"{further}:")


def was_not_started(error: BaseException) -> bool:
    """Return whether `error` says that no target has received the request.

    If the error comes from a target that has lost a target of its own, the members of `data` are
    JSON text.
    """
    if not isinstance(error, RpcError) or error.kind is not ErrorKind.TARGET_LOST:
        return False
    return error.data.get("maybeStarted") in (False, Raw(b"false"))
