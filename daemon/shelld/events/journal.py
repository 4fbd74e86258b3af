"""The last events of a subscription, numbered from 1. Pure.

Each event has a weight, which stands for its size in memory.

Invariants: the numbers of the kept events are consecutive. The last of these numbers is `newest`.
The total weight of the kept events is at most `limit`, unless only one event is kept.
"""

from __future__ import annotations

from typing import Generic, Protocol, TypeVar


class Weighed(Protocol):
    @property
    def weight(self) -> int: ...


T = TypeVar("T", bound=Weighed)


class Journal(Generic[T]):
    """Keeps the last events, as many as `limit` allows."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        # The kept events by their numbers, in order.
        self._kept: dict[int, T] = {}
        # The weight of all kept events.
        self.weight = 0

    @property
    def newest(self) -> int:
        """The number of the last event; 0 before the first event."""
        return next(reversed(self._kept), 0)

    @property
    def oldest(self) -> int:
        """The number of the oldest kept event, or of the next event if no event is kept."""
        return self.newest - len(self._kept) + 1

    def add(self, event: T) -> int:
        """Keep an event; return its number."""
        # Number the event and keep it in one step, so that no failure can happen between the two.
        self._kept[seq := self.newest + 1] = event
        self.weight += event.weight
        while self.weight > self._limit and len(self._kept) > 1:
            self.weight -= self._kept.pop(self.oldest).weight
        return seq

    def get(self, seq: int) -> T:
        """Return an event. Raises KeyError if it is not kept."""
        return self._kept[seq]
