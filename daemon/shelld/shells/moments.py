"""The three moments of a shell that are reported to others, each once and in order."""

from __future__ import annotations

import enum
from collections.abc import Callable

from shelld.process import faults


class Moment(enum.IntEnum):
    """STARTED: bash has started, or never will.

    ENDED: the outcome is known. A spare shell, or a command that could not start, never reaches
    ENDED. EMPTY: no process is left.
    """

    STARTED = enum.auto()
    ENDED = enum.auto()
    EMPTY = enum.auto()


class Moments:
    """Calls `listen` whenever one of these moments comes. Reports an error of `listen` and ignores
    it."""

    def __init__(self, listen: Callable[[Moment], None]) -> None:
        self._listen = listen
        # The last moment of which `listen` was told; 0 before the first.
        self._told = 0

    def tell(self, moment: Moment) -> None:
        """Tell `listen` of a moment, unless it knows of this moment or of a later one."""
        if moment <= self._told:
            return
        self._told = moment
        try:
            self._listen(moment)
        except Exception:
            faults.report(f"what follows on {moment.name} of a shell")

    def is_told(self, moment: Moment) -> bool:
        return self._told >= moment
