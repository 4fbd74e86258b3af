"""What results say of prompts if the look for one fails."""

from __future__ import annotations

import pytest

from shelld.methods.bash import bash
from shelld.methods.bash_output import bash_output
from shelld.methods.context import Daemon, RequestContext
from shelld.process import faults
from shelld.process.options import Options
from shelld.prompts import prompt
from shelld.shells.manager import Manager
from shelld_protocol.shell_methods import BackgroundResult, BashOutputParams, BashParams


async def test_failing_look_costs_no_output(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_args: object) -> None:
        raise ArithmeticError

    monkeypatch.setattr(prompt, "find", fail)
    before = faults.count()
    async with Manager() as manager:
        context = RequestContext(Daemon(Options(), manager))
        params = BashParams("echo kept; cat", run_in_background=True, open_stdin=True)
        started = await bash(context, params)
        assert isinstance(started, BackgroundResult)
        result = await bash_output(context, BashOutputParams(started.bash_id, wait=20_000))
        assert (result.stdout, result.prompt) == ("kept\n", None)
    assert faults.count() > before
