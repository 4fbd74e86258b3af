"""Processes that the benchmark can find, no matter who started them and who their parent is."""

from __future__ import annotations

import contextlib
import itertools
import os
import select
import signal
import time
from collections.abc import Generator
from pathlib import Path

from compare.contestant import NoAnswer

START_LIMIT_S = 10.0
# How long processes may take to end after the action that should end them.
END_LIMIT_S = 3.0

_numbers = itertools.count(1)


class Marked:
    """A command of three sleeping processes. `kill` ends the processes that are left.

    The first process is a plain child, the second ignores SIGHUP, and the third has its own
    session.
    """

    count = 3

    def __init__(self) -> None:
        # No other process sleeps for exactly this number of seconds.
        self._mark = f"300.{os.getpid()}{next(_numbers):05d}"
        self.command = (
            f"sleep {self._mark} & "
            f"nohup sleep {self._mark} > /dev/null 2>&1 & "
            f"setsid sleep {self._mark} > /dev/null 2>&1 & wait"
        )

    def pids(self) -> list[int]:
        found: list[int] = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                with contextlib.suppress(OSError):
                    words = (entry / "cmdline").read_bytes().split(b"\0")
                    if words[0] == b"sleep" and self._mark.encode() in words:
                        found.append(int(entry.name))
        return found

    def wait_for_start(self) -> list[int]:
        deadline = time.monotonic() + START_LIMIT_S
        while len(pids := self.pids()) < self.count:
            if time.monotonic() >= deadline:
                raise NoAnswer("it did not start")
            time.sleep(0.005)
        return pids

    def left(self) -> int:
        """Wait until the processes have ended, at most `END_LIMIT_S`. Return how many of them are
        left.
        """
        deadline = time.monotonic() + END_LIMIT_S
        while (pids := self.pids()) and time.monotonic() < deadline:
            time.sleep(0.05)
        return len(pids)

    def kill(self) -> None:
        for pid in self.pids():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


@contextlib.contextmanager
def watched(pids: list[int]) -> Generator[select.poll]:
    """Yield a poll object that reports when processes end."""
    handles: list[int] = []
    poll = select.poll()
    try:
        for pid in pids:
            handles.append(os.pidfd_open(pid))
            poll.register(handles[-1], select.POLLIN)
        yield poll
    finally:
        for handle in handles:
            os.close(handle)


def wait_for_end(poll: select.poll, count: int) -> int:
    """Return how many of the `count` processes in `poll` keep running."""
    deadline = time.monotonic() + END_LIMIT_S
    while count and (left := deadline - time.monotonic()) > 0:
        for handle, _ in poll.poll(left * 1000):
            poll.unregister(handle)
            count -= 1
    return count
