"""The kernel shows on which descriptors real processes wait for input."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager

import pytest

from shelld.inspection.kernel import (
    can_end,
    file_behind,
    inner_terminals,
    name_of,
    process,
    threads_of,
    waits,
)
from shelld.inspection.waiting_calls import Wait
from shelld.keeper.proc import stat_fields
from shelld.terminals.source import file_of
from support import wait_for

# `r` is an end of a pipe without data.
PROGRAM = """
import os, select, sys, time
r, w = os.pipe()
sys.stdout.write(f"{r} {w}\\n")
sys.stdout.flush()
"""


@contextmanager
def running(code: str) -> Generator[tuple[int, int, int]]:
    """Run Python code in a process. Yield the pid of the process, and the two ends of its pipe."""
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM + code],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdout is not None
        read, write = map(int, child.stdout.readline().split())
        try:
            yield child.pid, read, write
        finally:
            child.kill()


def one_wait(pid: int, is_expected: Callable[[Wait], bool]) -> bool:
    found = list(waits(pid))
    return len(found) == 1 and is_expected(found[0])


@pytest.mark.parametrize(
    ("code", "has_limit", "is_read"),
    [
        ("os.read(r, 1)", False, True),
        ("os.readv(r, [bytearray(1)])", False, True),
        ("select.select([r], [], [])", False, False),
        ("select.select([r], [], [], 300)", True, False),
        ("p = select.poll(); p.register(r, select.POLLIN); p.poll()", False, False),
        ("p = select.poll(); p.register(r, select.POLLIN); p.poll(300000)", True, False),
        ("p = select.epoll(); p.register(r, select.EPOLLIN); p.poll()", False, False),
        ("p = select.epoll(); p.register(r, select.EPOLLIN); p.poll(300)", True, False),
        ("os.splice(r, os.pipe()[1], 1)", False, True),
        ("import ctypes; ctypes.CDLL(None).tee(r, os.pipe()[1], 1, 0)", False, True),
        ("os.dup2(os.openpty()[1], r); os.sendfile(os.pipe()[1], r, None, 1)", False, True),
        ("os.preadv(r, [bytearray(1)], -1, os.RWF_HIPRI)", False, True),
    ],
)
def test_call_that_waits_shows_its_descriptor(code: str, has_limit: bool, is_read: bool) -> None:
    with running(code) as (pid, read, _):
        wait_for(
            lambda: one_wait(pid, lambda wait: read in wait.descriptors),
            "the system call",
        )
        (wait,) = waits(pid)
        assert wait[:4] == (f"/proc/{pid}/task/{pid}", frozenset({read}), has_limit, is_read)
        assert can_end(wait, read)


@pytest.mark.parametrize(
    "code",
    [
        "p = select.poll(); p.register(r, select.POLLPRI); p.poll()",
        "p = select.epoll(); p.register(r, select.EPOLLPRI); p.poll()",
        "select.select([], [], [r])",
    ],
)
def test_wait_for_no_readable_descriptor_has_no_descriptors(code: str) -> None:
    with running(code) as (pid, _, _):
        wait_for(lambda: one_wait(pid, lambda wait: not wait.descriptors), "the system call")


FULL_PIPE = """
os.dup2(os.openpty()[1], r)
full = os.pipe()[1]
os.set_blocking(full, False)
while select.select([], [full], [], 0)[1]:
    os.write(full, bytes(4096))
os.set_blocking(full, True)
"""


@pytest.mark.parametrize("call", ["os.splice(r, full, 1)", "os.sendfile(full, r, None, 1)"])
def test_wait_for_room_in_the_output_is_no_wait_for_input(call: str) -> None:
    with running(FULL_PIPE + call) as (pid, _, _):
        wait_for(lambda: one_wait(pid, lambda wait: not wait.descriptors), "the system call")


NESTED = """
inner, middle, outer = (select.epoll() for _ in range(3))
inner.register(r, select.EPOLLIN)
middle.register(inner, select.EPOLLIN)
"""


@pytest.mark.parametrize(
    "call",
    [
        "middle.poll()",
        "outer.register(middle, select.EPOLLIN); outer.poll()",
        "p = select.poll(); p.register(middle, select.POLLIN); p.poll()",
        "select.select([middle], [], [])",
    ],
)
def test_epoll_set_within_a_set_is_followed(call: str) -> None:
    with running(NESTED + call) as (pid, read, _):
        wait_for(lambda: one_wait(pid, lambda wait: read in wait.descriptors), "the system call")


@pytest.mark.parametrize(
    "call",
    [
        "poll(ctypes.c_void_p(-1), ctypes.c_ulong(0), -1)",
        "poll(ctypes.c_void_p(-1), ctypes.c_ulong(5), 300000)",
        "select(0, ctypes.c_void_p(-1), None, None, None)",
        "select(9, ctypes.c_void_p(1 << 63), None, None, None)",
    ],
)
def test_check_continues_if_a_system_call_has_an_unreadable_address(call: str) -> None:
    # A system call may fail at once if it gets an address that cannot be read.
    with running(f"import ctypes; ctypes.CDLL(None).{call}; time.sleep(300)") as (pid, _, _):
        wait_for(lambda: process(pid).state == "S", "the call")
        assert [wait.descriptors for wait in waits(pid) if wait.descriptors] == []


def test_descriptors_are_found_after_the_first_thread_has_ended() -> None:
    # /proc/PID/fd shows the descriptors of the first thread, which has ended.
    code = """
import ctypes, threading
threading.Thread(target=lambda: os.read(r, 1)).start()
ctypes.CDLL(None).syscall(60 if os.uname().machine == "x86_64" else 93, 0)
"""
    with running(code) as (pid, read, _):
        wait_for(lambda: stat_fields(pid)[0] == b"Z", "the end of the first thread")
        assert process(pid).state == "S"
        wait_for(lambda: list(waits(pid)) != [], "the second thread")
        (wait,) = waits(pid)
        assert wait.descriptors == {read}
        assert file_behind(wait.proc_dir, read, 0) == file_of(f"{wait.proc_dir}/fd/{read}")


def test_sleep_is_no_wait_for_input() -> None:
    with running("time.sleep(300)") as (pid, _, _):
        wait_for(lambda: process(pid).state == "S", "the sleep")
        assert list(waits(pid)) == []


def test_each_thread_is_checked() -> None:
    code = "import threading; threading.Thread(target=os.read, args=(r, 1)).start(); os.read(r, 1)"
    with running(code) as (pid, read, _):
        wait_for(lambda: len(list(waits(pid))) == 2, "both threads")
        assert {wait.descriptors for wait in waits(pid)} == {frozenset({read})}


# This program holds the thread that its argument names, as a debugger does, while the other threads
# of the process run.
TRACER = """
import ctypes, sys, time
libc = ctypes.CDLL(None)
for seize_or_interrupt in (0x4206, 0x4207):
    libc.ptrace(seize_or_interrupt, int(sys.argv[1]), None, None)
time.sleep(300)
"""


def test_thread_that_a_tracer_holds_does_not_wait() -> None:
    # The first call permits every process to trace this one.
    code = (
        "import ctypes, threading; ctypes.CDLL(None).prctl(0x59616D61, ctypes.c_long(-1), 0, 0, 0);"
        "threading.Thread(target=os.read, args=(r, 1)).start(); time.sleep(300)"
    )
    with running(code) as (pid, _, _):
        wait_for(lambda: list(waits(pid)) != [], "the thread to read")
        [wait] = waits(pid)
        with subprocess.Popen(
            [sys.executable, "-c", TRACER, wait.proc_dir.rpartition("/")[2]]
        ) as by:
            try:
                # The kernel still shows the call in which the thread was held.
                wait_for(lambda: list(waits(pid)) == [], "the tracer to hold the thread")
                assert process(pid).state == "S"
            finally:
                by.kill()
        wait_for(lambda: list(waits(pid)) != [], "the thread to read again")


def test_stopped_process_is_recognised() -> None:
    with running("os.read(r, 1)") as (pid, _, _):
        assert not process(pid).is_stopped
        os.kill(pid, signal.SIGSTOP)
        wait_for(lambda: process(pid).is_stopped, "the stop")


def test_terminal_is_found_from_its_master_descriptor() -> None:
    master, slave = os.openpty()
    try:
        assert os.fstat(slave).st_rdev in inner_terminals("/proc/self")[0]
    finally:
        os.close(master)
        os.close(slave)


def test_ended_process_has_no_name() -> None:
    with subprocess.Popen(["true"]) as child:
        child.wait()
        assert name_of(child.pid) == ""
        with pytest.raises(OSError, match="No such"):
            process(child.pid)


@pytest.mark.parametrize("more", [0, 1, 3])
def test_all_threads_are_listed(more: int) -> None:
    code = f"""
import threading
for _ in range({more}):
    threading.Thread(target=time.sleep, args=(300,), daemon=True).start()
os.read(r, 1)
"""
    with running(code) as (pid, _, _):
        wait_for(lambda: len(threads_of(pid)) == more + 1, "the threads")
        assert sorted(threads_of(pid)) == sorted(os.listdir(f"/proc/{pid}/task"))


def test_thread_after_many_others_is_checked() -> None:
    code = """
import threading
threading.stack_size(64 * 1024)
for _ in range(600):
    threading.Thread(target=time.sleep, args=(300,), daemon=True).start()
threading.Thread(target=os.read, args=(r, 1)).start()
"""
    with running(code) as (pid, read, _):
        wait_for(lambda: any(read in wait.descriptors for wait in waits(pid)), "the last thread")
