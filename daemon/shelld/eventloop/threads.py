"""Work in threads, for an event loop that never waits for a thread to start.

`threading.Thread.start` waits until the new thread runs. If that thread has no memory for its first
call, it ends at once without a report, and Python 3.11 waits for ever. So this module starts a
thread without waiting. A task that waits for the thread's result looks at the thread regularly. A
look also finds the end of a thread that had no memory to report it.

This is the only place in the daemon that starts threads. It starts one thread for each function.
That takes 60 µs more processor time than waking an idle thread would, and needs no pool.

Invariants:

* A function begins at most once, and never after somebody has given it up.
* An exception from a function goes to whoever asks for its result, and nowhere else.
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

# How often a waiting task looks at a thread, and after how many looks it gives up a thread that has
# not begun. The limit is a number of looks, not of seconds, so time during which the daemon was
# stopped does not count.
LOOK_INTERVAL_S: Final = 1.0
MAX_LOOKS: Final = 5

# The threads that `run_in_thread` has started and that have not ended.
_at_work: set[Thread[Any]] = set()


class Thread(Generic[T]):
    """A thread that calls a function. `on_end` is called in the thread afterwards.

    `on_end` may fail, for want of memory. So whoever waits for the call of `on_end` must look at
    `has_ended`, too.
    """

    def __init__(
        self, function: Callable[[], T], on_end: Callable[[], object] | None = None
    ) -> None:
        self._function = function
        self._on_end = on_end
        # Acquired by the thread when it begins, or by `give_up`. Never released.
        self._owner = _thread.allocate_lock()
        # Held until the function has returned or failed, or could not be called.
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
        """Call the function, unless somebody has given it up. Only the thread calls this."""
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
        """Record that the thread has ended. Only the first call that succeeds has an effect."""
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
        """Keep the function from running. Return False if it has begun."""
        self._is_given_up = self._is_given_up or self._owner.acquire(blocking=False)
        return self._is_given_up

    def join(self, seconds: float) -> bool:
        """Block until the function has ended; return False if that takes longer than `seconds`."""
        if not self._running.acquire(timeout=max(0.0, seconds)):
            return False
        self._running.release()
        return True

    async def wait(self, event: anyio.Event) -> None:
        """Wait for an event that the thread sets, or for the end of the function.

        Raises RuntimeError ("can't start new thread") if the function does not begin in time.
        """
        looks = 0
        while not (event.is_set() or self.has_ended):
            if self._is_given_up or (looks >= MAX_LOOKS and self.give_up()):
                raise RuntimeError(faults.NO_THREAD)
            with anyio.move_on_after(LOOK_INTERVAL_S):
                await event.wait()
            looks += 1

    def result(self) -> T:
        """Return the function's result, or raise its exception. Call this once."""
        error, self._error = self._error, None
        if error is None:
            return cast("T", self._result)
        try:
            raise error
        finally:
            # This frame is in the traceback, so the variable would make a reference cycle.
            del error


async def run_in_thread(
    function: Callable[..., T],
    *args: object,
    limiter: anyio.CapacityLimiter | None = None,
    abandon_on_cancel: bool = False,
) -> T:
    """Return the result of ``function(*args)``, called in a thread.

    A cancellation waits for the thread, unless `abandon_on_cancel`. The default limiter is that of
    anyio. Raises RuntimeError ("can't start new thread") or MemoryError if no thread can start.
    """
    async with limiter or anyio.to_thread.current_default_thread_limiter():
        over, loop = anyio.Event(), current_token()
        # `call_threadsafe` fails if the event loop has ended. Then nobody waits any more.
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
    """Block until no thread of `run_in_thread` is at work. Return False if that takes longer than
    `seconds`.
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
        # Whatever has failed above, release those who wait.
        thread.end()


# The first call in a thread. It gets the memory for all further calls at once, or fails.
_run: Final = with_room_for_frames(_run_to_the_end)


def _forget_thread() -> None:
    """Remove the entry for this thread that `threading.current_thread` has made.

    Logging calls `current_thread`. Before Python 3.13, `threading` keeps the entry after the end of
    the thread.
    """
    threading._active.pop(threading.get_ident(), None)  # type: ignore[attr-defined]  # pyright: ignore
