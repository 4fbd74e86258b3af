"""Runs functions in threads, so that the event loop never waits for a thread to start.

`threading.Thread.start` waits until the new thread runs. If the new thread has no memory for its
first call, it ends immediately, without a report, and Python 3.11 waits for ever. So this module
starts a thread without waiting. A task that waits for the result of a thread checks the thread
regularly. So the task also notices if a thread has ended but had no memory to report this.

This is the only place in the daemon that starts threads. It starts one thread for each function.
Starting a thread takes 60 µs more processor time than waking an idle thread, but the module needs
no pool.

Invariants:

* A function begins at most once, and never after a call of `give_up`.
* An exception from a function goes only to the caller of `result`.
"""

from __future__ import annotations

import _thread
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Final, Generic, TypeVar, cast

import anyio
import anyio.to_thread
from anyio.lowlevel import current_token

from shelld.eventloop.threadsafe import call_threadsafe
from shelld.process import faults
from shelld.process.stack import with_room_for_frames

T = TypeVar("T")

# A waiting task checks its thread at this interval. If the thread has not begun after `MAX_CHECKS`
# checks, the wait ends with an error. The limit is a number of checks, not of seconds, so time
# during which the daemon was stopped does not count.
CHECK_INTERVAL_S: Final = 1.0
MAX_CHECKS: Final = 5

# The threads that `run_in_thread` has started and that have not ended.
_at_work: set[Thread[Any]] = set()


class Thread(Generic[T]):
    """A thread that calls a function, and then calls `on_end`.

    `on_end` may fail if memory is short. So code that waits for the call of `on_end` must also
    check `has_ended`.
    """

    def __init__(
        self, function: Callable[[], T], on_end: Callable[[], object] | None = None
    ) -> None:
        self._function = function
        self._on_end = on_end
        # The thread acquires this lock when it begins, unless `give_up` has acquired it before. No
        # code releases this lock.
        self._owner = _thread.allocate_lock()
        # This lock is held until the function has returned or failed, or could not be called.
        self._running = _thread.allocate_lock()
        self._running.acquire()
        self._is_given_up = False
        self._result: T | None = None
        # The outcome if the thread has no memory to store another outcome.
        self._error: BaseException | None = MemoryError()

    def start(self) -> None:
        """Start the thread, without waiting for it.

        Raises RuntimeError ("can't start new thread") or MemoryError.
        """
        _thread.start_new_thread(_run, (self,))

    def run(self) -> None:
        """Call the function, unless `give_up` was called before. Only the thread calls this
        method.
        """
        if not self._owner.acquire(blocking=False):
            return
        try:
            self._result = self._function()
            self._error = None
        except BaseException as error:
            self._error = error
        finally:
            self.end()

    def end(self) -> None:
        """Record that the thread has ended.

        Calls after the first successful call have no effect.
        """
        if not self._running.locked():
            return
        _forget_thread()
        self._running.release()
        _at_work.discard(self)
        if self._on_end is not None:
            self._on_end()

    @property
    def has_ended(self) -> bool:
        """Whether `result` can be called."""
        return not self._running.locked()

    def give_up(self) -> bool:
        """Keep the thread from calling the function. Return False if the function has begun."""
        self._is_given_up = self._is_given_up or self._owner.acquire(blocking=False)
        return self._is_given_up

    def join(self, seconds: float) -> bool:
        """Block until the function has ended. Return False if it has not ended after `seconds`."""
        if not self._running.acquire(timeout=max(0.0, seconds)):
            return False
        self._running.release()
        return True

    async def wait(self, event: anyio.Event) -> None:
        """Wait until the thread sets an event, or until the function has ended.

        Raises RuntimeError ("can't start new thread") if the function does not begin in time.
        """
        checks = 0
        while not (event.is_set() or self.has_ended):
            if self._is_given_up or (checks >= MAX_CHECKS and self.give_up()):
                raise RuntimeError(faults.NO_THREAD)
            with anyio.move_on_after(CHECK_INTERVAL_S):
                await event.wait()
            checks += 1

    def result(self) -> T:
        """Return the function's result, or raise its exception. Call this once."""
        error, self._error = self._error, None
        if error is None:
            return cast("T", self._result)
        try:
            raise error
        finally:
            # The traceback of the error references this frame, so the variable `error` would make a
            # reference cycle.
            del error


async def run_in_thread(
    function: Callable[..., T],
    *args: object,
    limiter: anyio.CapacityLimiter | None = None,
    abandon_on_cancel: bool = False,
) -> T:
    """Return the result of ``function(*args)``, called in a thread.

    A caller that is cancelled waits until the thread has ended, unless `abandon_on_cancel` is true.
    The default limiter is anyio's limiter for threads. Raises RuntimeError ("can't start new
    thread") or MemoryError if no thread can start.
    """
    async with limiter or anyio.to_thread.current_default_thread_limiter():
        over, loop = anyio.Event(), current_token()
        # `call_threadsafe` fails if the event loop has ended. In that case, no task waits for the
        # thread any more.
        thread = Thread(partial(function, *args), partial(call_threadsafe, loop, over.set))
        _at_work.add(thread)
        try:
            thread.start()
            with anyio.CancelScope(shield=not abandon_on_cancel):
                await thread.wait(over)
        finally:
            if thread.give_up():
                _at_work.discard(thread)
        return thread.result()


def wait_for_work(seconds: float) -> bool:
    """Block until all threads of `run_in_thread` are done. Return False if a thread is still
    working after `seconds`.
    """
    end_at = time.monotonic() + seconds
    return all(
        thread.give_up() or thread.join(end_at - time.monotonic()) for thread in tuple(_at_work)
    )


def _run_to_the_end(thread: Thread[Any]) -> None:
    try:
        thread.run()
    except Exception:
        pass
    finally:
        # Wake the waiting tasks, even if the code above has failed.
        thread.end()


# The first function that a thread calls. It gets the memory for all further calls at once, or
# fails.
_run: Final = with_room_for_frames(_run_to_the_end)


def _forget_thread() -> None:
    """Remove the entry for this thread in `threading`, if `current_thread` has made one.

    Logging calls `current_thread`. Before Python 3.13, `threading` keeps the entry after the thread
    has ended.
    """
    threading._active.pop(threading.get_ident(), None)  # type: ignore[attr-defined]  # pyright: ignore
