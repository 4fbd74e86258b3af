"""To be called when a descriptor is readable."""

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


async def test_it_tells_of_every_write_until_that_is_enough(pipe: tuple[int, int]) -> None:
    read: list[bytes] = []

    def on_readable() -> bool:
        read.append(os.read(pipe[0], 10))
        if len(read) < 3:
            os.write(pipe[1], b"%d" % len(read))
        return len(read) == 3

    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(Watch(pipe[0]).wait, on_readable)
            await anyio.lowlevel.checkpoint()
            os.write(pipe[1], b"0")
    assert read == [b"0", b"1", b"2"]


async def test_it_is_not_told_again_once_it_has_had_enough(pipe: tuple[int, int]) -> None:
    os.write(pipe[1], b"left unread")
    calls = 0

    def on_readable() -> bool:
        nonlocal calls
        calls += 1
        return True

    with anyio.fail_after(10):
        for count in (1, 2):
            await Watch(pipe[0]).wait(on_readable)
            for _ in range(3):
                await anyio.lowlevel.checkpoint()
            assert calls == count


async def test_once_it_is_over_the_event_loop_does_not_watch(pipe: tuple[int, int]) -> None:
    os.write(pipe[1], b"left unread")
    watch = Watch(pipe[0])
    with anyio.fail_after(10):
        await watch.wait(lambda: True)
    watch.close()
    watch.close()
    assert not asyncio.get_running_loop().remove_reader(pipe[0])


async def test_between_waits_the_event_loop_stops_to_watch_what_is_not_read(
    pipe: tuple[int, int],
) -> None:
    watch = Watch(pipe[0])
    os.write(pipe[1], b"left unread")
    with anyio.fail_after(10):
        await watch.wait(lambda: True)
        for _ in range(3):
            await anyio.lowlevel.checkpoint()
        assert not asyncio.get_running_loop().remove_reader(pipe[0])
        await watch.wait(lambda: True)
    watch.close()


async def test_what_it_raises_is_raised_where_somebody_waits(pipe: tuple[int, int]) -> None:
    def on_readable() -> bool:
        raise LookupError

    os.write(pipe[1], b"x")
    with anyio.fail_after(10), pytest.raises(LookupError):
        await Watch(pipe[0]).wait(on_readable)


@pytest.mark.parametrize("has_ended", [True, False])
async def test_it_may_end_the_wait_that_it_is_called_in(
    pipe: tuple[int, int],
    has_ended: bool,
) -> None:
    os.write(pipe[1], b"x")
    with anyio.fail_after(10), anyio.CancelScope() as scope:

        def on_readable() -> bool:
            os.read(pipe[0], 10)
            scope.cancel()
            return has_ended

        await Watch(pipe[0]).wait(on_readable)
        # What has ended is not cancelled any more.
        assert has_ended
    assert scope.cancel_called


async def test_a_wait_can_be_cancelled_and_begun_again(pipe: tuple[int, int]) -> None:
    with anyio.move_on_after(0):
        await Watch(pipe[0]).wait(lambda: True)
    os.write(pipe[1], b"x")
    with anyio.fail_after(10):
        await Watch(pipe[0]).wait(lambda: True)


async def test_a_wait_ends_when_its_time_has_come(pipe: tuple[int, int]) -> None:
    clock = anyio.current_time
    watch = Watch(pipe[0])
    with anyio.fail_after(10):
        for _ in range(2):
            until = clock() + 0.02
            await watch.wait(lambda: True, until)
            assert clock() >= until


class StumblingFuture(asyncio.Future[None]):
    """Fails when it is first given a result."""

    has_failed = False

    def set_result(self, result: None, /) -> None:
        if not self.has_failed:
            self.has_failed = True
            raise MemoryError
        super().set_result(result)


async def test_a_wait_ends_although_its_end_has_failed_once(
    pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = asyncio.get_running_loop()
    failures: list[object] = []
    monkeypatch.setattr(loop, "create_future", lambda: StumblingFuture(loop=loop))
    loop.set_exception_handler(lambda _loop, context: failures.append(context["exception"]))
    with anyio.fail_after(10):
        await Watch(pipe[0]).wait(lambda: True, anyio.current_time())
    assert [type(failure) for failure in failures] == [MemoryError]


async def test_a_wait_that_could_not_begin_is_told_nothing(
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


async def test_a_wait_can_be_made_shorter_but_not_longer(pipe: tuple[int, int]) -> None:
    clock = anyio.current_time
    watch = Watch(pipe[0])
    # Nobody waits.
    watch.set_deadline(clock())
    began = clock()
    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(watch.wait, lambda: True, began + 60)
            await anyio.wait_all_tasks_blocked()
            watch.set_deadline(began + 0.02)
            watch.set_deadline(began + 60)
    assert began + 0.02 <= clock()


async def test_a_time_that_was_made_shorter_is_forgotten_with_its_wait(
    pipe: tuple[int, int],
) -> None:
    watch = Watch(pipe[0])
    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(watch.wait, lambda: True)
            await anyio.wait_all_tasks_blocked()
            watch.set_deadline(anyio.current_time() + 0.03)
            os.write(pipe[1], b"x")
        os.read(pipe[0], 1)
        with anyio.move_on_after(0.1) as scope:
            await watch.wait(lambda: True)
        assert scope.cancelled_caught


async def test_after_a_wait_nothing_of_it_is_kept(pipe: tuple[int, int]) -> None:
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


async def test_a_wakeup_wakes_who_waits_and_who_comes_later_does_not_wait() -> None:
    wakeup = Wakeup()
    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wakeup.wait)
            await anyio.wait_all_tasks_blocked()
            wakeup.set()
        wakeup.set()
        await wakeup.wait()


async def test_a_wakeup_of_who_was_cancelled_is_nothing() -> None:
    wakeup = Wakeup()
    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wakeup.wait)
            await anyio.wait_all_tasks_blocked()
            tasks.cancel_scope.cancel()
    wakeup.set()


async def test_a_poller_that_comes_back_serves_again(pipe: tuple[int, int]) -> None:
    pollers = PollerPool()
    with anyio.fail_after(10):
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
