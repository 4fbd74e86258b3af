"""Decides which sessions get spare shells, and whether these pay. Pure: the caller passes the time.

A spare shell pays off if a processor is idle while it starts, between two commands. On busy
processors, it slows the running command down. Slow starts show that the processors are busy. Then
no more spare shells start. After a pause, or after `retry_s`, a single start tests the processors
again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, TypeVar

from msgspec import Struct


class Waiting(Protocol):
    """A spare shell: its session, and since when it has waited."""

    @property
    def session_name(self) -> str | None: ...

    @property
    def since(self) -> float: ...


W = TypeVar("W", bound=Waiting)


class _Session(Struct):
    # When its last command ended.
    used_at: float = -math.inf
    # Slow starts minus fast ones since the last pause, and when this number last changed.
    slow_starts: int = 0
    judged_at: float = -math.inf


class SparePolicy(Struct, eq=False):
    """At most `limit` spare shells wait. Times are in seconds."""

    clock: Callable[[], float]
    limit: int
    # A session that was not used for this long has no spare shells.
    idle_s: float = 300.0
    # Spare shells younger than this do not make room for others. Otherwise sessions that take turns
    # would end each other's spare shells before they are used.
    min_age_s: float = 15.0
    # A start takes half a millisecond on a quiet machine. It is slow if it takes longer than
    # `slow_start_s`, and longer than `slow_start_factor` times the fastest start.
    slow_start_s: float = 0.004
    slow_start_factor: float = 8
    # No spare shells once slow starts outnumber fast ones by this many.
    max_slow_starts: int = 4
    # After this long without a command, forget slow starts.
    pause_s: float = 0.1
    # Without a pause, try one start again after this long.
    retry_s: float = 1.0
    # If commands follow one another within `in_a_row_s`, then `in_a_row` spare shells wait, and
    # they start while a command runs. Otherwise none starts while a command runs.
    in_a_row_s: float = 0.005
    in_a_row: int = 2
    # After this many consecutive failures, assume that the system forbids spare shells.
    max_failures: int = 3
    _sessions: dict[str | None, _Session] = {}
    _fastest_start_s: float = math.inf
    _failures: int = 0

    # -- observations -----------------------------------------------------------------------

    def command_ended(self, name: str | None) -> None:
        self._session(name).used_at = self.clock()

    def command_comes(self, name: str | None, start_took: float | None = None) -> None:
        """Note that a session runs a command, and how long its spare shell took to start.

        `start_took` is infinite for a spare shell that was not ready, and None if there was none.
        After a pause, forgets all slow starts; without a pause, forgets one from time to time.
        """
        session, now = self._session(name), self.clock()
        if now - session.used_at > self.pause_s:
            session.slow_starts = 0
        elif now - session.judged_at > self.retry_s:
            session.slow_starts = min(session.slow_starts, self.max_slow_starts - 1)
        if start_took is not None:
            change = 1 if self._is_slow(start_took) else -1
            session.slow_starts = max(0, session.slow_starts + change)
            session.judged_at = now

    def _is_slow(self, seconds: float) -> bool:
        self._fastest_start_s = min(self._fastest_start_s, seconds)
        limit = max(self.slow_start_s, self.slow_start_factor * self._fastest_start_s)
        return seconds > limit or math.isinf(seconds)

    def note_use(self, *, succeeded: bool) -> bool:
        """Note whether a spare shell could be used. Return whether to try more."""
        self._failures = 0 if succeeded else self._failures + 1
        return self._failures < self.max_failures

    def forget(self, name: str | None) -> None:
        """Forget a closed session."""
        self._sessions.pop(name, None)

    def _session(self, name: str | None) -> _Session:
        session = self._sessions.get(name)
        if session is None:
            session = self._sessions[name] = _Session()
        return session

    # -- decisions -----------------------------------------------------------------

    def wanted(self, name: str | None) -> int:
        """Return how many spare shells should wait after a command of the session has ended."""
        return int(self._session(name).slow_starts < self.max_slow_starts)

    def wanted_meanwhile(self, name: str | None) -> int:
        """Return how many spare shells should wait while a command of the session runs."""
        follows_at_once = self.clock() - self._session(name).used_at < self.in_a_row_s
        return self.in_a_row if follows_at_once and self.wanted(name) else 0

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
    """Return the surplus spare shells: each has an older one in the same session."""
    names = [each.session_name for each in waiting]
    return [each for index, each in enumerate(waiting) if names[index] in names[:index]]
