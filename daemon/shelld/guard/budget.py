"""The limits of one judgement, and the exceptions that end it early."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

from shelld.guard.markers import UNKNOWN, plain
from shelld.guard.policy import Policy
from shelld.guard.verdict import MAX_SEGMENT, Finding

MAX_TRACE: Final = 200
MAX_STEPS: Final = 3_000
# What takes as long as a step: about ten microseconds.
CHARACTERS_PER_STEP: Final = 1_000
MAX_SECONDS: Final = 0.25
# Of that for one script, which leaves some for the commands of one that cannot be parsed in time.
# Valid scripts take a tenth of it.
MAX_PARSE_SECONDS: Final = 0.1
MAX_PARSE_SECONDS_AT_ONCE: Final = 0.01
# To look at the clock takes a tenth of a step.
_STEPS_PER_LOOK: Final = 16
MAX_DEPTH: Final = 72


class Blocked(Exception):
    """The command must not run. `segment` is the part of it that the finding is about."""

    def __init__(self, finding: Finding, segment: str) -> None:
        super().__init__(finding.rule)
        self.finding = finding
        self.segment = segment.strip()[:MAX_SEGMENT]


class Exhausted(Exception):
    """A judgement would take more steps than it was given."""


class Budget:
    """What one judgement may take, and what it has found on its way; shared by all its shells.

    With `gives_up`, a judgement ends with `Exhausted` where otherwise it counts as unresolved.
    """

    def __init__(
        self,
        *,
        policy: Policy,
        traces: bool,
        reports: bool = True,
        steps: int = MAX_STEPS,
        gives_up: bool = False,
    ) -> None:
        self.policy = policy
        # If not, what is found does not count.
        self.reports = reports
        self.steps: float = steps
        self.parse_seconds = MAX_PARSE_SECONDS_AT_ONCE if gives_up else MAX_PARSE_SECONDS
        self._gives_up = gives_up
        self._taken = 0
        # Of this thread: on a busy machine, a verdict must not be another.
        self._give_up_at = time.thread_time() + MAX_SECONDS
        self.depth = 0
        # The functions that are being called.
        self.active: list[object] = []
        self.unresolved: str | None = None
        self.trace: list[str] = []
        self._traces = traces

    def take(self) -> bool:
        """Whether another step may be taken, and at this depth."""
        self.steps -= 1
        if self.steps <= 0 and self._gives_up:
            raise Exhausted
        self._taken += 1
        if self._taken % _STEPS_PER_LOOK == 0 and not self.has_time():
            self.steps = 0
        return self.steps > 0 and self.depth <= MAX_DEPTH

    def spend(self, characters: int) -> None:
        """Count text that was looked at. Raises `Exhausted`."""
        self.steps -= characters / CHARACTERS_PER_STEP
        if self.steps <= 0 and self._gives_up:
            raise Exhausted

    def has_time(self) -> bool:
        return self.steps > 0 and time.thread_time() < self._give_up_at

    def too_slow(self) -> None:
        """A script could not be parsed in time. Raises `Exhausted`."""
        if self._gives_up:
            raise Exhausted
        self.unresolved = self.unresolved or "it takes too long to be followed"

    def note(self, argv: Sequence[str]) -> None:
        """Put a command into the trace, if there is one."""
        if self._traces and len(self.trace) < MAX_TRACE:
            line = " ".join(plain(each).replace(UNKNOWN, "<unknown>") for each in argv)
            self.trace.append(line[:MAX_SEGMENT])
