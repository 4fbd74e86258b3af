"""Decides which sessions get spare shells, and how many. Pure: the caller passes the time.

A spare shell costs as much as the start that it saves, only earlier. So spare shells start even
while other programs keep the processors busy. But while shelld's own commands keep the processors
busy, the start of a spare shell would delay these commands.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, TypeVar

from msgspec import Struct


class Waiting(Protocol):
    """A spare shell: the session that it is for (None: any), and since when it has waited."""

    @property
    def session_name(self) -> str | None: ...

    @property
    def since(self) -> float: ...


W = TypeVar("W", bound=Waiting)


class SparePolicy(Struct, eq=False):
    """At most `limit` spare shells wait. Times are in seconds."""

    clock: Callable[[], float]
    limit: int
    processors: int
    # A session that was not used for this long has no spare shells.
    idle_s: float = 300.0
    # Spare shells younger than this do not make room for others. Otherwise sessions that take turns
    # would end each other's spare shells before they are used.
    min_age_s: float = 15.0
    # A command follows another *at once* if the pause between them is shorter than the fastest
    # start of a spare shell, multiplied by this number. Then `in_a_row` spare shells wait, and they
    # start while a command runs. Otherwise no spare shell starts while a command runs.
    starts_between: float = 10
    in_a_row: int = 2
    # After this many consecutive failures, assume that the system forbids spare shells.
    max_failures: int = 3
    # When the last command of each session ended, in the order of these times.
    _used_at: dict[str | None, float] = {}
    _fastest_start_s: float | None = None
    _failures: int = 0

    # -- observations -----------------------------------------------------------------------

    def command_is_over(self, name: str | None) -> bool:
        """Record the end of a command. Return whether its session gets spare shells of its own.

        A session gets them if it was already among the `limit` sessions used last. If more sessions
        take turns, the others would end its spare shell before its next command.
        """
        recent = itertools.islice(reversed(self._used_at), self.limit)
        is_frequent = name in recent
        self._used_at.pop(name, None)
        self._used_at[name] = self.clock()
        return is_frequent

    def note_start(self, seconds: float) -> None:
        """Record how long the start of a spare shell took."""
        self._fastest_start_s = min(self._fastest_start_s or seconds, seconds)

    def note_use(self, *, succeeded: bool) -> bool:
        """Record whether a spare shell could be used. Return whether to try more."""
        self._failures = 0 if succeeded else self._failures + 1
        return self._failures < self.max_failures

    def forget(self, name: str | None) -> bool:
        """Forget a closed session. Return whether no session is left."""
        self._used_at.pop(name, None)
        return self._used_at.keys() <= {None}

    # -- decisions --------------------------------------------------------------------------

    def follows_at_once(self, name: str | None) -> bool:
        """Whether a command that this session gets now would follow another at once."""
        pause = self.clock() - self._used_at.get(name, -math.inf)
        return pause < self.starts_between * (self._fastest_start_s or 0)

    @property
    def max_running(self) -> int:
        """The number of foreground commands at which no spare shell starts any more."""
        return max(4, 2 * self.processors)

    def one_that_gives_way(self, waiting: Sequence[W]) -> W | None:
        """Return the spare shell that may end to make room for a session without one."""
        old = self._older_than(self.min_age_s, waiting)
        return next(iter([*_extra(waiting), *old]), None)

    def not_needed(self, waiting: Sequence[W]) -> list[W]:
        """Return surplus spare shells, and those of idle sessions."""
        extra = self._older_than(self.min_age_s, _extra(waiting))
        idle = self._older_than(self.idle_s, waiting)
        return extra + [each for each in idle if each not in extra]

    def _older_than(self, seconds: float, waiting: Iterable[W]) -> list[W]:
        return [each for each in waiting if self.clock() - each.since >= seconds]


def _extra(waiting: Sequence[W]) -> list[W]:
    """Return the surplus spare shells: all but the oldest one of each session."""
    names = [each.session_name for each in waiting]
    return [each for index, each in enumerate(waiting) if names[index] in names[:index]]
