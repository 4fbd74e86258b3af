"""Tasks that are there before what they are to do.

To start a task takes about as long as all else that is done before a command runs; to wake one that
waits takes a fifth of that. So who has done its job waits for another one, as long as not more than
`MAX_IDLE` do.

Invariants: a job that was given is begun, whatever is cancelled; where asyncio runs the event loop,
in the order in which they were given; who waits keeps nothing of its last job.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, Generic, TypeVar

import anyio
import anyio.abc

from shelld.readiness import new_wakeup

J = TypeVar("J")

MAX_IDLE: Final = 8


class Worker(Generic[J]):
    """The task that does a job."""

    __slots__ = ("arrived", "is_cancelled", "job", "task")

    def __init__(self, job: J) -> None:
        self.job: J | None = job
        self.arrived = new_wakeup()
        self.task: anyio.TaskHandle[None] | None = None
        self.is_cancelled = False

    def cancel(self) -> None:
        """Cancel its job, which it must not have done yet."""
        assert self.task is not None
        self.is_cancelled = True
        self.task.cancel()


class Workers(Generic[J]):
    """`work` does a job; what it raises ends the task group."""

    def __init__(self, tasks: anyio.abc.TaskGroup, work: Callable[[J], Awaitable[None]]) -> None:
        self._tasks = tasks
        self._work = work
        # The last one to have done its job at the end, which is also the next.
        self._idle: list[Worker[J]] = []
        self._is_open = True

    def start(self, job: J) -> Worker[J]:
        """Have a job done, now; return who does it."""
        if self._idle:
            worker = self._idle.pop()
            worker.job = job
            worker.arrived.set()
        else:
            worker = Worker(job)
            worker.task = self._tasks.start_soon(self._run, worker)
        return worker

    def close(self) -> None:
        """End those that wait, and let nobody wait from now on."""
        self._is_open = False
        while self._idle:
            self._idle.pop().arrived.set()

    async def _run(self, worker: Worker[J]) -> None:
        try:
            while worker.job is not None:
                await self._do_job(worker)
                if not worker.is_cancelled:
                    await self._wait_for_job(worker)
        finally:
            # A task that was cancelled keeps the error, whose traceback leads to this frame.
            worker.task = None

    async def _do_job(self, worker: Worker[J]) -> None:
        # Of a frame of its own, which is gone when the next one is waited for.
        job, worker.job = worker.job, None
        assert job is not None
        await self._work(job)

    async def _wait_for_job(self, worker: Worker[J]) -> None:
        if not self._is_open or len(self._idle) >= MAX_IDLE:
            return
        worker.arrived = new_wakeup()
        self._idle.append(worker)
        try:
            await worker.arrived.wait()
        except anyio.get_cancelled_exc_class():
            if worker in self._idle:
                self._idle.remove(worker)
            # It meets the same fate in a job that it was given meanwhile.
            if worker.job is None:
                raise
