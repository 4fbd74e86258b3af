"""What threads wait for and are woken with, where no lock may be held.

The garbage collector runs finalisers, and the main thread runs signal handlers, in the midst of any
other code. If that code holds a lock that they or another thread need, both wait for ever. So
the classes here have no lock: they use operations of containers that are one step of the
interpreter.
"""

from __future__ import annotations

import collections
import os
import queue
import sys
import threading
from contextlib import suppress
from typing import Final

# The threads of all clients without an event loop.
pump_threads: Final[set[int]] = set()
# A forked child has none of them, and its own threads may get their numbers.
os.register_at_fork(after_in_child=pump_threads.clear)


def may_wait() -> bool:
    """Return whether this thread may wait for a pump's thread, or for a lock.

    A pump's thread could wait for itself, or for a thread that waits for its answer. When the
    interpreter ends, the threads have stopped.
    """
    return threading.get_ident() not in pump_threads and not sys.is_finalizing()


class Latch:
    """Once set, nobody waits any more. Like `threading.Event`, which has a lock."""

    def __init__(self) -> None:
        self._is_set = False
        self._waiters: collections.deque[queue.SimpleQueue[None]] = collections.deque()

    def set(self) -> None:
        self._is_set = True
        while self._waiters:
            self._waiters.popleft().put(None)

    def wait(self, seconds: float | None = None) -> None:
        """Return when it is set, or when time is up."""
        waiter: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._waiters.append(waiter)
        # The other way round, `set` could be missed in between.
        if not self._is_set:
            with suppress(queue.Empty):
                waiter.get(timeout=seconds)


class Wakeup:
    """Makes `descriptor` readable, for a thread that polls it. Raises OSError if there is none."""

    def __init__(self) -> None:
        self.descriptor, write_end = os.pipe()
        os.set_blocking(self.descriptor, False)
        os.set_blocking(write_end, False)
        self._write_end = write_end
        # Whoever takes one out closes it.
        self._to_close = [self.descriptor, write_end]
        self._users: set[object] = set()
        self._is_closed = False

    def wake(self) -> None:
        """Wake the thread, from any other. Does nothing after `close`."""
        user = object()
        try:
            self._users.add(user)
            if not self._is_closed:
                os.write(self._write_end, b"\0")
        except BlockingIOError:
            # The pipe is full, so the thread is awake.
            pass
        finally:
            self._users.discard(user)
            if self._is_closed:
                self._close_unused()

    def clear(self) -> None:
        """Make `descriptor` unreadable again. For the thread."""
        with suppress(BlockingIOError):
            os.read(self.descriptor, 4096)

    def close(self) -> None:
        """Close the pipe; while `wake` runs somewhere, leave that to it.

        It could write to another file that has got the number of the closed end.
        """
        self._is_closed = True
        self._close_unused()

    def _close_unused(self) -> None:
        while not self._users:
            try:
                os.close(self._to_close.pop())
            except IndexError:
                return
