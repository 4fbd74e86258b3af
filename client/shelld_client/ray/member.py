"""Represents one daemon of a pool, from the request for its actor until the daemon has ended.

Owns the actor, the link to the actor, and the daemon's load. The pool uses the load to choose a
daemon. Invariant: once the daemon is lost or closed, every call of its sessions fails at once.
Calls to other daemons go on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import anyio

from shelld_client.async_ongoing import AsyncOngoing
from shelld_client.calls import Call
from shelld_client.command_lines import message_limit
from shelld_client.errors import DaemonExited, SessionLost, ShellError, SpawnFailed
from shelld_client.ray.engine import Actor, ActorGone, Needs
from shelld_client.ray.link import Failure, Link

T = TypeVar("T")


def takes_a_slot(call: Call[Any]) -> bool:
    """Return whether a call runs a command in the foreground; such a call counts as load."""
    params: dict[str, Any] = dict(call.params)
    if call.method == "call_tool" and params.get("name") in ("Bash", "bash"):
        params = params.get("arguments") or {}
    elif call.method != "bash":
        return False
    return not (params.get("run_in_background") or params.get("dry_run"))


class Member:
    def __init__(
        self,
        needs: Needs,
        daemon_args: Sequence[str],
        *,
        max_in_flight: int,
        on_lost: Callable[[Member], None],
        on_idle: Callable[[Member], None],
    ) -> None:
        """`on_lost` is called once, if the daemon ends by itself. `on_idle` is called after a call
        or a session has ended. Raises `SpawnFailed` if Ray refuses the actor.
        """
        self._args = daemon_args
        self._on_lost = on_lost
        self._on_idle = on_idle
        self._slots = anyio.Semaphore(max_in_flight, fast_acquire=True)
        self.sessions = set[str]()
        # The number of foreground commands that run, or wait because `max_in_flight` commands run
        # already.
        self.commands = 0
        # Whether all calls fail, because the daemon is lost or is ending.
        self.is_gone = False
        # Whether the daemon takes no new sessions, and will end when its last session is closed.
        self.is_draining = False
        # Set when the actor has ended.
        self.ended = asyncio.Event()
        self._actor = Actor(needs)
        self._link = Link(
            self._actor,
            max_message_bytes=message_limit(["shelld", *daemon_args]),
            on_lost=self._lose,
        )

    async def start(self) -> None:
        """Wait until the daemon runs. If the start fails, end the actor, and raise `ShellError`."""
        try:
            await self._actor.start(self._args)
            await self._link.start()
        except BaseException as error:
            self.kill()
            if isinstance(error, ActorGone):
                raise SpawnFailed(f"Ray cannot start the actor: {error}") from error
            if isinstance(error, SessionLost):
                # The daemon had no session yet, so no session is lost.
                raise DaemonExited(error.reason) from None
            raise

    @property
    def is_idle(self) -> bool:
        return not (self.sessions or self.commands)

    async def _take_slot(self) -> None:
        """Count a foreground command. Wait until fewer than `max_in_flight` such commands run."""
        self.commands += 1
        try:
            await self._slots.acquire()
        except BaseException:
            self.commands -= 1
            self._on_idle(self)
            raise

    def _leave_slot(self) -> None:
        self._slots.release()
        self.commands -= 1
        self._on_idle(self)

    async def request(self, call: Call[T], session: str | None) -> T:
        """Send a call, and return its result.

        A foreground command first waits until fewer than `max_in_flight` such commands run.
        """
        if not takes_a_slot(call):
            return await self._link.request(call, session)
        await self._take_slot()
        try:
            return await self._link.request(call, session)
        finally:
            self._leave_slot()

    async def finish(self, call: Call[T], session: str | None) -> T:
        return await self._link.finish(call, session)

    async def begin(self, call: Call[Any], session: str | None) -> AsyncOngoing:
        """Send a call; the caller takes its events and its answer one by one."""
        if not takes_a_slot(call):
            return self._link.begin(call, session, lambda: None)
        await self._take_slot()
        return self._link.begin(call, session, self._leave_slot)

    def _lose(self, reason: str) -> None:
        self.end_calls(lost(reason))
        self.kill()
        self._on_lost(self)

    def end_calls(self, failure: Failure) -> None:
        """Make all current and future calls raise errors."""
        self.is_gone = True
        self._link.fail(failure)

    async def close(self) -> None:
        """End the daemon, within a bounded time. Call `end_calls` first."""
        try:
            await self._link.close()
        finally:
            self.ended.set()

    def kill(self) -> None:
        """End the actor at once."""
        self._link.kill()
        self.ended.set()


def closed(_session: str | None) -> ShellError:
    """Make the error for calls after the pool was closed."""
    return DaemonExited("the pool is closed")


def lost(reason: str) -> Failure:
    """Return a function that makes the error for calls of a lost daemon."""
    return lambda session: SessionLost(session, reason)
