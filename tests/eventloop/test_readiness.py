"""Callbacks for readable descriptors."""

from __future__ import annotations

import asyncio
import os
import weakref
from collections.abc import Iterator

import anyio
import anyio.lowlevel
import pytest

from shelld.eventloop.readiness import MAX_IDLE, READABLE, PollerPool, Wakeup, Watch


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe()
    yield ends
    for descriptor in ends:
        os.close(descriptor)


async def test_watch_reports_writes_until_done(pipe: tuple[int, int]) -> None:
    read: list[bytes] = []

    def on_readable() -> bool:
        read.append(os.read(pipe[0], 10))
        if len(read) < 3:
            os.write(pipe[1], b"%d" % len(read))
        return len(read) == 3

    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(Watch(pipe[0]).wait, on_readable)
            await anyio.lowlevel.checkpoint()
            os.write(pipe[1], b"0")
    assert read == [b"0", b"1", b"2"]


async def test_finished_watch_is_not_called_again(pipe: tuple[int, int]) -> None:
    os.write(pipe[1], b"left unread")
    calls = 0

    def on_readable() -> bool:
        nonlocal calls
        calls += 1
        return True

    with anyio.fail_after(60):
        for count in (1, 2):
            await Watch(pipe[0]).wait(on_readable)
            for _ in range(3):
                await anyio.lowlevel.checkpoint()
            assert calls == count


async def test_closed_watch_leaves_the_event_loop(pipe: tuple[int, int]) -> None:
    os.write(pipe[1], b"left unread")
    watch = Watch(pipe[0])
    with anyio.fail_after(60):
        await watch.wait(lambda: True)
    watch.close()
    watch.close()
    assert not asyncio.get_running_loop().remove_reader(pipe[0])


async def test_unread_poller_leaves_the_event_loop(
    pipe: tuple[int, int],
) -> None:
    watch = Watch(pipe[0])
    os.write(pipe[1], b"left unread")
    with anyio.fail_after(60):
        await watch.wait(lambda: True)
        for _ in range(3):
            await anyio.lowlevel.checkpoint()
        assert not asyncio.get_running_loop().remove_reader(pipe[0])
        await watch.wait(lambda: True)
    watch.close()


async def test_callback_error_reaches_the_waiter(pipe: tuple[int, int]) -> None:
    def on_readable() -> bool:
        raise LookupError

    os.write(pipe[1], b"x")
    with anyio.fail_after(60), pytest.raises(LookupError):
        await Watch(pipe[0]).wait(on_readable)


@pytest.mark.parametrize("has_ended", [True, False])
async def test_callback_may_end_its_own_wait(
    pipe: tuple[int, int],
    has_ended: bool,
) -> None:
    os.write(pipe[1], b"x")
    with anyio.fail_after(60), anyio.CancelScope() as scope:

        def on_readable() -> bool:
            os.read(pipe[0], 10)
            scope.cancel()
            return has_ended

        await Watch(pipe[0]).wait(on_readable)
        # The wait has already ended, so the cancellation does not interrupt it.
        assert has_ended
    assert scope.cancel_called


async def test_a_wait_can_be_cancelled_and_begun_again(pipe: tuple[int, int]) -> None:
    with anyio.move_on_after(0):
        await Watch(pipe[0]).wait(lambda: True)
    os.write(pipe[1], b"x")
    with anyio.fail_after(60):
        await Watch(pipe[0]).wait(lambda: True)


async def test_a_wait_ends_at_its_deadline(pipe: tuple[int, int]) -> None:
    clock = anyio.current_time
    watch = Watch(pipe[0])
    with anyio.fail_after(60):
        for _ in range(2):
            until = clock() + 0.02
            await watch.wait(lambda: True, until)
            assert clock() >= until


class StumblingFuture(asyncio.Future[None]):
    """A future that raises the first time that it gets a result."""

    has_failed = False

    def set_result(self, result: None, /) -> None:
        if not self.has_failed:
            self.has_failed = True
            raise MemoryError
        super().set_result(result)


async def test_wait_ends_despite_one_failed_attempt(
    pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = asyncio.get_running_loop()
    failures: list[object] = []
    monkeypatch.setattr(loop, "create_future", lambda: StumblingFuture(loop=loop))
    loop.set_exception_handler(lambda _loop, context: failures.append(context["exception"]))
    with anyio.fail_after(60):
        await Watch(pipe[0]).wait(lambda: True, anyio.current_time())
    assert [type(failure) for failure in failures] == [MemoryError]


async def test_failed_wait_gets_no_callbacks(
    pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_args: object) -> None:
        raise MemoryError

    def on_readable() -> bool:
        read.append(os.read(pipe[0], 10))
        return True

    read: list[bytes] = []
    watch = Watch(pipe[0])
    os.write(pipe[1], b"1")
    await watch.wait(on_readable)
    monkeypatch.setattr(asyncio.get_running_loop(), "call_at", fail)
    with pytest.raises(MemoryError):
        await watch.wait(on_readable, until=anyio.current_time() + 60)
    monkeypatch.undo()
    os.write(pipe[1], b"2")
    for _ in range(5):
        await anyio.lowlevel.checkpoint()
    assert read == [b"1"]
    watch.close()


async def test_deadline_of_wait_only_moves_earlier(pipe: tuple[int, int]) -> None:
    clock = anyio.current_time
    watch = Watch(pipe[0])
    # No task waits yet.
    watch.set_deadline(clock())
    began = clock()
    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(watch.wait, lambda: True, began + 60)
            await anyio.wait_all_tasks_blocked()
            watch.set_deadline(began + 0.02)
            watch.set_deadline(began + 60)
    assert began + 0.02 <= clock()


async def test_shortened_deadline_does_not_affect_next_wait(
    pipe: tuple[int, int],
) -> None:
    watch = Watch(pipe[0])
    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(watch.wait, lambda: True)
            await anyio.wait_all_tasks_blocked()
            watch.set_deadline(anyio.current_time() + 0.03)
            os.write(pipe[1], b"x")
        os.read(pipe[0], 1)
        with anyio.move_on_after(0.1) as scope:
            await watch.wait(lambda: True)
        assert scope.cancelled_caught


async def test_finished_wait_releases_its_callback(pipe: tuple[int, int]) -> None:
    class Reader:
        def __init__(self) -> None:
            self.watch = Watch(pipe[0])

        def on_readable(self) -> bool:
            return True

    reader = Reader()
    os.write(pipe[1], b"x")
    await reader.watch.wait(reader.on_readable, anyio.current_time() + 60)
    reference = weakref.ref(reader)
    del reader
    assert reference() is None


async def test_wakeup_wakes_present_and_later_waiters() -> None:
    wakeup = Wakeup()
    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wakeup.wait)
            await anyio.wait_all_tasks_blocked()
            wakeup.set()
        wakeup.set()
        await wakeup.wait()


async def test_wakeup_of_cancelled_waiter_does_nothing() -> None:
    wakeup = Wakeup()
    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wakeup.wait)
            await anyio.wait_all_tasks_blocked()
            tasks.cancel_scope.cancel()
    wakeup.set()


async def test_returned_poller_is_used_again(pipe: tuple[int, int]) -> None:
    pollers = PollerPool()
    with anyio.fail_after(60):
        for _ in range(3):
            watched = pollers.take()
            watched.poller.register(pipe[0], READABLE)
            os.write(pipe[1], b"x")
            await watched.watch.wait(lambda: os.read(pipe[0], 10) == b"x")
            watched.poller.unregister(pipe[0])
            pollers.give_back(watched)
            assert pollers.take() is watched
            pollers.give_back(watched)
    pollers.close()


async def test_few_pollers_are_kept_and_all_are_closed() -> None:
    def descriptors() -> int:
        return len(os.listdir("/proc/self/fd"))

    before = descriptors()
    pollers = PollerPool()
    taken = [pollers.take() for _ in range(MAX_IDLE + 2)]
    assert descriptors() == before + MAX_IDLE + 2
    for watched in taken:
        pollers.give_back(watched)
    assert descriptors() == before + MAX_IDLE
    pollers.close()
    assert descriptors() == before
