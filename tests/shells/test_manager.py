"""`Manager` inside another program, which has its own event loop and children."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest

from shelld.keeper.channel import EMPTY, EXITED, LOST, READY, STARTED, Channel
from shelld.keeper.idle_runners import SPARE
from shelld.keeper.pool import RunnerPool
from shelld.methods.bash import bash
from shelld.methods.context import Daemon, RequestContext
from shelld.process.options import Options
from shelld.shells import orphans, runtime, supervisor
from shelld.shells.course import Event
from shelld.shells.deadlines import Deadlines
from shelld.shells.launch import StartRequest, TimeoutPolicy
from shelld.shells.life import Life
from shelld.shells.lifecycle import ShellEvent, ShellStatus
from shelld.shells.links import MAX_LAUNCHES
from shelld.shells.manager import Manager
from shelld.shells.options import ManagerOptions
from shelld.shells.runtime import MAX_STARTING
from shelld.shells.shell import Shell
from shelld.shells.starting import wait_for_start
from shelld.shells.supervisor import Supervisor
from shelld_protocol.errors import ErrorKind, RpcError
from shelld_protocol.shell_methods import BackgroundResult, BashParams
from shells import start_shell
from support import Gate, children, is_alive, parent_of, wait_for


def output_of(shell: Shell) -> bytes:
    return shell.stdout.store.read(0, 1 << 20).data


async def start_and_wait(manager: Manager, request: StartRequest) -> Shell:
    shell = await manager.start(request)
    await wait_for_start(shell)
    return shell


async def test_a_shell_runs_and_ends() -> None:
    async with Manager() as manager:
        shell = await start_shell(manager, "echo $A; exit 4", "/", {"A": "b"})
        assert shell.pid is not None
        with anyio.fail_after(60):
            await shell.wait_until(lambda: shell.is_empty and shell.has_ended)
        assert (shell.status, shell.exit_code, output_of(shell)) == (ShellStatus.FAILED, 4, b"b\n")
        assert manager.get(shell.id) is shell
        with pytest.raises(RpcError, match="shell_xyz"):
            manager.get("shell_xyz")
        assert (manager.list_shells(), manager.list_running()) == ([shell], [])


async def test_leaving_the_scope_kills_everything() -> None:
    async with Manager() as manager:
        shells = [await start_shell(manager, "setsid sleep 300 & sleep 300", "/") for _ in range(3)]
        pids = [shell.pid for shell in shells]
    assert not [pid for pid in pids if pid is not None and is_alive(pid)]
    assert {shell.status for shell in shells} == {ShellStatus.KILLED}


async def test_kill_all_returns_the_count() -> None:
    async with Manager() as manager:
        for _ in range(3):
            await start_shell(manager, "sleep 300", "/")
        ended = await start_shell(manager, "true", "/")
        with anyio.fail_after(60):
            await ended.wait_until(lambda: ended.is_empty)
            assert await manager.kill_all() == 3
        assert manager.list_running() == []


async def test_failed_start_leaves_nothing() -> None:
    async with Manager() as manager:
        for _ in range(3):
            with pytest.raises(RpcError) as caught:
                await start_shell(manager, "true", "/nonexistent")
            assert caught.value.kind is ErrorKind.SPAWN_FAILED
        assert manager.list_shells() == []
        assert (await start_shell(manager, "true", "/")).pid is not None


async def test_surrogate_escapes_become_their_bytes() -> None:
    async with Manager() as manager:
        command = "printf '%s|%s' '\udcff' \"$A\""
        shell = await start_shell(manager, command, "/", {"A": "\udcfe"})
        with anyio.fail_after(60):
            await shell.wait_until(lambda: shell.has_ended)
        assert output_of(shell) == b"\xff|\xfe"


def test_manager_runs_under_plain_asyncio() -> None:
    """Event loop callbacks run outside any task, where anyio cannot detect the async library."""

    async def main() -> list[ShellStatus]:
        async with Manager() as manager:
            leaves_something = StartRequest("sleep 300 & true", session="main", in_foreground=True)
            too_long = StartRequest("sleep 300", timeout=TimeoutPolicy(50, "kill", 50))
            shells = [await manager.start(each) for each in (leaves_something, too_long)]
            for shell in shells:
                await shell.wait_until(lambda shell=shell: shell.has_ended)  # type: ignore[misc]
            assert await manager.kill_all() >= 1
            return [shell.status for shell in shells]

    assert asyncio.run(main()) == [ShellStatus.COMPLETED, ShellStatus.TIMEOUT]


async def test_cleanup_removes_old_ended_shells() -> None:
    async with Manager(ManagerOptions(retain_seconds=10_000)) as manager:
        running = await start_shell(manager, "sleep 300", "/")
        old, recent = [await start_shell(manager, "true", "/") for _ in range(2)]
        with anyio.fail_after(60):
            for shell in (old, recent):
                await shell.wait_until(lambda shell=shell: shell.is_empty)  # type: ignore[misc]
        old.completed_at = time.time() - 3601
        assert manager.forget_older_than(3600) == 1
        assert manager.list_shells() == [running, recent]


async def test_stopped_manager_starts_nothing() -> None:
    manager = Manager()
    with pytest.raises(RuntimeError):
        await manager.start(StartRequest("true"))


async def test_manager_leaves_other_threads_and_children_alone(tmp_path: Path) -> None:
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait)
    thread.start()
    with subprocess.Popen(["/bin/bash", "-c", "sleep 0.1; exit 7"]) as child:  # noqa: ASYNC220
        async with Manager() as manager:
            shell = await start_shell(manager, "sleep 0.2; kill -9 $PPID", str(tmp_path))
            with anyio.fail_after(60):
                await shell.wait_until(lambda: shell.is_empty)
        assert child.wait(60) == 7
    stop.set()
    thread.join()


async def test_cancelling_the_program_leaves_nothing() -> None:
    pids: list[int | None] = []
    with anyio.CancelScope() as scope:
        async with Manager() as manager:
            shell = await start_shell(manager, "trap '' TERM; sleep 300", "/")
            pids.append(shell.pid)
            scope.cancel()
            await anyio.sleep_forever()
    (pid,) = pids
    assert pid is not None
    assert not is_alive(pid)


async def test_kill_during_orphan_cleanup_returns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with Manager() as manager:
        shell = await start_shell(manager, "sleep 300", "/")
        assert shell.pid is not None
        runner = parent_of(shell.pid)

        async def kill_orphans(*args: Any) -> list[int]:
            survivors = await orphans.kill_orphans(*args)
            assert shell.owner is not None
            shell.owner.begin_kill(signal.SIGTERM, 60_000, ShellEvent.KILLED)
            return survivors

        monkeypatch.setattr(supervisor, "kill_orphans", kill_orphans)
        os.kill(parent_of(runner), signal.SIGKILL)
        os.kill(runner, signal.SIGKILL)
        with anyio.fail_after(60):
            await shell.wait_until(lambda: shell.is_empty)
        assert shell.status is ShellStatus.KILLED


async def test_lost_command_without_pid_is_not_awaited() -> None:
    before = children(os.getpid())
    pool = RunnerPool()
    pool.prepare()
    (keeper,) = set(children(os.getpid())) - set(before)
    os.kill(keeper, signal.SIGKILL)
    wait_for(lambda: not is_alive(keeper), "the end of the keeper")
    with anyio.fail_after(60):
        assert await orphans.kill_orphans(pool, None, None) == []
    pool.close()


async def test_starts_that_fail_make_room_for_others(tmp_path: Path) -> None:
    missing = StartRequest("true", cwd=str(tmp_path / "missing"))
    async with Manager() as manager:
        with anyio.fail_after(60):
            for _ in range(MAX_STARTING + 1):
                with pytest.raises(RpcError):
                    await start_and_wait(manager, missing)
            # Ask for twice as many shells as the manager starts in parallel.
            async with anyio.create_task_group() as tasks:
                for _ in range(2 * MAX_STARTING):
                    tasks.start_soon(start_and_wait, manager, StartRequest("true"))
        assert manager.started_count == 3 * MAX_STARTING + 1


async def test_waiting_start_ends_with_the_manager() -> None:
    refused: list[RpcError] = []
    asked = 0

    async def start(manager: Manager) -> None:
        nonlocal asked
        asked += 1
        try:
            await manager.start(StartRequest("sleep 300"))
        except RpcError as error:
            refused.append(error)

    manager = Manager(ManagerOptions(max_shells=1_000))
    async with anyio.create_task_group() as tasks, manager:
        for _ in range(3 * MAX_STARTING):
            tasks.start_soon(start, manager)
        while asked < 3 * MAX_STARTING:
            await anyio.lowlevel.checkpoint()
    assert refused
    assert len(refused) + manager.started_count == 3 * MAX_STARTING
    assert {error.kind for error in refused} <= {ErrorKind.SHUTTING_DOWN}
    assert manager.list_running() == []


async def test_closing_a_session_leaves_other_sessions() -> None:
    async with Manager() as manager:
        mine = await start_and_wait(manager, StartRequest("sleep 300", session="mine"))
        other = await start_and_wait(manager, StartRequest("sleep 300", session="other"))
        assert await manager.close_session("mine") == [mine]
        assert (mine.is_empty, other.is_empty) == (True, False)
        with pytest.raises(RpcError) as caught:
            await manager.close_session("mine")
        assert caught.value.data == {"kind": "session_not_found", "session": "mine"}
        assert await manager.close_session("main") == []


async def test_spare_runners_end_by_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shelld.shells.manager._SWEEP_S", 0.05)
    async with Manager(ManagerOptions(spare_shells=0)) as manager:
        for _ in range(6):
            await start_and_wait(manager, StartRequest("sleep 300"))
        (keeper,) = children(os.getpid())
        assert len(children(keeper)) >= 6
        await manager.close_session("main")
        with anyio.fail_after(60):
            while len(children(keeper)) != SPARE:
                await anyio.sleep(0.01)


async def test_runner_info_is_none_without_runner(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(_pool: RunnerPool) -> None:
        raise BlockingIOError

    async with Manager() as manager:
        with monkeypatch.context() as patch:
            patch.setattr(RunnerPool, "acquire", refuse)
            assert await manager.runner_info() is None
        info = await manager.runner_info()
        assert info is not None
        assert info.subreaper is (sys.platform == "linux")


@pytest.mark.parametrize("times", [1, 2])
async def test_command_starts_although_keeper_died(
    monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    kill = os.kill

    def kill_for_good(pid: int, number: int) -> None:
        # The daemon would send SIGCONT to a stopped keeper, which would then answer the request.
        if number != signal.SIGCONT:
            kill(pid, number)

    monkeypatch.setattr(os, "kill", kill_for_good)
    async with Manager() as manager:
        # The first command has taken the idle runner.
        busy = await start_and_wait(manager, StartRequest("sleep 300"))
        killed: list[int] = []
        started: list[Shell] = []
        async with anyio.create_task_group() as tasks:
            keeper = stopped_keeper(killed)

            async def start() -> None:
                started.append(await start_and_wait(manager, StartRequest("echo here")))

            tasks.start_soon(start)
            for _ in range(times):
                await anyio.wait_all_tasks_blocked()
                os.kill(keeper, signal.SIGKILL)
                killed.append(keeper)
                if len(killed) < times:
                    keeper = await anyio.to_thread.run_sync(stopped_keeper, killed)
        (shell,) = started
        await shell.wait_until(lambda: shell.is_empty)
        assert shell.stdout.store.read(0, 100).data == b"here\n"
        assert shell.reason is None
        assert busy.is_running


@contextlib.contextmanager
def next_runner(monkeypatch: pytest.MonkeyPatch) -> Generator[Channel]:
    """Yield the second end of the next command's channel. The test uses it in place of a runner.
    The keeper forks no runner.
    """
    ours, theirs = Channel.pair()

    def acquire(_pool: RunnerPool) -> Channel:
        return ours

    with monkeypatch.context() as patch, theirs:
        patch.setattr(RunnerPool, "acquire", acquire)
        yield Channel(theirs)


@pytest.mark.parametrize(
    ("event", "status"),
    [
        (ShellEvent.KILLED, ShellStatus.KILLED),
        (ShellEvent.TIMED_OUT, ShellStatus.TIMEOUT),
    ],
)
async def test_command_killed_before_start_never_runs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, event: ShellEvent, status: ShellStatus
) -> None:
    async with Manager() as manager:
        with next_runner(monkeypatch):
            shell = await manager.start(StartRequest(f"touch {tmp_path}/ran"))
            assert shell.owner is not None
            shell.owner.begin_kill(signal.SIGTERM, 60_000, event)
        # The command's runner is gone. Another runner is available, but must not start the command.
        with anyio.fail_after(60):
            await shell.wait_until(lambda: shell.is_empty)
        assert (shell.status, shell.pid, shell.failure) == (status, None, None)
        assert not (tmp_path / "ran").exists()


async def test_start_killed_early_is_cancelled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with Manager() as manager:
        errors: list[RpcError] = []

        async def start() -> None:
            with pytest.raises(RpcError) as caught:
                await start_and_wait(manager, StartRequest("true", session="closed"))
            errors.append(caught.value)

        with anyio.fail_after(60):
            async with anyio.create_task_group() as tasks:
                with next_runner(monkeypatch):
                    tasks.start_soon(start)
                    await anyio.wait_all_tasks_blocked()
                    tasks.start_soon(manager.close_session, "closed")
                    await anyio.wait_all_tasks_blocked()
        (error,) = errors
        assert error.data == {"kind": "spawn_failed", "errno": "ECANCELED"}


async def test_command_whose_runner_is_lost_early_counts_as_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with Manager() as manager:
        context = RequestContext(Daemon(Options(), manager))
        with anyio.fail_after(60), next_runner(monkeypatch) as runner:
            # The command kills the runner before the runner has reported a pid.
            for message in ((READY, 0, True, False), (LOST,), (EMPTY,)):
                runner.send(message)
            answer = await bash(context, BashParams("true", run_in_background=True))
        assert isinstance(answer, BackgroundResult)
        assert (answer.status, answer.pid) == ("running", None)
        shell = manager.get(answer.bash_id)
        assert (shell.status, shell.signal, shell.reason) == (ShellStatus.KILLED, "SIGKILL", "lost")


def report_timeouts(monkeypatch: pytest.MonkeyPatch) -> anyio.Event:
    """Return an event that is set once a timeout has taken effect."""
    has_passed, take = anyio.Event(), Life.take

    def report(life: Life, name: Event) -> None:
        take(life, name)
        if name is Event.TIMEOUT_DUE:
            has_passed.set()

    monkeypatch.setattr(Life, "take", report)
    return has_passed


async def test_overdue_start_is_released_once_running(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    has_passed = report_timeouts(monkeypatch)
    timeout = TimeoutPolicy(1, "background", 1_000)
    async with Manager() as manager:
        with anyio.fail_after(60):
            with next_runner(monkeypatch):
                request = StartRequest("echo here", in_foreground=True, timeout=timeout)
                shell = await manager.start(request)
                await has_passed.wait()
                assert (shell.status, shell.released) == (ShellStatus.PENDING, False)
            # Another runner starts the command.
            await shell.wait_until(lambda: shell.released or shell.is_empty)
            assert shell.pid is not None
            await shell.wait_until(lambda: shell.is_empty)
        assert shell.released
        assert output_of(shell) == b"here\n"


async def test_unread_exit_message_prevents_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    timeout = TimeoutPolicy(60_000, "background", 1_000)
    async with Manager(ManagerOptions(spare_shells=0)) as manager:
        with next_runner(monkeypatch) as runner, anyio.fail_after(60):
            shell = await manager.start(StartRequest("true", in_foreground=True, timeout=timeout))
            runner.send((STARTED, os.getpid(), ()))
            await shell.wait_until(lambda: shell.is_running)
            runner.send((EXITED, 0, 0, 0, 0, False, [], True))
            life = shell.owner
            assert isinstance(life, Life)
            life.deadlines.set(Event.TIMEOUT_DUE, 0)
            vars(Supervisor)["_meet_deadlines"](Supervisor(life, manager.runtime.pool))
            assert not shell.released
            # The line above has read the message, so the waiting task sees no message. Wake that
            # task.
            life.links.wake_at(0)
            await shell.wait_until(lambda: shell.is_empty)
        assert shell.status is ShellStatus.COMPLETED


@pytest.mark.parametrize(
    ("name", "seconds"), [(Event.START_DUE, 15), (Event.KILL_DUE, 1.5), (Event.KEEPER_DUE, 1.5)]
)
async def test_other_deadlines_start_again_after_a_suspension(
    monkeypatch: pytest.MonkeyPatch, name: Event, seconds: float
) -> None:
    async with Manager(ManagerOptions(spare_shells=0)) as manager:
        with next_runner(monkeypatch) as runner, anyio.fail_after(60):
            shell = await manager.start(StartRequest("true", in_foreground=True))
            life = shell.owner
            assert isinstance(life, Life)
            life.deadlines = Deadlines(lambda: 1_000)
            # This deadline passed two seconds ago.
            life.deadlines.set(name, -2)
            vars(Supervisor)["_meet_deadlines"](Supervisor(life, manager.runtime.pool))
            assert life.deadlines.next - 1_000 >= seconds
            runner.send((STARTED, os.getpid(), ()))
            runner.send((EXITED, 0, 0, 0, 0, False, [], True))
            await shell.wait_until(lambda: shell.is_empty)
        assert shell.status is ShellStatus.COMPLETED


def stopped_keeper(killed: list[int]) -> int:
    """Stop the new keeper before it can do anything; `killed` are the pids of earlier keepers."""

    def keeper() -> list[int]:
        found = set(children(os.getpid())) - set(killed)
        return [pid for pid in found if Path(f"/proc/{pid}/comm").read_text() != "shelld-runner\n"]

    wait_for(keeper, "a keeper")
    (pid,) = keeper()
    os.kill(pid, signal.SIGSTOP)
    return pid


@pytest.mark.parametrize("lost", [1, 4, 5])
async def test_command_is_handed_over_again_if_no_runner_comes(
    monkeypatch: pytest.MonkeyPatch, lost: int
) -> None:
    acquire = RunnerPool.acquire
    taken: list[Channel] = []

    def lose(pool: RunnerPool) -> Channel:
        """Return a channel whose other end is closed. If there are `lost` such channels already,
        return a real channel.
        """
        if len(taken) == lost:
            return acquire(pool)
        channel, theirs = Channel.pair()
        theirs.close()
        taken.append(channel)
        return channel

    async with Manager() as manager:
        monkeypatch.setattr(RunnerPool, "acquire", lose)
        if lost < MAX_LAUNCHES:
            shell = await start_and_wait(manager, StartRequest("true"))
            await shell.wait_until(lambda: shell.is_empty)
            assert shell.exit_code == 0
        else:
            with pytest.raises(RpcError, match="EAGAIN"):
                await start_and_wait(manager, StartRequest("true"))
        assert len(taken) == lost


async def test_leftovers_are_named_or_reported_lost() -> None:
    # As soon as bash has been reaped, a leftover process kills the runner.
    left = "(trap '' HUP; while kill -0 $$; do :; done 2>/dev/null; kill -9 $PPID) & exit 0"
    async with Manager() as manager:
        shell = await start_and_wait(manager, StartRequest(left, in_foreground=True))
        with anyio.fail_after(60):
            await shell.wait_until(lambda: shell.has_ended)
        assert shell.leftover or shell.reason == "lost"
        with anyio.fail_after(60):
            await shell.wait_until(lambda: shell.is_empty)
        assert shell.reason == "lost"


async def test_killed_runner_and_keeper_end_the_session(
    tmp_path: Path,
) -> None:
    # This program adopts no orphans, and knows only the pid of bash. So it can kill only the
    # session of that bash.
    gate = Gate(tmp_path / "gate")
    command = (
        f"sleep 300 & echo $! > {tmp_path}/pid; {gate.wait}; "
        "kill -9 $(cut -d' ' -f4 /proc/$PPID/stat) $PPID; sleep 300"
    )
    async with Manager() as manager:
        shell = await start_and_wait(manager, StartRequest(command))
        gate.open()
        with anyio.fail_after(60):
            await shell.wait_until(lambda: shell.is_empty)
        assert (shell.status, shell.reason) == (ShellStatus.KILLED, "lost")
        assert not is_alive(int((tmp_path / "pid").read_text()))
        assert (await start_and_wait(manager, StartRequest("true"))).pid is not None


@pytest.mark.parametrize("step", ["Shell", "Links", "Outcome", "Life", "Supervisor"])
async def test_half_failed_start_leaves_no_reader(
    monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    def fail(*_arguments: object, **_options: object) -> None:
        raise MemoryError

    selector: selectors.BaseSelector = vars(asyncio.get_running_loop())["_selector"]
    async with Manager(ManagerOptions(spare_shells=0)) as manager:
        await start_and_wait(manager, StartRequest("true"))
        # The command has left a reusable poller, which the event loop knows.
        await manager.kill_all(0)
        with monkeypatch.context() as patch:
            patch.setattr(runtime, step, fail)
            with pytest.raises(MemoryError):
                await manager.start(StartRequest("true"))
        gc.collect()
        for descriptor in selector.get_map():
            assert isinstance(descriptor, int)
            os.fstat(descriptor)
        shell = await start_and_wait(manager, StartRequest("echo later"))
        await shell.wait_until(lambda: shell.is_empty)
        assert output_of(shell) == b"later\n"
