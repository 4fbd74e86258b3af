"""The table of states has exactly the transitions of the diagram."""

from __future__ import annotations

import itertools

import pytest

from shelld.shells.lifecycle import LIVE, TRANSITIONS, ShellEvent, ShellStatus, next_status

DRAWN = {
    ("pending", "STARTED", "running"),
    ("running", "EXITED_ZERO", "completed"),
    ("running", "EXITED_NONZERO", "failed"),
    ("running", "TIMED_OUT", "timeout"),
    ("running", "KILLED", "killed"),
}


def test_transitions_match_the_diagram() -> None:
    found = {(old.value, event.name, new.value) for (old, event), new in TRANSITIONS.items()}
    assert found == DRAWN


@pytest.mark.parametrize(("status", "event"), list(itertools.product(ShellStatus, ShellEvent)))
def test_every_other_transition_is_refused(status: ShellStatus, event: ShellEvent) -> None:
    if (status, event) in TRANSITIONS:
        next_status(status, event)
    else:
        with pytest.raises(ValueError, match="cannot take"):
            next_status(status, event)


def test_ended_states_are_final() -> None:
    assert {status for status, _ in TRANSITIONS} == LIVE
