"""What `write_stdin` does if something changes while the request is prepared."""

from __future__ import annotations

import termios

import pytest

from shelld.methods.bash import bash
from shelld.methods.context import Daemon, RequestContext
from shelld.methods.input import write_stdin
from shelld.process.options import Options
from shelld.shells.manager import Manager
from shelld.terminals.pty import Modes
from shelld_protocol.errors import RpcError
from shelld_protocol.input_methods import WriteStdinParams
from shelld_protocol.shell_methods import BackgroundResult, BashParams


@pytest.mark.parametrize("kind", ["tty", "open_stdin"])
async def test_input_closed_during_preparation_is_refused(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def modes(_descriptor: int) -> Modes:
        pytest.fail("the descriptor was used after the input had closed")

    async with Manager() as manager:
        context = RequestContext(Daemon(Options(), manager))
        started = await bash(
            context,
            BashParams(
                "cat", run_in_background=True, tty=kind == "tty", open_stdin=kind == "open_stdin"
            ),
        )
        assert isinstance(started, BackgroundResult)
        target = manager.get(started.bash_id).input
        assert target is not None

        async def close_input() -> None:
            target.close("ended")

        monkeypatch.setattr("shelld.methods.input.checkpoint", close_input)
        monkeypatch.setattr("shelld.terminals.input.modes", modes)
        with pytest.raises(RpcError) as refused:
            await write_stdin(context, WriteStdinParams(started.bash_id, keys=["Enter"]))
        assert refused.value.data == {"kind": "stdin_closed", "reason": "ended"}


async def test_secret_is_refused_if_echo_begins_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Manager() as manager:
        context = RequestContext(Daemon(Options(), manager))
        params = BashParams("stty -echo; echo go; cat", run_in_background=True, tty=True)
        started = await bash(context, params)
        assert isinstance(started, BackgroundResult)
        shell = manager.get(started.bash_id)
        await shell.wait_until(lambda: shell.stdout.store.written == 4)
        target = shell.input
        assert target is not None

        async def echo() -> None:
            attributes = termios.tcgetattr(target.descriptor)
            attributes[3] |= termios.ECHO
            termios.tcsetattr(target.descriptor, termios.TCSANOW, attributes)

        monkeypatch.setattr("shelld.methods.input.checkpoint", echo)
        with pytest.raises(RpcError) as refused:
            await write_stdin(
                context, WriteStdinParams(started.bash_id, text="swordfish\n", secret=True)
            )
        assert refused.value.data == {"kind": "not_possible", "what": "secret"}
