"""Kills orphans: children of this process that a killed runner or keeper left behind.

A subreaper with other children cannot wait for ECHILD. It scans and kills until two scans in a row
find nothing: reading a list of children takes several steps, and a process that ends between two
steps can hide its neighbour.
"""

from __future__ import annotations

import time
from typing import Final

from shelld.keeper.channel import KILL_DEADLINE_MS
from shelld.keeper.tree import Spared, kill_descendants

# The pause between two rounds of SIGKILL: killed processes need a moment to die and be reaped.
KILL_INTERVAL_MS: Final = 2
# The pause between two rounds after the deadline: survivors wait for a disk or belong to another
# user.
SURVIVOR_INTERVAL_MS: Final = 500

# The maximum number of processes that a parent reaps before it does anything else. While processes
# fork and end, there may always be one more to reap.
REAPED_AT_ONCE: Final = 1_000
# The minimum number of rounds before giving up, even after the deadline: on a busy machine, the
# deadline may pass after very few rounds.
ROUNDS_BEFORE_GIVING_UP: Final = 20

_CLEAN_ROUNDS: Final = 2


class OrphanReaper:
    """Kills everything below this process in rounds, except spared processes and their descendants.

    `survivors`: processes that outlived the deadline; rounds still try to kill them, but `is_done`
    ignores them. `is_blind`: the deadline has passed, and the processes cannot even be listed.
    """

    def __init__(self) -> None:
        self.survivors: list[int] = []
        self.is_blind = False
        self._clean_rounds = _CLEAN_ROUNDS
        self._give_up_at = 0.0
        self._rounds = 0

    @property
    def is_done(self) -> bool:
        """Whether nothing is left except `survivors`."""
        return self._clean_rounds >= _CLEAN_ROUNDS

    @property
    def interval_ms(self) -> int | None:
        """The time until the next round is due; None if none is due."""
        if not self.is_done:
            return SURVIVOR_INTERVAL_MS if self.is_blind else KILL_INTERVAL_MS
        return SURVIVOR_INTERVAL_MS if self.survivors else None

    def start_round(self) -> None:
        """Start over: a process may have left something behind just now."""
        self._clean_rounds = self._rounds = 0
        self._give_up_at = time.monotonic() + KILL_DEADLINE_MS / 1000

    def kill_round(self, is_spared: Spared) -> None:
        """Kill the existing processes. The caller reaps, and calls again after `interval_ms`."""
        found = kill_descendants(is_spared)
        self._rounds += 1
        self.is_blind = False
        if found is None:
            # This round proves nothing.
            if not self.is_done:
                self._clean_rounds = 0
                self.is_blind = self._is_late
            return
        self.survivors = [pid for pid in self.survivors if pid in found]
        if len(found) == len(self.survivors):
            self._clean_rounds += 1
        elif self.is_done:
            self.start_round()
        elif self._is_late:
            self.survivors = sorted(found)
            self._clean_rounds = _CLEAN_ROUNDS
        else:
            self._clean_rounds = 0

    @property
    def _is_late(self) -> bool:
        return self._rounds >= ROUNDS_BEFORE_GIVING_UP and time.monotonic() >= self._give_up_at
