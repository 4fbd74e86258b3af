"""The pauses between checks of the processes of a command."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Final, TypeVar

import anyio

from shelld.eventloop.turns import Turns
from shelld.shells.shell import Shell

T = TypeVar("T")

_FIRST_PAUSE_S: Final = 0.01
_LAST_PAUSE_S: Final = 8.0
# A pause is at least `_COST_SHARE` times the cost of the last check, and 1/`_QUIET_DIVISOR` of the
# time for which the shell has been quiet.
_COST_SHARE: Final = 20
_QUIET_DIVISOR: Final = 3


def _never() -> bool:
    return False


class Pauses:
    """The pauses between checks of a shell. While the shell is quiet, the pauses grow.

    Shortly after a program's last output, checks are frequent, so one of them soon finds out
    whether the program waits. A program that stays quiet is rarely checked. The first check comes
    soon, no matter how long the shell has been quiet, because the program may already have been
    waiting for a long time.
    """

    def __init__(self, check_turns: Turns) -> None:
        self._turns = check_turns
        self._cost_s = 0.0
        self._has_checked = False

    def next(self, shell: Shell) -> float:
        """Return the seconds until the next check."""
        if not self._has_checked:
            return self.shortest
        return max(self.shortest, min(shell.quiet_s / _QUIET_DIVISOR, _LAST_PAUSE_S))

    @property
    def shortest(self) -> float:
        """The minimum number of seconds between two checks."""
        return min(max(_FIRST_PAUSE_S, _COST_SHARE * self._cost_s), _LAST_PAUSE_S)

    async def pause(self, shell: Shell, is_due: Callable[[], bool] = _never) -> None:
        """Wait until the next check is due.

        New output ends the pause early. When the shell notifies its waiters, the pause also ends if
        `is_due` returns True. But the pause always takes at least `shortest` seconds.
        """
        now, before = anyio.current_time(), shell.output.written

        def has_news() -> bool:
            return shell.has_ended or shell.output.written != before or is_due()

        with anyio.CancelScope(deadline=now + self.next(shell)):
            await shell.wait_until(has_news)
        if has_news():
            with anyio.CancelScope(deadline=now + self.shortest):
                await shell.wait_until(lambda: shell.has_ended)

    async def check(self, check: Callable[[Shell], T], shell: Shell) -> T:
        """Wait for a turn, call `check`, and record the processor time of this call."""
        self.begin_check()
        return await self.in_turn(partial(check, shell))

    def begin_check(self) -> None:
        """Begin a check that takes several turns."""
        self._cost_s = 0.0
        self._has_checked = True

    async def in_turn(self, part: Callable[[], T]) -> T:
        """Wait for a turn, do a part of a check, and record the processor time of this part."""
        async with self._turns.turn() as turn:
            began = time.thread_time()
            result = part()
            turn.cost_s = time.thread_time() - began
            self._cost_s += turn.cost_s
        return result
