"""`AsyncClient.attach(reconnect=True)`, with connections that are lost."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from both_clients import ASYNC_ONLY
from lasting import Lasting, lasting_user
from shelld_client import (
    AsyncClient,
    BashResult,
    DaemonExited,
    ExitEvent,
    OutputEvent,
    ShellError,
    TargetLost,
)
from shelld_client.async_jobs import AsyncJob
from support import Gate, is_alive, wait_for

pytestmark = pytest.mark.slow


@pytest.fixture
def user(tmp_path: Path) -> Iterator[Lasting]:
    with lasting_user(tmp_path / "runtime") as user:
        user.runtime.mkdir()
        yield user


@asynccontextmanager
async def attached(user: Lasting) -> AsyncGenerator[AsyncClient]:
    async with AsyncClient.attach("work", env=user.env, reconnect=True) as shell:
        yield shell


def lose_connection(shell: AsyncClient) -> None:
    """Kill `shelld attach`, as a crash would."""
    os.kill(shell.pid, signal.SIGKILL)


async def has_lost_connection(shell: AsyncClient) -> None:
    """Wait until the client has noticed the loss, while it has no call under way."""
    with anyio.fail_after(40):
        while vars(shell)["_failure"] is None:
            await anyio.sleep(0.01)


async def generation_of(shell: AsyncClient) -> int:
    """Return how many connections the daemon has had."""
    attachment = (await shell.server_info()).attachment
    assert attachment is not None
    return attachment.generation


async def lose_under_way(shell: AsyncClient, method: str, *args: Any, **options: Any) -> object:
    """Lose the connection while a call waits for a command; return its result or its error."""
    found: list[object] = []

    async def call() -> None:
        try:
            found.append(await getattr(shell, method)(*args, **options))
        except ShellError as error:
            found.append(error)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(call)
        while not [each for each in await shell.list_shells() if each.pid]:
            await anyio.sleep(0.01)
        lose_connection(shell)
    return found[0]


@ASYNC_ONLY
async def test_next_call_attaches_again(user: Lasting) -> None:
    async with attached(user) as shell:
        await shell.bash("cd /usr; x=1")
        first = await shell.server_info()
        lose_connection(shell)
        await has_lost_connection(shell)
        assert (await shell.bash("echo $PWD $x")).stdout == "/usr 1\n"
        assert (await shell.server_info()).pid == first.pid
        assert await generation_of(shell) == 2


@ASYNC_ONLY
async def test_call_with_a_key_is_repeated_and_starts_nothing_twice(
    user: Lasting, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    async with attached(user) as shell:
        gate = Gate(tmp_path / "gate")
        command = f"echo started >> {log}; {gate.wait}; echo end"
        found: list[BashResult] = []

        async def call() -> None:
            found.append(await shell.bash(command, idempotency_key="build"))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call)
            while not log.exists():
                await anyio.sleep(0.01)
            for generation in (2, 3):
                lose_connection(shell)
                # The daemon may answer a call on the old connection before it sees the end.
                while await generation_of(shell) < generation:
                    await anyio.sleep(0.01)
            gate.open()
        assert found[0].stdout == "end\n"
        assert log.read_text() == "started\n"


async def test_other_calls_may_have_started(user: Lasting) -> None:
    async with attached(user) as shell:
        error = await lose_under_way(shell, "bash", "sleep 300")
        assert isinstance(error, TargetLost)
        assert error.maybe_started
        assert error.target == "work"
        [left] = await shell.list_shells()
        assert left.is_running
        await shell.kill_shell(left.bash_id)


async def test_reads_by_offset_are_repeated(user: Lasting) -> None:
    async with attached(user) as shell:
        job = await shell.bash("echo one; sleep 0.5; echo two", run_in_background=True)
        options = {"until": "exit", "wait": 60_000}
        offsets = {"stdout_offset": 0, "stderr_offset": 0}
        read: Any = await lose_under_way(shell, "bash_output", job.bash_id, **options, **offsets)
        assert (read.stdout, read.exit_code) == ("one\ntwo\n", 0)


@ASYNC_ONLY
async def test_events_go_on_without_a_gap_or_a_double(user: Lasting) -> None:
    async with attached(user) as shell:
        count, is_ended = 0, False
        seqs = list[int]()
        text = ""
        job = await shell.bash(
            "for i in {1..60}; do echo $i; sleep 0.02; done", run_in_background=True
        )
        async with shell.events(bash_id=job.bash_id) as events:
            async for event in events:
                seqs.append(event.seq)
                is_ended = isinstance(event, ExitEvent)
                if isinstance(event, OutputEvent):
                    text += event.text
                count += 1
                if count in (2, 3, 5):
                    lose_connection(shell)
        assert is_ended
        assert seqs == list(range(seqs[0], seqs[0] + len(seqs)))
        assert text == "".join(f"{number}\n" for number in range(1, 61))


async def test_job_goes_on_and_ends_with_its_block(user: Lasting) -> None:
    async with attached(user) as shell:
        text = ""
        async with shell.start("echo $$; echo one; sleep 300") as job:
            assert isinstance(job, AsyncJob)
            pid = job.pid
            async for event in job:
                assert isinstance(event, OutputEvent)
                text += event.text
                if text.endswith("one\n"):
                    break
            lose_connection(shell)
            await has_lost_connection(shell)
            assert (await job.output()).stdout == text
            lose_connection(shell)
            await has_lost_connection(shell)
        assert not is_alive(pid)
        assert text == f"{pid}\none\n"


async def test_iteration_over_a_job_goes_on(user: Lasting) -> None:
    async with attached(user) as shell:
        text, is_lost = "", False
        async with shell.start("for i in {1..40}; do echo $i; sleep 0.02; done") as job:
            async for event in job:
                if isinstance(event, OutputEvent):
                    text += event.text
                if not is_lost:
                    is_lost = True
                    lose_connection(shell)
        assert text == "".join(f"{number}\n" for number in range(1, 41))


async def test_daemon_that_died_is_not_replaced(user: Lasting) -> None:
    async with attached(user) as shell:
        pid = (await shell.server_info()).pid
        os.kill(pid, signal.SIGKILL)
        lose_connection(shell)
        for _ in range(2):
            with pytest.raises(DaemonExited) as raised:
                await shell.ping()
            assert raised.value.exit_code == 6
        wait_for(lambda: not is_alive(pid))


async def test_another_daemon_of_the_name_is_left_alone(user: Lasting) -> None:
    async with attached(user) as shell:
        lose_connection(shell)
        await has_lost_connection(shell)
        assert user.run("stop", "work").returncode == 0
        # The next client starts another daemon, and leaves it.
        with user.attach("--name", "work") as other:
            other.call("ping")
        wait_for(lambda: user.list()[0]["client"] is None)
        with pytest.raises(DaemonExited) as raised:
            await shell.bash("true", idempotency_key="1")
        assert raised.value.exit_code == 6


async def test_stolen_daemon_is_left_to_the_other_client(user: Lasting) -> None:
    async with attached(user) as shell:
        with user.attach("--name", "work", "--steal") as thief:
            thief.call("ping")
            for _ in range(2):
                with pytest.raises(DaemonExited) as raised:
                    await shell.ping()
                assert raised.value.exit_code == 4
            thief.call("ping")


async def test_cancelled_attempt_is_made_again_by_the_next_call(user: Lasting) -> None:
    async with attached(user) as shell:
        pid = (await shell.server_info()).pid
        lose_connection(shell)
        os.kill(pid, signal.SIGSTOP)
        try:
            with anyio.move_on_after(0.3) as scope:
                await shell.ping()
            assert scope.cancelled_caught
        finally:
            os.kill(pid, signal.SIGCONT)
        await shell.ping()


async def test_client_that_does_not_reconnect_fails_as_before(user: Lasting) -> None:
    async with AsyncClient.attach("work", env=user.env) as shell:
        lose_connection(shell)
        with pytest.raises(DaemonExited) as raised:
            for _ in range(2):
                await shell.bash("sleep 300", idempotency_key="1")
        assert raised.value.signal == "SIGKILL"
