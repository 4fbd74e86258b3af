"""Frees pipes whose lock a process holds while it sleeps.

A process that moves data with splice(2) from a socket or a terminal into a pipe, or from a pipe
into a socket, holds the lock of the pipe while it waits. Every other system call on that pipe waits
for the lock. Neither O_NONBLOCK nor a signal ends this wait, so one command could stop the event
loop for ever. `std::io::copy` of Rust uses splice(2) in this way.

A process that is stopped by SIGSTOP leaves its system call and releases the lock. So, while
commands run, a second thread watches the thread of the event loop. If the event loop sleeps in a
system call on a pipe, the second thread stops the processes that hold the lock, until the event
loop goes on. From then on, the event loop itself stops these processes during each of its system
calls on this pipe, with `unlocked`.

This module owns the pidfds of these processes until `forget_holders`. Nothing here reads or writes
a pipe.
"""

from __future__ import annotations

import contextlib
import os
import platform
import re
import signal
import threading
import time
from collections.abc import Callable, Generator
from typing import Final

from shelld.eventloop.threads import Thread
from shelld.process import faults

# How often the thread looks. The event loop sleeps for one to two intervals when a process first
# holds the lock of a pipe.
INTERVAL_S: Final = 0.25
# How long the thread waits for the event loop after it has stopped the processes, and its pause
# between two looks.
RELEASE_S: Final = 1.0
_RELEASE_PAUSE_S: Final = 0.001

# The numbers of splice, tee, vmsplice and sendfile.
_SPLICES: Final = {
    "x86_64": frozenset((275, 276, 278, 40)),
    "aarch64": frozenset((76, 77, 75, 71)),
}.get(platform.machine(), frozenset[int]())

# /proc/PID/syscall of a process that sleeps in a system call: the number and first three arguments
# of the call.
_SYSCALL: Final = re.compile(rb"(\d+) 0x(\w+) 0x(\w+) 0x(\w+) ")
_STAT_BYTES: Final = 512


class _Holder:
    """A process that has held the lock of a pipe. Owns a pidfd of that process."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._pidfd = os.pidfd_open(pid)
        self._is_stopped_by_us = False

    def stop(self) -> None:
        # A process that has ended, or that has gained privileges, cannot be signalled.
        with contextlib.suppress(OSError):
            if _state_in(_read(f"/proc/{self.pid}/stat")) not in b"Tt":
                signal.pidfd_send_signal(self._pidfd, signal.SIGSTOP)
                self._is_stopped_by_us = True

    def go_on(self) -> None:
        if self._is_stopped_by_us:
            self._is_stopped_by_us = False
            with contextlib.suppress(OSError):
                signal.pidfd_send_signal(self._pidfd, signal.SIGCONT)

    def close(self) -> None:
        os.close(self._pidfd)


# The processes that have held the lock of a pipe, by our descriptor of the pipe.
_holders: Final[dict[int, list[_Holder]]] = {}


@contextlib.contextmanager
def unlocked(descriptor: int) -> Generator[None]:
    """For the time of a system call on a pipe, stop the processes that may hold its lock."""
    stop_holders(descriptor)
    try:
        yield
    finally:
        for holder in _holders.get(descriptor, ()):
            holder.go_on()


def stop_holders(descriptor: int) -> None:
    """Stop the processes that may hold the lock of a pipe, so that it can be closed."""
    for holder in _holders.get(descriptor, ()):
        holder.stop()


def forget_holders(descriptor: int) -> None:
    """After the pipe was closed, let the stopped processes go on, and forget them."""
    for holder in _holders.pop(descriptor, ()):
        holder.go_on()
        holder.close()


class PipeWatch:
    """Watches the thread of the event loop from another thread.

    Create this object in the thread of the event loop. `is_needed` tells whether commands run. It
    is called in the watching thread.
    """

    def __init__(self, is_needed: Callable[[], bool]) -> None:
        self._is_needed = is_needed
        self._place = f"/proc/self/task/{threading.get_native_id()}"
        self._has_work = threading.Event()
        self._closing = threading.Event()
        self._is_started = False
        # The system call in which the event loop slept at the last look.
        self._before: re.Match[bytes] | None = None

    def command_starts(self) -> None:
        """Look regularly until no command runs."""
        self._has_work.set()
        if not self._is_started and _SPLICES:
            # If no thread can start now, the next command tries again.
            with contextlib.suppress(RuntimeError, MemoryError):
                Thread(self._run).start()
                self._is_started = True

    def close(self) -> None:
        self._closing.set()
        self._has_work.set()

    def _run(self) -> None:
        while not self._closing.is_set():
            self._has_work.wait()
            self._has_work.clear()
            while self._is_needed() and not self._closing.wait(INTERVAL_S):
                try:
                    # A process or its call may end during the look.
                    with contextlib.suppress(OSError):
                        self._look()
                except Exception:
                    faults.report("the watch for pipes that are held")

    def _look(self) -> None:
        call = self._sleeping_in()
        is_same = call and self._before and call[0] == self._before[0]
        self._before = call
        if call is None or not is_same:
            return
        descriptor = int(call[2], 16)
        pipe = os.readlink(f"/proc/self/fd/{descriptor}")
        if not pipe.startswith("pipe:"):
            return
        holders = _holders.setdefault(descriptor, [])
        known = {holder.pid for holder in holders}
        holders += [
            _Holder(pid) for pid in _processes() if pid not in known and _may_hold(pid, pipe)
        ]
        for holder in holders:
            holder.stop()
        end_at = time.monotonic() + RELEASE_S
        while time.monotonic() < end_at and self._sleeping_in() is not None:
            time.sleep(_RELEASE_PAUSE_S)
        for holder in holders:
            holder.go_on()

    def _sleeping_in(self) -> re.Match[bytes] | None:
        """Return the system call in which the event loop sleeps, if no signal can end the sleep."""
        if _state_in(_read(f"{self._place}/stat")) not in b"D":
            return None
        return _SYSCALL.match(_read(f"{self._place}/syscall"))


def _processes() -> list[int]:
    """Return all processes except the client, which is our parent."""
    found = (int(name) for name in os.listdir("/proc") if name.isdigit())
    return [pid for pid in found if pid != os.getppid()]


def _may_hold(pid: int, pipe: str) -> bool:
    """Whether a thread of a process sleeps in one of `_SPLICES` on `pipe`."""
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            call = _SYSCALL.match(_read(f"/proc/{pid}/task/{thread}/syscall"))
            if call is None or int(call[1]) not in _SPLICES:
                continue
            for argument in call.group(2, 3, 4):
                with contextlib.suppress(OSError):
                    if os.readlink(f"/proc/{pid}/fd/{int(argument, 16)}") == pipe:
                        return True
    return False


def _read(path: str) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(descriptor, _STAT_BYTES)
    finally:
        os.close(descriptor)


def _state_in(stat: bytes) -> bytes:
    """Return the state in the content of /proc/PID/stat, as one letter."""
    return stat.rpartition(b")")[2][1:2]
