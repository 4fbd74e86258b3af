"""If a program writes too fast for the screen, `read_screen` follows it only until the deadline."""

from __future__ import annotations

import signal
from typing import Any, Literal

import anyio
import pytest

from shelld.helpers.helper import Helper
from shelld.methods import screen as method
from shelld.methods.bash import bash
from shelld.methods.context import Daemon, RequestContext
from shelld.methods.input import write_stdin
from shelld.methods.screen import read_screen
from shelld.process.options import Options
from shelld.screens import screen as screen_module
from shelld.screens.screen import Screen, View
from shelld.shells.manager import Manager
from shelld_protocol.input_methods import WriteStdinParams
from shelld_protocol.screen_methods import ReadScreenParams
from shelld_protocol.shell_methods import BackgroundResult, BashParams

WAIT_MS = 500


async def test_prompt_that_ended_the_wait_does_not_outlive_its_program(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with Manager() as manager:
        context = RequestContext(Daemon(Options(), manager))
        params = BashParams("read -rp 'Name? ' name", run_in_background=True, tty=True)
        started = await bash(context, params)
        assert isinstance(started, BackgroundResult)
        shell = manager.get(started.bash_id)
        capture, captures = Screen.capture, 0

        async def capture_and_end(screen: Screen, *args: Any, **more: Any) -> View:
            nonlocal captures
            captures += 1
            if captures == 2:
                await shell.end_tree(signal.SIGKILL, 0)
            return await capture(screen, *args, **more)

        monkeypatch.setattr(Screen, "capture", capture_and_end)
        reading = ReadScreenParams(started.bash_id, wait=60_000, until="prompt")
        seen = await read_screen(context, reading)
        assert (seen.lines[0], seen.is_running, seen.prompt) == ("Name?", False, None)


@pytest.mark.parametrize("until", ["stable", "change", "prompt"])
async def test_captures_end_with_the_wait(
    until: Literal["stable", "change", "prompt"], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(screen_module, "_STEP_BYTES", 10)
    monkeypatch.setattr(method, "_LAST_CAPTURE_S", 0.0)
    async with Manager() as manager:
        context = RequestContext(Daemon(Options(), manager))
        command = "stty -echo; printf ready; read -r; printf %02000d; sleep 300"
        started = await bash(context, BashParams(command, run_in_background=True, tty=True))
        assert isinstance(started, BackgroundResult)
        shell = manager.get(started.bash_id)
        await shell.wait_until(lambda: shell.stdout.store.written == 5)
        await read_screen(context, ReadScreenParams(started.bash_id))
        await write_stdin(context, WriteStdinParams(started.bash_id, text="\n"))
        give_up_at = anyio.current_time() + WAIT_MS / 1000
        ask = Helper.ask
        late = 0

        async def ask_slowly(helper: Helper, data: bytes) -> bytes:
            nonlocal late
            if data.endswith(b"0"):
                late += anyio.current_time() > give_up_at
                # The first step of the long output takes longer than the whole wait.
                await anyio.sleep_until(give_up_at + 0.2)
            return await ask(helper, data)

        # The long output arrives during the wait.
        written = shell.stdout.store.written
        monkeypatch.setattr(Helper, "ask", ask_slowly)
        params = ReadScreenParams(started.bash_id, wait=WAIT_MS, until=until, quiet_ms=60_000)
        seen = await read_screen(context, params)
        assert seen.lines[0].startswith("ready")
        assert late <= 3
        # A read that does not wait shows all output so far.
        monkeypatch.setattr(Helper, "ask", ask)
        seen = await read_screen(context, ReadScreenParams(started.bash_id))
        assert len("".join(seen.lines)) == shell.stdout.store.written > written
