"""Runners without the daemon: they follow the protocol and leave nothing behind."""

from __future__ import annotations

import contextlib
import errno
import functools
import multiprocessing
import os
import signal
import socket
import sys
from pathlib import Path

import anyio
import pytest

from runs import Run
from shelld.keeper.channel import (
    EXITED,
    FAILED,
    KILL,
    LEFTOVER,
    RETIRES,
    RUN,
    SPAWN_RUNNER,
    STARTED,
    Channel,
    Message,
)
from shelld.keeper.pool import RunnerPool
from shelld.keeper.prctl import become_subreaper
from shelld.keeper.proc import info_of
from shelld.shells.orphans import kill_orphans
from support import DEADLINE_S, descendants, is_alive, is_readable, parent_of, wait_for


def test_a_command_is_started_ended_and_proved_empty(pool: RunnerPool) -> None:
    run = Run(pool, b"exit 7")
    _, status, user, system, rss, signalled, leftover, empty = run.until(EXITED)
    assert run.kinds() == [STARTED, EXITED]
    assert os.waitstatus_to_exitcode(status) == 7
    assert (signalled, leftover, empty) == (False, [], True)
    assert user + system > 0
    assert rss > 100_000
    run.channel.close()


def test_a_runner_is_used_again(pool: RunnerPool) -> None:
    runners: set[int] = set()
    for _ in range(5):
        run = Run(pool, b"true")
        run.until_empty()
        runners.add(run.runner)
        pool.release(run.channel)
    assert len(runners) == 1


@pytest.mark.parametrize("is_killed", [False, True])
def test_command_abandoned_before_its_runner_never_runs(
    pool: RunnerPool, tmp_path: Path, is_killed: bool
) -> None:
    pool.prepare()
    keeper: Channel = getattr(pool, "_keeper")  # noqa: B009 - private
    channel, theirs = Channel.pair()
    run = Run(pool, b"echo > %s; sleep 300" % bytes(tmp_path / "marker"), channel=channel)
    if is_killed:
        run.channel.send((KILL, int(signal.SIGTERM), 60_000))
    with socket.socket(fileno=os.dup(run.channel.fileno())) as sending:
        sending.shutdown(socket.SHUT_WR)
    with theirs:
        keeper.send((SPAWN_RUNNER,), (theirs.fileno(),))
    while (received := run.channel.receive()) is not None:
        run.messages += [message for message, _ in received]
        assert is_readable(run.channel)
    assert run.kinds() == []
    run.channel.close()
    assert not list(tmp_path.iterdir())


def test_late_kill_spares_the_next_command(pool: RunnerPool) -> None:
    run = Run(pool, b"true")
    run.until_empty()
    # Stop the keeper too, because it would send SIGCONT to a stopped runner. While the runner is
    # stopped, two messages arrive: a request to kill, and then the next command. Later, the runner
    # finds both messages together.
    stopped = [parent_of(run.runner), run.runner]
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
        wait_for(functools.partial(is_stopped, pid), "the stop")
    run.channel.send((KILL, int(signal.SIGKILL), 0))
    pool.release(run.channel)
    again = Run(pool, b"exit 3")
    for pid in reversed(stopped):
        os.kill(pid, signal.SIGCONT)
    _, status, *_ = again.until(EXITED)
    assert os.waitstatus_to_exitcode(status) == 3
    again.channel.close()


def is_stopped(pid: int) -> bool:
    return info_of(pid).state == "T"


@pytest.mark.parametrize("restrictions", [None, ((), ())])
def test_runner_reports_failed_start_and_continues(
    pool: RunnerPool, restrictions: tuple[object, ...] | None
) -> None:
    channel = pool.acquire()
    null = os.open(os.devnull, os.O_RDWR)
    failures: list[Message] = []
    for argv, env, cwd in (
        ([b"/nonexistent", b"-c", b"true"], {}, b""),
        ([b"/bin/bash", b"-c", b"true"], {}, b"/nonexistent"),
        ([b"/bin/bash", b"-c", b"true"], {b"A": b"x" * 200_000}, b""),
        ([b"/bin/bash", b"-c", b"tr\0ue"], {}, b""),
        ([b"/bin/bash", b"-c", b"true"], {b"A=B": b""}, b""),
        ([b"/bin/bash", b"-c", b"true"], {}, b"\0"),
    ):
        channel.send((RUN, argv[0], argv, env, cwd, 3, False, restrictions), (null,) * 3)
        expected_count = len(failures) + 1
        while len(failures) < expected_count:
            assert is_readable(channel)
            received = channel.receive()
            assert received is not None
            failures += [message for message, _ in received]
    os.close(null)
    whats = [(kind, what) for kind, _, what in failures]
    expected = ["bash", "cwd", "exec", "exec", "exec", "cwd"]
    assert whats == [(FAILED, what) for what in expected]
    channel.close()


def test_command_missing_descriptors_is_not_started(pool: RunnerPool) -> None:
    channel = pool.acquire()
    with open(os.devnull, "rb") as null:
        channel.send((RUN, b"/bin/bash", [b"bash"], {}, b"", 3, False, None), (null.fileno(),) * 2)
    received: list[Message] = []
    while len(received) < 2:
        assert is_readable(channel)
        messages = channel.receive()
        assert messages is not None
        received += [message for message, _ in messages]
    # The runner takes no further command, because its lack of descriptors may be permanent.
    assert received == [(RETIRES,), (FAILED, errno.EMFILE, "exec")]
    channel.close()


def test_leftover_list_shrinks_as_processes_end(pool: RunnerPool, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    run = Run(pool, b"setsid cat %b & setsid sleep 300 & exit 0" % os.fsencode(gate))
    leftover = run.until(EXITED)[6]
    assert len(leftover) == 2
    gate.write_text("")
    (remaining,) = run.until(LEFTOVER)[1]
    assert remaining in leftover
    run.channel.send((KILL, int(signal.SIGTERM), 1000))
    run.until_empty()
    assert not is_alive(remaining)
    run.channel.close()


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 200])
def test_sigterm_reaches_processes_whose_parent_changes_meanwhile(
    pool: RunnerPool, count: int
) -> None:
    # Bash dies of the signal. Its `sleep` processes then become children of the runner, which is
    # still sending signals.
    command = b"for i in {1..%d}; do setsid sleep 300 & done; wait" % count
    for _ in range(10 if count == 1 else 3):
        run = Run(pool, command)
        runner = run.runner
        wait_for(functools.partial(are_sleeping, runner, count), "the sleeps")
        run.channel.send((KILL, int(signal.SIGTERM), 60_000))
        # The tree is empty long before the grace period ends.
        run.until_empty()
        assert os.waitstatus_to_exitcode(run.until(EXITED)[1]) == -signal.SIGTERM
        pool.release(run.channel)


def are_sleeping(runner: int, count: int) -> bool:
    return names_below(runner).count("sleep") == count


def names_below(pid: int) -> list[str]:
    names: list[str] = []
    for below in descendants(pid):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            names.append(Path(f"/proc/{below}/comm").read_text().strip())
    return names


@pytest.mark.parametrize(
    "command",
    [
        b"setsid sleep 300 & trap '' TERM; sleep 300",
        b"(env -i setsid sh -c 'sleep 300 & exec sleep 300' &) ; sleep 300",
    ],
)
def test_closed_socket_ends_the_tree(pool: RunnerPool, command: bytes) -> None:
    run = Run(pool, command)
    pid, runner = run.until(STARTED)[1], run.runner
    run.channel.close()
    wait_for(lambda: not is_alive(runner), "the runner to have finished")
    assert not is_alive(pid)


# This program escapes like a daemon, by a double fork into a new session. It closes every
# descriptor and has no environment. The escaped process writes its pid before its parent continues.
ESCAPE = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.closerange(0, 256)
        with open(sys.argv[1] + ".new", "w") as file:
            file.write(str(os.getpid()))
        os.rename(sys.argv[1] + ".new", sys.argv[1])
        time.sleep(300)
    os._exit(0)
while not os.path.exists(sys.argv[1]):
    time.sleep(0.001)
"""


@pytest.mark.parametrize("end", ["kill", "close", "runner"])
def test_double_fork_closing_everything_is_killed(
    pool: RunnerPool, tmp_path: Path, end: str
) -> None:
    script, pid_file = tmp_path / "escape.py", tmp_path / "pid"
    script.write_text(ESCAPE)
    run = Run(pool, f"env -i {sys.executable} {script} {pid_file}; sleep 300".encode())
    pid, runner = run.until(STARTED)[1], run.runner
    wait_for(pid_file.exists, "the escape")
    escaped = int(pid_file.read_text())
    assert is_alive(escaped)
    if end == "kill":
        run.channel.send((KILL, int(signal.SIGTERM), 100))
        run.until_empty()
        assert not is_alive(escaped)
    elif end == "close":
        run.channel.close()
    else:
        os.kill(runner, signal.SIGKILL)
    wait_for(lambda: not is_alive(escaped) and not is_alive(pid), "the end of both")
    run.channel.close()


class _PatientPool(RunnerPool):
    """A pool checks again and again whether a runner is dying. In this pool, each check lowers
    `looks_left` by 1. If this makes it 0, the check kills the runner.
    """

    looks_left = 0

    def is_dying(self, runner: int | None) -> bool:
        self.looks_left -= 1
        if self.looks_left == 0 and runner is not None:
            os.kill(runner, signal.SIGKILL)
        return super().is_dying(runner)


def _take_over_from_a_keeper() -> None:
    assert become_subreaper()
    pool = _PatientPool(adopts=True)
    run = Run(pool, b"sleep 300")
    runner, (_, bash, *_) = run.runner, run.until(STARTED)
    keeper = parent_of(runner)
    os.kill(keeper, signal.SIGKILL)
    # On a busy machine, any process may stop for a while between the closing of its sockets and its
    # end.
    os.kill(runner, signal.SIGSTOP)
    assert pool.is_dying(runner)
    wait_for(lambda: parent_of(runner) == os.getpid(), "the end of the keeper")
    assert pool.is_dying(runner)
    pool.looks_left = 5
    assert anyio.run(kill_orphans, pool, run.channel.peer, bash) == []
    assert not is_alive(bash)
    pool.close()


def test_orphans_are_found_after_runner_and_keeper_end() -> None:
    # Use a separate process, whose children all belong to the pool.
    process = multiprocessing.get_context("fork").Process(target=_take_over_from_a_keeper)
    process.start()
    process.join(DEADLINE_S)
    assert process.exitcode == 0


def test_runners_hold_no_descriptor_of_each_other(pool: RunnerPool) -> None:
    runs = [Run(pool, b"sleep 300") for _ in range(4)]
    runners = [run.runner for run in runs]
    sockets = [_sockets(runner) for runner in runners]
    for position, own in enumerate(sockets):
        assert len(own) == 1
        assert not any(own & other for other in sockets[position + 1 :])
    for run in runs:
        run.channel.close()


def _sockets(pid: int) -> set[str]:
    links = {os.readlink(entry) for entry in Path(f"/proc/{pid}/fd").iterdir()}
    return {link for link in links if link.startswith("socket:")}


def test_runner_uses_little_private_memory(pool: RunnerPool) -> None:
    run = Run(pool, b"sleep 300")
    runner = run.runner
    rollup = Path(f"/proc/{runner}/smaps_rollup").read_text().splitlines()
    private = sum(int(line.split()[1]) for line in rollup if line.startswith("Private"))
    assert private < 4_000
    run.channel.close()


def test_killed_script_runs_no_further_line_after_its_children_die(
    pool: RunnerPool, tmp_path: Path
) -> None:
    command = f"for i in {{1..50}}; do setsid sleep 300 & done; wait; touch {tmp_path}/went-on"
    run = Run(pool, command.encode())
    wait_for(functools.partial(are_sleeping, run.runner, 50), "the sleeps")
    run.channel.send((KILL, int(signal.SIGTERM), 60_000))
    run.until_empty()
    assert not (tmp_path / "went-on").exists()
    run.channel.close()
