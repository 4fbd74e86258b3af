"""A pool of idle tasks starts jobs in order, and loses no job."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import weakref
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from shelld.eventloop.workers import MAX_IDLE, Worker, Workers
from shelld.process import faults


class Job:
    """A job that is done once `may_end` is set."""

    def __init__(self) -> None:
        self.may_end = anyio.Event()
        self.task: int | None = None
        self.was_cancelled = False
        self.done = anyio.Event()

    async def do(self) -> None:
        self.task = anyio.get_current_task().id
        try:
            await self.may_end.wait()
        except anyio.get_cancelled_exc_class():
            self.was_cancelled = True
            raise
        finally:
            self.done.set()


def fails(job: object, _error: BaseException) -> None:
    pytest.fail(f"{job} has failed")


async def start_and_end(workers: Workers[Job], job: Job) -> Worker[Job]:
    worker = workers.start(job)
    job.may_end.set()
    await job.done.wait()
    await anyio.lowlevel.checkpoint()
    return worker


async def test_worker_is_reused() -> None:
    async with anyio.create_task_group() as tasks:
        workers = Workers(tasks, Job.do, fails)
        jobs = [Job() for _ in range(3)]
        used = [await start_and_end(workers, job) for job in jobs]
        assert len(set(used)) == 1
        assert len({job.task for job in jobs}) == 1
        workers.close()


async def test_jobs_run_together_and_begin_in_order() -> None:
    begun: list[int] = []

    async def work(number: int) -> None:
        begun.append(number)
        await anyio.sleep_forever() if number >= 0 else None

    async with anyio.create_task_group() as tasks:
        workers = Workers(tasks, work, fails)
        for number in range(-3, 0):
            workers.start(number)
        await anyio.wait_all_tasks_blocked()
        # Idle tasks take some of these jobs, and new tasks take the other jobs.
        begun.clear()
        for number in range(20):
            workers.start(number)
        await anyio.wait_all_tasks_blocked()
        assert begun == list(range(20))
        tasks.cancel_scope.cancel()


async def test_number_of_idle_workers_is_limited() -> None:
    async with anyio.create_task_group() as tasks:
        workers = Workers(tasks, Job.do, fails)
        jobs = [Job() for _ in range(MAX_IDLE + 5)]
        first = {workers.start(job) for job in jobs}
        for job in jobs:
            job.may_end.set()
        await anyio.wait_all_tasks_blocked()
        second = {workers.start(Job()) for _ in jobs}
        assert len(first & second) == MAX_IDLE
        tasks.cancel_scope.cancel()


async def test_cancelled_worker_takes_no_more_jobs() -> None:
    async with anyio.create_task_group() as tasks:
        workers = Workers(tasks, Job.do, fails)
        job = Job()
        worker = workers.start(job)
        await anyio.wait_all_tasks_blocked()
        worker.cancel()
        await job.done.wait()
        assert job.was_cancelled
        await anyio.wait_all_tasks_blocked()
        assert workers.start(Job()) is not worker
        tasks.cancel_scope.cancel()


async def test_late_cancelled_worker_takes_no_more_jobs() -> None:
    other = Job()
    other.may_end.set()
    async with anyio.create_task_group() as tasks:
        workers = Workers(tasks, Job.do, fails)
        job = Job()
        worker = workers.start(job)
        await anyio.wait_all_tasks_blocked()
        job.may_end.set()
        worker.cancel()
        await job.done.wait()
        assert workers.start(other) is not worker
        workers.close()
    assert not other.was_cancelled


async def test_job_started_after_group_cancellation_is_begun() -> None:
    job = Job()
    async with anyio.create_task_group() as tasks:
        workers = Workers(tasks, Job.do, fails)
        first = await start_and_end(workers, Job())
        tasks.cancel_scope.cancel()
        assert workers.start(job) is first
    assert job.was_cancelled


async def test_closed_pool_lets_the_group_end() -> None:
    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            workers = Workers(tasks, Job.do, fails)
            await start_and_end(workers, Job())
            busy = Job()
            late = Job()
            workers.start(busy)
            workers.start(late)
            workers.close()
            await anyio.wait_all_tasks_blocked()
            busy.may_end.set()
            late.may_end.set()


async def test_idle_worker_keeps_nothing_of_its_job() -> None:
    async with anyio.create_task_group() as tasks:
        workers = Workers(tasks, Job.do, fails)
        job = Job()
        await start_and_end(workers, job)
        reference = weakref.ref(job)
        del job
        assert reference() is None
        workers.close()


@pytest.mark.parametrize(
    "error",
    [ValueError(), SystemExit(), KeyboardInterrupt(), BaseExceptionGroup("", [GeneratorExit()])],
)
async def test_a_job_that_raises_ends_alone(
    caplog: pytest.LogCaptureFixture, error: BaseException
) -> None:
    caplog.set_level(logging.ERROR, logger="shelld")
    failed: list[tuple[str, BaseException]] = []
    done: list[str] = []
    before = faults.count()

    async def work(job: str) -> None:
        await anyio.lowlevel.checkpoint()
        if job.startswith("bad"):
            raise error
        done.append(job)

    def on_fault(job: str, error: BaseException) -> None:
        failed.append((job, error))
        if job == "bad for its owner":
            raise ValueError("unforeseen")

    async with anyio.create_task_group() as tasks:
        workers = Workers(tasks, work, on_fault)
        for job in ("first", "bad", "second", "bad for its owner"):
            workers.start(job)
        await anyio.wait_all_tasks_blocked()
        workers.start("third")
        await anyio.wait_all_tasks_blocked()
        workers.close()
    assert dict(failed) == {"bad": error, "bad for its owner": error}
    assert sorted(done) == ["first", "second", "third"]
    # `on_fault` reports the errors of jobs; the pool reports only an error of `on_fault` itself.
    assert faults.count() == before + 1
    assert [record.getMessage() for record in caplog.records] == [
        "unexpected error in the end of a task"
    ]


def cancel_current_task() -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()


async def wait_for_own_cancellation() -> None:
    cancel_current_task()
    await anyio.sleep(60)


async def end_before_own_cancellation() -> None:
    cancel_current_task()


async def ignore_own_cancellation() -> None:
    cancel_current_task()
    with contextlib.suppress(asyncio.CancelledError):
        await anyio.sleep(60)


async def raise_before_own_cancellation() -> None:
    cancel_current_task()
    raise ValueError


@pytest.mark.parametrize(
    ("work", "error"),
    [
        (wait_for_own_cancellation, asyncio.CancelledError),
        (end_before_own_cancellation, None),
        (ignore_own_cancellation, None),
        (raise_before_own_cancellation, ValueError),
    ],
)
async def test_job_that_cancels_its_task_ends_alone(
    work: Callable[[], Awaitable[None]], error: type[BaseException] | None
) -> None:
    errors: list[type[BaseException]] = []

    async def run(job: Callable[[], Awaitable[None]]) -> None:
        await job()

    def note(_job: object, error: BaseException) -> None:
        errors.append(type(error))

    later = Job()
    async with anyio.create_task_group() as tasks:
        workers = Workers(tasks, run, note)
        first = workers.start(work)
        await anyio.wait_all_tasks_blocked()
        later.may_end.set()
        assert workers.start(later.do) is not first
        await later.done.wait()
        workers.close()
    assert not tasks.cancel_scope.cancel_called
    assert not later.was_cancelled
    assert errors == ([] if error is None else [error])


async def test_cancelled_idle_task_is_not_used_again() -> None:
    stale: list[asyncio.Task[Any] | None] = []

    async def leave_task_to_others() -> None:
        stale.append(asyncio.current_task())

    async def run(job: Callable[[], Awaitable[None]]) -> None:
        await job()

    job = Job()
    async with anyio.create_task_group() as tasks:
        workers = Workers(tasks, run, fails)
        workers.start(leave_task_to_others)
        await anyio.wait_all_tasks_blocked()
        (task,) = stale
        assert task is not None
        task.cancel()
        await anyio.wait_all_tasks_blocked()
        job.may_end.set()
        workers.start(job.do)
        await job.done.wait()
        workers.close()
    assert not tasks.cancel_scope.cancel_called
    assert not job.was_cancelled


async def test_failure_without_memory_for_a_report_ends_one_task(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object) -> None:
        raise MemoryError

    async def work(job: Callable[[], None]) -> None:
        job()

    done: list[bool] = []
    monkeypatch.setattr(faults, "report", fail)
    async with anyio.create_task_group() as tasks:
        workers = Workers(tasks, work, fail)
        workers.start(fail)
        await anyio.lowlevel.checkpoint()
        workers.start(lambda: done.append(True))
        workers.close()
    assert done == [True]


async def test_failure_at_the_end_of_a_task_ends_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_task: object) -> bool:
        raise RuntimeError

    job, other = Job(), Job()
    async with anyio.create_task_group() as tasks:
        workers = Workers(tasks, Job.do, fails)
        workers.start(job)
        await anyio.lowlevel.checkpoint()
        with monkeypatch.context() as patch:
            workers.close()
            worker = workers.start(other)
            await anyio.lowlevel.checkpoint()
            patch.setattr("shelld.eventloop.workers._has_cancelled_itself", fail)
            other.may_end.set()
            await other.done.wait()
            await anyio.lowlevel.checkpoint()
            assert worker.task is None
        job.may_end.set()
    assert not job.was_cancelled


async def test_job_that_could_not_begin_has_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(_workers: Workers[str], _worker: Worker[str]) -> None:
        raise RuntimeError

    async def work(_job: str) -> None:
        pytest.fail("the job has begun")

    failed: list[str] = []
    monkeypatch.setattr(Workers, "_do_jobs", fail)
    async with anyio.create_task_group() as tasks:
        workers = Workers(tasks, work, lambda job, _error: failed.append(job))
        workers.start("job")
    assert failed == ["job"]
