"""Which command a refusal of the proxy belongs to."""

from __future__ import annotations

import math

from shelld.sandbox.denials import Denials
from shelld.sandbox.guests import Guests


class Command:
    def __init__(self, runner: int | None, began: float) -> None:
        self.runner = runner
        self.began = began
        self.denials = Denials()
        self.is_gone = False

    @property
    def count(self) -> int:
        return sum(each.count for each in self.denials.shown or ())


def test_a_refusal_belongs_to_the_command_of_its_runner() -> None:
    guests, one, other = Guests(), Command(1, 0.0), Command(2, 0.0)
    guests.join(one)
    guests.join(other)
    guests.note_denial((2, "a.org", 1, "not_listed", 3, 1.0))
    assert (one.count, other.count) == (0, 3)
    guests.leave(other)
    assert not guests.are_none


def test_refusal_without_owner_belongs_to_all_commands_of_its_time() -> None:
    guests = Guests()
    early, late, spare, lost = (
        *(Command(1, 1.0), Command(2, 3.0), Command(3, math.inf), Command(None, 1.0)),
    )
    for each in (early, late, spare, lost):
        guests.join(each)
    guests.note_denial((0, "a.org", 1, "not_listed", 1, 2.0))
    assert [each.count for each in (early, late, spare, lost)] == [1, 0, 0, 1]


def test_earlier_refusal_does_not_belong_to_the_runners_next_command() -> None:
    guests, new, other = Guests(), Command(1, 3.0), Command(2, 1.0)
    guests.join(new)
    guests.join(other)
    guests.note_denial((1, "a.org", 1, "not_listed", 1, 2.0))
    assert (new.count, other.count) == (0, 1)


def test_gone_command_is_no_guest_before_it_leaves() -> None:
    guests, command, other = Guests(), Command(1, 0.0), Command(2, 0.0)
    guests.join(command)
    command.is_gone = True
    are_none = [guests.are_none]
    guests.join(other)
    are_none.append(guests.are_none)
    # These calls come too late, which does no harm.
    guests.leave(command)
    guests.leave(other)
    are_none.append(guests.are_none)
    assert are_none == [True, False, True]
