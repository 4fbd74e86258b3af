"""Tests which sessions get spare shells. The tests need no processes, and a number is the clock."""

from __future__ import annotations

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
    return SparePolicy(clock, limit=4, processors=2)


def test_command_follows_at_once_only_shortly_after_the_last_one(
    policy: SparePolicy, clock: Clock
) -> None:
    policy.command_is_over("a")
    assert not policy.follows_at_once("a")
    policy.note_start(0.001)
    policy.note_start(0.1)
    clock.now += 0.009
    assert policy.follows_at_once("a")
    assert not policy.follows_at_once("b")
    clock.now += 0.002
    assert not policy.follows_at_once("a")


def test_limit_of_running_commands_grows_with_the_processors(clock: Clock) -> None:
    running = [SparePolicy(clock, 4, processors).max_running for processors in (1, 2, 8)]
    assert running == [4, 4, 16]


def test_session_gets_its_own_spare_shell_once_used_again_soon(policy: SparePolicy) -> None:
    names = [str(number) for number in range(policy.limit)]
    assert [policy.command_is_over(name) for name in names] == [False] * policy.limit
    assert [policy.command_is_over(name) for name in names] == [True] * policy.limit
    assert not policy.command_is_over("another")
    assert not policy.command_is_over(names[0])
    assert policy.command_is_over(names[0])


def test_unusable_spare_shells_are_given_up(policy: SparePolicy) -> None:
    fails = [policy.note_use(succeeded=False) for _ in range(policy.max_failures - 1)]
    assert all(fails)
    assert policy.note_use(succeeded=True)
    fails = [policy.note_use(succeeded=False) for _ in range(policy.max_failures)]
    assert fails == [True] * (policy.max_failures - 1) + [False]


def test_second_spare_shell_of_a_session_ends_before_older_ones(
    policy: SparePolicy, clock: Clock
) -> None:
    old, young = clock.now - policy.min_age_s, clock.now
    assert policy.one_that_gives_way([Spare("a", young), Spare("b", young)]) is None
    waiting = [Spare("a", old), Spare("b", young), Spare("b", young)]
    assert policy.one_that_gives_way(waiting) is waiting[2]
    assert policy.one_that_gives_way(waiting[:2]) is waiting[0]


def test_spare_shells_that_wait_too_long_are_not_needed(policy: SparePolicy, clock: Clock) -> None:
    idle, old = clock.now - policy.idle_s, clock.now - policy.min_age_s
    waiting = [Spare("a", idle), Spare("a", old), Spare("b", old), Spare("b", clock.now)]
    assert policy.not_needed(waiting) == [waiting[1], waiting[0]]


def test_a_closed_session_is_forgotten(policy: SparePolicy) -> None:
    policy.command_is_over("a")
    policy.command_is_over("b")
    assert not policy.forget("a")
    assert not policy.command_is_over("a")
    policy.forget("a")
    assert policy.forget("b")
