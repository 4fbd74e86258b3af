"""What one judgement may take, and how it gets out of a walk once it knows."""

from __future__ import annotations

import time
from typing import Final

from shelld.guard.policy import Policy

MAX_SEGMENT: Final = 200
MAX_TRACE: Final = 200
MAX_STEPS: Final = 3_000
MAX_SECONDS: Final = 0.25
MAX_DEPTH: Final = 72


class Blocked(Exception):
    def __init__(self, rule: str, segment: str, reason: str) -> None:
        super().__init__(rule)
        self.rule = rule
        self.segment = segment.strip()[:MAX_SEGMENT]
        self.reason = reason


class Budget:
    """What one judgement may take, and what it has found on its way; shared by all its shells."""

    def __init__(self, *, policy: Policy, traces: bool, reports: bool = True) -> None:
        self.policy = policy
        # If not, what is found does not count.
        self.reports = reports
        self.steps = MAX_STEPS
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
        return self.steps > 0 and self.depth <= MAX_DEPTH and self.has_time()

    def has_time(self) -> bool:
        return time.thread_time() < self._give_up_at

    def note(self, line: str) -> None:
        if self._traces and len(self.trace) < MAX_TRACE:
            self.trace.append(line[:MAX_SEGMENT])
