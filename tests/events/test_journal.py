"""The entries in the journal of a subscription have numbers without gaps."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shelld.events.entries import FactEntry
from shelld.events.journal import Journal
from shelld_protocol.event_methods import LeftoverEvent, ListeningEvent
from shelld_protocol.structs import Listener


class Event(NamedTuple):
    number: int
    weight: int = 1


@given(st.integers(1, 20), st.integers(0, 60))
def test_numbers_of_kept_events_are_consecutive(limit: int, count: int) -> None:
    journal: Journal[Event] = Journal(limit)
    assert [journal.add(Event(number)) for number in range(1, count + 1)] == list(
        range(1, count + 1)
    )
    assert journal.newest == count
    assert journal.oldest == max(1, count - limit + 1)
    assert [journal.get(seq).number for seq in range(journal.oldest, count + 1)] == list(
        range(journal.oldest, count + 1)
    )
    with pytest.raises(KeyError):
        journal.get(journal.oldest - 1)


@given(st.integers(1, 20), st.lists(st.integers(1, 30)))
def test_weight_of_kept_events_has_a_limit(limit: int, weights: list[int]) -> None:
    journal: Journal[Event] = Journal(limit)
    for number, weight in enumerate(weights, 1):
        assert journal.add(Event(number, weight)) == number
        kept = range(journal.oldest, number + 1)
        assert [journal.get(seq).number for seq in kept] == list(kept)
        assert journal.weight == sum(weights[journal.oldest - 1 : number])
        assert journal.weight <= limit or len(kept) == 1
        before = weights[journal.oldest - 2] if journal.oldest > 1 else limit
        assert journal.weight + before > limit or journal.oldest == 1


def test_events_that_list_much_weigh_more() -> None:
    def weight(count: int) -> tuple[int, int]:
        ports = [Listener(port, "::", 1, "server") for port in range(count)]
        pids = list(range(count))
        return (
            FactEntry("x", None, "shell/listening", ListeningEvent, {"listening": ports}).weight,
            FactEntry("x", None, "shell/leftover", LeftoverEvent, {"leftover": pids}).weight,
        )

    assert [weight(count) for count in (0, 1, 7, 4_000)] == [(1, 1), (1, 1), (1, 1), (1_000, 1_000)]
