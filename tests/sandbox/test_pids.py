"""The pids of a sandbox's processes, as its runner reports them."""

from __future__ import annotations

import os
import subprocess

import pytest

from shelld.keeper.channel import READY, STARTED, Channel
from shelld.sandbox import pids
from shelld.sandbox.pids import NamespacedChannel


def test_failure_at_the_pid_of_a_runner_does_not_change_that_of_its_command(
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
        # The failed call must not leave one of these handles to the next message.
        runner.send((READY, 2, True, False), (handles[0], handles[0]))
        with monkeypatch.context() as patch:
            patch.setattr(pids, "pid_of", fail)
            with pytest.raises(MemoryError):
                ours.receive()
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
