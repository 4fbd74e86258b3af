"""The resources that the processes of a command use.

The test's own process takes the place of the runner.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from shelld.keeper.proc import children_by_thread
from shelld.limits import usage as usage_module
from shelld.limits.usage import Usage, pss_bytes, reaped_cpu_s, scan
from support import wait_for

MIB = 1024 * 1024
WORK = "import os\nwhile os.times().user < 0.3: pass\n"


def used(reaped_before_s: float) -> Usage:
    return list(scan(os.getpid(), reaped_before_s))[-1]


@pytest.fixture
def family() -> Iterator[subprocess.Popen[bytes]]:
    """A process of 40 MiB with two threads, and a child that shares its memory."""
    code = (
        "import os, threading, time; taken = bytearray(40 << 20)\n"
        "child = os.fork()\n"
        "if child: threading.Thread(target=time.sleep, args=(300,), daemon=True).start()\n"
        "os.write(1, b'.'); time.sleep(300)"
    )
    with subprocess.Popen([sys.executable, "-S", "-c", code], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.read(2) == b".."
        children = wait_for(lambda: used(0).pids[1:], "the child")
        yield process
        process.kill()
        for child in children:
            os.kill(child, 9)
    for child in children:
        os.waitpid(child, 0)


def test_usage_counts_all_processes_below_the_runner(family: subprocess.Popen[bytes]) -> None:
    usage = used(reaped_cpu_s(os.getpid()))
    assert usage.pids[0] == family.pid
    assert (len(usage.pids), usage.threads) == (2, 3)
    # `rss_bytes` counts shared memory twice, and `pss_bytes` counts it once.
    assert usage.rss_bytes > 80 * MIB
    assert 40 * MIB < pss_bytes(usage.pids) < 70 * MIB


def test_measurement_can_pause_after_each_thread(family: subprocess.Popen[bytes]) -> None:
    steps = list(scan(os.getpid(), 0))
    assert len(steps) > steps[-1].threads + len(steps[-1].pids)


@pytest.mark.slow
def test_processor_time_counts_once_whoever_reaps_the_process() -> None:
    before = reaped_cpu_s(os.getpid())
    work = f"import subprocess, sys; subprocess.run([sys.executable, '-S', '-c', {WORK!r}])"
    command = [sys.executable, "-S", "-c", f"{work}; print(1, flush=True); input()"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe) as process:
        assert process.stdout is not None
        # The parent lives, and has reaped its child.
        assert process.stdout.readline() == b"1\n"
        lived = used(before).cpu_s
        process.communicate(b"\n")
    # This process has reaped the parent.
    reaped = used(before).cpu_s
    # Each figure is the difference of two times. Both times have two decimals.
    assert 0.3 <= lived <= reaped + 0.001 < 2 * lived
    assert used(reaped_cpu_s(os.getpid())).cpu_s == 0


def test_children_listed_twice_count_once(
    monkeypatch: pytest.MonkeyPatch, family: subprocess.Popen[bytes]
) -> None:
    def list_children(pid: int) -> Iterator[list[int]]:
        # A thread has ended during the measurement.
        for children in children_by_thread(pid):
            yield children
            yield children

    monkeypatch.setattr(usage_module, "children_by_thread", list_children)
    usage = used(0)
    assert (usage.pids[0], len(usage.pids), usage.threads) == (family.pid, 2, 3)


def test_ended_process_uses_nothing() -> None:
    assert pss_bytes([999_999_999]) == 0
    with pytest.raises(OSError, match="No such"):
        list(scan(999_999_999, 0))


def test_memory_counts_in_full_if_its_share_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = pss_bytes([os.getpid()])

    def fail(path: str) -> bytes:
        if path.endswith("smaps_rollup"):
            raise PermissionError
        return open(path, "rb").read()

    monkeypatch.setattr("shelld.limits.usage.read_file", fail)
    assert pss_bytes([os.getpid()]) >= whole
