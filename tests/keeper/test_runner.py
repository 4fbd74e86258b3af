"""Keeper and runners without the daemon: they follow the protocol and leave nothing behind."""

from __future__ import annotations

import contextlib
import errno
import functools
import multiprocessing
import os
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from shelld.keeper import orphan_reaper as reaper_module
from shelld.keeper import pool as pool_module
from shelld.keeper.channel import (
    EMPTY,
    EXITED,
    FAILED,
    KILL,
    LEFTOVER,
    LOST,
    RETIRES,
    RUN,
    SPAWN_RUNNER,
    STARTED,
    SURVIVORS,
    Channel,
    Message,
)
from shelld.keeper.orphan_reaper import REAPED_AT_ONCE, ROUNDS_BEFORE_GIVING_UP, OrphanReaper
from shelld.keeper.pool import RunnerPool
from shelld.keeper.tree import Spared, become_subreaper, look
from shelld.shells.orphans import kill_orphans
from support import DEADLINE_S, descendants, is_alive, is_readable, parent_of, wait_for


@pytest.fixture
def pool() -> Iterator[RunnerPool]:
    pool = RunnerPool()
    yield pool
    pool.close()


class Run:
    """One command on its own runner."""

    def __init__(
        self,
        pool: RunnerPool,
        command: bytes,
        *,
        env: dict[bytes, bytes] | None = None,
        channel: Channel | None = None,
    ):
        self.channel = channel or pool.acquire()
        null = os.open(os.devnull, os.O_RDWR)
        argv = [b"/bin/bash", b"-c", command]
        self.channel.send(
            (RUN, argv[0], argv, dict(os.environb) if env is None else env, b"", 3, False, None),
            (null,) * 3,
        )
        os.close(null)
        self.messages: list[Message] = []

    def until(self, kind: int) -> Message:
        """Return the first message of this kind, without losing the others."""
        while True:
            for message in self.messages:
                if message[0] == kind:
                    return message
            assert is_readable(self.channel)
            received = self.channel.receive()
            assert received is not None, "the runner is gone"
            self.messages += [message for message, _ in received]

    def until_empty(self) -> None:
        """Wait until nothing is left; either of two messages reports this."""
        if not self.until(EXITED)[-1]:
            self.until(EMPTY)

    @property
    def runner(self) -> int:
        """Return the runner's pid."""
        self.until(STARTED)
        assert self.channel.peer is not None
        return self.channel.peer.pid

    def kinds(self) -> list[int]:
        return [message[0] for message in self.messages]


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
    # Stop the keeper too, because it would continue a stopped runner. The kill and the next command
    # then arrive together.
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
    return look(pid).state == "T"


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
def test_sigterm_reaches_processes_that_change_parent(pool: RunnerPool, count: int) -> None:
    # Bash dies of the signal, so the sleeps become children of the runner during the signalling.
    command = b"for i in {1..%d}; do setsid sleep 300 & done; wait" % count
    for _ in range(10 if count == 1 else 3):
        run = Run(pool, command)
        runner = run.runner
        wait_for(functools.partial(are_sleeping, runner, count), "the sleeps")
        run.channel.send((KILL, int(signal.SIGTERM), 60_000))
        # This returns long before the grace period ends.
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


# Escapes like a daemon: a double fork into a new session, with every descriptor closed and no
# environment. The escaped process writes its pid before its parent continues.
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
    """Lets a runner end after `looks_left` checks."""

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
    # On a busy machine, any process may stall like this after closing its sockets, before it ends.
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


def test_closing_the_pool_ends_keeper_and_runners() -> None:
    pool = RunnerPool()
    pool.prepare()
    run = Run(pool, b"true")
    run.until_empty()
    runner = run.runner
    keeper = _parent(runner)
    pool.release(run.channel)
    pool.close()
    assert not is_alive(runner)
    assert not is_alive(keeper)


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


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


def test_keeper_imports_no_heavy_modules() -> None:
    code = "import sys; import shelld.keeper.keeper; print(' '.join(sys.modules))"
    path = str(Path(__file__).parents[2] / "daemon")
    env = {**os.environ, "PYTHONPATH": path}
    shown = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, check=True)
    modules = set(shown.stdout.decode().split())
    assert not modules & {"asyncio", "anyio", "msgspec", "subprocess", "threading", "json", "ssl"}


def test_script_dies_before_it_sees_killed_children(pool: RunnerPool, tmp_path: Path) -> None:
    command = f"for i in {{1..50}}; do setsid sleep 300 & done; wait; touch {tmp_path}/went-on"
    run = Run(pool, command.encode())
    wait_for(functools.partial(are_sleeping, run.runner, 50), "the sleeps")
    run.channel.send((KILL, int(signal.SIGTERM), 60_000))
    run.until_empty()
    assert not (tmp_path / "went-on").exists()
    run.channel.close()


# -- more processes end than are reaped at once ---------------------------------------------------

# As long as there is a child, each `wait` reports yet another ended process.
_ENDLESS_ENDS = """
import os
def endless(wait):
    def call(*args):
        found = wait(*args)
        return found if found[0] else (999_999, *found[1:])
    return call
os.wait4, os.waitpid = endless(os.wait4), endless(os.waitpid)
"""
_ONE_AT_A_TIME = "import shelld.keeper.orphan_reaper as s; s.REAPED_AT_ONCE = 1"
# Once one process has ended, the reaper waits until all have ended before it looks again. So one
# signal stands for them all.
_ALL_TOGETHER = f"""
{_ONE_AT_A_TIME}
import os
from shelld.keeper.tree import living_descendants
def call(*args, wait=os.wait4):
    found = wait(*args)
    while found[0] and living_descendants():
        pass
    return found
os.wait4 = call
"""


@pytest.fixture
def altered_pool(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[RunnerPool]:
    """A pool whose keeper and runners first run the code in the parameter."""
    boot: str = getattr(pool_module, "_BOOT")  # noqa: B009 - private
    altered = boot.replace("from shelld", f"exec({request.param!r}); from shelld", 1)
    assert altered != boot
    monkeypatch.setattr(pool_module, "_BOOT", altered)
    pool = RunnerPool()
    yield pool
    pool.close()


both_floods = pytest.mark.parametrize(
    "altered_pool", [_ENDLESS_ENDS, _ONE_AT_A_TIME], ids=["endless", "one"], indirect=True
)


@both_floods
def test_command_is_killed_while_its_processes_end(altered_pool: RunnerPool) -> None:
    run = Run(altered_pool, b"for i in {1..10}; do (sleep 300 &); done; wait; sleep 300")
    run.until(STARTED)
    run.channel.send((KILL, int(signal.SIGKILL), 0))
    run.until(EXITED)
    run.until_empty()
    run.channel.close()


@both_floods
def test_lost_runner_is_reported_while_processes_end(altered_pool: RunnerPool) -> None:
    run = Run(altered_pool, b"for i in {1..10}; do (sleep 300 &); done; wait; sleep 300")
    os.kill(run.runner, signal.SIGKILL)
    run.until(LOST)
    run.until(EMPTY)
    run.channel.close()


@pytest.mark.parametrize(
    "altered_pool", [_ONE_AT_A_TIME, _ALL_TOGETHER], ids=["one", "together"], indirect=True
)
def test_processes_that_exit_by_themselves_are_reaped(altered_pool: RunnerPool) -> None:
    run = Run(altered_pool, b"for i in {1..20}; do (sleep 0.01 &); done")
    run.until_empty()
    run.channel.close()


_IMPATIENT = "import shelld.keeper.keeper as s; s._GIVE_UP_INTERVAL_S = 0.01"


@pytest.mark.parametrize("altered_pool", [_IMPATIENT], indirect=True)
def test_deaf_keeper_ends_no_working_runner(altered_pool: RunnerPool) -> None:
    run = Run(altered_pool, b"sleep 0.3; exit 7")
    run.until(STARTED)
    keeper: Channel = getattr(altered_pool, "_keeper")  # noqa: B009 - private
    keeper.shut_down()
    assert os.waitstatus_to_exitcode(run.until(EXITED)[1]) == 7
    run.channel.close()


# The kill deadline is 0, and the first rounds have no effect.
_LATE_AND_WEAK = """
import shelld.keeper.channel as channel, shelld.keeper.cgroup as cgroup, shelld.keeper.tree as tree
import shelld.keeper.orphan_reaper as orphan_reaper
channel.KILL_DEADLINE_MS = 0
orphan_reaper.KILL_INTERVAL_MS = {interval}
rounds = []
def weak(kill):
    def call(*args):
        rounds.append(1)
        return len(rounds) <= {rounds} or kill(*args)
    return call
cgroup.Cgroup.kill = lambda _group: None
tree.Descendants.kill = weak(tree.Descendants.kill)
"""


@pytest.mark.parametrize(
    ("altered_pool", "is_told"),
    [
        # The second round kills. The runner then has 18 more rounds, of a second each, to notice
        # this.
        (_LATE_AND_WEAK.format(rounds=1, interval=1_000), False),
        (_LATE_AND_WEAK.format(rounds=ROUNDS_BEFORE_GIVING_UP, interval=1), True),
    ],
    ids=["few", "many"],
    indirect=["altered_pool"],
)
def test_runner_names_survivors_after_many_rounds(altered_pool: RunnerPool, is_told: bool) -> None:
    run = Run(altered_pool, b"sleep 300; true")
    run.until(STARTED)
    run.channel.send((KILL, int(signal.SIGKILL), 0))
    run.until_empty()
    assert (SURVIVORS in run.kinds()) is is_told
    run.channel.close()


def test_clean_up_reaps_limited_number_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    reaped: list[int] = []

    def ended(_pid: int, _options: int) -> tuple[int, int]:
        reaped.append(1)
        return 999_999, 0

    monkeypatch.setattr(os, "waitpid", ended)
    monkeypatch.setattr(pool_module, "CLEAN_UP_S", 0)
    pool = RunnerPool(adopts=True)
    assert pool.clean_up() == 0
    assert len(reaped) == REAPED_AT_ONCE
    pool.abandon()


def test_kill_is_not_given_up_after_few_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now)

    def survivors(_is_spared: Spared) -> list[int]:
        return [7]

    monkeypatch.setattr(reaper_module, "kill_descendants", survivors)
    orphan_reaper = OrphanReaper()
    orphan_reaper.start_round()
    # The system gave this process no processor time meanwhile.
    now = 1_000.0
    for _ in range(ROUNDS_BEFORE_GIVING_UP - 1):
        orphan_reaper.kill_round(lambda _pid: False)
        assert not orphan_reaper.is_done
    orphan_reaper.kill_round(lambda _pid: False)
    assert orphan_reaper.is_done
    assert orphan_reaper.survivors == [7]
