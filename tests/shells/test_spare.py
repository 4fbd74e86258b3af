"""Which sessions have a spare shell, and which commands cannot use one."""

from __future__ import annotations

import math
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from shelld.sessions.prelude import last_lines, waiting_prelude
from shelld.sessions.session import LeftState, Session
from shelld.sessions.state import ShellState
from shelld.shells import manager as manager_module
from shelld.shells import spare as spare_module
from shelld.shells import spares as spares_module
from shelld.shells.launch import StartRequest
from shelld.shells.manager import Manager
from shelld.shells.options import ManagerOptions
from shelld.shells.shell import Shell
from shelld.shells.spare import Spare, SpareLaunch, arguments_address, has_signals
from shelld_protocol.errors import RpcError
from shelld_protocol.structs import Unkept
from support import running_below


async def run(manager: Manager, command: str, session: str | None = "main") -> Shell:
    """Run a command in the foreground and wait until all its processes are gone."""
    shell = await manager.start(StartRequest(command, session=session, in_foreground=True))
    with anyio.fail_after(60):
        await shell.wait_until(lambda: shell.is_empty)
    return shell


def pids_of_waiting() -> set[int]:
    return set(running_below(os.getpid(), f"# shelld {os.getpid()}."))


def waiting() -> int:
    return len(pids_of_waiting())


async def wait_for_waiting(count: int) -> None:
    with anyio.fail_after(60):
        while waiting() != count:
            await anyio.sleep(0.005)


def report_no_start(_launch: SpareLaunch, _pid: int) -> None:
    """This function replaces `SpareLaunch.bash_runs`, and reports no start."""


def stat(arguments: int, end: int) -> bytes:
    """Return a proc(5) stat line of a program whose name is as confusing as possible."""
    fields = [*["0"] * 44, str(arguments), "0", "0", str(end), "0"]
    return f"4711 (bash) S 1) S {' '.join(fields)}\n".encode()


def test_argument_address_is_unknown_during_execve() -> None:
    assert arguments_address(stat(140_000, 144_000)) == 140_000
    assert arguments_address(stat(140_000, 0)) is None
    assert arguments_address(stat(0, 0)) is None
    own = Path("/proc/self/stat").read_bytes()
    address = arguments_address(own)
    assert address is not None
    with open("/proc/self/mem", "rb") as memory:
        memory.seek(address)
        expected = Path("/proc/self/cmdline").read_bytes()
        assert memory.read(len(expected)) == expected


async def test_oldest_spare_shell_ends_when_room_is_needed() -> None:
    async with Manager(ManagerOptions(spare_shells=2)) as manager:
        for session in ("a", "b", "c"):
            # Spare shells of sessions in different states are not interchangeable.
            await run(manager, f"{session}() {{ :; }}", session)
        await wait_for_waiting(2)
        await run(manager, "true", "c")
        assert manager.spares_used == 0
        manager.runtime.spares.policy.min_age_s = 0
        before = pids_of_waiting()
        await run(manager, "true", "c")
        with anyio.fail_after(60):
            while len(pids_of_waiting()) != 2 or pids_of_waiting() == before:
                await anyio.sleep(0.005)
        await run(manager, "true", "c")
        await run(manager, "true", "b")
        assert manager.spares_used == 2
        await run(manager, "true", "a")
        assert manager.spares_used == 2


async def test_spare_shells_of_unused_sessions_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manager_module, "_SWEEP_S", 0.02)
    async with Manager() as manager:
        await run(manager, "true")
        await wait_for_waiting(1)
        manager.runtime.spares.policy.idle_s = 0
        await wait_for_waiting(0)
        # After one more command, there is a spare shell again.
        manager.runtime.spares.policy.idle_s = 300
        await run(manager, "true")
        await wait_for_waiting(1)


async def test_rapid_commands_get_two_spare_shells() -> None:
    async with Manager() as manager:
        policy = manager.runtime.spares.policy
        policy.starts_between = math.inf
        # The policy needs the duration of a start. On a busy machine, it can happen that no spare
        # shell becomes ready in time and reports its start.
        policy.note_start(1)
        for _ in range(2):
            await run(manager, "true")
        await wait_for_waiting(2)


async def test_unwritable_memory_ends_spare_shells(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(_launch: SpareLaunch, _pid: int) -> None:
        raise PermissionError

    monkeypatch.setattr(SpareLaunch, "bash_runs", refuse)
    async with Manager() as manager:
        for _ in range(5):
            shell = await run(manager, "exit 3")
            assert shell.exit_code == 3
            await wait_for_waiting(0)
        assert manager.spares_used == 0


async def test_spare_shell_without_command_runs_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def fail(_launch: SpareLaunch, _session: Session, _request: StartRequest) -> None:
        raise OSError

    monkeypatch.setattr(SpareLaunch, "run", fail)
    async with Manager() as manager:
        await run(manager, "true")
        for count in range(1, 6):
            await run(manager, f"echo ran >> {tmp_path}/log")
            assert len((tmp_path / "log").read_text().splitlines()) == count
        # The daemon starts no more spare shells.
        await wait_for_waiting(0)
        assert manager.spares_used == 0
        assert len(manager.list_shells()) == 6


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGXCPU])
def test_pending_signals_of_process_are_detected(number: int) -> None:
    def were_seen() -> bool:
        with (
            subprocess.Popen(("sleep", "60")) as process,
            open(f"/proc/{process.pid}/status", "rb", buffering=0) as file,
        ):
            assert not has_signals(file.read())
            process.send_signal(number)
            file.seek(0)
            return has_signals(file.read())

    # The signal may have ended the process before the test checks the process.
    assert any(were_seen() for _ in range(500))


@pytest.mark.parametrize(
    ("own", "shared", "expected"),
    [
        (0, 0, False),
        (1 << signal.SIGKILL - 1, 0, True),
        (0, 1 << signal.SIGSEGV - 1, True),
        (0, 1 << signal.SIGRTMAX - 1, True),
        (0, 1 << signal.SIGCHLD - 1, False),
        (1 << signal.SIGCONT - 1, 1 << signal.SIGWINCH - 1, False),
    ],
)
def test_only_signals_that_end_processes_are_detected(
    own: int, shared: int, expected: bool
) -> None:
    status = f"Name:\tbash\nSigPnd:\t{own:016x}\nShdPnd:\t{shared:016x}\nSigBlk:\t{1:016x}\n"
    assert has_signals(status.encode()) is expected


async def test_dying_spare_shell_is_not_used(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async with Manager() as manager:
        await run(manager, "x=1")
        await wait_for_waiting(1)
        (pid,) = pids_of_waiting()

        def kill(_stat: bytes) -> bool:
            os.kill(pid, signal.SIGKILL)
            return True

        monkeypatch.setattr(spare_module, "has_signals", kill)
        shell = await run(manager, f"echo $x >> {tmp_path}/log")
        assert (shell.exit_code, (tmp_path / "log").read_text()) == (0, "1\n")
        assert manager.spares_used == 0


async def test_replaced_directory_does_not_disable_spare_shells(tmp_path: Path) -> None:
    directory = tmp_path / "here"
    directory.mkdir()
    async with Manager() as manager:
        policy = manager.runtime.spares.policy
        policy.starts_between = 0
        # Because of the function, spare shells of other sessions cannot serve this session.
        await run(manager, f"f() {{ :; }}; cd {directory}")
        await wait_for_waiting(1)
        for _ in range(2 * policy.max_failures):
            directory.rmdir()
            directory.mkdir()
            left_behind = pids_of_waiting()
            shell = await run(manager, "touch made")
            assert (shell.exit_code, [path.name for path in directory.iterdir()]) == (0, ["made"])
            (directory / "made").unlink()
            with anyio.fail_after(60):
                while len(waiting_now := pids_of_waiting()) != 1 or waiting_now == left_behind:
                    await anyio.sleep(0.005)
        assert manager.spares_used == 0
        with anyio.fail_after(60):
            # No command uses a spare shell before it is ready.
            while not manager.spares_used:
                await run(manager, "true")


async def test_failed_start_of_spare_shell_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_arguments: object) -> None:
        raise OSError

    async with Manager() as manager:
        monkeypatch.setattr(SpareLaunch, "_prepare", fail)
        for _ in range(3):
            assert (await run(manager, "true")).exit_code == 0
        assert waiting() == 0


async def test_hanging_start_of_spare_shell_is_not_awaited(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(SpareLaunch, "bash_runs", report_no_start)
    async with Manager() as manager:
        await run(manager, "true")
        await wait_for_waiting(1)
        before = pids_of_waiting()
        with anyio.fail_after(60):
            assert (await run(manager, "exit 3")).exit_code == 3
            # Another spare shell replaces the one that did not start.
            while len(pids_of_waiting()) != 1 or pids_of_waiting() == before:
                await anyio.sleep(0.005)
        assert manager.spares_used == 0


async def test_slow_spare_shell_delays_one_command_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SpareLaunch, "bash_runs", report_no_start)
    monkeypatch.setattr(spares_module, "MAX_START_WAIT_S", 1_000)
    async with Manager() as manager:
        await run(manager, "true")
        await wait_for_waiting(1)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run, manager, "true", "a")
            await anyio.wait_all_tasks_blocked()
            assert (await run(manager, "exit 3", "b")).exit_code == 3
            tasks.cancel_scope.cancel()
        # No other command takes the spare shell of the cancelled command.
        assert manager.spares_used == 0


async def test_command_runs_only_in_its_directory(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    directory, others = tmp_path / "here", tmp_path / "made"
    directory.mkdir()
    is_in_place = SpareLaunch.is_in_place

    def remove(launch: SpareLaunch, session: Session, request: StartRequest) -> bool:
        result = is_in_place(launch, session, request)
        directory.rmdir()
        return result

    async with Manager() as manager:
        # A session that was not used before uses a shared spare shell, which waits in another
        # directory.
        await run(manager, f"cd {directory}", "b")
        await wait_for_waiting(1)
        monkeypatch.setattr(SpareLaunch, "is_in_place", remove)
        shell = await run(manager, f"touch {others}", "b")
        assert not directory.exists()
        assert (shell.exit_code, others.exists()) == (1, False)


async def test_closed_session_gets_no_spare_shell(monkeypatch: pytest.MonkeyPatch) -> None:
    callbacks: list[Callable[[], None]] = []

    def is_settling(_session: Session, callback: Callable[[], None]) -> bool:
        callbacks.append(callback)
        return True

    async with Manager() as manager:
        monkeypatch.setattr(Session, "when_settled", is_settling)
        await run(manager, "f() { :; }", "a")
        await run(manager, "f() { :; }", "b")
        await manager.close_session("a")
        closed, other = callbacks
        closed()
        assert manager.runtime.spares.count == 0
        other()
        assert manager.runtime.spares.count == 1


async def test_no_spare_shell_starts_while_many_commands_run() -> None:
    async with Manager() as manager:
        most = manager.runtime.spares.policy.max_running
        busy = [
            await manager.start(StartRequest("sleep 300", session=None, in_foreground=True))
            for _ in range(most)
        ]
        await run(manager, "true")
        assert manager.runtime.spares.count == 0
        assert busy[0].release()
        await busy[0].wait_until(lambda: busy[0].released)
        await run(manager, "true")
        assert manager.runtime.spares.count == 1


async def test_only_first_dump_of_session_lists_options(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    listed: list[bool] = []
    keep = Session.keep

    def note(session: Session, left: LeftState) -> LeftState | Unkept | None:
        listed.append(b"set +o allexport\n" in left.dump)
        return keep(session, left)

    monkeypatch.setattr(Session, "keep", note)
    async with Manager() as manager:
        for session in ("a", "a", "a", "b"):
            assert (await run(manager, "x=1; set -u", session)).exit_code == 0
    assert listed == [True, False, False, True]


async def test_command_begins_when_its_spare_shell_gets_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun: list[Shell] = []
    begin = Shell.begin

    def note(shell: Shell) -> None:
        begun.append(shell)
        begin(shell)

    async with Manager() as manager:
        await run(manager, "true")
        await wait_for_waiting(1)
        monkeypatch.setattr(Shell, "begin", note)
        shell = await run(manager, "true")
        assert manager.spares_used == 1
        # The command's elapsed time does not include the time for which its spare shell waited.
        assert shell in begun


async def test_used_spare_shell_counts_once_toward_limit() -> None:
    async with Manager(ManagerOptions(max_shells=1)) as manager:
        for _ in range(3):
            await run(manager, "true")
            assert [each.status.value for each in manager.list_shells()][-1] == "completed"
        running = await manager.start(StartRequest("sleep 300"))
        with pytest.raises(RpcError):
            await manager.start(StartRequest("true"))
        assert manager.list_running() == [running]


async def test_spare_shell_ends_with_the_manager() -> None:
    async with Manager() as manager:
        await run(manager, "true")
        await wait_for_waiting(1)
    assert waiting() == 0


async def test_spare_shell_with_full_pipe_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_descriptor: int, _content: bytes) -> None:
        raise BlockingIOError

    async with Manager() as manager:
        await run(manager, "set -e")
        await wait_for_waiting(1)
        before = pids_of_waiting()
        with monkeypatch.context() as patch:
            patch.setattr(spare_module, "write_all", fail)
            shell = await run(manager, "echo before; false; echo after")
        assert (shell.exit_code, shell.stdout.store.read(0, 100).data) == (1, b"before\n")
        assert manager.spares_used == 0
        assert not before & pids_of_waiting()


@pytest.mark.parametrize("share", [0, 0.5, 0.9], ids=["nothing", "half", "most"])
def test_spare_shell_of_dead_daemon_runs_nothing(share: float) -> None:
    state = ShellState(b"/", {})
    lines = last_lines(state, b"echo wrong", 3, {})
    told = lines[: int(lines.index(b"wrong") * share)]
    read, write = os.pipe()
    prelude = os.memfd_create("prelude")
    os.write(prelude, waiting_prelude(state, 3, {}, b"bash"))
    os.write(write, told)
    os.close(write)
    os.lseek(prelude, 0, os.SEEK_SET)
    start = f'exec 3<&{prelude} 4<&{read}; BASH_ENV=/proc/self/fd/3 exec bash -c "$0"'
    done = subprocess.run(
        ["bash", "-c", start, 'eval "$BASH_EXECUTION_STRING" # placeholder'],
        pass_fds=[prelude, read],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=100,
        check=False,
    )
    os.close(read)
    os.close(prelude)
    assert (done.returncode, done.stdout) == (0, b"")


async def test_spare_shell_without_runner_is_not_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    suits = Spare.suits

    def lose_runner(spare: Spare, session: Session, request: StartRequest) -> bool:
        spare.life.runner_is_lost = True
        return suits(spare, session, request)

    async with Manager() as manager:
        await run(manager, "true")
        await wait_for_waiting(1)
        with monkeypatch.context() as patch:
            patch.setattr(Spare, "suits", lose_runner)
            shell = await run(manager, "echo own")
        assert shell.stdout.store.read(0, 100).data == b"own\n"
        assert manager.spares_used == 0
