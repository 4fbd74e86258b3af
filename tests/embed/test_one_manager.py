"""The single manager of a program: when it begins and ends, and how it is reset."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import anyio
import pytest

from shelld.embed import ShellManager, ShellProcess, ShellStatus
from shelld.methods.bash import bash
from shelld.methods.context import Daemon, RequestContext
from shelld.process.options import Options
from shelld.shells.launch import StartRequest
from shelld.shells.manager import Manager
from shelld.shells.options import ManagerOptions
from shelld_protocol.errors import ErrorKind, RpcError
from shelld_protocol.shell_methods import BashParams
from support import children, is_alive, wait_for


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
    with anyio.fail_after(60):
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
            # A manager without a thread of its own ends its shells as soon as the scope is
            # cancelled. A manager with its own thread ends its shells only when the `with` block
            # ends.
            with anyio.CancelScope(shield=True), anyio.fail_after(60):
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
        with anyio.fail_after(60):
            while asyncio.all_tasks() - before - {task}:
                await asyncio.sleep(0.005)


async def test_new_keeper_starts_in_the_managers_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    async with ShellManager(ManagerOptions(spare_shells=0)) as manager:
        running = await manager.manager()
        monkeypatch.chdir("/")
        for _ in range(2):
            # Start more shells than there are idle runners, so that the keeper must fork some.
            shells = [await manager.run(running.start, StartRequest("pwd -P")) for _ in range(20)]
            for shell in shells:
                process = manager.get_shell(shell.id)
                assert process is not None
                assert await process.wait(60) == 0
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


async def test_consecutive_commands_fit_into_a_limit_of_one_shell() -> None:
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


@pytest.mark.slow
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
        timeout=100,
        check=True,
    )
    assert ended.stderr == ""
    wait_for(lambda: not is_alive(int(ended.stdout)))
    wait_for(lambda: not any(is_alive(pid) for pid in children(os.getpid())))
