"""Keeps the deadlines of one command. Each deadline has the name of the event that it causes.

`course` says why each deadline exists.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Set
from typing import Final

from shelld.keeper.channel import KILL_DEADLINE_MS
from shelld.shells.course import Event

# The time until OUTPUT_DUE. In measurements, the last output nearly always arrived within 5 ms of
# the end of bash, and always within 50 ms.
OUTPUT_GRACE_S: Final = 0.05

# The time until START_DUE. The keeper needs a few seconds to fork a thousand runners at once. A
# keeper that a command has suspended never forks a runner.
START_TIMEOUT_S: Final = 15.0

# KEEPER_DUE comes this long after the runner was lost. KILL_DUE comes this long after the end of
# the grace. A runner reports survivors half a second earlier.
KILL_TIMEOUT_S: Final = KILL_DEADLINE_MS / 1000 + 0.5

# A manager that ends waits at most this long for its kills, and so does a supervisor that is
# cancelled. After that, the runners finish the kills without the daemon.
LAST_KILL_S: Final = 0.3


class Deadlines:
    """Keeps deadlines as readings of `clock`, in seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._due: dict[Event, float] = {}

    @property
    def next(self) -> float:
        """The time of the earliest deadline; infinite if no deadline is set."""
        return min(self._due.values(), default=math.inf)

    def set(self, name: Event, seconds: float) -> None:
        """Set a deadline to `seconds` from now."""
        self._due[name] = self._clock() + seconds

    def set_at_most(self, name: Event, seconds: float) -> None:
        """Set a deadline to `seconds` from now, unless it is already set to an earlier time."""
        self._due[name] = min(self._clock() + seconds, self._due.get(name, math.inf))

    def has(self, name: Event) -> bool:
        return name in self._due

    def drop(self, *names: Event) -> None:
        for name in names:
            self._due.pop(name, None)

    def keep(self, names: Set[Event]) -> None:
        """Keep these deadlines, and drop all others."""
        for name in self._due.keys() - names:
            del self._due[name]

    def passed(self) -> tuple[Event, float] | None:
        """Return a deadline that has passed, and how many seconds ago it has passed. Return None if
        no deadline has passed.
        """
        now = self._clock()
        for name, moment in self._due.items():
            if moment <= now:
                return name, now - moment
        return None

    def take(self, name: Event) -> bool:
        """Drop a deadline if it has passed; return whether it has."""
        has_passed = self._due.get(name, math.inf) <= self._clock()
        if has_passed:
            del self._due[name]
        return has_passed
