"""The single manager of a program, whatever threads, event loops and forks the program has."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path
from typing import cast

import anyio
import anyio.to_thread
import pytest

from shelld.embed import ShellManager, ShellProcess, ShellStatus
from shelld.methods.bash import bash
from shelld.methods.context import Daemon, RequestContext
from shelld.process.options import Options
from shelld.shells.launch import StartRequest
from shelld.shells.manager import Manager
from shelld.shells.options import ManagerOptions
from shelld.tools import BashTool
from shelld_protocol.errors import ErrorKind, RpcError
from shelld_protocol.shell_methods import BashParams
from shelld_protocol.tools import ExecutionContext
from support import DEADLINE_S, children, in_threads, is_alive, wait_for


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def manager() -> AsyncIterator[ShellManager]:
    yield ShellManager()
    await ShellManager.reset()


async def test_manager_is_shared_until_reset(manager: ShellManager) -> None:
    shell = await manager.create_shell("sleep 300", "/")
    assert ShellManager() is manager
    assert ShellManager().get_shell(shell.id) is shell
    with pytest.raises(RuntimeError, match="already"):
        ShellManager(ManagerOptions())
    await ShellManager.reset()
    assert shell.status is ShellStatus.KILLED
    assert ShellManager() is not manager
    assert ShellManager().list_shells() == []
    await ShellManager.reset()
    await ShellManager.reset()


async def test_failed_scope_can_be_entered_later(
    manager: ShellManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    with monkeypatch.context() as patch:
        patch.setattr(Manager, "__aenter__", fail)
        with pytest.raises(OSError, match="Too many open files"):
            await manager.__aenter__()
    async with manager:
        assert await (await manager.create_shell("exit 3", "/")).wait() == 3


async def test_manager_can_be_reset_inside_its_scope() -> None:
    async with ShellManager() as manager:
        shell = await manager.create_shell("sleep 300", "/")
        await ShellManager.reset()
        assert (shell.status, ShellManager() is manager) == (ShellStatus.KILLED, False)
        with pytest.raises(RpcError) as caught:
            await manager.create_shell("true", "/")
        assert caught.value.kind is ErrorKind.SHUTTING_DOWN


async def test_exception_leaves_the_scope_unchanged() -> None:
    with pytest.raises(RpcError, match="ENOENT"):
        async with ShellManager() as manager:
            await manager.create_shell("true", "/nonexistent")


@pytest.mark.slow
async def test_shells_have_ended_once_the_scope_is_left() -> None:
    async with ShellManager() as manager:
        shells = [await manager.create_shell("sleep 300", "/") for _ in range(100)]
    assert {shell.status for shell in shells} == {ShellStatus.KILLED}
    with anyio.fail_after(20):
        assert {await shell.wait() for shell in shells} == {-9}
        for shell in shells:
            await shell.kill()


async def test_cancelled_scope_ends_shells_and_waiters() -> None:
    shells: list[ShellProcess] = []
    async with anyio.create_task_group() as tasks, ShellManager() as manager:
        shell = await manager.create_shell("sleep 300", "/")
        shells.append(shell)
        tasks.cancel_scope.cancel()
        if manager._thread is None:  # pyright: ignore[reportPrivateUsage]
            # A manager that has its own thread does not cancel its tasks before the block ends.
            with anyio.CancelScope(shield=True), anyio.fail_after(20):
                assert await shell.wait() == -9
    (shell,) = shells
    assert (shell.status, shell.signal, shell.is_empty) == (ShellStatus.KILLED, "SIGKILL", True)
    assert shell.pid is not None
    assert not is_alive(shell.pid)


async def test_doubly_cancelled_scope_leaves_no_task(anyio_backend_name: str) -> None:
    if anyio_backend_name != "asyncio":
        pytest.skip("only asyncio can cancel a task again")

    async def hold() -> None:
        async with ShellManager() as manager:
            await manager.create_shell("trap '' TERM; sleep 300", "/")
            entered.set()
            await anyio.sleep_forever()

    for pause in (0, 0.001, 0.005):
        entered = anyio.Event()
        before = asyncio.all_tasks()
        task = asyncio.create_task(hold())
        await entered.wait()
        task.cancel()
        await asyncio.sleep(pause)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        with anyio.fail_after(20):
            while asyncio.all_tasks() - before - {task}:
                await asyncio.sleep(0.005)


async def test_new_keeper_keeps_directory_of_manager(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    async with ShellManager(ManagerOptions(spare_shells=0)) as manager:
        running = await manager.manager()
        monkeypatch.chdir("/")
        for _ in range(2):
            # There are more shells than idle runners.
            shells = [await manager.run(running.start, StartRequest("pwd -P")) for _ in range(20)]
            for shell in shells:
                process = manager.get_shell(shell.id)
                assert process is not None
                assert await process.wait(20) == 0
                assert process.get_new_output() == f"{tmp_path}\n"
            keeper = running.runtime.pool._keeper_pid  # pyright: ignore[reportPrivateUsage]
            assert keeper is not None
            os.kill(keeper, signal.SIGKILL)


async def test_relative_directory_starts_at_program_directory(
    manager: ShellManager, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await manager.create_shell("true", "/")
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path)
    shell = await manager.create_shell("pwd", "below")
    assert await shell.wait(20) == 0
    assert shell.get_new_output() == f"{tmp_path}/below\n"


async def test_commands_in_a_row_need_one_shell() -> None:
    async with ShellManager(ManagerOptions(max_shells=1, spare_shells=0)) as manager:
        running = await manager.manager()
        context = RequestContext(Daemon(Options(), running))
        for _ in range(20):
            await manager.run(bash, context, BashParams("true"))
        await manager.run(running.start, StartRequest("sleep 300"))
        with pytest.raises(RpcError, match="Too many shells"):
            await manager.run(bash, context, BashParams("true"))


async def test_a_manager_can_be_entered_again() -> None:
    ids: set[str] = set()
    for _ in range(2):
        async with ShellManager() as manager:
            shell = await manager.create_shell("echo again", "/")
            assert await shell.wait(10) == 0
            ids.add(shell.id)
            with pytest.raises(RuntimeError, match="running already"):
                await manager.__aenter__()
        assert manager.list_shells() == []
        # Output in memory can still be read; output on disk is gone.
        assert shell.get_all_output() == "again\n"
    assert len(ids) == 2


async def test_scope_of_threaded_manager_leaves_it_running(
    manager: ShellManager,
) -> None:
    shell = await manager.create_shell("sleep 300", "/")
    async with ShellManager():
        assert (await (await manager.create_shell("true", "/")).wait(10)) == 0
    assert shell.is_running


def test_shells_outlive_their_event_loop() -> None:
    async def create() -> ShellProcess:
        return await ShellManager().create_shell("sleep 0.2; echo late", "/")

    async def wait(shell: ShellProcess) -> int:
        return await shell.wait(10)

    shell = anyio.run(create)
    assert anyio.run(wait, shell, backend="trio") == 0
    assert shell.get_new_output() == "late\n"


def test_many_threads_and_event_loops_share_the_shells() -> None:
    outputs: list[str] = []

    def work(number: int) -> None:
        async def run() -> None:
            for _ in range(5):
                shell = await ShellManager().create_shell(f"echo {number}; exit {number}", "/")
                assert await shell.wait(20) == number
                assert ShellManager().get_shell(shell.id) is shell
                outputs.append(shell.get_new_output())

        anyio.run(run, backend="trio" if number % 2 else "asyncio")

    in_threads(10, work)
    assert sorted(outputs) == sorted(f"{number}\n" for number in range(10) for _ in range(5))
    assert len(ShellManager().list_shells()) == 50


def test_a_cancelled_start_in_another_thread_leaves_nothing() -> None:
    async def start_and_leave() -> None:
        manager = ShellManager()

        async def wait_for_ever() -> None:
            shell = await (await manager.manager()).start(StartRequest("sleep 300"))
            try:
                await anyio.sleep_forever()
            finally:
                with anyio.CancelScope(shield=True):
                    await shell.end_tree(9, 0)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(manager.run, wait_for_ever)
            with anyio.fail_after(10):
                while not manager.list_running():
                    await anyio.sleep(0.005)
            tasks.cancel_scope.cancel()
        # The manager has waited for the cancelled call.
        assert manager.list_running() == []

    anyio.run(start_and_leave)


@pytest.mark.parametrize(
    "kind", [SystemExit, KeyboardInterrupt, GeneratorExit, asyncio.CancelledError]
)
def test_an_exit_in_a_condition_ends_only_its_caller(kind: type[BaseException]) -> None:
    def leave() -> bool:
        raise kind

    async def wait_and_leave() -> None:
        manager = ShellManager()
        shell = await manager.create_shell("sleep 300", "/")
        with pytest.raises(kind):
            await shell.wait_until(leave)
        assert not shell.has_ended
        await shell.kill()
        await ShellManager.reset()

    anyio.run(wait_and_leave)


async def test_pending_call_is_refused_when_manager_stops() -> None:
    manager = ShellManager()
    refused: list[RpcError] = []

    async def wait_for_ever() -> None:
        try:
            await manager.run(anyio.sleep_forever)
        except RpcError as error:
            refused.append(error)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wait_for_ever)
        await manager.create_shell("true", "/")
        await ShellManager.reset()
    assert [error.kind for error in refused] == [ErrorKind.SHUTTING_DOWN]


def test_threads_end_with_the_manager() -> None:
    async def run() -> None:
        await ShellManager().create_shell("sleep 300", "/")
        assert "shelld-shells" in {thread.name for thread in threading.enumerate()}
        await ShellManager.reset()
        assert "shelld-shells" not in {thread.name for thread in threading.enumerate()}

    anyio.run(run)


def test_reset_stops_a_thread_that_is_being_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    opening, go_on = threading.Event(), threading.Event()
    original = ShellManager._running  # pyright: ignore[reportPrivateUsage]
    outcome: list[object] = []

    def patient(manager: ShellManager) -> AbstractAsyncContextManager[None]:
        opening.set()
        assert go_on.wait(DEADLINE_S)
        return original(manager)

    def start() -> None:
        try:
            outcome.append(anyio.run(ShellManager().create_shell, "sleep 300", "/"))
        except RpcError as error:
            outcome.append(error.kind)

    monkeypatch.setattr(ShellManager, "_running", patient)
    starter = threading.Thread(target=start)
    starter.start()
    assert opening.wait(DEADLINE_S)
    resetter = threading.Thread(target=anyio.run, args=(ShellManager.reset,))
    resetter.start()
    instance = "_instance"
    wait_for(lambda: getattr(ShellManager, instance) is None, "the reset")
    go_on.set()
    for thread in (starter, resetter):
        thread.join(DEADLINE_S)
    (ended,) = outcome
    assert ended is ErrorKind.SHUTTING_DOWN or cast("ShellProcess", ended).has_ended
    assert "shelld-shells" not in {thread.name for thread in threading.enumerate()}


@pytest.mark.parametrize("in_scope", [False, True])
async def test_cancelled_reset_ends_everything(in_scope: bool) -> None:
    manager = ShellManager()

    async def start_and_reset() -> ShellProcess:
        shell = await manager.create_shell("sleep 300", "/")
        with anyio.CancelScope() as scope:
            scope.cancel()
            await ShellManager.reset()
        return shell

    if in_scope:
        async with manager:
            shell = await start_and_reset()
    else:
        shell = await start_and_reset()
    assert shell.pid is not None
    pid = shell.pid
    wait_for(lambda: not is_alive(pid), "the end of the shell")
    names = {thread.name for thread in threading.enumerate()}
    assert "shelld-shells" not in names


def test_reset_that_asyncio_cancels_ends_everything() -> None:
    async def start_and_reset() -> int | None:
        shell = await ShellManager().create_shell("sleep 300", "/")
        reset = asyncio.create_task(ShellManager.reset())
        # Let the task take its first steps.
        await asyncio.sleep(0)
        reset.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reset
        return shell.pid

    pid = asyncio.run(start_and_reset())
    assert pid is not None
    wait_for(lambda: not is_alive(pid), "the end of the shell")
    wait_for(
        lambda: "shelld-shells" not in {thread.name for thread in threading.enumerate()},
        "the end of the thread",
    )


def test_call_during_scope_exit_leaves_manager_usable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    outcome: list[object] = []
    original = Manager.kill_all

    def call_meanwhile() -> None:
        try:
            outcome.append(anyio.run(ShellManager().create_shell, "true", "/"))
        except RpcError as error:
            outcome.append(error.kind)

    async def kill_all(manager: Manager, grace_ms: int | None = None) -> int:
        await anyio.to_thread.run_sync(call_meanwhile)
        return await original(manager, grace_ms)

    async def enter_and_leave() -> None:
        async with ShellManager() as manager:
            await manager.create_shell("sleep 300", "/")

    async def run_again() -> int:
        shell = await ShellManager().create_shell("exit 3", "/")
        return await shell.wait()

    with monkeypatch.context() as patched:
        patched.setattr(Manager, "kill_all", kill_all)
        anyio.run(enter_and_leave)
    assert outcome == [ErrorKind.SHUTTING_DOWN]
    assert anyio.run(run_again) == 3
    anyio.run(ShellManager.reset)


def test_shell_found_during_scope_exit_can_be_awaited(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    outcome: list[object] = []
    waiters: list[threading.Thread] = []
    original = Manager.kill_all

    def wait_for_end(bash_id: str) -> None:
        manager = ShellManager()
        # Simulate that the object that `create_shell` returned is gone.
        manager._processes.clear()  # pyright: ignore[reportPrivateUsage]
        shell = manager.get_shell(bash_id)
        assert shell is not None
        try:
            outcome.append(anyio.run(shell.wait))
        except RpcError as error:
            outcome.append(error.kind)

    async def kill_all(manager: Manager, grace_ms: int | None = None) -> int:
        for waiter in waiters:
            waiter.start()
            # A correct manager ends this wait at once.
            await anyio.to_thread.run_sync(waiter.join, 1)
        return await original(manager, grace_ms)

    async def start_and_leave() -> None:
        async with ShellManager() as manager:
            bash_id = (await manager.create_shell("sleep 300", "/")).id
            waiters.append(threading.Thread(target=wait_for_end, args=(bash_id,), daemon=True))

    monkeypatch.setattr(Manager, "kill_all", kill_all)
    anyio.run(start_and_leave)
    waiters.pop().join(DEADLINE_S)
    assert outcome in ([ErrorKind.SHUTTING_DOWN], [-signal.SIGKILL])
    anyio.run(ShellManager.reset)


def test_program_ending_without_reset_leaves_nothing() -> None:
    program = (
        "import anyio\n"
        "from shelld.embed import ShellManager\n"
        "async def main():\n"
        "    shell = await ShellManager().create_shell('setsid sleep 300 & sleep 300', '/')\n"
        "    print(shell.pid)\n"
        "anyio.run(main)\n"
    )
    ended = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    assert ended.stderr == ""
    wait_for(lambda: not is_alive(int(ended.stdout)))
    wait_for(lambda: not any(is_alive(pid) for pid in children(os.getpid())))


FORKING = """
import os, sys
import anyio
from shelld.embed import ShellManager
from shelld_protocol.errors import ErrorKind, RpcError

async def run(command):
    shell = await ShellManager().create_shell(command, "/")
    return shell, (await shell.wait(20) if "echo" in command else None)

parents, _ = anyio.run(run, "sleep 300")
pid = os.fork()
if not pid:
    shell, code = anyio.run(run, "echo child")
    assert (shell.get_new_output(), code) == ("child\\n", 0)
    assert ShellManager().get_shell(parents.id) is not parents
    # Nobody is left who could report on the parent's.
    assert parents.get_new_output() == ""
    try:
        anyio.run(parents.wait)
    except RpcError as error:
        assert error.kind is ErrorKind.SHUTTING_DOWN
    anyio.run(ShellManager.reset)
    print("child is done", flush=True)
    # Lives on, with whatever it has inherited.
    os.read(0, 1)
    os._exit(0)
assert parents.is_running
print(parents.pid, flush=True)
os.read(0, 1)
"""


def test_forked_child_keeps_no_parent_shells() -> None:
    with subprocess.Popen(
        [sys.executable, "-W", "error", "-c", FORKING],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as program:
        assert program.stdout is not None
        lines = {program.stdout.readline().strip() for _ in range(2)}
        assert "child is done" in lines
        (pid,) = (int(line) for line in lines if line.isdigit())
        assert is_alive(pid)
        program.kill()
        # The command ends although the forked child still runs.
        wait_for(lambda: not is_alive(pid), "the end of the parent's command")


@pytest.mark.parametrize("turns", range(8))
async def test_a_cancelled_start_leaves_no_command(turns: int) -> None:
    # On a busy machine, a start can finish before it is cancelled.
    started: list[ShellProcess] = []

    async def start() -> None:
        started.append(await ShellManager().create_shell("sleep 300", "/"))

    async with ShellManager() as manager:
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(start)
                for _ in range(turns):
                    await anyio.lowlevel.checkpoint()
                scope.cancel()
        with anyio.fail_after(20):
            for shell in manager.list_running():
                if shell not in started:
                    await shell.wait_until(partial(getattr, shell, "is_empty"))


async def test_late_cancelled_start_leaves_no_command() -> None:
    manager = ShellManager()
    try:
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(manager.create_shell, "sleep 300", "/")
                # Wait until the manager's own thread has started the shell. The thread of this test
                # does not know of the shell yet.
                while not any(shell.pid for shell in manager.list_running()):
                    time.sleep(0.001)  # noqa: ASYNC251 - on purpose
                    if not manager.list_running():
                        await anyio.lowlevel.checkpoint()
                scope.cancel()
        wait_for(lambda: not manager.list_running(), "the end of the command")
    finally:
        await ShellManager.reset()


@pytest.mark.parametrize(
    ("command", "in_background"), [("sleep 300", True), ("sleep 300 & true", False)]
)
async def test_late_cancelled_tool_leaves_no_command(command: str, in_background: bool) -> None:
    manager = ShellManager()
    execute = partial(BashTool().execute, run_in_background=in_background)
    try:
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(partial(execute, ExecutionContext("/"), command=command))
                while not any(shell.pid for shell in manager.list_shells()):
                    time.sleep(0.001)  # noqa: ASYNC251 - on purpose
                    if not manager.list_shells():
                        await anyio.lowlevel.checkpoint()
                # The manager's own thread then has the result, but this thread has not received it.
                time.sleep(0.2)  # noqa: ASYNC251 - on purpose
                scope.cancel()
        (shell,) = manager.list_shells()
        wait_for(lambda: shell.is_empty, "the end of the command")
    finally:
        await ShellManager.reset()


_LOOP_IS_CLOSED = """
import asyncio
import threading
from shelld.embed import ShellManager

shells = []

async def enter():
    manager = await ShellManager().__aenter__()
    shells.append(await manager.create_shell("echo x", "/"))
    await shells[0].wait()

def run():
    loop = asyncio.new_event_loop()
    loop.run_until_complete(enter())
    loop.close()

thread = threading.Thread(target=run)
thread.start()
thread.join()
print(repr(shells[0].get_all_output()))
"""


def test_output_is_readable_after_loop_is_closed() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", _LOOP_IS_CLOSED],
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert ended.stdout == "'x\\n'\n", ended.stderr


_CHILD_LIVES_ON = """
import asyncio
import os
import signal
import time
from shelld.embed import ShellManager
from shelld.tools import BashTool
from shelld.tools.base import ExecutionContext

async def main():
    tool, context = BashTool(), ExecutionContext("")
    manager = await ShellManager().manager()
    await tool.execute(context, command="x=1")

    async def is_ready():
        for spare in manager.runtime.spares._waiting:
            spare.launch.look()
            if spare.launch.is_ready:
                return True

    while not await ShellManager().run(is_ready):
        await asyncio.sleep(0.01)
    child = os.fork()
    if child == 0:
        signal.pause()
        os._exit(0)
    result = await tool.execute(context, command="echo $x", timeout=20_000)
    print(result.to_display(), manager.spares_used)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)

asyncio.run(main())
"""


def test_forked_child_does_not_block_spare_shell() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", _CHILD_LIVES_ON],
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert ended.stdout == "1\n 1\n", ended.stderr
