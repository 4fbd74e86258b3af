"""Owns the spare shells, and chooses one for each command.

`spare` knows how a spare shell waits and takes its command; `spare_policy` decides which sessions
get spare shells.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import time
from collections.abc import Callable
from typing import Final

import anyio

from shelld.sandbox.sandbox import Sandbox
from shelld.sessions.differences import takes_lines
from shelld.sessions.dumps import CAN_RECORD
from shelld.sessions.session import Session
from shelld.shells.launch import StartRequest
from shelld.shells.life import Life
from shelld.shells.shell import Shell
from shelld.shells.spare import Spare
from shelld.shells.spare_policy import SparePolicy

# A command waits at most this long for a spare shell to start. The timeout of the command begins
# after this wait.
MAX_START_WAIT_S: Final = 0.25


class Spares:
    """Owns the spare shells that wait. If `policy.limit` is 0, there are no spare shells.

    `start` starts a spare shell. `may_start` returns whether a spare shell of a session may start
    now. If there is no spare shell, a command gets a new bash. So this class raises no OSError if
    resources are short.
    """

    def __init__(
        self,
        start: Callable[[Session], Spare],
        may_start: Callable[[Session], bool],
        policy: SparePolicy,
        any_session: Session,
    ) -> None:
        self._start = start
        self._may_start = may_start
        self.policy = policy
        # The state of this session is the state of every new session.
        self._any_session = any_session
        self._limit = policy.limit if CAN_RECORD else 0
        # The number of spare shells that have run a command.
        self.used = 0
        # When a spare shell was last found to have failed (time.monotonic()).
        self._failed_at = -math.inf
        # The spare shells that wait, in start order.
        self._waiting: list[Spare] = []
        # The commands that were started in the foreground and have not ended.
        self._running: set[Shell] = set()

    @property
    def count(self) -> int:
        """The number of spare shells that wait."""
        return len(self._waiting)

    def command_started(self, session: Session, shell: Shell) -> None:
        """Record that a command runs. If it came soon after the session's last command, start the
        next spare shells.
        """
        if shell.in_foreground:
            self._running.add(shell)
        if self.policy.follows_at_once(session.name) and not self._is_busy:
            self._provide(session, self.policy.in_a_row)

    def command_ended(self, shell: Shell) -> None:
        """Record that a command no longer runs."""
        self._running.discard(shell)

    def command_is_over(self, session: Session) -> None:
        """Start the next spare shell after a command has ended.

        At this time, the start delays no command of the session.
        """
        if not self._limit:
            return
        is_frequent = self.policy.command_is_over(session.name)
        for spare in self._of(session.name):
            if not spare.launch.can_serve(session):
                self._end(spare)
        if not self._is_busy:
            can_share = (
                not is_frequent
                and self._starts_as_others(session)
                and session.lines_from(session.base) is not None
            )
            self._provide(self._any_session if can_share else session, 1)

    @property
    def _is_busy(self) -> bool:
        """Whether so many commands run that more spare shells would only delay them."""
        running = (shell for shell in self._running if shell.is_in_foreground)
        most = self.policy.max_running
        return sum(1 for _ in itertools.islice(running, most)) == most

    def _provide(self, session: Session, count: int) -> None:
        """Start spare shells for a session, until `count` of them wait. Start fewer if the policy
        does not allow more.

        A spare shell in the state of a new session may serve any session that was not configured
        and has no limits.
        """
        if session.state is session.base and self._starts_as_others(session):
            session = self._any_session
        waiting = len(self._of(session.name))
        if not self._may_start(session):
            return
        while waiting < count and self._has_room(waiting) and _can_wait(session):
            waiting += 1
            # If resources are short, start no spare shell, and leave the resources to commands.
            with contextlib.suppress(OSError):
                self._waiting.append(self._start(session))

    def _starts_as_others(self, session: Session) -> bool:
        """Whether the session was not configured and has no limits, so that it began like any new
        session.
        """
        return session.base is self._any_session.base and not session.is_limited

    def _of(self, name: str | None) -> list[Spare]:
        return [spare for spare in self._waiting if spare.session_name == name]

    def _has_room(self, waiting: int) -> bool:
        """Whether one more spare shell may start for a session. `waiting` is the number of spare
        shells that it already has.

        This may first end another spare shell to make room.
        """
        if 0 < self._limit == len(self._waiting) and not waiting:
            spare = self.policy.one_that_gives_way(self._waiting)
            if spare is not None:
                self._end(spare)
        return len(self._waiting) < self._limit

    async def take(self, session: Session, request: StartRequest) -> Spare | None:
        """Return a spare shell that can run this request now. The caller owns it."""
        if not self._waiting or session.is_remote:
            return None
        suitable = [spare for spare in self._waiting if spare.suits(session, request)]
        if not suitable:
            if session.limits.processes is not None:
                await self._have_started(session)
            return None

        def rank(spare: Spare) -> tuple[bool, int]:
            # First, prefer a spare shell that is ready. Second, prefer the spare shell that needs
            # the shortest lines to reach the session's state.
            return not spare.launch.is_ready, len(session.lines_from(spare.launch.state) or b"")

        spare = min(suitable, key=rank)
        # From here on, no other command can get this spare shell.
        self._waiting.remove(spare)
        try:
            if spare.launch.is_ready or await self._becomes_ready(spare, session, request):
                self.policy.note_start(spare.launch.start_took)
                return spare
        except BaseException:
            spare.life.discard()
            raise
        spare.life.discard()
        return None

    async def _have_started(self, session: Session) -> None:
        """Wait until the spare shells of a session have started.

        While a spare shell starts, it counts as a process. Without this wait, the kernel could
        refuse a process to the command that starts now.
        """
        with anyio.move_on_after(MAX_START_WAIT_S):
            for spare in self._of(session.name):
                await self._has_started(spare)

    async def _has_started(self, spare: Spare) -> None:
        launch, shell = spare.launch, spare.life.shell
        await shell.wait_until(lambda: launch.has_started or shell.is_empty)

    async def _becomes_ready(self, spare: Spare, session: Session, request: StartRequest) -> bool:
        launch, shell = spare.launch, spare.life.shell
        with anyio.move_on_after(MAX_START_WAIT_S):
            await self._has_started(spare)
        # When the start was reported, bash may still have been in execve(2), and not ready. So
        # check once more whether bash is ready.
        with contextlib.suppress(OSError):
            launch.check()
        if shell.is_empty and shell.failure is None:
            self.note_failure(spare)
        # Other tasks have run during the wait, and may have changed the session. So check again
        # whether the spare shell suits the request.
        return launch.is_ready and spare.suits(session, request)

    def note_success(self) -> None:
        """Record that a spare shell runs a command."""
        self.used += 1
        self.policy.note_use(succeeded=True)

    def note_failure(self, spare: Spare) -> None:
        """Record that a spare shell could not be used, or has ended by itself."""
        if spare.since <= self._failed_at:
            # A command such as ``killall bash`` ends all spare shells that wait. This counts as one
            # failure, because it says nothing about later spare shells.
            return
        self._failed_at = time.monotonic()
        if not self.policy.note_use(succeeded=False):
            self.close()

    def has_ended(self, life: Life) -> None:
        """Record that a spare shell has ended, perhaps by itself."""
        for spare in self._waiting:
            if spare.life is life:
                self._waiting.remove(spare)
                if life.shell.failure is None:
                    self.note_failure(spare)
                return

    def _end(self, spare: Spare) -> None:
        spare.life.discard()
        self._waiting.remove(spare)

    def end_in(self, sandbox: Sandbox) -> None:
        """End the spare shells of a sandbox that gets no more commands."""
        for spare in list(self._waiting):
            if spare.life.sandbox is sandbox:
                self._end(spare)

    def close_session(self, name: str) -> None:
        """End the spare shells of a session, or all spare shells if no other session is in use."""
        is_last = self.policy.forget(name)
        for spare in list(self._waiting) if is_last else self._of(name):
            self._end(spare)

    def trim(self) -> None:
        """End the spare shells that are no longer needed."""
        for spare in self.policy.not_needed(self._waiting):
            self._end(spare)

    def close(self) -> None:
        """End all spare shells, and start no more."""
        self._limit = 0
        for spare in list(self._waiting):
            self._end(spare)


def _can_wait(session: Session) -> bool:
    """Whether the session's state can be restored before its command is known.

    A startup file of the user must not run before the command comes. System calls on the session's
    directory must not block.
    """
    return (
        b"BASH_ENV" not in session.base.env and takes_lines(session.state) and not session.is_remote
    )
