"""Decides and records which session is on which daemon of a pool.

Owns the choice of a daemon for each session, from the session's first call until the session is
forgotten. Does not start or end daemons. Invariant: a session is on one daemon, and never moves,
not even when the daemon is lost.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, Final, TypeVar

from shelld_client.async_ongoing import AsyncOngoing
from shelld_client.calls import Call
from shelld_client.errors import DaemonExited, ResourceExhausted, SessionNotFound
from shelld_client.ray.member import Member
from shelld_protocol.errors import ErrorKind

T = TypeVar("T")


# Calls of these methods may begin the session again while it is being closed.
_USING: Final = frozenset({"bash", "call_tool", "configure_session"})


class _Home:
    def __init__(self, member: Member) -> None:
        self.member = member
        # The calls of the session that have no result yet.
        self.calls = 0
        # How many calls have used the session, now and when the latest `close_session` began.
        self.uses = 0
        self.uses_at_close = 0

    def note(self, call: Call[Any]) -> None:
        """Record a call that is about to be passed on."""
        if call.method == "close_session":
            self.uses_at_close = self.uses
        elif call.method in _USING:
            self.uses += 1


class Placement:
    def __init__(self, *, room_timeout: float, on_idle: Callable[[Member], None]) -> None:
        """Create a table without sessions.

        If there is no daemon, a new session waits for up to `room_timeout` seconds.
        """
        self._room_timeout = room_timeout
        self._on_idle = on_idle
        # The daemons that take new sessions.
        self.members = list[Member]()
        self._homes = dict[str, _Home]()
        self._changed = asyncio.Event()
        # The reason why no session can start, or "" if sessions can start.
        self.closed = "the pool was not entered"

    def add(self, member: Member) -> None:
        """From now on, the daemon takes new sessions."""
        self.members.append(member)
        self._wake()

    def remove(self, member: Member) -> None:
        """From now on, give no new sessions to the daemon. Its current sessions stay."""
        if member in self.members:
            self.members.remove(member)

    def close(self, reason: str) -> None:
        """Refuse all calls."""
        self.closed = reason
        self._wake()

    def _wake(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def _member(self, load: Callable[[Member], tuple[int, int]]) -> Member:
        """Return the daemon with the least load. If there is no daemon, wait for one."""
        deadline = time.monotonic() + self._room_timeout
        while not (self.members or self.closed):
            try:
                async with asyncio.timeout(deadline - time.monotonic()):
                    await self._changed.wait()
            except TimeoutError:
                raise ResourceExhausted(
                    f"the pool has had no daemon for {self._room_timeout:g} s (start_timeout)",
                    code=ErrorKind.RESOURCE_EXHAUSTED.code,
                    data={"kind": ErrorKind.RESOURCE_EXHAUSTED.value, "limit": "daemons"},
                ) from None
        self._check()
        return min(self.members, key=load)

    def _check(self) -> None:
        if self.closed:
            raise DaemonExited(self.closed)

    async def _home(self, session: str) -> _Home:
        """Return the daemon that has the session. If the session is new, choose a daemon."""
        if session not in self._homes:
            member = await self._member(_sessions_first)
            # While this call waited, another call may have chosen the daemon.
            if session not in self._homes:
                self._homes[session] = _Home(member)
                member.sessions.add(session)
        return self._homes[session]

    async def request(self, session: str | None, call: Call[T]) -> T:
        """Pass a call on to the session's daemon.

        Without a session, the daemon with the fewest commands gets the call.
        """
        if session is None:
            return await (await self._member(_commands_first)).request(call, None)
        if call.method == "close_session":
            self._require(session)
        home = await self._home(session)
        home.note(call)
        home.calls += 1
        try:
            return await home.member.request(call, session)
        finally:
            home.calls -= 1

    async def finish(self, session: str, call: Call[T]) -> T:
        """Pass a call on to the session's daemon, even if the caller is cancelled.

        Raises TimeoutError after some seconds.
        """
        home = self._require(session)
        home.note(call)
        return await home.member.finish(call, session)

    async def begin(self, session: str, call: Call[Any]) -> AsyncOngoing:
        home = await self._home(session)
        home.note(call)
        home.calls += 1
        try:
            return await home.member.begin(call, session)
        finally:
            home.calls -= 1

    def _require(self, session: str) -> _Home:
        if (home := self._homes.get(session)) is None:
            self._check()
            raise SessionNotFound(
                "Session not found",
                code=ErrorKind.SESSION_NOT_FOUND.code,
                data={"kind": ErrorKind.SESSION_NOT_FOUND.value, "session": session},
            )
        return home

    def forget(self, session: str) -> None:
        """Forget the daemon of an ended session.

        Keep it if a call of the session is under way, or if the session was used after
        `close_session` began, because then the daemon may have a new session of this name. A lost
        daemon has no sessions, so forget it in any case.
        """
        home = self._homes.get(session)
        if home is None:
            return
        if home.member.is_gone or (not home.calls and home.uses == home.uses_at_close):
            del self._homes[session]
            home.member.sessions.discard(session)
            self._on_idle(home.member)


def _sessions_first(member: Member) -> tuple[int, int]:
    return len(member.sessions), member.commands


def _commands_first(member: Member) -> tuple[int, int]:
    return member.commands, len(member.sessions)
