"""The single manager of a program that forks."""

from __future__ import annotations

import subprocess
import sys

import pytest

from support import is_alive, wait_for

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


@pytest.mark.slow
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
            spare.launch.check()
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


@pytest.mark.slow
def test_forked_child_does_not_block_spare_shell() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", _CHILD_LIVES_ON],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert ended.stdout == "1\n 1\n", ended.stderr
