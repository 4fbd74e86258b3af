"""Provides lock-free primitives with which threads wait and wake each other.

The garbage collector runs finalisers, and the main thread runs signal handlers, in the middle of
any other code. The interrupted code may hold a lock. If the finaliser or handler needs this lock,
or waits for another thread that needs the lock, all these threads wait for ever. So the classes in
this module have no lock. They use only container operations that are atomic in the interpreter.
"""

from __future__ import annotations

import collections
import os
import queue
import sys
import threading
from contextlib import suppress
from typing import Final

# The ids of the threads of all synchronous clients.
pump_threads: Final[set[int]] = set()
# A forked child has none of these threads, but its own threads may get the same ids.
os.register_at_fork(after_in_child=pump_threads.clear)


def may_wait() -> bool:
    """Return whether this thread may wait for a pump's thread, or for a lock.

    A pump's thread must not wait: it could wait for itself, or for a thread that waits for an
    answer from this pump. Once the interpreter shuts down, the pump threads no longer run.
    """
    return threading.get_ident() not in pump_threads and not sys.is_finalizing()


class Latch:
    """An event like `threading.Event`, but without a lock. It is never cleared."""

    def __init__(self) -> None:
        self._is_set = False
        self._waiters: collections.deque[queue.SimpleQueue[None]] = collections.deque()

    @property
    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        self._is_set = True
        while self._waiters:
            self._waiters.popleft().put(None)

    def wait(self, seconds: float | None = None) -> None:
        """Wait until the latch is set, or until `seconds` have passed."""
        waiter: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._waiters.append(waiter)
        # Append first, then check. Otherwise, a call of `set` between the check and the append
        # would wake nobody.
        if not self._is_set:
            with suppress(queue.Empty):
                waiter.get(timeout=seconds)


class Wakeup:
    """A pipe that wakes a thread that polls `descriptor`. Raises OSError if the pipe cannot be
    created.
    """

    def __init__(self) -> None:
        self.descriptor, write_end = os.pipe()
        os.set_blocking(self.descriptor, False)
        os.set_blocking(write_end, False)
        self._write_end = write_end
        # The descriptors that are still open. The code that pops a descriptor also closes it.
        self._to_close = [self.descriptor, write_end]
        self._users: set[object] = set()
        self._is_closed = False

    def wake(self) -> None:
        """Wake the polling thread. Any thread may call this method. Does nothing after `close`."""
        user = object()
        try:
            self._users.add(user)
            if not self._is_closed:
                os.write(self._write_end, b"\0")
        except BlockingIOError:
            # The pipe is full, so `descriptor` is already readable.
            pass
        finally:
            self._users.discard(user)
            if self._is_closed:
                self._close_unused()

    def clear(self) -> None:
        """Make `descriptor` unreadable again. Call this method in the polling thread."""
        with suppress(BlockingIOError):
            os.read(self.descriptor, 4096)

    def close(self) -> None:
        """Close the pipe. If a call of `wake` is running, that call closes the pipe when it ends.

        If the pipe were closed earlier, `wake` could write to a file that was opened since and has
        the same descriptor number.
        """
        self._is_closed = True
        self._close_unused()

    def _close_unused(self) -> None:
        while not self._users:
            try:
                os.close(self._to_close.pop())
            except IndexError:
                return
