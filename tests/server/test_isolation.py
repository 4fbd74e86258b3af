"""An unexpected exception ends only the shell, request or preload in which it was raised."""

from __future__ import annotations

import _thread
import asyncio
import errno
import select
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from shelld.eventloop.threads import Thread
from shelld.keeper.channel import Channel
from shelld.mcp.toolbox import Toolbox
from shelld.methods.context import Daemon
from shelld.process import faults
from shelld.process.options import Options
from shelld.shells.launch import StartRequest, TimeoutPolicy
from shelld.shells.life import Life
from shelld.shells.lifecycle import ShellStatus
from shelld.shells.links import MAX_SHORTAGES, SHORTAGE_PAUSE_S
from shelld.shells.manager import Manager
from shelld.shells.pipe import Pipe
from shelld.shells.shell import Shell
from shelld.shells.spares import Spares
from shelld.shells.supervisor import Supervisor
from shelld.tools.bash import BashTool
from shelld_protocol.errors import ErrorKind, RpcError
from shelld_protocol.tools import ExecutionContext
from shells import start_shell
from support import Gate, is_alive


def fails_once(
    method: Callable[..., Any], when: Callable[..., bool] = lambda *_, **__: True
) -> Callable[..., Any]:
    """Return a method that raises at the first call for which `when` is true."""
    calls = iter((True,))

    def failing(*args: Any, **options: Any) -> Any:
        if when(*args, **options) and next(calls, False):
            raise ValueError("unforeseen")
        return method(*args, **options)

    return failing


async def end_of(shell: Shell) -> None:
    with anyio.fail_after(60):
        await shell.wait_until(lambda: shell.is_empty and shell.has_ended)


@pytest.mark.parametrize(
    "place",
    [
        (Pipe, "pump"),
        (Supervisor, "_advance"),
        (Supervisor, "_meet_deadlines"),
        (Life, "receive"),
        (Life, "take"),
    ],
    ids=lambda place: place[1],
)
async def test_a_failed_supervision_ends_its_own_shell_only(
    monkeypatch: pytest.MonkeyPatch, place: tuple[type, str]
) -> None:
    def is_not_other(owner: Pipe | Supervisor | Life, *_: object, **__: object) -> bool:
        if isinstance(owner, Supervisor):
            owner = owner.life
        return isinstance(owner, Pipe) or owner.shell is not other

    before = faults.count()
    async with Manager() as manager:
        other = await start_shell(manager, "sleep 300", "/")
        with monkeypatch.context() as patch:
            patch.setattr(*place, fails_once(getattr(*place), is_not_other))
            # Give the shell a deadline that passes during the test.
            timeout = TimeoutPolicy(100, "background", 1_000)
            request = StartRequest("sleep 300 & echo $!; sleep 300", cwd="/", timeout=timeout)
            shell = await manager.start(request)
            await end_of(shell)
        assert (shell.status, shell.reason) == (ShellStatus.KILLED, "lost")
        assert shell.signal == "SIGKILL"
        assert other.is_running
        last = await start_shell(manager, "echo on", "/")
        await end_of(last)
        assert last.status is ShellStatus.COMPLETED
    assert faults.count() == before + 1


async def test_a_supervision_whose_kill_fails_is_reported_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(_supervisor: Supervisor) -> None:
        raise ValueError("unforeseen")

    before = faults.count()
    async with Manager() as manager:
        with monkeypatch.context() as patch:
            patch.setattr(Supervisor, "_advance", fail)
            patch.setattr(Supervisor, "_kill_unseen", fail)
            shell = await manager.start(StartRequest("sleep 300"))
            ended = False

            async def see_the_end() -> None:
                nonlocal ended
                await shell.wait_until(lambda: shell.has_ended)
                ended = True

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(see_the_end)
                await end_of(shell)
        assert ended
        assert (shell.status, shell.reason) == (ShellStatus.KILLED, "lost")
    assert faults.count() == before + 1


async def test_a_lost_shell_leaves_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Manager() as manager:
        shell = await start_shell(manager, "setsid sleep 300 & echo $!; sleep 300", "/")
        with anyio.fail_after(60):
            await shell.wait_until(lambda: shell.stdout.store.written > 0)
            pid = int(shell.stdout.store.read(0, 100).data)
            monkeypatch.setattr(Life, "receive", fails_once(Life.receive))
            await shell.end_tree(15, 300)
        assert (shell.status, shell.reason) == (ShellStatus.KILLED, "lost")
        assert not is_alive(pid)


class _ShortEpoll:
    """An epoll object. `left` is the number of calls of `poll` that still raise MemoryError."""

    left = 0
    make = select.epoll

    def __init__(self) -> None:
        self._epoll = _ShortEpoll.make()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._epoll, name)

    def poll(self, *args: Any) -> Any:
        if _ShortEpoll.left:
            _ShortEpoll.left -= 1
            raise MemoryError
        return self._epoll.poll(*args)


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Record how long the pauses after shortages would be, and skip these pauses."""
    pauses: list[float] = []

    async def pause(seconds: float) -> None:
        pauses.append(seconds)
        await anyio.lowlevel.checkpoint()

    monkeypatch.setattr(faults, "pause", pause)
    return pauses


@pytest.mark.parametrize("failures", [1, MAX_SHORTAGES - 1, MAX_SHORTAGES])
async def test_shell_outlives_a_shortage_of_memory_for_its_messages(
    monkeypatch: pytest.MonkeyPatch, pauses: list[float], tmp_path: Path, failures: int
) -> None:
    next_message = vars(Channel)["_next_message"]
    left = 0

    def fail(channel: Channel) -> Any:
        # The message has been read, so the channel is not readable any more.
        nonlocal left
        if left:
            left -= 1
            raise MemoryError
        return next_message(channel)

    monkeypatch.setattr(Channel, "_next_message", fail)
    gate = Gate(tmp_path / "gate")
    async with Manager() as manager:
        shell = await start_shell(manager, f"{gate.wait}; exit 3", "/")
        left = failures
        gate.open()
        await end_of(shell)
    if failures < MAX_SHORTAGES:
        assert (shell.status, shell.exit_code) == (ShellStatus.FAILED, 3)
    else:
        assert (shell.status, shell.reason) == (ShellStatus.KILLED, "lost")
    assert pauses == [SHORTAGE_PAUSE_S] * min(failures, MAX_SHORTAGES - 1)


async def test_shell_outlives_a_shortage_of_memory_for_its_events(
    monkeypatch: pytest.MonkeyPatch, pauses: list[float], tmp_path: Path
) -> None:
    monkeypatch.setattr(select, "epoll", _ShortEpoll)
    gate = Gate(tmp_path / "gate")
    async with Manager() as manager:
        shell = await start_shell(manager, f"{gate.wait}; echo out; exit 3", "/")
        monkeypatch.setattr(_ShortEpoll, "left", MAX_SHORTAGES - 1)
        gate.open()
        await end_of(shell)
        assert (shell.status, shell.exit_code) == (ShellStatus.FAILED, 3)
        assert shell.stdout.store.read(0, 100).data == b"out\n"
    assert pauses


async def test_failed_audit_record_does_not_fail_the_command() -> None:
    def on_end(_shell: Shell) -> None:
        raise ValueError("unforeseen")

    async with Manager(on_end=on_end) as manager:
        shell = await start_shell(manager, "exit 3", "/")
        await end_of(shell)
        assert (shell.status, shell.exit_code) == (ShellStatus.FAILED, 3)


@pytest.mark.parametrize("method", ["take", "command_ended", "command_started"])
async def test_a_command_does_not_depend_on_spares(
    monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    monkeypatch.setattr(Spares, method, fails_once(getattr(Spares, method)))
    async with Manager() as manager:
        for _ in range(3):
            shell = await manager.start(StartRequest("exit 3", in_foreground=True))
            await end_of(shell)
            assert (shell.status, shell.exit_code) == (ShellStatus.FAILED, 3)


def _refuse_thread(*_: object) -> int:
    raise RuntimeError(faults.NO_THREAD)


def _lose_thread(*_: object) -> int:
    return 0


def _fail_in_thread(_function: object, args: tuple[Thread[Any]]) -> int:
    """Start a thread that ends without having recorded an outcome."""
    vars(args[0])["_function"] = no_memory
    args[0].run()
    return 0


def no_memory(*_: object) -> Any:
    raise MemoryError


@pytest.mark.parametrize(
    ("start", "kind"),
    [
        (_refuse_thread, ErrorKind.RESOURCE_EXHAUSTED),
        (_lose_thread, ErrorKind.RESOURCE_EXHAUSTED),
        (_fail_in_thread, ErrorKind.RESOURCE_EXHAUSTED),
        (_thread.start_new_thread, ErrorKind.INTERNAL_ERROR),
    ],
)
async def test_failed_loading_of_tools_is_tried_again(
    monkeypatch: pytest.MonkeyPatch, start: Callable[..., int], kind: ErrorKind
) -> None:
    both_have_asked = threading.Event()
    load = fails_once(vars(Toolbox)["_load"])

    def load_later(*args: object) -> object:
        assert both_have_asked.wait(20)
        return load(*args)

    monkeypatch.setattr(Toolbox, "_load", load_later)
    async with Manager() as manager:
        toolbox = Toolbox(Daemon(Options(), manager))
        with monkeypatch.context() as patch:
            patch.setattr(_thread, "start_new_thread", start)
            if start is _lose_thread:
                patch.setattr("shelld.eventloop.threads.CHECK_INTERVAL_S", 0.001)
            errors: list[ErrorKind] = []
            asked = 0

            async def ask() -> None:
                nonlocal asked
                asked += 1
                if asked == 2:
                    # The second call of `ready` finds the attempt that the first call has begun,
                    # and waits for it. Only then may the attempt continue.
                    asyncio.get_running_loop().call_soon(both_have_asked.set)
                try:
                    await toolbox.ready()
                except RpcError as error:
                    errors.append(error.kind)
                except (RuntimeError, MemoryError) as error:
                    failure = faults.shortage(error)
                    assert failure is not None
                    errors.append(failure.kind)

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(ask)
                tasks.start_soon(ask)
            assert errors == [kind, kind]
        with anyio.fail_after(60):
            while True:
                try:
                    registry = await toolbox.ready()
                    break
                except RpcError:
                    continue
        assert registry.count() == 3


async def test_a_background_task_that_fails_is_started_again() -> None:
    runs = 0

    async def task() -> None:
        nonlocal runs
        runs += 1
        if runs < 3:
            raise ValueError("unforeseen")

    before = faults.count()
    with anyio.fail_after(60):
        await faults.keep_running(task, "a task")
    assert (runs, faults.count() - before) == (3, 2)


async def test_exception_in_condition_reaches_its_waiter() -> None:
    def fails() -> bool:
        if shell.pid is not None:
            raise ValueError("unforeseen")
        return False

    async with Manager() as manager:
        shell = await manager.start(StartRequest("exit 3"))
        with anyio.fail_after(60), pytest.raises(ValueError, match="unforeseen"):
            await shell.wait_until(fails)
        await end_of(shell)
        assert (shell.status, shell.exit_code) == (ShellStatus.FAILED, 3)


@pytest.mark.parametrize(
    ("error", "kind", "reported"),
    [
        (OSError(errno.EMFILE, "secret"), "resource_exhausted", 0),
        (ValueError("secret"), "internal_error", 1),
    ],
)
async def test_an_unexpected_exception_in_a_tool_is_counted(
    monkeypatch: pytest.MonkeyPatch, error: Exception, kind: str, reported: int
) -> None:
    def fail(*_args: object) -> None:
        raise error

    monkeypatch.setattr("shelld.tools.bash.run_for_answer", fail)
    before = faults.count()
    async with Manager() as manager:
        tool = BashTool(Daemon(Options(), manager))
        result = await tool.execute(ExecutionContext("/"), command="true")
    assert not result.success
    assert "secret" not in (result.error or "")
    assert result.metadata["kind"] == kind
    assert faults.count() == before + reported
