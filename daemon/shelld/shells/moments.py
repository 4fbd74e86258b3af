"""What others learn of a shell: three moments, each told once, in their order."""

from __future__ import annotations

import enum
from collections.abc import Callable

from shelld.process import faults


class Moment(enum.IntEnum):
    """STARTED: bash was started, or never will be.

    ENDED: the outcome is known; never told of a spare shell, or of a command that could not be
    started. EMPTY: nothing is left of it.
    """

    STARTED = enum.auto()
    ENDED = enum.auto()
    EMPTY = enum.auto()


class Moments:
    """Calls `listen` at each moment. An error in there is reported, and changes nothing here."""

    def __init__(self, listen: Callable[[Moment], None]) -> None:
        self._listen = listen
        # The last moment that was told; 0 before the first.
        self._told = 0

    def tell(self, moment: Moment) -> None:
        """Tell a moment, unless it, or a later one, was told."""
        if moment <= self._told:
            return
        self._told = moment
        try:
            self._listen(moment)
        except Exception:
            faults.report(f"what follows on {moment.name} of a shell")

    def is_told(self, moment: Moment) -> bool:
        return self._told >= moment
