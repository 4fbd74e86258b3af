"""`AsyncClient` with the real daemon and with fake peers."""

from __future__ import annotations

import enum
import logging
import os
import signal
import sys
import tracemalloc
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Literal, cast

import anyio
import pytest

from both_clients import GREETING
from shelld_client import (
    AsyncClient,
    BackgroundResult,
    CommandTimedOut,
    DaemonExited,
    InvalidParams,
    ResourceExhausted,
    ShellError,
    ShellNotFound,
    SpawnFailed,
)
from shelld_client.child import Child
from shelld_client.transport import Transport
from support import Mark, descendants, is_alive


@pytest.fixture(scope="module", params=["asyncio", pytest.param("trio", marks=pytest.mark.slow)])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
async def shared_client(anyio_backend: str) -> AsyncIterator[AsyncClient]:
    """One client on each event loop, for all tests that neither end nor change it."""
    async with AsyncClient.spawn() as client:
        yield client
        family = descendants(client.pid)
    await wait_until_gone(family)


@pytest.fixture
async def shell(shared_client: AsyncClient) -> AsyncIterator[AsyncClient]:
    """The shared client. The test's shells and sessions end with the test."""
    yield shared_client
    for shell in await shared_client.list_shells():
        if shell.is_running or shell.leftover:
            await shared_client.kill_shell(shell.bash_id, grace=0)
    for session in await shared_client.list_sessions():
        await shared_client.close_session(session.session)


async def wait_until_gone(pids: list[int]) -> None:
    with anyio.fail_after(60):
        while any(map(is_alive, pids)):
            await anyio.sleep(0.005)


async def test_results_are_typed_and_snake_case(shell: AsyncClient) -> None:
    result = await shell.bash("echo out; echo err >&2; exit 3", description="both")
    assert (result.stdout, result.stderr, result.exit_code) == ("out\n", "err\n", 3)
    assert (result.signal, result.status, result.truncated) == (None, "failed", False)
    assert result.duration_ms >= 0
    assert result.usage.max_rss_bytes > 0
    assert (result.description, result.leftover) == ("both", [])


async def test_a_background_job_is_followed_and_killed(shell: AsyncClient) -> None:
    job = await shell.bash("echo started; sleep 300", run_in_background=True)
    read = await shell.bash_output(job.bash_id, wait=60_000)
    assert (read.stdout, read.is_running, read.stdout_range.end) == ("started\n", True, 8)
    (info,) = [info for info in await shell.list_shells() if info.is_running]
    assert (info.bash_id, info.pid) == (job.bash_id, job.pid)
    killed = await shell.kill_shell(job.bash_id, signal="INT", grace=100)
    assert (killed.status, killed.already_stopped, killed.survivors) == ("killed", False, [])


async def test_session_keeps_state_and_can_be_inspected(shell: AsyncClient) -> None:
    await shell.bash("cd /usr; export A=1", session="mine")
    assert (await shell.bash("echo $A; pwd", session="mine")).stdout == "1\n/usr\n"
    looked_at = await shell.get_session("mine")
    assert (looked_at.cwd, looked_at.env, looked_at.shells) == ("/usr", {"A": "1"}, [])
    assert (await shell.get_session()).session == "main"
    assert {info.session for info in await shell.list_sessions()} == {"main", "mine"}


async def test_closing_a_session_kills_its_shells(shell: AsyncClient) -> None:
    job = await shell.bash("sleep 300", session="mine", run_in_background=True)
    other = await shell.bash("sleep 300", session="other", run_in_background=True)
    assert (await shell.close_session("mine")).killed == 1
    states = {info.bash_id: info.status for info in await shell.list_shells()}
    assert (states[job.bash_id], states[other.bash_id]) == ("killed", "running")
    with pytest.raises(ShellError, match="Session not found: mine"):
        await shell.close_session("mine")


class Way(enum.Enum):
    BACKGROUND = "background"


async def test_every_option_of_bash_reaches_the_daemon(shell: AsyncClient, tmp_path: Path) -> None:
    result = await shell.bash(
        r"cat; printf '\e[1m%s' $A; pwd",
        timeout=5_000,
        cwd=str(tmp_path),
        env={"A": "b", "HOME": None},
        session="other",
        stdin="in ",
        strip_ansi=False,
    )
    assert result.stdout == f"in \x1b[1mb{tmp_path}\n"
    dry = await shell.bash("touch x", dry_run=True)
    assert dry.dry_run
    way = cast("Literal['background']", Way.BACKGROUND)
    moved = await shell.bash("sleep 300", timeout=1000, on_timeout=way)
    assert isinstance(moved, BackgroundResult)
    quick = await shell.bash("echo x", timeout=60_000, on_timeout="background")
    assert not isinstance(quick, BackgroundResult)
    without = await shell.bash("true", session=None)
    shells = {info.bash_id: info.session for info in await shell.list_shells()}
    assert shells[without.bash_id] is None
    assert shells[result.bash_id] == "other"


async def test_each_error_code_has_an_exception(shell: AsyncClient, tmp_path: Path) -> None:
    mark, timed_out = Mark(tmp_path), list[CommandTimedOut]()
    for _ in mark.attempts():
        with pytest.raises(CommandTimedOut, match="Command timed out after 1000ms") as caught:
            await shell.bash(f"echo so far; {mark.touch}; sleep 300", timeout=1000)
        timed_out.append(caught.value)
    assert (timed_out[-1].stdout, timed_out[-1].kind) == ("so far\n", "timeout")
    with pytest.raises(ShellNotFound) as not_found:
        await shell.bash_output("shell_x")
    assert not_found.value.expired is False
    with pytest.raises(InvalidParams) as invalid:
        await shell.bash("true", timeout=1)
    assert invalid.value.parameter == "timeout"
    with pytest.raises(SpawnFailed) as failed:
        await shell.bash("true", cwd="/nonexistent")
    assert failed.value.errno == "ENOENT"
    await shell.ping()


async def test_client_passes_options_to_the_daemon() -> None:
    async with AsyncClient.spawn(args=["--max-shells", "1"]) as shell:
        await shell.bash("sleep 300", run_in_background=True)
        with pytest.raises(ResourceExhausted) as exhausted:
            await shell.bash("true")
        assert exhausted.value.limit == "max_shells"
        assert (await shell.server_info()).limits.max_shells == 1


async def test_daemon_gets_given_environment_and_directory(tmp_path: Path) -> None:
    env = {"PATH": os.environ["PATH"], "GIVEN": "value"}
    async with AsyncClient.spawn(env=env, cwd=str(tmp_path)) as shell:
        assert (await shell.bash("echo $GIVEN; pwd")).stdout == f"value\n{tmp_path}\n"


async def test_daemon_imports_nothing_from_working_directory(tmp_path: Path) -> None:
    for name in ("anyio", "select", "re2", "shelld"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('imported from the project')")
    async with AsyncClient.spawn(cwd=str(tmp_path)) as shell:
        job = await shell.bash("echo from here", run_in_background=True)
        read = await shell.bash_output(job.bash_id, wait=60_000, filter="here")
        assert read.stdout == "from here\n"


async def test_a_daemon_may_be_behind_any_prefix() -> None:
    prefix = ["env", "BEHIND=prefix", "/bin/bash", "-c", 'exec "$@"', "bash"]
    async with AsyncClient.spawn([*prefix, sys.executable, "-m", "shelld"]) as shell:
        assert (await shell.bash("echo $BEHIND")).stdout == "prefix\n"


class CancelAtAnswer(logging.Handler):
    """This object cancels `scope` after a read's answer has arrived, but before the read's caller
    resumes.
    """

    def __init__(self, scope: anyio.CancelScope) -> None:
        super().__init__()
        self._scope = scope

    def emit(self, record: logging.LogRecord) -> None:
        if "stdoutRange" in record.getMessage():
            self._scope.cancel()


async def test_cancelled_read_returns_answer_that_has_arrived(shell: AsyncClient) -> None:
    job = await shell.bash("echo once", run_in_background=True)
    logger = logging.getLogger("shelld_client.wire")
    read = None
    with anyio.CancelScope() as scope:
        handler = CancelAtAnswer(scope)
        logger.addHandler(handler)
        logger.setLevel(logging.DEBUG)
        try:
            read = await shell.bash_output(job.bash_id, wait=60_000)
        finally:
            logger.removeHandler(handler)
            logger.setLevel(logging.NOTSET)
        await anyio.sleep_forever()
    assert scope.cancelled_caught
    assert read is not None
    assert read.stdout == "once\n"


async def test_cancelling_the_task_kills_the_command(shell: AsyncClient) -> None:
    pids: list[int] = []
    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(shell.bash, "setsid sleep 300 & sleep 300; true")
            while len(pids) < 2:
                await anyio.sleep(0.005)
                pids = [pid for pid in descendants(shell.pid) if "sleep" in comm(pid)]
            tasks.cancel_scope.cancel()
    await wait_until_gone(pids)
    assert (await shell.bash("echo still fine")).stdout == "still fine\n"


def comm(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text()
    except FileNotFoundError:
        return ""


async def test_many_tasks_share_a_client(shell: AsyncClient) -> None:
    outputs: dict[int, str] = {}

    async def one(number: int) -> None:
        outputs[number] = (await shell.bash(f"sleep 0.{number % 4}; echo {number}")).stdout

    async with anyio.create_task_group() as tasks:
        for number in range(60):
            tasks.start_soon(one, number)
    assert outputs == {number: f"{number}\n" for number in range(60)}


async def test_long_messages_of_several_tasks_are_not_mixed(shell: AsyncClient) -> None:
    async def one(number: int) -> None:
        text = f"{number}" * 200_000
        assert (await shell.bash("cat", stdin=text)).stdout == text

    async with anyio.create_task_group() as tasks:
        for number in range(1, 6):
            tasks.start_soon(one, number)


async def test_leaving_the_client_ends_daemon_and_commands() -> None:
    async with AsyncClient.spawn() as shell:
        await shell.bash("sleep 300 & disown; setsid sleep 300 &")
        pids = [shell.pid, *descendants(shell.pid)]
    assert not [pid for pid in pids if is_alive(pid)]
    with pytest.raises(DaemonExited):
        await shell.ping()


async def test_exception_in_the_block_arrives_unchanged() -> None:
    with pytest.raises(KeyError):
        async with AsyncClient.spawn() as shell:
            await shell.ping()
            raise KeyError


async def test_killed_daemon_fails_all_calls() -> None:
    async with AsyncClient.spawn() as shell:
        await shell.ping()

        async def one() -> None:
            with pytest.raises(DaemonExited) as exited:
                await shell.bash("sleep 300")
            assert (exited.value.exit_code, exited.value.signal) == (None, "SIGKILL")
            assert str(exited.value) == "the daemon was killed by SIGKILL"

        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(one)
            await shell.bash("true")
            os.kill(shell.pid, signal.SIGKILL)
        with pytest.raises(DaemonExited):
            await shell.ping()


async def test_exception_contains_last_stderr_of_daemon() -> None:
    with pytest.raises(DaemonExited) as exited:
        await AsyncClient.spawn(args=["--no-such-option"]).__aenter__()
    assert (exited.value.exit_code, exited.value.signal) == (2, None)
    assert "unrecognized arguments: --no-such-option" in exited.value.stderr
    assert "unrecognized arguments" in str(exited.value)


async def test_unstartable_program_is_spawn_failed() -> None:
    with pytest.raises(SpawnFailed, match="cannot start /nonexistent/shelld"):
        async with AsyncClient.spawn(["/nonexistent/shelld"]):
            pass


async def test_delivered_answer_is_not_kept(shell: AsyncClient) -> None:
    await shell.ping()
    tracemalloc.start()
    try:
        result = await shell.bash("head -c 900000 /dev/zero | tr '\\0' x")
        assert len(result.stdout) == 900_000
        del result
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 300_000


async def test_peer_ignoring_sigterm_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shelld_client.child.CLOSE_TIMEOUT_S", 0.1)
    monkeypatch.setattr("shelld_client.child.TERMINATE_TIMEOUT_S", 0.1)
    script = f"trap '' TERM; {GREETING}; while :; do sleep 0.05; done"
    async with AsyncClient.spawn(["/bin/bash", "-c", script]) as shell:
        pid = shell.pid
    assert not is_alive(pid)


async def test_client_must_be_entered_before_use() -> None:
    with pytest.raises(DaemonExited):
        await AsyncClient.spawn().ping()


async def test_nested_send_mixes_no_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    child = Child(["/bin/cat"], env=None, cwd=None)
    transport = Transport(child)
    write, within, written = os.write, [b"bbb"], b""

    def write_a_part(descriptor: int, data: bytes) -> int:
        if descriptor != child.stdin.fileno():
            return write(descriptor, data)
        size = write(descriptor, bytes(data[:2]))
        # A finaliser that cancels a call sends a message like this.
        while within:
            transport.send(within.pop())
        return size

    monkeypatch.setattr(os, "write", write_a_part)
    try:
        transport.send(b"aaa")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(transport.write_outbox)
            while len(written) < 6:
                await anyio.wait_readable(child.stdout)
                written += os.read(child.stdout.fileno(), 6)
            tasks.cancel_scope.cancel()
    finally:
        await transport.close(patiently=True)
    assert written == b"aaabbb"


async def test_message_sent_while_outbox_empties_is_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    child = Child(["/bin/cat"], env=None, cwd=None)
    transport = Transport(child)
    write, new_event, within, written = os.write, anyio.Event, [b"bbb"], b""

    def write_a_part(descriptor: int, data: bytes) -> int:
        return write(descriptor, bytes(data[:2]) if descriptor == child.stdin.fileno() else data)

    def send_within() -> anyio.Event:
        # A finaliser that cancels a call sends a message like this.
        if within:
            transport.send(within.pop())
        return new_event()

    monkeypatch.setattr(os, "write", write_a_part)
    monkeypatch.setattr(anyio, "Event", send_within)
    try:
        transport.send(b"aaa")
        with anyio.fail_after(60):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(transport.write_outbox)
                while len(written) < 6:
                    await anyio.wait_readable(child.stdout)
                    written += os.read(child.stdout.fileno(), 6)
                tasks.cancel_scope.cancel()
    finally:
        await transport.close(patiently=True)
    assert written == b"aaabbb"
