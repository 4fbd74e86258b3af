"""The spare shells that wait, and the choice of one for a command.

`spare` knows how one waits and is told its command, `spare_policy` for which sessions one is to.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from typing import Final

import anyio

from shelld.sessions.dumps import CAN_RECORD
from shelld.sessions.session import Session
from shelld.shells.launch import StartRequest
from shelld.shells.life import Life
from shelld.shells.spare import Spare, SpareLaunch
from shelld.shells.spare_policy import SparePolicy

# A command waits this long for a spare that has not started. Its timeout begins after that.
MAX_START_WAIT_S: Final = 0.25
# Words in the last lines. A function or alias of that name would break them.
_NEEDED: Final = frozenset(
    b"! [[ ]] { } builtin case do done elif else esac exec fi for if in then trap".split()
)


class Spares:
    """Those that wait. `policy.limit` 0: none.

    `start` starts one. Nothing here raises: without a spare shell, a bash is started for the
    command.
    """

    def __init__(self, start: Callable[[Session], Spare], policy: SparePolicy) -> None:
        self._start = start
        self.policy = policy
        self._limit = policy.limit if CAN_RECORD else 0
        # How many were used so far.
        self.used = 0
        # In the order of their start.
        self._waiting: list[Spare] = []

    def command_started(self, session: Session, spare: Spare) -> None:
        """Start the next spare shell, unless this command may change the state."""
        self.policy.command_comes(session.name, spare.launch.start_took)
        if spare.launch.recorder is None:
            self._provide(session, self.policy.wanted_meanwhile(session.name))

    def command_ended(self, session: Session) -> None:
        """Get ready for the next one, as there is time for it now."""
        self.policy.command_ended(session.name)
        if not session.when_settled(lambda: self._refill(session)):
            self._refill(session)

    def _refill(self, session: Session) -> None:
        for spare in self._of(session.name):
            if spare.launch.state is not session.state:
                self._end(spare)
        self._provide(session, self.policy.wanted(session.name))

    def _provide(self, session: Session, count: int) -> None:
        """See to it that so many wait for the next commands of a session, if they may."""
        waiting = len(self._of(session.name))
        while waiting < count and self._has_room(waiting) and _can_wait(session):
            waiting += 1
            # On a shortage, leave the rest to commands.
            with contextlib.suppress(OSError):
                self._waiting.append(self._start(session))

    def _of(self, name: str | None) -> list[Spare]:
        return [spare for spare in self._waiting if spare.session_name == name]

    def _has_room(self, waiting: int) -> bool:
        """Whether one may be started for a session that has so many, another giving way for it."""
        if 0 < self._limit == len(self._waiting) and not waiting:
            spare = self.policy.one_that_gives_way(self._waiting)
            if spare is not None:
                self._end(spare)
        return len(self._waiting) < self._limit

    async def take(self, session: Session, request: StartRequest) -> Spare | None:
        """Return a spare shell that can run this request now. The caller owns it."""
        for spare in self._waiting:
            if spare.suits(session, request):
                if spare.launch.is_ready or await self._becomes_ready(spare, session, request):
                    self._waiting.remove(spare)
                    return spare
                self.policy.command_comes(session.name, math.inf)
                return None
        self.policy.command_comes(session.name)
        return None

    async def _becomes_ready(self, spare: Spare, session: Session, request: StartRequest) -> bool:
        launch, shell = spare.launch, spare.life.shell
        _look(launch)
        if launch.has_started:
            return launch.is_ready
        with anyio.move_on_after(MAX_START_WAIT_S) as wait:
            await shell.wait_until(lambda: launch.has_started or shell.is_empty)
        # Others have had their turn meanwhile.
        if spare not in self._waiting or not spare.suits(session, request):
            return False
        if wait.cancelled_caught:
            # So that the next command does not wait for it, too.
            self._end(spare)
            return False
        # It was not there when it was needed.
        launch.start_took = math.inf
        _look(launch)
        return launch.is_ready

    def note_use(self, *, succeeded: bool) -> None:
        """Learn whether one could be used."""
        self.used += succeeded
        if not self.policy.note_use(succeeded=succeeded):
            self.close()

    def has_ended(self, life: Life) -> None:
        """Learn that one is gone, perhaps without having been told to."""
        for spare in self._waiting:
            if spare.life is life:
                self._waiting.remove(spare)
                if life.shell.failure is None:
                    self.note_use(succeeded=False)
                return

    def _end(self, spare: Spare) -> None:
        spare.life.discard()
        self._waiting.remove(spare)

    def close_session(self, name: str) -> None:
        """End the spare shells of a session."""
        for spare in self._of(name):
            self._end(spare)
        self.policy.forget(name)

    def trim(self) -> None:
        """End the spare shells that are no longer needed."""
        for spare in self.policy.not_needed(self._waiting):
            self._end(spare)

    def close(self) -> None:
        """End all, and start no more."""
        self._limit = 0
        for spare in list(self._waiting):
            self._end(spare)


def _look(launch: SpareLaunch) -> None:
    # When its start was reported, bash may still have been in execve(2).
    with contextlib.suppress(OSError):
        launch.look()


def _can_wait(session: Session) -> bool:
    """Whether what makes the session's state can be run at another time than its command.

    A startup file of the user's own cannot; and no function or alias must be in the way of the last
    lines. Its directory must be one that can be looked at.
    """
    return (
        b"BASH_ENV" not in session.base.env
        and _NEEDED.isdisjoint(session.state.names)
        and not session.is_remote
    )
