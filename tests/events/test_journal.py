"""The entries in the journal of a subscription have numbers without gaps."""

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
