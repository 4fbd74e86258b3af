"""Which sessions get spare shells, tested without processes: the clock is a number."""

from __future__ import annotations

import math
from typing import NamedTuple

import pytest

from shelld.shells.spare_policy import SparePolicy


class Clock:
    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


class Spare(NamedTuple):
    session_name: str | None
    since: float


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def policy(clock: Clock) -> SparePolicy:
    return SparePolicy(clock, 4)


def start_slowly(policy: SparePolicy, name: str, times: float) -> None:
    for _ in range(int(times)):
        policy.command_ended(name)
        policy.command_comes(name, math.inf)


def test_command_gets_one_spare_shell(policy: SparePolicy) -> None:
    policy.command_ended("a")
    assert policy.wanted("a") == 1


def test_only_rapid_commands_want_more_spare_shells(policy: SparePolicy, clock: Clock) -> None:
    assert policy.wanted_meanwhile("a") == 0
    policy.command_ended("a")
    clock.now += policy.in_a_row_s / 2
    assert (policy.wanted_meanwhile("a"), policy.wanted_meanwhile("b")) == (policy.in_a_row, 0)
    clock.now += policy.in_a_row_s
    assert policy.wanted_meanwhile("a") == 0


def test_uniformly_long_starts_are_not_slow(policy: SparePolicy) -> None:
    def shares_that_are_slow(usual: float, shares: list[float]) -> list[bool]:
        return [policy._is_slow(usual * share) for share in shares]  # pyright: ignore[reportPrivateUsage]

    quick, long = policy.slow_start_s / policy.slow_start_factor, 10 * policy.slow_start_s
    assert shares_that_are_slow(long, [1, 2, 0.5, 3.9]) == [False] * 4
    assert shares_that_are_slow(long, [4.1]) == [True]
    assert shares_that_are_slow(quick, [1, 7.9, 8.1]) == [False, False, True]
    # A faster start does not lower the threshold.
    assert shares_that_are_slow(quick, [0.1, 7.9, 8.1]) == [False, False, True]


def test_slow_starts_end_spare_shells(policy: SparePolicy) -> None:
    start_slowly(policy, "a", policy.max_slow_starts - 1)
    assert policy.wanted("a") == 1
    start_slowly(policy, "a", 1)
    assert (policy.wanted("a"), policy.wanted_meanwhile("a"), policy.wanted("b")) == (0, 0, 1)
    policy.command_comes("a", 0.0001)
    assert policy.wanted("a") == 1


def test_pause_between_commands_clears_slow_starts(policy: SparePolicy, clock: Clock) -> None:
    start_slowly(policy, "a", 2 * policy.max_slow_starts)
    policy.command_ended("a")
    clock.now += policy.pause_s / 2
    policy.command_comes("a")
    assert policy.wanted("a") == 0
    clock.now += policy.pause_s
    policy.command_comes("a")
    start_slowly(policy, "a", policy.max_slow_starts - 1)
    assert policy.wanted("a") == 1


def test_slow_session_retries_single_start_after_delay(policy: SparePolicy, clock: Clock) -> None:
    start_slowly(policy, "a", 2 * policy.max_slow_starts)
    for _ in range(3):
        clock.now += policy.retry_s * 1.1
        policy.command_ended("a")
        policy.command_comes("a")
        assert policy.wanted("a") == 1
        start_slowly(policy, "a", 1)
        assert policy.wanted("a") == 0


def test_unusable_spare_shells_are_given_up(policy: SparePolicy) -> None:
    fails = [policy.note_use(succeeded=False) for _ in range(policy.max_failures - 1)]
    assert all(fails)
    assert policy.note_use(succeeded=True)
    fails = [policy.note_use(succeeded=False) for _ in range(policy.max_failures)]
    assert fails == [True] * (policy.max_failures - 1) + [False]


def test_surplus_gives_way_before_old_spare_shells(policy: SparePolicy, clock: Clock) -> None:
    old, young = clock.now - policy.min_age_s, clock.now
    assert policy.one_that_gives_way([Spare("a", young), Spare("b", young)]) is None
    waiting = [Spare("a", old), Spare("b", young), Spare("b", young)]
    assert policy.one_that_gives_way(waiting) is waiting[2]
    assert policy.one_that_gives_way(waiting[:2]) is waiting[0]


def test_long_waiting_spare_shells_are_not_needed(policy: SparePolicy, clock: Clock) -> None:
    idle, old = clock.now - policy.idle_s, clock.now - policy.min_age_s
    waiting = [Spare("a", idle), Spare("a", old), Spare("b", old), Spare("b", clock.now)]
    assert policy.not_needed(waiting) == [waiting[1], waiting[0]]


def test_a_closed_session_is_forgotten(policy: SparePolicy) -> None:
    start_slowly(policy, "a", policy.max_slow_starts)
    policy.forget("a")
    assert policy.wanted("a") == 1
