"""Provides a session of a pool, with the methods of `AsyncClient` on the session's daemon."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from types import TracebackType
from typing import Any, Final, NoReturn, Protocol, Self, TypeVar

from shelld_client import calls
from shelld_client.async_methods import AsyncMethods
from shelld_client.async_ongoing import AsyncOngoing
from shelld_client.calls import Call
from shelld_client.errors import DaemonExited, SessionLost, SessionNotFound, refused_here
from shelld_protocol.errors import invalid_params
from shelld_protocol.sandboxes import SandboxPolicy
from shelld_protocol.session_methods import (
    CloseSessionResult,
    ConfigureSessionResult,
    EnvironmentRules,
    SessionInfo,
)
from shelld_protocol.structs import DEFAULT_SESSION, ResourceLimits

T = TypeVar("T")

# The methods with a `session` in their params.
_NAMING: Final = frozenset(
    {
        "bash",
        "close_session",
        "configure_session",
        "explain_command",
        "get_session",
        "list_shells",
        "subscribe",
    }
)


# The tasks that close sessions. The event loop holds tasks only weakly.
_closing: Final = set[asyncio.Task[None]]()


class Router(Protocol):
    """Passes the calls of a session on to its daemon."""

    async def request(self, session: str, call: Call[T]) -> T: ...

    async def finish(self, session: str, call: Call[T]) -> T: ...

    async def begin(self, session: str, call: Call[Any]) -> AsyncOngoing: ...

    def forget(self, session: str) -> None: ...


def in_session(call: Call[T], session: str) -> Call[T]:
    """Return the call. If its method takes a session, add the name of this session.

    Raises `InvalidParams` if the call names another session.
    """
    params = dict(call.params)
    if call.method == "call_tool":
        context = params["context"] = dict(params.get("context") or {})
        _name(context, "session_id", session)
    elif call.method == "subscribe" and ("bash_id" in params or "subscription" in params):
        return call
    elif call.method in _NAMING:
        _name(params, "session", session)
    return call._replace(params=params)


def _name(params: dict[str, Any], member: str, session: str) -> None:
    if params.setdefault(member, session) not in (session, DEFAULT_SESSION):
        reason = f"Invalid value for {member}: these are the methods of the session {session!r}"
        raise refused_here(invalid_params(reason, member))
    params[member] = session


class Session(AsyncMethods):
    """A session of a pool; see `Pool.session`.

    Every call belongs to this session, and need not name it.

    The first call decides which daemon has the session. If this daemon is lost, calls raise
    `SessionLost` until `close_session` is called. With ``async with``, leaving the block closes the
    session. `server_info`, `list_targets` and similar methods are about the session's daemon, which
    other sessions also use.
    """

    def __init__(self, router: Router, name: str) -> None:
        self._router = router
        self.name = name

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        # If another cancellation interrupts this method, the session is closed in the background.
        closing = asyncio.create_task(self._close())
        _closing.add(closing)
        closing.add_done_callback(_closing.discard)
        await asyncio.shield(closing)

    async def _close(self) -> None:
        # These errors mean that the session's daemon is gone, closed or silent, or that the session
        # was never used.
        with suppress(SessionLost, SessionNotFound, DaemonExited, TimeoutError):
            await self._finish(calls.close_session(self.name, None))
        self._router.forget(self.name)

    def __reduce__(self) -> NoReturn:
        raise TypeError("a session of a pool cannot be pickled: it belongs to the pool's process")

    async def _request(self, call: Call[T]) -> T:
        return await self._router.request(self.name, in_session(call, self.name))

    async def _finish(self, call: Call[T]) -> T:
        return await self._router.finish(self.name, in_session(call, self.name))

    async def _begin(self, call: Call[Any]) -> AsyncOngoing:
        return await self._router.begin(self.name, in_session(call, self.name))

    async def configure_session(
        self,
        session: str = DEFAULT_SESSION,
        *,
        env: EnvironmentRules | None = None,
        limits: ResourceLimits | None = None,
        target: str | None = None,
        sandbox: SandboxPolicy | None = None,
    ) -> ConfigureSessionResult:
        """Like `AsyncClient.configure_session`, for this session."""
        return await super().configure_session(
            session, env=env, limits=limits, target=target, sandbox=sandbox
        )

    async def list_sessions(self) -> list[SessionInfo]:
        """Return a list with this session, or an empty list if it does not exist."""
        return [each for each in await super().list_sessions() if each.session == self.name]

    async def close_session(
        self, session: str = DEFAULT_SESSION, *, target: str | None = None
    ) -> CloseSessionResult:
        """End this session and all its processes, and forget which daemon had it.

        The next call may start the session on another daemon. If the session's daemon is lost, this
        method only forgets the daemon, because there is nothing to end.
        """
        try:
            result = await super().close_session(session, target=target)
        except SessionLost:
            result = CloseSessionResult(session=self.name, killed=0)
        except SessionNotFound:
            self._router.forget(self.name)
            raise
        self._router.forget(self.name)
        return result
