"""The interface of a contestant that runs commands in a terminal."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from compare.contestant import NotOffered, Participant

ROWS, COLS = 24, 80


class Terminal(ABC):
    """A command that was started in a terminal."""

    @abstractmethod
    def answer(self, line: str, end: str) -> int:
        """Write a line; return how many bytes of output came until `end` appeared."""

    def screen(self, line: str, row: str) -> Sequence[str]:
        """Write a line, wait until `row` is on the screen, and return the rows of the screen."""
        raise NotOffered("has no screen")

    @abstractmethod
    def close(self) -> None:
        """End the command, whatever its state."""


class HasTerminals(Participant):
    def terminal(self, command: str, shown: str) -> Terminal:
        """Run a command with bash in a terminal; return when `shown` has appeared in the output."""
        raise NotOffered("has no terminal")


class Output:
    """Takes the output of a terminal piece by piece. Counts the output, and keeps only its last
    part.
    """

    def __init__(self, end: str) -> None:
        self.count = 0
        self._end = end.encode()
        self._last = b""

    def add(self, data: bytes) -> bool:
        """Add output, and return whether the output has `end` now.

        If the output has `end`, do not call this method again.
        """
        self.count += len(data)
        self._last = self._last[-len(self._end) :] + data
        return self._end in self._last
