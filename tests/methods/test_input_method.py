"""The method `write_stdin`. While the daemon prepares a write, the shell or the terminal can
change, or another request can write.
"""

from __future__ import annotations

import errno
import itertools
import select
import termios
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from shelld.eventloop.readiness import WRITABLE, PollerPool, WatchedPoller
from shelld.guard.policy import BlockRule, Policy
from shelld.methods.bash import bash
from shelld.methods.context import Daemon, RequestContext
from shelld.methods.input import write_stdin
from shelld.methods.typed_lines import RunningReaders
from shelld.process.options import Options
from shelld.shells.launch import StartRequest
from shelld.shells.manager import Manager
from shelld.shells.shell import Shell
from shelld.terminals.input import PipeInput, TerminalInput
from shelld.terminals.pty import Modes
from shelld_protocol.errors import RpcError
from shelld_protocol.input_methods import WriteStdinParams
from shelld_protocol.shell_methods import BackgroundResult, BashParams
from support import Gate, wait_for

ANSWER = b"\x1b[?1;2c"


async def started(
    context: RequestContext, command: str, **params: Any
) -> tuple[Shell, PipeInput | TerminalInput]:
    """Start a command in the background; return it with its input."""
    result = await bash(context, BashParams(command, run_in_background=True, **params))
    assert isinstance(result, BackgroundResult)
    shell = context.daemon.manager.get(result.bash_id)
    assert shell.input is not None
    return shell, shell.input


async def on_terminal(context: RequestContext, modes: str) -> tuple[Shell, TerminalInput]:
    """Start `cat` on a terminal, and return once the terminal has the modes `modes`."""
    shell, stdin = await started(context, f"stty {modes}; echo go; cat", tty=True)
    await shell.wait_until(lambda: b"go" in output_of(shell))
    assert isinstance(stdin, TerminalInput)
    return shell, stdin


def output_of(shell: Shell) -> bytes:
    store = shell.stdout.store
    return bytes(store.read(0, store.written).data)


def once(change: Callable[[], None]) -> Callable[[], Any]:
    """Return a checkpoint that calls `change` the first time only."""
    changes = [change]

    async def checkpoint() -> None:
        while changes:
            changes.pop()()

    return checkpoint


def set_mode(stdin: TerminalInput, flag: int, *, is_on: bool) -> None:
    attributes = termios.tcgetattr(stdin.descriptor)
    attributes[3] = attributes[3] | flag if is_on else attributes[3] & ~flag
    termios.tcsetattr(stdin.descriptor, termios.TCSANOW, attributes)


@pytest.mark.parametrize("kind", ["tty", "open_stdin"])
async def test_input_closed_during_preparation_is_refused(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def modes(_descriptor: int) -> Modes:
        pytest.fail("the descriptor was used after the input had closed")

    async with Manager() as manager:
        context = RequestContext(Daemon(Options(), manager))
        shell, stdin = await started(context, "cat", **{kind: True})
        checkpoint = once(lambda: stdin.close("ended"))
        monkeypatch.setattr("shelld.methods.input.checkpoint", checkpoint)
        monkeypatch.setattr("shelld.terminals.input.modes", modes)
        with pytest.raises(RpcError) as refused:
            await write_stdin(context, WriteStdinParams(shell.id, keys=["Enter"]))
        assert refused.value.data == {"kind": "stdin_closed", "reason": "ended"}


async def test_data_for_a_program_is_not_split_into_lines(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def typed(_before: bytes, _data: bytes) -> None:
        pytest.fail("no shell reads the lines")

    async with Manager() as manager:
        context = RequestContext(Daemon(Options(), manager))
        shell, stdin = await started(context, "exec cat", open_stdin=True)
        with anyio.fail_after(60):
            await shell.wait_until(lambda: shell.pid is not None)
        readers = RunningReaders(shell, stdin)
        wait_for(lambda: not readers.directories(), "the program instead of bash")
        monkeypatch.setattr("shelld.methods.judged_typing.typed", typed)
        written = await write_stdin(context, WriteStdinParams(shell.id, text="y\n" * 1000 + "z"))
        assert (written.written, stdin.typed.keys) == (2001, b"z")


@pytest.mark.parametrize(
    ("modes", "flag", "is_on", "what"),
    [("-echo", termios.ECHO, True, "secret"), ("-echo", termios.ICANON, False, "eof")],
)
async def test_write_is_refused_if_changed_terminal_modes_forbid_it(
    modes: str, flag: int, is_on: bool, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Manager() as manager:
        context = RequestContext(Daemon(Options(), manager))
        shell, stdin = await on_terminal(context, modes)
        checkpoint = once(lambda: set_mode(stdin, flag, is_on=is_on))
        monkeypatch.setattr("shelld.methods.judged_typing.checkpoint", checkpoint)
        params = WriteStdinParams(
            shell.id, text="swordfish\n", secret=what == "secret", eof=what == "eof"
        )
        with pytest.raises(RpcError) as refused:
            await write_stdin(context, params)
        assert refused.value.data == {"kind": "not_possible", "what": what}


async def test_line_is_edited_in_the_modes_in_which_it_is_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with Manager() as manager:
        context = RequestContext(Daemon(Options(), manager))
        shell, stdin = await on_terminal(context, "-icanon -echo")
        checkpoint = once(lambda: set_mode(stdin, termios.ICANON, is_on=True))
        monkeypatch.setattr("shelld.methods.judged_typing.checkpoint", checkpoint)
        await write_stdin(context, WriteStdinParams(shell.id, text="a line"))
        # The line is not empty. So the first end-of-file key only sends the line to the program,
        # and `eof` types a second one.
        result = await write_stdin(context, WriteStdinParams(shell.id, eof=True))
        assert result.written == 2


async def test_write_ends_although_the_modes_keep_changing(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Manager() as manager:
        context = RequestContext(Daemon(Options(), manager))
        shell, stdin = await on_terminal(context, "-echo")
        echoes = itertools.cycle((True, False))

        async def change() -> None:
            set_mode(stdin, termios.ECHO, is_on=next(echoes))

        monkeypatch.setattr("shelld.methods.judged_typing.checkpoint", change)
        assert (await write_stdin(context, WriteStdinParams(shell.id, text="x\n"))).written == 2


async def test_terminal_answer_during_a_judgement_joins_the_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with Manager() as manager:
        context = RequestContext(Daemon(Options(), manager))
        shell, stdin = await on_terminal(context, "-echo")
        checkpoint = once(lambda: stdin.see(memoryview(b"\x1b[c")))
        monkeypatch.setattr("shelld.methods.judged_typing.checkpoint", checkpoint)
        await write_stdin(context, WriteStdinParams(shell.id, text="a line"))
        assert stdin.typed.kernel_line.text == ANSWER + b"a line"
        result = await write_stdin(context, WriteStdinParams(shell.id, eof=True))
        assert result.written == 2
        await shell.wait_until(lambda: output_of(shell).endswith(ANSWER + b"a line"))


async def test_paste_has_the_form_that_the_program_wants_when_it_is_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with Manager() as manager:
        context = RequestContext(Daemon(Options(), manager))
        shell, stdin = await on_terminal(context, "raw -echo")
        checkpoint = once(lambda: stdin.see(memoryview(b"\x1b[?2004h")))
        monkeypatch.setattr("shelld.methods.judged_typing.checkpoint", checkpoint)
        await write_stdin(context, WriteStdinParams(shell.id, text="x", paste=True))
        await shell.wait_until(lambda: output_of(shell).endswith(b"\x1b[200~x\x1b[201~"))


@pytest.mark.parametrize("before", [None, "xy"])
async def test_line_for_a_shell_that_has_not_started_is_judged(before: str | None) -> None:
    policy = Policy(block=[BlockRule("no", "forbidden")])
    async with Manager() as manager:
        context = RequestContext(Daemon(Options(), manager, policy=policy))
        shell = await manager.start(StartRequest("bash", open_stdin=True))
        assert shell.pid is None
        if before is not None:
            # Another program may read this text before a shell reads the line.
            await write_stdin(context, WriteStdinParams(shell.id, text=before))
        with pytest.raises(RpcError) as refused:
            await write_stdin(context, WriteStdinParams(shell.id, text="forbidden line\n"))
        assert refused.value.data["kind"] == "blocked"


@pytest.mark.parametrize(
    ("times", "handles", "is_refused"),
    [
        ((1_000.0, 2_000.0), False, True),
        ((0.0, 2_000.0), True, True),
        ((0.0, 2_000.0), False, False),
        ((0.0, 0.0), True, False),
    ],
)
async def test_next_write_may_continue_a_line_that_an_interrupt_should_drop(
    monkeypatch: pytest.MonkeyPatch, times: tuple[float, float], handles: bool, is_refused: bool
) -> None:
    for name, seconds in zip(("_INTERRUPT_S", "_INTERRUPT_IS_OVER_S"), times, strict=True):
        monkeypatch.setattr(f"shelld.methods.judged_typing.{name}", seconds)

    def handle_interrupt(_readers: RunningReaders) -> bool:
        return handles

    monkeypatch.setattr(RunningReaders, "handle_interrupt", handle_interrupt)
    policy = Policy(block=[BlockRule("no", "forbidden")])
    async with Manager() as manager:
        context = RequestContext(Daemon(Options(), manager, policy=policy))
        command = "PS1='ready> ' bash --norc --noprofile -i"
        shell, _ = await started(context, command, tty=True)
        await shell.wait_until(lambda: output_of(shell).endswith(b"ready> "))
        await write_stdin(context, WriteStdinParams(shell.id, text="xforbidden"))
        await write_stdin(context, WriteStdinParams(shell.id, keys=["C-c"]))
        enter = WriteStdinParams(shell.id, keys=["Enter"])
        if is_refused:
            with pytest.raises(RpcError) as refused:
                await write_stdin(context, enter)
            assert refused.value.data["kind"] == "blocked"
        else:
            await write_stdin(context, enter)


@pytest.mark.parametrize(
    "first",
    [
        WriteStdinParams("", text="x" * 1_000_000),
        # This pattern needs a helper process.
        WriteStdinParams("", text="x", until="match", pattern="(?=zz)"),
    ],
    ids=["long", "waits"],
)
@pytest.mark.parametrize("is_notification", [False, True])
async def test_writes_keep_their_order(first: WriteStdinParams, is_notification: bool) -> None:
    async with Manager() as manager:
        daemon = Daemon(Options(), manager)
        shell, _ = await started(RequestContext(daemon), "tail -c 4", open_stdin=True)
        first.bash_id = shell.id
        second = WriteStdinParams(shell.id, text="end\n", eof=True)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(write_stdin, RequestContext(daemon), first)
            context = RequestContext(daemon, is_notification=is_notification)
            tasks.start_soon(write_stdin, context, second)
        await shell.wait_until(lambda: shell.has_ended)
        assert output_of(shell) == b"end\n"


async def test_writes_to_a_call_that_begins_keep_their_order() -> None:
    async with Manager() as manager:
        daemon = Daemon(Options(), manager)
        call = RequestContext(daemon)
        shell, _ = await started(RequestContext(daemon), "head -n 2", open_stdin=True)
        context = RequestContext(daemon, find_requests=lambda _id: [call])
        async with anyio.create_task_group() as tasks:
            first = WriteStdinParams(request_id=1, text="first\n")
            tasks.start_soon(write_stdin, context, first)
            await anyio.wait_all_tasks_blocked()
            second = WriteStdinParams(request_id=1, text="second\n")
            tasks.start_soon(write_stdin, context, second)
            # The command starts before the second write runs, and before the first write goes on.
            call.runs(shell)
        await shell.wait_until(lambda: shell.has_ended)
        assert output_of(shell) == b"first\nsecond\n"


class ShortPoller:
    """A poller that fails with ENOSPC the first `shortages` times it should wait for room."""

    def __init__(self, poller: select.epoll, shortages: int) -> None:
        self._poller = poller
        self._shortages = shortages

    def register(self, descriptor: int, events: int) -> None:
        self._check(events)
        self._poller.register(descriptor, events)

    def modify(self, descriptor: int, events: int) -> None:
        self._check(events)
        self._poller.modify(descriptor, events)

    def _check(self, events: int) -> None:
        if events & WRITABLE and self._shortages:
            self._shortages -= 1
            raise OSError(errno.ENOSPC, "injected")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._poller, name)


def make_pollers_short(monkeypatch: pytest.MonkeyPatch, shortages: int) -> None:
    take = PollerPool.take

    def take_short(self: PollerPool) -> WatchedPoller:
        poller, watch = take(self)
        short: Any = ShortPoller(poller, shortages)
        return WatchedPoller(short, watch)

    monkeypatch.setattr(PollerPool, "take", take_short)


@pytest.mark.parametrize("params", [{"open_stdin": True}, {"tty": True}])
@pytest.mark.parametrize("first", ["given", "written"])
async def test_queued_input_arrives_after_a_shortage(
    params: dict[str, Any], first: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    make_pollers_short(monkeypatch, 3)
    # Make the deadline long, because a short one could hide that nobody tries the write again.
    monkeypatch.setattr("shelld.shells.life.START_TIMEOUT_S", 3_600)
    gate = Gate(tmp_path / "gate")
    content = ("x" * 99 + "\n") * 2_000
    given = content if first == "given" else None
    async with Manager() as manager:
        context = RequestContext(Daemon(Options(), manager))
        command = f"stty -echo 2>&-; {gate.wait}; head -c 200000 | wc -c"
        shell, stdin = await started(context, command, stdin=given, **params)
        if first == "written":
            await write_stdin(context, WriteStdinParams(shell.id, text=content))
        assert stdin.pending_bytes
        gate.open()
        await shell.wait_until(lambda: shell.has_ended)
        # The terminal echoes the text that was typed before the program could switch off the echo.
        assert output_of(shell).rstrip()[-6:] == b"200000"


@pytest.mark.slow
@pytest.mark.parametrize("params", [{"open_stdin": True}, {"tty": True}])
async def test_unwatched_input_does_not_hide_the_end_of_a_command(
    params: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    make_pollers_short(monkeypatch, 1_000_000)
    gate = Gate(tmp_path / "gate")
    async with Manager() as manager:
        context = RequestContext(Daemon(Options(), manager))
        shell, stdin = await started(context, f"{gate.wait}; exit 3", **params)
        await write_stdin(context, WriteStdinParams(shell.id, text="x\n" * 100_000))
        assert stdin.pending_bytes
        gate.open()
        await shell.wait_until(lambda: shell.is_empty)
        assert (shell.exit_code, shell.reason) == (3, None)
