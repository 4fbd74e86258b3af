"""The pool of runners, and its reaction to a failure of the keeper."""

from __future__ import annotations

import errno
import functools
import multiprocessing
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from runs import Run
from shelld.keeper.channel import (
    KILL,
    STARTED,
)
from shelld.keeper.pool import RunnerPool
from shelld.keeper.prctl import become_subreaper
from support import DEADLINE_S, is_alive, is_readable, parent_of, wait_for


def test_killed_idle_runner_is_not_used(pool: RunnerPool) -> None:
    run = Run(pool, b"true")
    run.until_empty()
    runner = run.runner
    pool.release(run.channel)
    os.kill(runner, signal.SIGKILL)
    assert is_readable(run.channel), "the keeper says nothing"
    again = Run(pool, b"true")
    again.until_empty()
    assert again.runner != runner
    again.channel.close()


def test_all_but_two_unneeded_runners_end(pool: RunnerPool) -> None:
    runs = [Run(pool, b"true") for _ in range(6)]
    for run in runs:
        run.until_empty()
        pool.release(run.channel)
    runners = [run.runner for run in runs]

    def are_left(count: int) -> bool:
        return sum(map(is_alive, runners)) == count

    # First, six runners are needed, then three, then none.
    for needed, left in ((6, 6), (3, 5), (0, 2), (0, 2)):
        channels = [pool.acquire() for _ in range(needed)]
        for channel in channels:
            pool.release(channel)
        pool.trim()
        wait_for(functools.partial(are_left, left), f"{left} runners")
    run = Run(pool, b"true")
    run.until_empty()
    assert run.runner in runners
    run.channel.close()


def test_failed_keeper_start_is_raised(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_arguments: object, **_options: object) -> int:
        raise BlockingIOError(errno.EAGAIN, "fork")

    monkeypatch.setattr(os, "posix_spawn", refuse)
    pool = RunnerPool()
    with pytest.raises(BlockingIOError):
        pool.acquire()
    pool.close()


def test_a_pool_without_descriptors_refuses_and_works_again(pool: RunnerPool) -> None:
    first = Run(pool, b"true")
    first.until_empty()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    try:
        for _ in range(3):
            with pytest.raises(OSError, match="Too many open files"):
                pool.acquire()
        pool.trim()
        pool.clean_up()
        assert pool.is_dying(None) is False
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    again = Run(pool, b"true")
    again.until_empty()
    first.channel.close()
    again.channel.close()


class _LosingPool(RunnerPool):
    def lose_the_channel(self) -> None:
        """Break the channel, as a partially sent message would."""
        assert self._keeper is not None
        self._keeper.shut_down()


def _replace_a_silent_keeper() -> None:
    assert become_subreaper()
    pool = _LosingPool(adopts=True)
    run = Run(pool, b"sleep 300")
    runner, (_, bash, *_) = run.runner, run.until(STARTED)
    keeper = parent_of(runner)
    pool.lose_the_channel()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("time.sleep", never_sleep)
        other = Run(pool, b"true")
    other.until_empty()
    assert parent_of(other.runner) != keeper
    # The old keeper has not ended, and neither has the command that it guards.
    pool.expect_orphans()
    wait_for(lambda: pool.orphans() == [], "a look at all that is left")
    assert is_alive(bash)
    os.kill(keeper, signal.SIGKILL)
    wait_for(lambda: parent_of(runner) == os.getpid(), "the end of the old keeper")
    wait_for(lambda: pool.orphans() == [], "a look at all that is left")
    assert is_alive(bash)
    run.channel.send((KILL, int(signal.SIGKILL), 0))
    run.until_empty()
    assert not is_alive(bash)
    run.channel.close()
    other.channel.close()
    pool.close()


def test_deaf_keeper_is_replaced_and_keeps_its_runners() -> None:
    # Use a separate process, whose children all belong to the pool.
    process = multiprocessing.get_context("fork").Process(target=_replace_a_silent_keeper)
    process.start()
    process.join(DEADLINE_S)
    assert process.exitcode == 0


def never_sleep(_seconds: float) -> None:
    pytest.fail("the event loop is blocked")


def test_a_silent_keeper_is_replaced_without_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = _LosingPool()
    pool.prepare()
    first = Run(pool, b"sleep 300")
    keeper = parent_of(first.runner)
    pool.lose_the_channel()
    with monkeypatch.context() as patch:
        patch.setattr("time.sleep", never_sleep)
        other = Run(pool, b"true")
    other.until_empty()
    assert parent_of(other.runner) != keeper
    first.channel.close()
    other.channel.close()

    def is_reaped() -> bool:
        pool.trim()
        return not Path(f"/proc/{keeper}").exists()

    wait_for(is_reaped, "the end of the keeper that was replaced")
    pool.close()


@pytest.mark.parametrize("function", ["waitid", "waitpid", "kill"])
def test_pool_maintenance_ignores_missing_children(
    monkeypatch: pytest.MonkeyPatch, function: str
) -> None:
    pool = RunnerPool()
    run = Run(pool, b"true")
    run.until_empty()
    runner = run.runner
    run.channel.close()

    def refuse(*_: object) -> None:
        raise ChildProcessError(errno.ECHILD, "injected")

    with monkeypatch.context() as patch:
        patch.setattr(os, function, refuse)
        pool.stop_runner(runner)
        pool.clean_up()
        pool.trim()
        pool.close()


def test_closing_the_pool_ends_keeper_and_runners() -> None:
    pool = RunnerPool()
    pool.prepare()
    run = Run(pool, b"true")
    run.until_empty()
    runner = run.runner
    keeper = parent_of(runner)
    pool.release(run.channel)
    pool.close()
    assert not is_alive(runner)
    assert not is_alive(keeper)


def test_keeper_imports_no_heavy_modules() -> None:
    code = "import sys; import shelld.keeper.keeper; print(' '.join(sys.modules))"
    path = str(Path(__file__).parents[2] / "daemon")
    env = {**os.environ, "PYTHONPATH": path}
    shown = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, check=True)
    modules = set(shown.stdout.decode().split())
    assert not modules & {"asyncio", "anyio", "msgspec", "subprocess", "threading", "json", "ssl"}
