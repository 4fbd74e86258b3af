"""How a wait for a prompt ends if the command ends."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from shelld.methods.bash import bash
from shelld.methods.bash_output import bash_output
from shelld.methods.context import Daemon, RequestContext
from shelld.process.options import Options
from shelld.shells.manager import Manager
from shelld.waits import until
from shelld_protocol.shell_methods import BackgroundResult, BashOutputParams, BashParams
from support import DEADLINE_S, Gate


async def open_when_blocked(gate: Gate) -> None:
    await anyio.wait_all_tasks_blocked()
    gate.open()


async def test_command_that_ends_just_after_it_closes_its_input_has_ended(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(until, "_END_WAIT_S", DEADLINE_S)
    async with Manager() as manager:
        context = RequestContext(Daemon(Options(), manager))
        # Every process closes its input shortly before it ends. Here, the time between these two
        # events is longer.
        gate = Gate(tmp_path / "gate")
        command = f"exec 0<&-; echo closed; {gate.wait}"
        started = await bash(context, BashParams(command, open_stdin=True, run_in_background=True))
        assert isinstance(started, BackgroundResult)
        await bash_output(context, BashOutputParams(started.bash_id, wait=60_000))
        params = BashOutputParams(started.bash_id, wait=60_000, until="prompt")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(open_when_blocked, gate)
            result = await bash_output(context, params)
            assert (result.reached, result.reason, result.is_running) == ("exit", None, False)
