"""The state table of a command, tested without any command."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from shelld.shells.course import DEADLINES, TABLE, Action, Event, State, next_step

ALL_DEADLINES = {name for names in DEADLINES.values() for name in names}

# Maps each reason to pairs of a state and an event. The reason says why the event cannot happen in
# the state.
IMPOSSIBLE: dict[str, set[tuple[State, Event]]] = {
    "nothing happens any more": {(State.OVER, event) for event in Event},
    "the deadline does not count in this state": {
        (state, name) for state in State for name in ALL_DEADLINES - DEADLINES[state]
    },
    "a runner starts bash once, and reports its start before anything else": {
        (state, event)
        for state in (State.WAITING, State.RUNNING, State.EXITED, State.LEFTOVER)
        for event in (Event.STARTED, Event.START_FAILED)
    }
    | {
        (state, event)
        for state in (State.SPARE, State.STARTING)
        for event in (Event.STOPPED, Event.BASH_EXITED, Event.EXITED_EMPTY)
    },
    "a runner that has started bash was there": {
        (state, event)
        for state in (State.WAITING, State.RUNNING, State.EXITED, State.LEFTOVER)
        for event in (Event.RUNNER_ABSENT, Event.NEVER_STARTED)
    },
    "only a spare shell that waits is told a command": {
        (state, Event.TOLD) for state in State if state is not State.WAITING
    },
    "bash has ended already": {
        (State.EXITED, event) for event in (Event.STOPPED, Event.BASH_EXITED, Event.EXITED_EMPTY)
    },
}


@pytest.mark.parametrize(("state", "event"), list(itertools.product(State, Event)))
def test_every_state_event_pair_is_handled_or_impossible(state: State, event: Event) -> None:
    is_impossible = any((state, event) in pairs for pairs in IMPOSSIBLE.values())
    assert is_impossible is (event not in TABLE[state])


def test_impossible_event_is_an_error() -> None:
    with pytest.raises(ValueError, match="TOLD cannot happen in the state RUNNING"):
        next_step(State.RUNNING, Event.TOLD)


def test_no_step_leads_to_an_earlier_state() -> None:
    order = list(State)
    for state, row in TABLE.items():
        for step in row.values():
            assert order.index(step.state) >= order.index(state)


def test_life_is_over_only_when_proved_empty() -> None:
    """A command gets into the state OVER only by an event which proves that no process is left."""
    proofs = {
        Event.START_FAILED,
        Event.EXITED_EMPTY,
        Event.EMPTY,
        Event.ORPHANS_KILLED,
        Event.NEVER_STARTED,
    }
    for state, row in TABLE.items():
        assert {event for event, step in row.items() if step.state is State.OVER} <= proofs, state


def test_leftovers_have_no_time_limit() -> None:
    assert DEADLINES[State.LEFTOVER] == {Event.KILL_DUE, Event.KEEPER_DUE}


def test_every_action_occurs_in_the_table() -> None:
    asked = {action for row in TABLE.values() for step in row.values() for action in step.actions}
    assert asked == set(Action)


def test_action_causing_events_comes_last() -> None:
    causes = {
        Action.NOTE_WAITING,
        Action.DISCARD,
        Action.ASK_AGAIN,
        Action.TIME_OUT,
        Action.TIME_OUT_IDLE,
        Action.STOP_RUNNER,
        Action.GIVE_UP_ON_KEEPER,
    }
    for row in TABLE.values():
        for step in row.values():
            assert causes.isdisjoint(step.actions[:-1])


class Lives(RuleBasedStateMachine):
    """Sends random events to the table, and keeps track of what the code that uses the table would
    know.
    """

    def __init__(self) -> None:
        super().__init__()
        self.state = State.STARTING
        self.deadlines = {Event.START_DUE}
        self.ends = self.starts = 0
        self.is_known = False
        self.has_orphans = False

    @rule(is_spare=st.booleans())
    @precondition(lambda self: self.state is State.STARTING and not self.starts)
    def choose(self, is_spare: bool) -> None:
        if is_spare:
            self.state = State.SPARE

    @rule(event=st.sampled_from(Event))
    def happen(self, event: Event) -> None:
        if event not in TABLE[self.state]:
            return
        if event in ALL_DEADLINES and event not in self.deadlines:
            return
        if event is Event.ORPHANS_KILLED and not self.has_orphans:
            return
        self.take(event)

    def take(self, event: Event) -> None:
        self.deadlines.discard(event)
        if event in {Event.BASH_EXITED, Event.EXITED_EMPTY}:
            self.is_known = True
        step = next_step(self.state, event)
        if step.state is not self.state:
            self.state = step.state
            self.deadlines &= DEADLINES[self.state]
        for action in step.actions:
            self.perform(action)

    def perform(self, action: Action) -> None:
        sets = {
            Action.SEND_KILL: Event.KILL_DUE,
            Action.AWAIT_KEEPER: Event.KEEPER_DUE,
            Action.AWAIT_OUTPUT: Event.OUTPUT_DUE,
            Action.ASK_AGAIN: Event.START_DUE,
        }
        if action in sets:
            self.deadlines.add(sets[action])
        if action is Action.ASSUME_KILLED:
            self.is_known = True
        elif action is Action.NOTE_START:
            self.starts += 1
        elif action is Action.END:
            assert self.is_known, "an outcome that nobody knows"
            self.ends += 1
        elif action is Action.KILL_ORPHANS:
            self.has_orphans = True
        elif action is Action.STOP_RUNNER:
            self.take(Event.LOST)
        elif action is Action.GIVE_UP_ON_KEEPER:
            self.take(Event.CHANNEL_ENDED)

    @invariant()
    def there_is_one_outcome(self) -> None:
        assert self.ends <= self.starts <= 1
        if self.state in {State.STARTING, State.SPARE, State.WAITING}:
            assert self.starts == 0
        if self.state in {State.RUNNING, State.EXITED}:
            assert (self.starts, self.ends) == (1, 0)
        if self.state is State.LEFTOVER:
            assert self.ends == 1
        if self.state is State.OVER:
            assert self.ends == self.starts

    @invariant()
    def each_deadline_counts(self) -> None:
        assert self.deadlines <= DEADLINES[self.state]

    def teardown(self) -> None:
        """After a kill, the deadlines lead to the state OVER, even if nobody reports anything."""
        if self.state is not State.OVER and Event.KILL_ASKED in TABLE[self.state]:
            self.take(Event.KILL_ASKED)
        for _ in range(10):
            if self.state is State.OVER:
                break
            if self.has_orphans:
                self.take(Event.ORPHANS_KILLED)
            else:
                assert self.deadlines, "nothing will ever happen"
                self.take(min(self.deadlines))
        assert self.state is State.OVER


Lives.TestCase.settings = settings(max_examples=300, stateful_step_count=20)
TestLives = Lives.TestCase
