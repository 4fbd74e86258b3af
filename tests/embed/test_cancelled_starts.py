"""If a start is cancelled, no command stays behind."""

from __future__ import annotations

import time
from functools import partial

import anyio
import pytest

from shelld.embed import ShellManager, ShellProcess
from shelld.tools import BashTool
from shelld_protocol.tools import ExecutionContext
from support import wait_for


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
        with anyio.fail_after(60):
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
                # After this sleep, the manager's own thread has the result, but this thread has not
                # received it.
                time.sleep(0.2)  # noqa: ASYNC251 - on purpose
                scope.cancel()
        (shell,) = manager.list_shells()
        wait_for(lambda: shell.is_empty, "the end of the command")
    finally:
        await ShellManager.reset()
