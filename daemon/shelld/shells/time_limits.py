"""Enforces the limits of a request: how long its command may run, and how long it may be silent."""

from __future__ import annotations

from shelld.shells.course import Event
from shelld.shells.deadlines import Deadlines
from shelld.shells.launch import StartRequest, TimeoutPolicy
from shelld.shells.shell import Shell


class TimeLimits:
    """Sets the deadlines TIMEOUT_DUE and IDLE_DUE."""

    def __init__(self, shell: Shell, deadlines: Deadlines) -> None:
        self._shell = shell
        self._deadlines = deadlines
        self._policies: dict[Event, TimeoutPolicy] = {}
        # The number of bytes that the command had written at the last check.
        self._written = 0

    def begin(self, request: StartRequest) -> None:
        """Start the clock for the time limits of a request."""
        if request.timeout is not None:
            self._policies[Event.TIMEOUT_DUE] = request.timeout
        if request.idle_timeout is not None:
            self._policies[Event.IDLE_DUE] = request.idle_timeout
        for name, policy in self._policies.items():
            self._deadlines.set(name, policy.timeout_ms / 1000)

    def note_output(self) -> None:
        """Postpone the limit on silence if the command has written something."""
        policy = self._policies.get(Event.IDLE_DUE)
        if policy is None or not self._deadlines.has(Event.IDLE_DUE):
            return
        written = self._shell.output.written
        if written > self._written:
            self._written = written
            self._deadlines.set(Event.IDLE_DUE, policy.timeout_ms / 1000)

    def policy(self, name: Event) -> TimeoutPolicy:
        """Return the policy that says what happens at a deadline."""
        return self._policies[name]

    def lift(self) -> None:
        """Drop both limits."""
        self._deadlines.drop(*self._policies)
