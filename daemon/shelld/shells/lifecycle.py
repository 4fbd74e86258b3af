"""Defines the states of a shell, and the events that change them, as a table.

An ended shell never changes its state again, even if its leftover processes still run.
"""

from __future__ import annotations

import enum
from typing import Final


class ShellStatus(enum.StrEnum):
    """The states of a shell. The values are the names of these states in the protocol."""

    PENDING = "pending"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    KILLED = "killed"
    TIMEOUT = "timeout"


class ShellEvent(enum.StrEnum):
    STARTED = enum.auto()
    EXITED_ZERO = enum.auto()
    EXITED_NONZERO = enum.auto()
    KILLED = enum.auto()
    TIMED_OUT = enum.auto()


TRANSITIONS: Final[dict[tuple[ShellStatus, ShellEvent], ShellStatus]] = {
    (ShellStatus.PENDING, ShellEvent.STARTED): ShellStatus.RUNNING,
    (ShellStatus.RUNNING, ShellEvent.EXITED_ZERO): ShellStatus.COMPLETED,
    (ShellStatus.RUNNING, ShellEvent.EXITED_NONZERO): ShellStatus.FAILED,
    (ShellStatus.RUNNING, ShellEvent.KILLED): ShellStatus.KILLED,
    (ShellStatus.RUNNING, ShellEvent.TIMED_OUT): ShellStatus.TIMEOUT,
}

# The transitions as pairs of states, without their events.
STEPS: Final = frozenset((before, after) for (before, _), after in TRANSITIONS.items())

LIVE: Final = frozenset({ShellStatus.PENDING, ShellStatus.RUNNING})


def next_status(status: ShellStatus, event: ShellEvent) -> ShellStatus:
    """Return the state after `event`. Raises ValueError if the table has no such transition."""
    try:
        return TRANSITIONS[status, event]
    except KeyError:
        raise ValueError(f"a {status.value} shell cannot take {event.name}") from None
