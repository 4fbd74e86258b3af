"""Work in threads: the event loop never waits for a thread to start, and loses no work."""

from __future__ import annotations

import _thread
import gc
import logging
import math
import threading
import weakref
from collections.abc import Callable
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from shelld.eventloop import threads
from shelld.eventloop.threads import MAX_CHECKS, Thread, run_in_thread, wait_for_work
from shelld.process import faults

DEADLINE_S = 60
START = _thread.start_new_thread


class LostThreads:
    """The system starts these threads, but they end at once, because there is not enough memory for
    their first call.

    Threads in which trio waits for events are not lost, because trio's loop would stop without
    them.
    """

    def __init__(self) -> None:
        self.lost: list[Callable[[], object]] = []

    def start(self, function: Callable[..., object], args: tuple[Any, ...]) -> int:
        thread = getattr(function, "__self__", None)
        if isinstance(thread, threading.Thread) and thread.name.startswith("Trio thread"):
            return START(function, args)
        self.lost.append(lambda: function(*args))
        return 0

    def begin(self) -> None:
        """Call the functions of the lost threads, each in a new thread. Wait until all have
        returned.
        """
        for function in self.lost:
            over = _thread.allocate_lock()
            over.acquire()

            def run(function: Callable[[], object] = function, over: Any = over) -> None:
                try:
                    function()
                finally:
                    over.release()

            START(run, ())
            assert over.acquire(timeout=DEADLINE_S)


@pytest.fixture
def lost_threads(monkeypatch: pytest.MonkeyPatch) -> LostThreads:
    lost = LostThreads()
    monkeypatch.setattr(_thread, "start_new_thread", lost.start)
    monkeypatch.setattr(threading, "_start_new_thread", lost.start)
    monkeypatch.setattr(threads, "CHECK_INTERVAL_S", 0.001)
    return lost


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


async def test_result_comes_from_another_thread() -> None:
    assert await run_in_thread(divmod, 7, 2) == (3, 1)
    assert await run_in_thread(threading.get_ident) != threading.get_ident()


class OwnError(Exception):
    pass


def fail() -> None:
    raise OwnError


async def test_error_is_raised_and_leaves_no_cycle() -> None:
    gc.collect()
    gc.disable()
    try:
        with pytest.raises(OwnError) as raised:
            await run_in_thread(fail)
        error = weakref.ref(raised.value)
        del raised
        await anyio.lowlevel.checkpoint()
        assert error() is None
    finally:
        gc.enable()


async def test_a_thread_that_never_begins_blocks_nothing(lost_threads: LostThreads) -> None:
    called: list[bool] = []
    turns, shortage = 0, None

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await anyio.lowlevel.checkpoint()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(count)
        with pytest.raises(RuntimeError) as raised:
            await run_in_thread(called.append, True)
        shortage = faults.shortage(raised.value)
        tasks.cancel_scope.cancel()
    assert shortage is not None
    assert shortage.data["limit"] == "threads"
    assert turns > MAX_CHECKS
    # A thread that was only slow must not call the function after the error.
    lost_threads.begin()
    assert called == []
    assert wait_for_work(0)


async def test_every_waiter_learns_of_thread_that_never_begins(lost_threads: LostThreads) -> None:
    thread = Thread(int)
    thread.start()
    errors: list[RuntimeError] = []

    async def wait() -> None:
        try:
            await thread.wait(anyio.Event())
        except RuntimeError as error:
            errors.append(error)

    with anyio.fail_after(DEADLINE_S):
        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(wait)
    assert len(errors) == 3
    assert not thread.has_ended


async def test_refused_thread_is_a_shortage(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise RuntimeError(faults.NO_THREAD)

    monkeypatch.setattr(_thread, "start_new_thread", refuse)
    with pytest.raises(RuntimeError, match=faults.NO_THREAD):
        await run_in_thread(int)
    assert wait_for_work(0)


async def test_result_is_found_without_memory_to_report_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def no_memory(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(threads, "CHECK_INTERVAL_S", 0.001)
    # The thread may be slow to begin.
    monkeypatch.setattr(threads, "MAX_CHECKS", math.inf)
    monkeypatch.setattr(threads, "call_threadsafe", no_memory)
    with anyio.fail_after(DEADLINE_S):
        assert await run_in_thread(divmod, 7, 2) == (3, 1)


@pytest.mark.parametrize("abandon", [True, False])
async def test_cancellation_waits_for_the_thread_unless_it_may_abandon_it(abandon: bool) -> None:
    begun, go_on, ended = threading.Event(), threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        go_on.wait(DEADLINE_S)
        ended.set()

    async def cancel(scope: anyio.CancelScope) -> None:
        while not begun.is_set():
            await anyio.sleep(0.001)
        scope.cancel()
        await anyio.wait_all_tasks_blocked()
        assert not wait_for_work(0)
        if not abandon:
            go_on.set()

    async with anyio.create_task_group() as tasks:
        with anyio.CancelScope() as scope:
            tasks.start_soon(cancel, scope)
            await run_in_thread(work, abandon_on_cancel=abandon)
        assert scope.cancelled_caught or not abandon
        assert ended.is_set() is not abandon
    go_on.set()
    assert wait_for_work(DEADLINE_S)
    assert ended.is_set()


async def test_limiter_bounds_the_threads() -> None:
    most = running = 0

    def work() -> None:
        nonlocal most, running
        running += 1
        most = max(most, running)
        anyio.run(anyio.lowlevel.checkpoint)
        running -= 1

    limiter = anyio.CapacityLimiter(1)
    async with anyio.create_task_group() as tasks:
        for _ in range(5):
            tasks.start_soon(lambda: run_in_thread(work, limiter=limiter))
    assert most == 1


@pytest.mark.parametrize("place", ["run", "_function", "end", "_on_end"])
@pytest.mark.parametrize("error", [MemoryError, OwnError])
def test_thread_that_fails_anywhere_has_a_result(
    monkeypatch: pytest.MonkeyPatch, place: str, error: type[Exception]
) -> None:
    failures = [error]

    def fail_once() -> None:
        if failures:
            raise failures.pop()

    thread = Thread(int, fail_once if place == "_on_end" else None)
    work = getattr(thread, place)

    def failing() -> Any:
        fail_once()
        return work() if callable(work) else None

    if place != "_on_end":
        monkeypatch.setattr(thread, place, failing)
    thread.start()
    assert thread.join(DEADLINE_S)
    assert thread.has_ended
    if place in ("end", "_on_end"):
        assert thread.result() == 0
    else:
        # The function did not run, so the client can send the request again.
        with pytest.raises(error if place == "_function" else MemoryError):
            thread.result()


def test_joining_threads_stops_at_its_time_limit() -> None:
    go_on = threading.Event()
    thread = Thread(lambda: go_on.wait(DEADLINE_S))
    thread.start()
    assert not thread.join(0.01)
    go_on.set()
    assert thread.join(DEADLINE_S)
    assert thread.result() is True


def test_thread_that_logs_leaves_no_entry() -> None:
    before = threading.enumerate()
    thread = Thread(lambda: logging.getLogger("shelld.test").warning("a line"))
    thread.start()
    assert thread.join(DEADLINE_S)
    assert threading.enumerate() == before
