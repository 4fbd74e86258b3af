"""Reports three moments in the life of a shell to a listener, each moment once and in order."""

from __future__ import annotations

import enum
from collections.abc import Callable

from shelld.process import faults


class Moment(enum.IntEnum):
    """STARTED: bash has started, or it is certain that bash will not start.

    ENDED: the outcome is known. A spare shell, or a command that could not start, never reaches
    ENDED. EMPTY: no process is left.
    """

    STARTED = enum.auto()
    ENDED = enum.auto()
    EMPTY = enum.auto()


class Moments:
    """Calls `listen` at each moment. If `listen` raises, this logs the error and goes on."""

    def __init__(self, listen: Callable[[Moment], None]) -> None:
        self._listen = listen
        # The last moment that was reported to `listen`; 0 before the first.
        self._told = 0

    def tell(self, moment: Moment) -> None:
        """Report a moment to `listen`, unless this moment or a later one was already reported."""
        if moment <= self._told:
            return
        self._told = moment
        try:
            self._listen(moment)
        except Exception:
            faults.report(f"the handler of {moment.name} of a shell")

    def is_told(self, moment: Moment) -> bool:
        return self._told >= moment
