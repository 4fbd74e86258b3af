"""`ShellProcess` represents a command in a program that embeds the manager."""

from __future__ import annotations

import os
import sys
import time
from itertools import product
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from shelld.embed import ShellManager, ShellProcess, ShellStatus
from shelld.embed.process import BashProcess
from shelld.shells.manager import Manager
from shelld.shells.options import ManagerOptions
from shelld.shells.shell import Shell
from shelld_protocol.errors import ErrorKind, RpcError
from support import Gate, is_alive, wait_for


def made_by_hand() -> ShellProcess:
    return ShellProcess(id="shell_abc", command="echo hi", working_dir="/tmp")


def test_new_output_is_returned_once() -> None:
    shell = made_by_hand()
    shell.stdout_buffer = "line1\nline2\nline3\n"
    shell.last_read_stdout = 6
    assert shell.get_new_output() == "line2\nline3\n"
    assert shell.last_read_stdout == 18
    assert shell.get_new_output() == ""


def test_new_output_marks_stderr() -> None:
    shell = made_by_hand()
    shell.stdout_buffer, shell.stderr_buffer = "out", "err\n"
    assert shell.get_new_output(include_stderr=False) == "out"
    assert shell.get_new_output(include_stderr=True) == "[stderr]\nerr\n"
    assert (shell.last_read_stdout, shell.last_read_stderr) == (3, 4)
    shell.last_read_stdout = shell.last_read_stderr = 0
    assert shell.get_new_output() == "out\n[stderr]\nerr\n"


def test_negative_offset_is_refused() -> None:
    shell = made_by_hand()
    shell.stdout_buffer = "out\n"
    for name in ("last_read_stdout", "last_read_stderr"):
        with pytest.raises(ValueError, match="must not be negative"):
            setattr(shell, name, -1)
    assert shell.get_new_output() == "out\n"


def test_all_output_can_be_read_repeatedly() -> None:
    shell = made_by_hand()
    shell.stdout_buffer, shell.stderr_buffer = "\x1b[31mred\x1b[0m\n", "err\n"
    assert shell.get_all_output() == shell.get_all_output() == "red\n[stderr]\nerr\n"
    assert shell.get_all_output(include_stderr=False) == "red\n"
    assert shell.stdout_buffer == "\x1b[31mred\x1b[0m\n"
    assert (shell.stderr_buffer, shell.last_read_stdout) == ("err\n", 0)


def test_unfinished_character_is_left_for_next_read() -> None:
    shell = made_by_hand()
    record = shell.record
    record.output.append(record.stdout, b"a\xc3")
    assert shell.get_new_output() == "a"
    record.output.append(record.stdout, b"\xa4b")
    assert shell.get_new_output() == "äb"


def test_unfinished_character_of_a_leftover_process_is_left_for_next_read() -> None:
    shell = made_by_hand()
    record = shell.record
    record.status, record.is_empty, record.leftover = ShellStatus.COMPLETED, False, [1]
    record.output.append(record.stdout, b"a\xc3")
    assert (shell.get_new_output(), shell.get_all_output(), shell.stdout_buffer) == ("a",) * 3
    record.output.append(record.stdout, b"\xa4b\xc3")
    assert shell.get_new_output() == "äb"
    record.leftover = []
    assert shell.get_new_output() == "\N{REPLACEMENT CHARACTER}"


def test_long_output_is_read_whole() -> None:
    shell = made_by_hand()
    text = "".join(f"line {number}\n" for number in range(100_000))
    shell.stdout_buffer = text
    assert shell.stdout_buffer == text
    assert shell.get_new_output() == text


def test_the_duration_is_from_start_to_end() -> None:
    assert made_by_hand().duration_ms is None
    shell = made_by_hand()
    shell.started_at, shell.completed_at = 0, 5
    assert shell.duration_ms == 5000
    # While the command runs, the duration is the time since its start.
    shell.started_at, shell.completed_at = time.time() - 60, None
    duration_ms = shell.duration_ms
    assert duration_ms is not None
    assert 60_000 <= duration_ms <= (time.time() - shell.started_at) * 1000


DRAWN = {
    (ShellStatus.PENDING, ShellStatus.RUNNING),
    (ShellStatus.RUNNING, ShellStatus.COMPLETED),
    (ShellStatus.RUNNING, ShellStatus.FAILED),
    (ShellStatus.RUNNING, ShellStatus.TIMEOUT),
    (ShellStatus.RUNNING, ShellStatus.KILLED),
}


@pytest.mark.parametrize(
    ("before", "after"),
    list(product(ShellStatus, ShellStatus)),
    ids=lambda status: status.value,
)
def test_status_changes_follow_the_diagram(before: ShellStatus, after: ShellStatus) -> None:
    shell = made_by_hand()
    if before is not ShellStatus.PENDING:
        shell.status = ShellStatus.RUNNING
    if shell.status is not before:
        shell.status = before
    if (before, after) in DRAWN:
        shell.status = after
    else:
        with pytest.raises(ValueError, match=f"{before.value} shell cannot become {after.value}"):
            shell.status = after
    assert shell.status is (after if (before, after) in DRAWN else before)
    assert shell.is_running is (shell.status is ShellStatus.RUNNING)
    assert shell.has_ended is (shell.status not in (ShellStatus.PENDING, ShellStatus.RUNNING))


async def test_handmade_process_cannot_be_killed_or_awaited() -> None:
    shell = made_by_hand()
    await shell.kill()
    await shell.terminate()
    assert (shell.status, shell.process, shell.exit_code) == (ShellStatus.PENDING, None, None)
    assert await shell.read_output() is False
    with pytest.raises(RuntimeError, match="no process"):
        await shell.wait(1)


async def test_created_shell_shows_as_running(manager: ShellManager) -> None:
    for _ in range(20):
        shell = await manager.create_shell("echo test", "/tmp")
        assert shell.status.value == "running"
        assert manager.get_shell(shell.id) is shell
        running, code = shell.process, await shell.wait(10)
        assert (running, code) == (BashProcess(shell.pid or 0, None), 0)
        assert (shell.status.value, shell.exit_code) == ("completed", 0)
        assert shell.process == BashProcess(shell.pid or 0, 0)
        assert shell.get_new_output() == "test\n"
    assert len({shell.id for shell in manager.list_shells()}) == 20


@pytest.mark.parametrize(
    ("command", "returncode", "status"),
    [
        ("exit 3", 3, ShellStatus.FAILED),
        ("kill -9 $$", -9, ShellStatus.FAILED),
        ("kill -34 $$", -34, ShellStatus.FAILED),
    ],
)
async def test_wait_returns_code_like_subprocess(
    manager: ShellManager, command: str, returncode: int, status: ShellStatus
) -> None:
    shell = await manager.create_shell(command, "/")
    assert await shell.wait() == returncode
    assert (shell.status, shell.duration_ms is not None) == (status, True)
    assert await shell.wait() == returncode


async def test_ended_shell_keeps_only_start_of_command(manager: ShellManager) -> None:
    command = "true " + "x" * 1_000_000
    references = sys.getrefcount(command)
    shell = await manager.create_shell(command, "/")
    await shell.wait(10)
    with anyio.fail_after(60):
        while sys.getrefcount(command) > references:
            await anyio.sleep(0.01)
    assert shell.command == command[:4096] + "... (truncated)"


async def test_wait_timeout_kills_the_shell(manager: ShellManager) -> None:
    shell = await manager.create_shell("sleep 300 & sleep 300", "/")
    with pytest.raises(TimeoutError):
        await shell.wait(0.05)
    assert (shell.status, shell.is_running, shell.is_empty) == (ShellStatus.TIMEOUT, False, True)


async def test_cancelled_wait_leaves_the_shell_running(manager: ShellManager) -> None:
    shell = await manager.create_shell("sleep 300", "/")
    with anyio.move_on_after(0.05):
        await shell.wait()
    assert shell.is_running


@pytest.mark.parametrize("way", ["kill", "terminate"])
async def test_killing_takes_the_whole_tree(manager: ShellManager, way: str) -> None:
    shell = await manager.create_shell("trap '' TERM; setsid sleep 300 & echo $!; wait", "/")
    shell.grace_ms = 50
    with anyio.fail_after(60):
        while not await shell.read_output():
            await anyio.sleep(0.005)
    await getattr(shell, way)()
    assert (shell.status, shell.signal) == (ShellStatus.KILLED, "SIGKILL")
    assert not is_alive(int(shell.get_new_output()))


@pytest.mark.parametrize("way", ["kill", "terminate"])
async def test_killing_an_ended_shell_shows_its_end(manager: ShellManager, way: str) -> None:
    shell = await manager.create_shell("true", "/")
    await shell.wait_until(lambda: shell.record.is_empty)
    # This simulates a caller that has not yielded to the event loop since the start.
    shell.hide_end()
    await getattr(shell, way)()
    assert (shell.is_running, shell.status) == (False, ShellStatus.COMPLETED)


async def test_status_of_real_process_is_read_only(
    manager: ShellManager,
) -> None:
    shell = await manager.create_shell("sleep 300", "/")
    with pytest.raises(ValueError, match="process"):
        shell.status = ShellStatus.COMPLETED
    await shell.kill()
    assert shell.status is ShellStatus.KILLED


async def test_output_arrives_while_command_runs(manager: ShellManager, tmp_path: Path) -> None:
    gate = Gate(tmp_path / "gate")
    shell = await manager.create_shell(f"echo one; {gate.wait}; echo two", "/")
    with anyio.fail_after(60):
        while not await shell.read_output():
            await anyio.sleep(0.005)
    assert shell.get_new_output() == "one\n"
    await anyio.to_thread.run_sync(gate.open)
    await shell.wait(10)
    assert (shell.get_new_output(), shell.get_all_output()) == ("two\n", "one\ntwo\n")


async def test_env_is_added_to_environment(manager: ShellManager) -> None:
    os.environ["SHELLD_TEST_GONE"] = "x"
    try:
        shell = await manager.create_shell(
            'echo "$A ${SHELLD_TEST_GONE-gone} ${PATH:+path}"; pwd',
            "/usr",
            {"A": "b", "SHELLD_TEST_GONE": None},
        )
    finally:
        del os.environ["SHELLD_TEST_GONE"]
    await shell.wait(10)
    assert shell.get_new_output() == "b gone path\n/usr\n"


async def test_list_running_omits_ended_shells(manager: ShellManager) -> None:
    running = [await manager.create_shell("sleep 300", "/") for _ in range(2)]
    ended = await manager.create_shell("true", "/")
    await ended.wait(60)
    assert manager.list_shells() == [*running, ended]
    assert manager.list_running() == running
    assert all(shell.is_running for shell in running)
    assert manager.get_shell("shell_nonexistent") is None


async def test_old_shells_are_cleaned_up_and_others_kept(manager: ShellManager) -> None:
    running = await manager.create_shell("sleep 300", "/")
    old, recent = [await manager.create_shell("true", "/") for _ in range(2)]
    for shell in (old, recent):
        await shell.wait(10)
        wait_for(lambda shell=shell: shell.is_empty)  # type: ignore[misc]
    old.completed_at = time.time() - 3_601
    # The manager hides an expired shell even before the clean-up removes it.
    assert manager.list_shells() == [running, recent]
    assert manager.get_shell(old.id) is None
    assert manager.cleanup_completed(max_age_seconds=3_600) == 1
    assert manager.cleanup_completed() == 0
    assert manager.list_shells() == [running, recent]
    assert manager.cleanup_completed(0) == 1
    assert manager.list_shells() == [running]


async def test_ended_shells_outlive_a_changed_clock(
    manager: ShellManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = await manager.create_shell("true", "/")
    await ended.wait(60)
    wait_for(lambda: ended.is_empty)
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 100_000)
    assert manager.list_shells() == [ended]
    assert manager.get_shell(ended.id) is ended
    assert manager.cleanup_completed(3_600) == 0
    monkeypatch.setattr(time, "time", lambda: now - 100_000)
    assert manager.cleanup_completed(0) == 1


async def test_old_shells_are_cleaned_up_automatically(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shelld.shells.manager._SWEEP_S", 0.02)
    forgotten: list[str] = []
    forget = Manager._forget  # pyright: ignore[reportPrivateUsage]

    def note_and_forget(manager: Manager, shell: Shell) -> None:
        forgotten.append(shell.id)
        forget(manager, shell)

    monkeypatch.setattr(Manager, "_forget", note_and_forget)
    shell = await ShellManager(ManagerOptions(retain_seconds=0)).create_shell("true", "/")
    await shell.wait(10)
    wait_for(lambda: forgotten == [shell.id])
    await ShellManager.reset()


async def test_kill_all_counts_the_shells(manager: ShellManager) -> None:
    assert await manager.kill_all() == 0
    shells = [await manager.create_shell("sleep 300", "/") for _ in range(3)]
    assert await manager.kill_all() == 3
    assert {shell.status for shell in shells} == {ShellStatus.KILLED}


@pytest.mark.parametrize(
    ("command", "cwd", "env", "parameter", "reason"),
    [
        ("echo \ud800", "/", None, "command", "must not contain lone surrogates"),
        ("true", "/\ud800", None, "cwd", "must not contain lone surrogates"),
        ("true", "/", {"\ud800": "x"}, "env", "must not contain lone surrogates"),
        ("true", "/", {"A": "\ud800"}, "env", "must not contain lone surrogates"),
        ("echo \0", "/", None, "command", "must not contain NUL"),
    ],
)
async def test_impossible_text_is_invalid_params(
    command: str, cwd: str, env: dict[str, str | None] | None, parameter: str, reason: str
) -> None:
    async with ShellManager() as manager:
        with pytest.raises(RpcError) as refused:
            await manager.create_shell(command, cwd, env)
        assert refused.value.kind is ErrorKind.INVALID_PARAMS
        assert refused.value.message == f"Invalid value for {parameter}: {reason}"
        assert manager.list_shells() == []
