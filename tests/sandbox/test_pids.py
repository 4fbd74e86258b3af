"""The pids of a sandbox's processes, as its runner reports them."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Sequence

import pytest

from shelld.keeper.channel import EMPTY, LEFTOVER, READY, STARTED, Channel, Message
from shelld.sandbox import pids
from shelld.sandbox.pids import ENDED, NamespacedChannel, outer_pids


def test_pid_of_command_is_kept_if_scan_of_its_runner_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(_handle: int) -> int:
        raise MemoryError

    def note(pid: int, inner: int) -> None:
        came.append((pid, inner))

    came: list[tuple[int, int]] = []
    ours, theirs = NamespacedChannel.pair()
    ours.look_up, ours.on_runner = sorted, note
    runner = Channel(theirs)
    command = subprocess.Popen(["sleep", "300"])
    handles = [os.pidfd_open(os.getpid()), os.pidfd_open(command.pid)]
    try:
        # `receive` fails on this message, and must not keep one of its handles for the next
        # message.
        runner.send((READY, 2, True, False), (handles[0], handles[0]))
        with monkeypatch.context() as patch:
            patch.setattr(pids, "pid_of", fail)
            with pytest.raises(MemoryError):
                ours.receive()
        assert ours.receive() == []
        runner.send((STARTED, 3, ()), (handles[1],))
        assert ours.receive() == [((STARTED, command.pid, ()), [])]
        assert came == [(pids.ENDED, 2)]
    finally:
        command.kill()
        command.wait()
        ours.close()
        runner.close()
        for handle in handles:
            os.close(handle)


def test_message_is_kept_until_its_pids_can_be_looked_up() -> None:
    failures = iter([MemoryError()])

    def look_up(inner: Sequence[int]) -> list[int]:
        for failure in failures:
            raise failure
        return [1_000 + pid for pid in inner]

    ours, theirs = NamespacedChannel.pair()
    ours.look_up = look_up
    runner = Channel(theirs)
    try:
        runner.send((LEFTOVER, [5]))
        runner.send((EMPTY,))
        with pytest.raises(MemoryError):
            ours.receive()
        came: list[Message] = []
        while len(came) < 2:
            came += [message for message, _ in ours.receive() or ()]
        assert came == [(LEFTOVER, [1_005]), (EMPTY,)]
    finally:
        ours.close()
        runner.close()


def test_channel_closes_the_handles_of_messages_that_were_not_translated() -> None:
    def fail(_inner: Sequence[int]) -> list[int]:
        raise MemoryError

    ours, theirs = NamespacedChannel.pair()
    ours.look_up = fail
    runner = Channel(theirs)
    handle = os.pidfd_open(os.getpid())
    try:
        # The second message has a handle.
        runner.send((LEFTOVER, [5]))
        runner.send((STARTED, 3, ()), (handle,))
        with pytest.raises(MemoryError):
            ours.receive()
        before = len(os.listdir("/proc/self/fd"))
        ours.close()
        # The socket and the handle are closed.
        assert len(os.listdir("/proc/self/fd")) == before - 2
    finally:
        ours.close()
        runner.close()
        os.close(handle)


# -- the search: process 10 has the children 11 and 12; the inner pids are 1, 2 and 3 -----------


class Machine:
    """`failures` are the errors that the next scans of children raise."""

    def __init__(self, *failures: OSError) -> None:
        self.failures = iter(failures)
        self.looks = 0

    def children_of(self, pid: int) -> list[int]:
        self.looks += 1
        for failure in self.failures:
            raise failure
        return [11, 12] if pid == 10 else []

    def read_file(self, path: str) -> bytes:
        pid = int(path.split("/")[2])
        return b"NSpid:\t%d\t%d\n" % (pid, pid - 9)


@pytest.mark.parametrize(
    ("failures", "inner", "outer"),
    [
        ([], [2, 3], [11, 12]),
        ([], [], []),
        # The process 77 has ended.
        ([], [3, 77], [12]),
        ([FileNotFoundError()], [2], [11]),
        ([OSError(errno.EMFILE, "")], [2], [11]),
        # The search fails so often that it cannot tell whether the processes have ended.
        ([OSError(errno.EMFILE, "")] * 9, [2], [ENDED]),
        ([PermissionError()] * 9, [1, 2], [ENDED]),
    ],
)
def test_search_finds_processes_or_reports_its_failure(
    monkeypatch: pytest.MonkeyPatch, failures: list[OSError], inner: list[int], outer: list[int]
) -> None:
    machine = Machine(*failures)
    monkeypatch.setattr(pids, "children_of", machine.children_of)
    monkeypatch.setattr(pids, "read_file", machine.read_file)
    assert outer_pids(10, inner) == outer


def test_search_reports_its_failure_if_there_are_too_many_processes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Every process is the parent of the next one.
    def next_process(pid: int) -> list[int]:
        return [pid + 1]

    monkeypatch.setattr(pids, "children_of", next_process)
    monkeypatch.setattr(pids, "read_file", Machine().read_file)
    # The search has not read all processes, so the process that it has not found may still run.
    assert outer_pids(10, [1, 1_000_000]) == [10, ENDED]


def test_search_ends_when_everything_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine()
    monkeypatch.setattr(pids, "children_of", machine.children_of)
    monkeypatch.setattr(pids, "read_file", machine.read_file)
    assert outer_pids(10, [1]) == [10]
    assert machine.looks == 1
