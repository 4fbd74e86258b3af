"""Kills orphans. An orphan is a child of this process that a killed runner or keeper left behind.

A subreaper with other children cannot wait for ECHILD. So it scans and kills until two scans in a
row find no orphan. One scan is not enough: it reads a list of children in several steps, and a
process that ends between two steps can hide the next process of the list.
"""

from __future__ import annotations

import time
from typing import Final

from shelld.keeper.channel import KILL_DEADLINE_MS
from shelld.keeper.tree import Spared, kill_descendants

# The pause between two rounds of SIGKILL. Killed processes need a moment until they are dead and
# reaped.
KILL_INTERVAL_MS: Final = 2
# The pause between two rounds after the deadline. This pause is longer, because processes that
# survive so long wait for a disk or belong to another user.
SURVIVOR_INTERVAL_MS: Final = 500

# The maximum number of processes that a parent reaps before it does anything else. Without a
# maximum, a parent might never finish, because new processes may end all the time.
REAPED_AT_ONCE: Final = 1_000
# The minimum number of rounds before the reaper gives up, even after the deadline. On a busy
# machine, the deadline may pass after very few rounds.
ROUNDS_BEFORE_GIVING_UP: Final = 20

_CLEAN_ROUNDS: Final = 2


class OrphanReaper:
    """Kills all descendants of this process in rounds, except spared processes and their
    descendants.

    The caller sets `must_start` when there may be new orphans. If it is set, the next round begins
    a new series of rounds, with a new deadline. `must_start` is an attribute, because a call of a
    method can fail for lack of memory, but an assignment cannot.

    `survivors` are the processes that are alive after the deadline. Rounds still try to kill them,
    but `is_done` ignores them. `is_blind` says that the deadline has passed, but the processes
    cannot be listed.
    """

    def __init__(self) -> None:
        self.must_start = False
        self.survivors: list[int] = []
        self.is_blind = False
        self._clean_rounds = _CLEAN_ROUNDS
        self._give_up_at = 0.0
        self._rounds = 0

    @property
    def is_done(self) -> bool:
        """Whether all orphans except `survivors` have ended."""
        return self._clean_rounds >= _CLEAN_ROUNDS and not self.must_start

    @property
    def interval_ms(self) -> int | None:
        """The time until the next round is due; None if no round is due."""
        if not self.is_done:
            return SURVIVOR_INTERVAL_MS if self.is_blind else KILL_INTERVAL_MS
        return SURVIVOR_INTERVAL_MS if self.survivors else None

    def kill_round(self, is_spared: Spared) -> None:
        """Kill the orphans that exist now.

        The caller reaps them, and calls again after `interval_ms`.
        """
        if self.must_start:
            self._clean_rounds = self._rounds = 0
            self._give_up_at = time.monotonic() + KILL_DEADLINE_MS / 1000
            self.must_start = False
        found = kill_descendants(is_spared)
        self._rounds += 1
        self.is_blind = False
        if found is None:
            # The orphans could not be listed, so this round cannot count as a round that found no
            # orphan.
            if not self.is_done:
                self._clean_rounds = 0
                self.is_blind = self._is_late
            return
        self.survivors = [pid for pid in self.survivors if pid in found]
        if len(found) == len(self.survivors):
            self._clean_rounds += 1
        elif self.is_done:
            self.must_start = True
        elif self._is_late:
            self.survivors = sorted(found)
            self._clean_rounds = _CLEAN_ROUNDS
        else:
            self._clean_rounds = 0

    @property
    def _is_late(self) -> bool:
        return self._rounds >= ROUNDS_BEFORE_GIVING_UP and time.monotonic() >= self._give_up_at
