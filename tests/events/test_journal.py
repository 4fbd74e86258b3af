"""The journal of a subscription: its numbers have no hole."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shelld.events.journal import Journal


@given(st.integers(1, 20), st.integers(0, 60))
def test_kept_numbers_have_no_hole(limit: int, count: int) -> None:
    journal: Journal[int] = Journal(limit)
    assert [journal.add(number) for number in range(1, count + 1)] == list(range(1, count + 1))
    assert journal.newest == count
    assert journal.oldest == max(1, count - limit + 1)
    assert [journal.get(seq) for seq in range(journal.oldest, count + 1)] == list(
        range(journal.oldest, count + 1)
    )
    with pytest.raises(KeyError):
        journal.get(journal.oldest - 1)


@given(st.integers(1, 20), st.integers(0, 60), st.integers(-5, 80))
def test_client_continues_where_nothing_is_missing(limit: int, count: int, seq: int) -> None:
    journal: Journal[int] = Journal(limit)
    for number in range(count):
        journal.add(number)
    can = journal.can_continue_after(seq)
    assert can == (max(0, count - limit) <= seq <= count)
