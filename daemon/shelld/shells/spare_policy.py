"""Decides which sessions get spare shells, and how many. This module is pure. The caller passes the
clock.

A spare shell costs as much work as the start that it saves, but does this work earlier. So spare
shells start even while other programs keep the processors busy. But while shelld's own commands
keep the processors busy, no spare shell starts, because it would delay these commands.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, TypeVar

from msgspec import Struct


class WaitingSpare(Protocol):
    """A spare shell, as the policy sees it.

    `session_name` is None if the spare shell serves any session. `since` is when the spare shell
    was started.
    """

    @property
    def session_name(self) -> str | None: ...

    @property
    def since(self) -> float: ...


W = TypeVar("W", bound=WaitingSpare)


class SparePolicy(Struct, eq=False):
    """Decides which sessions get spare shells. There are at most `limit` spare shells. Times are in
    seconds.
    """

    clock: Callable[[], float]
    limit: int
    processors: int
    # A session that was not used for this long has no spare shells.
    idle_s: float = 300.0
    # A spare shell younger than this is not ended to make room for another. Otherwise, if several
    # sessions run commands in turn, each session would end the spare shells of the others before a
    # command could use them.
    min_age_s: float = 15.0
    # A command follows *at once* if it starts soon after the previous command of its session. The
    # limit on this pause is the time of the fastest start of a spare shell, multiplied by this
    # number. If a command follows at once, `in_a_row` spare shells of the session start while the
    # command runs. Otherwise, no spare shell starts while a command runs.
    starts_between: float = 10
    in_a_row: int = 2
    # After this many consecutive failures, assume that the system forbids spare shells.
    max_failures: int = 3
    # Maps each session to the time when its last command ended. The oldest time comes first.
    _used_at: dict[str | None, float] = {}
    _fastest_start_s: float | None = None
    _failures: int = 0

    # -- observations -----------------------------------------------------------------------

    def command_is_over(self, name: str | None) -> bool:
        """Record that a command has ended. Return whether its session gets spare shells of its own.

        A session gets its own spare shells if its previous command ended recently. *Recently* means
        that commands of fewer than `limit` other sessions have ended since then. If more than
        `limit` sessions run commands in turn, each session's spare shell would end before the
        session's next command, to make room for another session.
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
        """Record whether a spare shell could be used.

        Return False if no more spare shells should start.
        """
        self._failures = 0 if succeeded else self._failures + 1
        return self._failures < self.max_failures

    def forget(self, name: str | None) -> bool:
        """Forget a closed session. Return whether no other session is in use."""
        self._used_at.pop(name, None)
        return self._used_at.keys() <= {None}

    # -- decisions --------------------------------------------------------------------------

    def follows_at_once(self, name: str | None) -> bool:
        """Whether a command would follow *at once* if the session got it now."""
        pause = self.clock() - self._used_at.get(name, -math.inf)
        return pause < self.starts_between * (self._fastest_start_s or 0)

    @property
    def max_running(self) -> int:
        """If this many foreground commands run, no spare shell starts."""
        return max(4, 2 * self.processors)

    def one_that_gives_way(self, waiting: Sequence[W]) -> W | None:
        """Return a spare shell that may be ended to make room for a session that has none."""
        old = self._older_than(self.min_age_s, waiting)
        return next(iter([*_extra(waiting), *old]), None)

    def not_needed(self, waiting: Sequence[W]) -> list[W]:
        """Return the surplus spare shells that are older than `min_age_s`, and the spare shells of
        idle sessions.
        """
        extra = self._older_than(self.min_age_s, _extra(waiting))
        idle = self._older_than(self.idle_s, waiting)
        return extra + [each for each in idle if each not in extra]

    def _older_than(self, seconds: float, waiting: Iterable[W]) -> list[W]:
        return [each for each in waiting if self.clock() - each.since >= seconds]


def _extra(waiting: Sequence[W]) -> list[W]:
    """Return the surplus spare shells.

    Each session may keep its oldest spare shell. All other spare shells are surplus.
    """
    names = [each.session_name for each in waiting]
    return [each for index, each in enumerate(waiting) if names[index] in names[:index]]
