"""The single manager of a program with several threads and event loops."""

from __future__ import annotations

import asyncio
import gc
import signal
import subprocess
import sys
import threading
from contextlib import AbstractAsyncContextManager
from typing import cast

import anyio
import anyio.to_thread
import pytest

from shelld.embed import ShellManager, ShellProcess
from shelld.shells.launch import StartRequest
from shelld.shells.manager import Manager
from shelld_protocol.errors import ErrorKind, RpcError
from support import DEADLINE_S, in_threads, wait_for


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


def test_wait_whose_event_loop_has_ended_can_be_collected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ignored: list[object] = []

    def note(unraisable: sys.UnraisableHookArgs) -> None:
        ignored.append(unraisable.exc_value)

    async def leave_a_wait(shell: ShellProcess) -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _loop, _context: None)
        waiting.append(asyncio.ensure_future(shell.wait()))
        await asyncio.sleep(0)

    monkeypatch.setattr(sys, "unraisablehook", note)
    shell = anyio.run(ShellManager().create_shell, "sleep 300", "/")
    waiting: list[asyncio.Future[int]] = []
    loop = asyncio.new_event_loop()
    loop.run_until_complete(leave_a_wait(shell))
    loop.close()
    del loop
    waiting.clear()
    gc.collect()
    assert ignored == []
    anyio.run(shell.kill)


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
            with anyio.fail_after(60):
                while not manager.list_running():
                    await anyio.sleep(0.005)
            tasks.cancel_scope.cancel()
        # The manager has waited for the cancelled call.
        assert manager.list_running() == []

    anyio.run(start_and_leave)


@pytest.mark.parametrize(
    "kind", [SystemExit, KeyboardInterrupt, GeneratorExit, asyncio.CancelledError]
)
def test_exit_raised_by_a_condition_ends_only_its_waiter(kind: type[BaseException]) -> None:
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


@pytest.mark.slow
def test_output_is_readable_after_loop_is_closed() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", _LOOP_IS_CLOSED],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert ended.stdout == "'x\\n'\n", ended.stderr
