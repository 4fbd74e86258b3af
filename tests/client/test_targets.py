"""Targets through both clients."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

from both_clients import Spawn
from shelld_client import AsyncClient, InvalidParams, OutputEvent, TargetLost
from support import DAEMON_COMMAND


async def test_calls_go_to_a_target(spawn: Spawn) -> None:
    async with spawn() as shell:
        await shell.add_target("box", DAEMON_COMMAND)
        result = await shell.bash("x=1; echo out", target="box", session="far")
        assert (result.stdout, result.bash_id[:4]) == ("out\n", "box:")
        # The target's events reach the call that started the command.
        pieces = [each async for each in shell.stream("echo $x", session="far")]
        assert isinstance(pieces[0], OutputEvent)
        assert (pieces[0].text, pieces[0].target) == ("1\n", "box")
        shells = await shell.list_shells(target="box")
        assert shells[0].bash_id == result.bash_id
        assert (await shell.get_session("far", target="box")).session == "far"
        async with shell.start("echo ready; sleep 300", target="box") as job:
            assert job.id.startswith("box:")
        await shell.close_session("far", target="box")
        (info,) = await shell.list_targets()
        assert (info.name, info.argv, info.state) == ("box", DAEMON_COMMAND, "connected")
        assert (await shell.remove_target("box")).ended
        assert await shell.list_targets() == []


async def test_output_that_the_client_reads_names_its_target(spawn: Spawn) -> None:
    async with spawn() as shell:
        await shell.add_target("box", DAEMON_COMMAND)
        async with shell.start("echo ready; sleep 300", target="box") as job:
            await shell.bash_output(job.id, wait=60_000, until="match", pattern="ready")
            event = await anext(job)
            assert isinstance(event, OutputEvent)
            assert (event.text, event.bash_id, event.target) == ("ready\n", job.id, "box")


async def test_lost_target_raises(spawn: Spawn) -> None:
    async with spawn() as shell:
        await shell.add_target("bad", ["sh", "-c", "echo denied >&2; exit 255"])
        with pytest.raises(TargetLost, match="exit code 255: denied") as lost:
            await shell.bash("true", target="bad")
        assert (lost.value.target, lost.value.maybe_started) == ("bad", False)
        assert lost.value.text == "denied"
        with pytest.raises(InvalidParams):
            await shell.add_target("bad", ["true"])
        with pytest.raises(InvalidParams):
            await shell.add_target("text", "ssh box")


async def test_lost_target_ends_the_iterations(spawn: Spawn, tmp_path: Path) -> None:
    async def iterate(events: Any) -> None:
        with pytest.raises(TargetLost, match="The connection to target box is gone") as lost:
            async for _ in events:
                waiting.discard(events)
        assert lost.value.target == "box"

    async with spawn() as shell:
        pid = tmp_path / "pid"
        script = f'echo $$ > {pid}; exec "$@"'
        await shell.add_target("box", ["sh", "-c", script, "sh", *DAEMON_COMMAND])
        start = shell.start("while :; do echo out; sleep 0.05; done", target="box")
        async with start as job, shell.events(target="box") as events:
            waiting = {job, events}
            async with anyio.create_task_group() as tasks:
                for each in (job, events):
                    tasks.start_soon(iterate, each)
                while waiting:
                    await anyio.sleep(0.01)
                os.kill(int(pid.read_text()), signal.SIGKILL)


async def test_added_target_may_ask_for_a_bootstrap(spawn: Spawn) -> None:
    async with spawn() as shell:
        await shell.add_target("bare", ["ssh", "box"], bootstrap=True)
        (info,) = await shell.list_targets()
        assert (info.bootstrap, info.state) == (True, "unused")


# If a call of `bash` is cancelled, this peer answers with the id of a shell, as if the command
# still ran at its target. The peer writes a file when a command has begun, and another file when it
# is asked to kill the command.
_LEAVING_PEER = """
import json, sys

directory, begun = sys.argv[1], None
for line in sys.stdin:
    message = json.loads(line)
    answer = {"jsonrpc": "2.0", "id": message.get("id"), "result": {}}
    if message["method"] == "bash":
        begun = message["id"]
        open(directory + "/begun", "w").close()
        continue
    if message["method"] == "$/cancelRequest":
        data = {"kind": "cancelled", "bash_id": "box:shell_1"}
        error = {"code": -32800, "message": "Request cancelled", "data": data}
        answer = {"jsonrpc": "2.0", "id": begun, "error": error}
    if message["method"] == "kill_shell":
        open(directory + "/killed_" + message["params"]["shell_id"], "w").close()
    print(json.dumps(answer), flush=True)
"""


async def test_job_kills_a_command_that_its_cancelled_start_has_left_at_a_target(
    tmp_path: Path,
) -> None:
    async def cancel_start(scope: anyio.CancelScope) -> None:
        while not (tmp_path / "begun").exists():
            await anyio.sleep(0.01)
        scope.cancel()

    peer = [sys.executable, "-c", _LEAVING_PEER, str(tmp_path)]
    async with AsyncClient.spawn(peer) as shell, anyio.create_task_group() as tasks:
        with anyio.CancelScope() as scope:
            tasks.start_soon(cancel_start, scope)
            async with shell.start("sleep 300", target="box", idempotency_key="1"):
                pass
        with anyio.fail_after(60):
            while not (tmp_path / "killed_box:shell_1").exists():
                await anyio.sleep(0.01)


async def test_job_goes_on_if_its_cancelled_start_is_repeated_while_its_target_connects(
    tmp_path: Path,
) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    options: Any = {"target": "box", "idempotency_key": "1"}

    async def cancel_while_connecting(shell: AsyncClient, scope: anyio.CancelScope) -> None:
        while (await shell.list_targets())[0].state != "connecting":
            await anyio.sleep(0.01)
        scope.cancel()

    async def let_connect() -> None:
        await anyio.to_thread.run_sync(gate.write_text, "go\n")

    async with AsyncClient.spawn(DAEMON_COMMAND) as shell, anyio.create_task_group() as tasks:
        wait_then_run = ["sh", "-c", 'read -r go < "$0"; exec "$@"', str(gate), *DAEMON_COMMAND]
        await shell.add_target("box", wait_then_run)
        with anyio.CancelScope() as scope:
            tasks.start_soon(cancel_while_connecting, shell, scope)
            async with shell.start("sleep 300", **options):
                pass
        tasks.start_soon(let_connect)
        async with shell.start("sleep 300", **options) as job:
            # If the cancelled start had sent requests, those would arrive before the following
            # calls.
            for _ in range(3):
                await shell.bash("true", target="box", session=None)
            assert (await job.output()).is_running
