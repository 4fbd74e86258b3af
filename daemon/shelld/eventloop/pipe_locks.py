"""Keeps the event loop from waiting for ever if a sleeping process holds the lock of a pipe.

A process can move data with splice(2) from a socket or a terminal into a pipe, or from a pipe into
a socket. The process holds the lock of the pipe while it waits. A process can also write mapped
memory into a pipe. If the kernel must first read this memory from a server that does not answer,
the process also holds the lock. Every other system call on the pipe waits for the lock. Neither
O_NONBLOCK nor a signal ends this wait, so one command could stop the event loop for ever.
`std::io::copy` of Rust uses splice(2) in this way.

A process that is stopped by SIGSTOP leaves its system call and releases the lock. So, while
commands run, a second thread watches the thread of the event loop. If the event loop sleeps in a
system call on a pipe, the second thread stops all processes that have the pipe open, until the
event loop goes on. The second thread stops all of them, because it cannot find out which of them
holds the lock: /proc/PID/syscall does not show what io_uring does. From then on, the event loop
itself uses `unlocked` and `close_pipe` for its system calls on this pipe. These functions stop the
same processes until the system call has returned.

Invariants:

* A process is stopped after its ancestors, and continued before them. Otherwise its parent would
  notice the stop. Bash with job control would then continue with its next command, and `sudo` would
  stop itself for ever.
* The second thread needs no free descriptor, and does not need the event loop.
* This module never stops this process or the client, which is the parent of this process.

This module does not read or write any pipe.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import threading
import time
from collections.abc import Callable, Generator, Iterable
from functools import partial
from typing import Final, NamedTuple

from shelld.eventloop.threads import Thread
from shelld.keeper.proc import fields_of, stat_fields
from shelld.process import faults

# The time between two checks by the thread. When a process holds the lock of a pipe for the first
# time, the event loop sleeps for one to two intervals. From then on, the thread uses the shorter
# interval until this pipe is closed, because other processes may also hold the lock of the pipe.
INTERVAL_S: Final = 0.25
NEXT_INTERVAL_S: Final = 0.02
# After the thread has stopped the processes, it waits at most this long for the event loop.
RELEASE_S: Final = 1.0
# How long to wait, at most, until a process has stopped. A process usually stops within
# microseconds. If all processors are busy, it stops later.
STOP_S: Final = 0.5
_PAUSE_S: Final = 0.001

# The number of descriptors that the thread reads at each check.
_OWN_FILES: Final = 2

# Matches /proc/PID/syscall of a process that sleeps in a system call. The groups are the number and
# the first argument of the call.
_SYSCALL: Final = re.compile(rb"(\d+) 0x(\w+) ")
_READ_BYTES: Final = 512


class _Stat(NamedTuple):
    """Some fields of /proc/PID/stat.

    `started` distinguishes a process from a later process with the same pid.
    """

    state: bytes
    parent: int
    started: bytes


class _Process:
    """A process that may hold the lock of a pipe. Raises no OSError.

    The event loop and the second thread may both stop it. The process continues once each of them
    has called `go_on` as often as `stop`.
    """

    def __init__(self, pid: int, started: bytes) -> None:
        self.pid = pid
        self._started = started
        self._lock = threading.Lock()
        self._stops = 0
        self._is_stopped_by_us = False

    @property
    def key(self) -> tuple[int, bytes]:
        return self.pid, self._started

    def stop(self) -> None:
        """Stop the process, and wait until it has stopped.

        Does not stop a process that is already stopped.
        """
        # A signal fails if the process has ended or has gained privileges.
        with contextlib.suppress(OSError):
            with self._lock:
                self._stops += 1
                # The other thread may already have stopped the process. But since then, some other
                # process may have continued it. So check its state.
                if self._state() not in b"Tt":
                    os.kill(self.pid, signal.SIGSTOP)
                    self._is_stopped_by_us = True
            end_at = time.monotonic() + STOP_S
            # A process in state D stops only after its system call. A process whose first thread
            # has ended stays in state Z.
            while self._state() not in b"TtDZ" and time.monotonic() < end_at:
                time.sleep(_PAUSE_S)

    def go_on(self) -> None:
        """Take back one `stop`.

        If this was the last `stop`, and this module has stopped the process, continue the process.
        """
        with self._lock:
            self._stops -= 1
            if self._is_stopped_by_us and not self._stops:
                self._is_stopped_by_us = False
                # Do not check first whether the pid was reused, because a check needs a free
                # descriptor.
                with contextlib.suppress(OSError):
                    os.kill(self.pid, signal.SIGCONT)

    def _state(self) -> bytes:
        """Return the state as a letter. Raises OSError if the process has ended."""
        stat = _stat(self.pid)
        if stat.started != self._started:
            raise ProcessLookupError
        return stat.state


# The key is the daemon's descriptor of a pipe. During a system call on this pipe, the processes in
# the value must be stopped. Each process comes after its ancestors.
_holders: Final[dict[int, list[_Process]]] = {}
# While the event loop closes a pipe, this maps the pipe's descriptor to its link in /proc/self/fd.
# close(2) removes the link before it waits for the lock.
_closing: Final[dict[int, str]] = {}

_NO_PROCESSES: Final = contextlib.nullcontext()


def unlocked(descriptor: int) -> contextlib.AbstractContextManager[None]:
    """During a system call on a pipe, stop the processes that may hold the lock of the pipe."""
    processes = _holders.get(descriptor)
    return _NO_PROCESSES if processes is None else _stopped(processes)


@contextlib.contextmanager
def _stopped(processes: Iterable[_Process]) -> Generator[None]:
    stopped: list[_Process] = []
    try:
        for process in tuple(processes):
            stopped.append(process)
            process.stop()
        yield
    finally:
        for process in reversed(stopped):
            process.go_on()


def close_pipe(descriptor: int) -> None:
    """Close a descriptor, which may be a pipe. Call this on the event loop."""
    is_open = True
    try:
        with contextlib.suppress(OSError):
            _closing[descriptor] = f"pipe:[{os.fstat(descriptor).st_ino}]"
        with unlocked(descriptor):
            # The descriptor is free after close(2), even if close(2) fails.
            is_open = False
            os.close(descriptor)
    finally:
        _closing.pop(descriptor, None)
        _holders.pop(descriptor, None)
        if is_open:
            # The holders of the lock were perhaps not stopped, so this call may have to wait for
            # the lock.
            os.close(descriptor)


class PipeWatch:
    """Watches the thread of the event loop from another thread.

    Create this object in the thread of the event loop. The watching thread calls `is_needed`, which
    returns whether commands run.
    """

    def __init__(self, is_needed: Callable[[], bool]) -> None:
        self._is_needed = is_needed
        self._proc_dir = f"/proc/self/task/{threading.get_native_id()}"
        self._work = threading.Event()
        self._closing = threading.Event()
        self._is_started = False
        # The descriptors of `stat` and `syscall` in `_proc_dir`, and a third descriptor. The thread
        # closes the third descriptor when it needs to open a file.
        self._files: list[int] = []
        # The system call in which the event loop slept at the last check.
        self._before: re.Match[bytes] | None = None
        # True if the last check stopped processes, but the event loop went on sleeping.
        self._was_in_vain = False

    def command_starts(self) -> None:
        """Check the event loop regularly until no command runs."""
        self._work.set()
        if not self._is_started:
            self._is_started = True
            try:
                Thread(self._run).start()
            except (RuntimeError, MemoryError):
                # The thread could not start. The next command tries again.
                self._is_started = False

    def close(self) -> None:
        self._closing.set()
        self._work.set()

    def _run(self) -> None:
        try:
            for path in (f"{self._proc_dir}/stat", f"{self._proc_dir}/syscall", os.devnull):
                self._files.append(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
            while not self._closing.is_set():
                self._work.wait()
                self._work.clear()
                interval_s = INTERVAL_S
                while self._is_needed() and not self._closing.wait(interval_s):
                    self._look_safely()
                    interval_s = NEXT_INTERVAL_S if _holders else INTERVAL_S
        except (OSError, MemoryError):
            # The next command tries again. On a system without /proc, each attempt fails.
            self._is_started = False
        finally:
            while self._files:
                os.close(self._files.pop())

    def _look_safely(self) -> None:
        try:
            # A process or its system call may end during the check.
            with contextlib.suppress(OSError):
                self._look()
        except Exception:
            faults.report("the check for locked pipes")

    def _look(self) -> None:
        call = self._sleeping_in()
        is_same = call and self._before and call[0] == self._before[0]
        self._before = call
        if call is None or not is_same:
            self._was_in_vain = False
            return
        descriptor = int(call[2], 16)
        pipe = _closing.get(descriptor) or os.readlink(f"/proc/self/fd/{descriptor}")
        if not pipe.startswith("pipe:"):
            return
        processes = _holders.setdefault(descriptor, [])
        known = {process.key for process in processes}
        with self._room_for_a_descriptor():
            for process in _processes_with(pipe, every_thread=self._was_in_vain):
                if process.key not in known:
                    processes.append(process)
        with contextlib.ExitStack() as stack:
            # Only `_stopped` needs a free descriptor, to check whether a process has stopped. The
            # wait for the event loop needs no free descriptor.
            with self._room_for_a_descriptor():
                stack.enter_context(_stopped(processes))
            end_at = time.monotonic() + RELEASE_S
            while (is_held := self._sleeping_in() is not None) and time.monotonic() < end_at:
                time.sleep(_PAUSE_S)
            self._was_in_vain = is_held

    @contextlib.contextmanager
    def _room_for_a_descriptor(self) -> Generator[None]:
        if len(self._files) > _OWN_FILES:
            os.close(self._files.pop())
        try:
            yield
        finally:
            with contextlib.suppress(OSError):
                self._files.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))

    def _sleeping_in(self) -> re.Match[bytes] | None:
        """Return the system call in which the event loop sleeps, if no signal can end the sleep."""
        stat, syscall = self._files[:_OWN_FILES]
        if fields_of(os.pread(stat, _READ_BYTES, 0))[0] != b"D":
            return None
        return _SYSCALL.match(os.pread(syscall, _READ_BYTES, 0))


def _processes_with(pipe: str, *, every_thread: bool) -> list[_Process]:
    """Return the processes that have a pipe open, each after its ancestors.

    With `every_thread`, this function checks every thread, because a thread may have other open
    files than its process.
    """
    # Never stop this process, or the client, which is the parent of this process.
    ours = {os.getpid(), os.getppid()}
    found: dict[int, _Stat] = {}
    for pid in [int(name) for name in os.listdir("/proc") if name.isdigit()]:
        with contextlib.suppress(OSError):
            if pid not in ours and _has_open(pid, pipe, every_thread=every_thread):
                found[pid] = _stat(pid)
    return [_Process(pid, found[pid].started) for pid in sorted(found, key=partial(_depth, found))]


def _depth(processes: dict[int, _Stat], pid: int) -> int:
    """Return how many ancestors of a process are in `processes`."""
    depth = 0
    # If a pid was reused during the search, the parents may form a cycle. So the number of steps
    # has a limit.
    while depth < len(processes) and (pid := processes[pid].parent) in processes:
        depth += 1
    return depth


def _has_open(pid: int, pipe: str, *, every_thread: bool) -> bool:
    tasks = f"/proc/{pid}/task"
    proc_dirs = (
        [f"{tasks}/{each}" for each in os.listdir(tasks)] if every_thread else [f"/proc/{pid}"]
    )
    for proc_dir in proc_dirs:
        for name in os.listdir(f"{proc_dir}/fd"):
            with contextlib.suppress(OSError):
                if os.readlink(f"{proc_dir}/fd/{name}") == pipe:
                    return True
    return False


def _stat(pid: int) -> _Stat:
    fields = stat_fields(pid)
    return _Stat(fields[0], int(fields[1]), fields[19])
