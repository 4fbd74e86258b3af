"""Defines the limits of one judgement, and the exceptions that end a judgement early."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

from shelld.guard.markers import UNKNOWN, plain
from shelld.guard.policy import Policy
from shelld.guard.verdict import MAX_SEGMENT, Finding

MAX_TRACE: Final = 200
MAX_STEPS: Final = 3_000
# The guard can process this many characters in the time that one step takes, about ten
# microseconds.
CHARACTERS_PER_STEP: Final = 1_000
MAX_SECONDS: Final = 0.25
# The maximum time for parsing one script. If parsing takes longer, the guard stops the parser. It
# then finds commands without the parser, in the rest of `MAX_SECONDS`. Parsing a valid script takes
# about a tenth of `MAX_PARSE_SECONDS`.
MAX_PARSE_SECONDS: Final = 0.1
MAX_PARSE_SECONDS_AT_ONCE: Final = 0.01
# The guard reads the clock once every `_STEPS_PER_LOOK` steps. Reading the clock takes a tenth as
# long as a step.
_STEPS_PER_LOOK: Final = 16
MAX_DEPTH: Final = 72


class Blocked(Exception):
    """The command must not run. `segment` is the part of the command that breaks a rule."""

    def __init__(self, finding: Finding, segment: str) -> None:
        super().__init__(finding.rule)
        self.finding = finding
        self.segment = _shown(segment.strip())


class Exhausted(Exception):
    """A judgement needs more steps or parse time than its budget has."""


class Budget:
    """The limits and intermediate results of one judgement, which all shells of the judgement
    share.

    If the steps or the parse time run out, the verdict becomes unresolved. With `gives_up`, the
    budget raises `Exhausted` instead.
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
        # If false, the guard ignores what its rules find.
        self.reports = reports
        self.steps: float = steps
        self.parse_seconds = MAX_PARSE_SECONDS_AT_ONCE if gives_up else MAX_PARSE_SECONDS
        self._gives_up = gives_up
        self._taken = 0
        # Measure the CPU time of this thread, so that a busy machine does not change a verdict.
        self._give_up_at = time.thread_time() + MAX_SECONDS
        self.depth = 0
        # The stack of function calls.
        self.active: list[object] = []
        self.unresolved: str | None = None
        self.trace: list[str] = []
        self._traces = traces

    def take(self) -> bool:
        """Count a step. Return whether the limits on steps, time and depth allow this step.

        With `gives_up`, raises `Exhausted` if no steps are left.
        """
        self.steps -= 1
        if self.steps <= 0 and self._gives_up:
            raise Exhausted
        self._taken += 1
        if self._taken % _STEPS_PER_LOOK == 0 and not self.has_time():
            self.steps = 0
        return self.steps > 0 and self.depth <= MAX_DEPTH

    def spend(self, characters: int) -> None:
        """Subtract the cost of processing `characters` characters. Raises `Exhausted`."""
        self.steps -= characters / CHARACTERS_PER_STEP
        if self.steps <= 0 and self._gives_up:
            raise Exhausted

    def has_time(self) -> bool:
        return self.steps > 0 and time.thread_time() < self._give_up_at

    def too_slow(self) -> None:
        """Record that a script could not be parsed in time. Raises `Exhausted`."""
        if self._gives_up:
            raise Exhausted
        self.unresolved = self.unresolved or "it takes too long to be followed"

    def note(self, argv: Sequence[str]) -> None:
        """Add a command to the trace, if tracing is on."""
        if self._traces and len(self.trace) < MAX_TRACE:
            line = " ".join(plain(each).replace(UNKNOWN, "<unknown>") for each in argv)
            self.trace.append(_shown(line))


def _shown(text: str) -> str:
    """Shorten a text that a verdict quotes, and replace lone surrogates."""
    return text[:MAX_SEGMENT].encode("utf-8", "replace").decode()
