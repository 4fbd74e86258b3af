"""One task at a time has a turn, and a pause follows each turn."""

from __future__ import annotations

import anyio
import pytest
from anyio.lowlevel import checkpoint

from shelld.eventloop.turns import Turns, do_serially


async def test_turns_follow_each_other() -> None:
    turns, events = Turns(), list[str]()

    async def work(name: str) -> None:
        async with turns.turn():
            events.append(f"{name} begins")
            await checkpoint()
            events.append(f"{name} ends")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(work, "a")
        tasks.start_soon(work, "b")
    assert events == ["a begins", "a ends", "b begins", "b ends"]


async def test_next_turn_waits_for_the_pause_after_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    turns, moments = Turns(), list[float]()

    async def sleep_until(moment: float) -> None:
        moments.append(moment)

    monkeypatch.setattr(anyio, "sleep_until", sleep_until)
    async with turns.turn() as turn:
        turn.cost_s = 10
    before = anyio.current_time()
    async with turns.turn():
        pass
    assert len(moments) == 1
    assert moments[0] > before + 20


async def test_short_turns_are_followed_by_one_common_pause(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    turns, now, sleeps = Turns(), 0.0, list[float]()

    async def sleep_until(moment: float) -> None:
        nonlocal now
        sleeps.append(moment - now)
        now = moment

    monkeypatch.setattr(anyio, "current_time", lambda: now)
    monkeypatch.setattr(anyio, "sleep_until", sleep_until)
    for _ in range(100):
        async with turns.turn() as turn:
            now += 0.001
            turn.cost_s = 0.001
    # The pauses take three times as long as the turns.
    assert 0.27 < sum(sleeps) <= 0.3
    assert len(sleeps) < 30


async def test_failed_or_cancelled_owner_ends_its_turn() -> None:
    turns = Turns()
    with pytest.raises(ArithmeticError):
        async with turns.turn():
            raise ArithmeticError
    with anyio.move_on_after(0):
        async with turns.turn():
            await anyio.sleep_forever()
    async with turns.turn():
        pass


async def test_other_tasks_run_between_pieces_of_work_done_alone() -> None:
    events = list[str]()

    async def work(name: str) -> None:
        await do_serially(lambda: events.append(name))

    async def other() -> None:
        for _ in range(20):
            events.append("other")
            await checkpoint()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(other)
        for name in "abc":
            tasks.start_soon(work, name)
    for first, second in zip("abc", "bca"[:2], strict=False):
        between = events[events.index(first) : events.index(second)]
        assert "other" in between


async def test_work_done_alone_does_not_wait_for_a_turn() -> None:
    turns = Turns()
    async with turns.turn():
        assert await do_serially(lambda: 1) == 1
