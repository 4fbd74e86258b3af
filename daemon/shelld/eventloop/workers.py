"""Keeps a pool of idle tasks.

Starting a task costs five times as much as waking an idle task. With a new task for each job, the
command `true` takes 1.08 times as long, and a `ping` request takes 1.28 times as long. So a task
that has done its job waits for the next job, unless `MAX_IDLE` other tasks already wait.

Invariants:

* Every job that was handed over begins, even if its task or a scope is cancelled before the job
  begins. On asyncio, jobs begin in the order in which they were handed over.
* An idle task keeps no reference to its last job.
* An exception from a job ends only this job. An exception from `on_fault` ends no job and no task.
* A job that cancels its own task has failed, like a job that raises an exception. A worker may be
  cancelled only by a cancel scope.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final, Generic, TypeVar

import anyio
import anyio.abc
import anyio.lowlevel

from shelld.eventloop.readiness import Wakeup
from shelld.process import faults

J = TypeVar("J")

MAX_IDLE: Final = 8


def scope_is_cancelled() -> bool:
    """Return whether a cancel scope around the current task is cancelled.

    If no scope is cancelled, a cancellation comes from the code that the task runs. For example, a
    tool may call ``asyncio.current_task().cancel()``.
    """
    try:
        return anyio.current_effective_deadline() == -math.inf
    except Exception:
        # It is unknown whether a scope is cancelled. Assume that no scope is cancelled, so that the
        # cancellation ends only the job.
        return False


class Worker(Generic[J]):
    """A task and its current job."""

    __slots__ = ("arrived", "is_cancelled", "job", "task")

    def __init__(self, job: J) -> None:
        self.job: J | None = job
        self.arrived = Wakeup()
        self.task: anyio.TaskHandle[None] | None = None
        self.is_cancelled = False

    def cancel(self) -> None:
        """Cancel the job, unless it has ended."""
        self.is_cancelled = True
        if self.task is not None:
            self.task.cancel()


class Workers(Generic[J]):
    """`work` does a job. If `work` raises, `on_fault` gets the job and the error. `on_fault`
    reports the error and does the remaining work for the job.
    """

    def __init__(
        self,
        tasks: anyio.abc.TaskGroup,
        work: Callable[[J], Awaitable[None]],
        on_fault: Callable[[J, BaseException], None],
    ) -> None:
        self._tasks = tasks
        self._work = work
        self._on_fault = on_fault
        # The idle workers. The most recently used worker is at the end of the list, and gets the
        # next job.
        self._idle: list[Worker[J]] = []
        self._is_open = True

    def start(self, job: J) -> Worker[J]:
        """Start a job now; return the worker that does it."""
        if self._idle:
            worker = self._idle.pop()
            worker.job = job
            worker.arrived.set()
        else:
            worker = Worker(job)
            worker.task = self._tasks.start_soon(self._run, worker)
        return worker

    def close(self) -> None:
        """End the idle workers. From now on, a worker ends after its job."""
        self._is_open = False
        while self._idle:
            self._idle.pop().arrived.set()

    async def _run(self, worker: Worker[J]) -> None:
        # If there is no memory to report the failure of a job, the MemoryError must not end the
        # task group.
        with suppress(MemoryError):
            try:
                await self._do_jobs(worker)
            except Exception as error:
                # The error is a bug in this module. If the job has not begun, it counts as failed.
                self._fail(worker, error)

    async def _do_jobs(self, worker: Worker[J]) -> None:
        task: asyncio.Task[object] | None = None
        try:
            task = _current_task()
            while worker.job is not None:
                await self._work(worker.job)
                worker.job = None
                if not worker.is_cancelled and not _has_cancelled_itself(task):
                    await self._wait_for_job(worker)
        except anyio.get_cancelled_exc_class() as error:
            if worker.is_cancelled:
                raise
            if scope_is_cancelled():
                raise
            self._fail(worker, error)
        except BaseException as error:
            # Catch BaseException, because a plug-in may raise SystemExit.
            self._fail(worker, error)
        finally:
            # A cancelled task keeps the error, whose traceback references this frame. So drop the
            # reference to the job.
            worker.task = worker.job = None
        if _has_cancelled_itself(task):
            with suppress(Exception, anyio.get_cancelled_exc_class()):
                # asyncio may not have delivered the cancellation yet. A task that ends before the
                # delivery counts as cancelled. Its task group then cancels all other tasks.
                await anyio.lowlevel.checkpoint()

    def _fail(self, worker: Worker[J], error: BaseException) -> None:
        if worker in self._idle:
            self._idle.remove(worker)
        try:
            if worker.job is None:
                faults.report("a task")
            else:
                self._on_fault(worker.job, error)
        except Exception:
            faults.report("the end of a task")

    async def _wait_for_job(self, worker: Worker[J]) -> None:
        if not self._is_open or len(self._idle) >= MAX_IDLE:
            return
        worker.arrived = Wakeup()
        self._idle.append(worker)
        try:
            await worker.arrived.wait()
        except anyio.get_cancelled_exc_class():
            if worker in self._idle:
                self._idle.remove(worker)
            # If the worker got a job before the cancellation arrived, ignore the cancellation here.
            # The job begins, and then gets the cancellation.
            if worker.job is None:
                raise


def _current_task() -> asyncio.Task[object] | None:
    """Return asyncio's current task, or None if asyncio does not run the event loop."""
    try:
        return asyncio.current_task()
    except RuntimeError:
        return None


def _has_cancelled_itself(task: asyncio.Task[object] | None) -> bool:
    """Return whether code in a task has cancelled the task and has not undone the cancellation.

    Cancel scopes undo their cancellations when they end. On other event loops, code cannot cancel a
    task directly.
    """
    return task is not None and task.cancelling() > 0
