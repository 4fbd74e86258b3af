"""The methods of jobs through both clients, against a real daemon."""

from __future__ import annotations

import contextlib
import math
import os
import signal
import threading
from pathlib import Path
from typing import Any, cast

import anyio
import pytest

from both_clients import ASYNC_ONLY, Spawn, text_of
from shelld_client import (
    AsyncClient,
    Client,
    DaemonExited,
    ExitEvent,
    JobEnded,
    ShellError,
    ShellNotFound,
    StdinClosed,
    WaitTimedOut,
)
from support import Gate

# Each test starts a daemon, and most tests run once for each kind of client.
pytestmark = pytest.mark.slow


async def test_output_of_a_job_continues_after_the_last_output(
    spawn: Spawn, tmp_path: Path
) -> None:
    gate = Gate(tmp_path / "gate")
    async with spawn() as shell, shell.start(f"echo one; {gate.wait}; echo two >&2; exit 3") as job:
        first = await job.output(wait=60_000)
        assert (first.stdout, first.is_running) == ("one\n", True)
        gate.open()
        ended = await job.wait()
        assert (ended.stdout, ended.stderr, ended.exit_code) == ("", "two\n", 3)
        # `wait` consumes no output.
        assert (await job.output()).stderr == "two\n"
        assert (await job.output()).stderr == ""


async def test_readers_of_one_shell_take_nothing_from_each_other(spawn: Spawn) -> None:
    written = "".join(f"{number}\n" for number in range(1, 5_001))
    async with spawn() as shell, shell.start("seq 5000") as job:
        await job.wait()
        assert (await shell.bash_output(job.id)).stdout == written
        assert (await job.wait_for("4999")).line == "4999"
        assert (await job.output()).stdout == written
        *output, end = [event async for event in job]
        assert text_of(output) == written
        assert isinstance(end, ExitEvent)
        # The first `bash_output` has returned all output, so this call returns none.
        assert (await shell.bash_output(job.id)).stdout == ""


async def test_wait_for_finds_text_patterns_and_ports(spawn: Spawn) -> None:
    command = "python3 -u -m http.server 0 --bind 127.0.0.1"
    async with spawn() as shell, shell.start(command) as job:
        found = await job.wait_for(pattern=r"port \d+ \(", timeout=60)
        assert (found.stream, found.start) == ("stdout", 0)
        port = int(found.line.split("port ")[1].split()[0])
        listener = await job.wait_for(port=port, timeout=60)
        assert (listener.port, listener.address) == (port, "127.0.0.1")
        assert await job.wait_for(port=0, timeout=60) == listener


async def test_each_search_starts_after_the_last_match(spawn: Spawn) -> None:
    async with spawn() as shell, shell.start("echo ok 1; echo ok 2; echo ok 3 >&2") as job:
        await job.wait()
        found = [await job.wait_for("ok"), await job.wait_for(pattern=r"ok \d$")]
        assert [each.line for each in found] == ["ok 1", "ok 2"]
        assert (await job.wait_for("ok")).stream == "stderr"
        with pytest.raises(JobEnded):
            await job.wait_for("ok")


@pytest.mark.parametrize("tty", [False, True])
async def test_each_line_matches_once_even_if_it_is_empty(spawn: Spawn, *, tty: bool) -> None:
    command = "printf 'a\\n\\n\\nb\\nc'; sleep 300"
    async with spawn() as shell, shell.start(command, tty=tty) as job:
        found = [await job.wait_for(pattern=".*", timeout=60) for _ in range(5)]
        assert [each.line for each in found] == ["a", "", "", "b", "c"]
        with pytest.raises(WaitTimedOut):
            await job.wait_for(pattern=".*", timeout=0)


@pytest.mark.parametrize(("timeout", "error"), [(math.nan, ValueError), ("1", TypeError)])
async def test_timeout_that_is_no_number_is_refused(
    spawn: Spawn, timeout: Any, error: type[Exception]
) -> None:
    async with spawn() as shell, shell.start("exec sleep 300") as job:
        with pytest.raises(error, match=r"must be (a|real) number"):
            await job.wait(timeout)
        with pytest.raises(error, match=r"must be (a|real) number"):
            await job.wait_for("never", timeout=timeout)


async def test_text_to_wait_for_is_no_pattern(spawn: Spawn) -> None:
    text = r"""(a|b) .*[^x]$ \d{2}+? "'#&~-é€ \Q\E %"""
    async with spawn() as shell, shell.start("cat", stdin=f"abc\n{text}\n") as job:
        assert (await job.wait_for(text)).line == text
        with pytest.raises(ValueError, match="line end"):
            await job.wait_for("two\nlines")


async def test_wait_for_text_that_never_comes_raises(spawn: Spawn) -> None:
    async with spawn() as shell:
        async with shell.start("echo building; sleep 300") as job:
            while not [each for each in await shell.list_shells() if each.unread_bytes]:
                await anyio.sleep(0.01)
            with pytest.raises(WaitTimedOut, match=r"did not write 'done' within 0\.2 s") as late:
                await job.wait_for("done", timeout=0.2)
            assert late.value.result.stdout == "building\n"
            assert str(late.value).endswith("its last line is: building")
            assert isinstance(late.value, TimeoutError)
            with pytest.raises(WaitTimedOut, match="did not listen on port 1 within"):
                await job.wait_for(port=1, timeout=0)
            with pytest.raises(WaitTimedOut, match="did not end within"):
                await job.wait(timeout=0)
            assert (await job.output()).is_running
        async with shell.start("echo no such file >&2; exit 2") as job:
            with pytest.raises(JobEnded, match="exit code 2 and did not listen on a port") as ended:
                await job.wait_for(port=0)
            assert (ended.value.result.exit_code, str(ended.value)[-12:]) == (2, "no such file")
        async with shell.start("kill -9 $$") as job:
            with pytest.raises(JobEnded, match="ended with SIGKILL"):
                await job.wait_for("done")
        async with shell.start("read x", open_stdin=True, on_prompt="kill") as job:
            with pytest.raises(JobEnded, match=r"ended with SIGTERM \(prompt\)"):
                await job.wait_for("done")
        # The exceptions do not have all output, so the last line is not known.
        for more, message in (("", r"write 'done'$"), ("echo why >&2", r"last line is: why$")):
            async with shell.start(f"yes | head -c 200000\n{more}\nexit 3") as job:
                with pytest.raises(JobEnded, match=message):
                    await job.wait_for("done")
        with pytest.raises(TypeError, match="only one"):
            await job.wait_for()
        with pytest.raises(TypeError, match="only one"):
            await job.wait_for("a", port=0)


async def test_long_wait_takes_several_requests(
    spawn: Spawn, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("async_jobs", "jobs"):
        monkeypatch.setattr(f"shelld_client.{module}.MAX_WAIT_MS", 20)
    async with spawn() as shell, shell.start("sleep 0.2; echo done; sleep 0.2") as job:
        assert (await job.wait_for("done")).line == "done"
        assert (await job.wait()).exit_code == 0


async def test_job_has_methods_to_write_resize_and_kill(spawn: Spawn) -> None:
    command = "read -rp 'Name? ' name; echo; echo \"<$name>\"; stty size; sleep 300"
    async with spawn() as shell, shell.start(command, tty=True) as job:
        await job.wait_for("Name?")
        await job.resize(11, 22)
        await job.write("me\n")
        await job.wait_for("11 22")
        # `write` has consumed no output, so `bash_output` returns all output from the beginning.
        assert (await shell.bash_output(job.id)).stdout.startswith("Name? ")
        assert (await job.output()).stdout.startswith("Name? ")
        screen = await job.screen()
        assert (screen.rows, screen.cols, "<me>" in "".join(screen.lines)) == (11, 22, True)
        await job.write(keys=["C-c"])
        assert (await job.wait()).signal == "SIGINT"
        with pytest.raises(StdinClosed):
            await job.write("more\n")
        assert (await job.kill()).already_stopped


async def test_killed_job_ends_its_readers(spawn: Spawn) -> None:
    async with spawn() as shell, shell.start("echo up; sleep 300") as job:
        found: list[Any] = []

        async def read() -> None:
            found.extend([event async for event in job])

        async def wait() -> None:
            found.append(await job.wait())

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(read)
            tasks.start_soon(wait)
            await job.wait_for("up")
            await job.kill(signal="KILL")
        assert text_of(found) == "up\n"
        (end,) = (each for each in found if isinstance(each, ExitEvent))
        assert end.signal == "SIGKILL"
        assert [event async for event in job] == []


async def test_job_left_by_another_task_ends_its_readers(spawn: Spawn) -> None:
    async with spawn() as shell, anyio.create_task_group() as tasks:
        job = shell.start("echo up; sleep 300")
        is_reading = anyio.Event()

        async def read() -> None:
            with contextlib.suppress(ShellError):
                async for _ in job:
                    is_reading.set()

        async with job:
            tasks.start_soon(read)
            await is_reading.wait()
        assert job.started.bash_id


async def test_daemon_that_dies_ends_all_waits_of_a_job(spawn: Spawn) -> None:
    async with spawn() as shell:
        failed: list[str] = []

        async def fails(name: str, wait: Any) -> None:
            with pytest.raises(DaemonExited):
                await wait()
            failed.append(name)

        async with shell.start("echo up; sleep 300") as job:
            assert (await anext(job)).text == "up\n"
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(fails, "next", lambda: anext(job))
                tasks.start_soon(fails, "wait", job.wait)
                tasks.start_soon(fails, "wait_for", lambda: job.wait_for("never"))
                tasks.start_soon(fails, "output", lambda: job.output(until="exit", wait=600_000))
                await job.wait_for("up")
                os.kill(shell.pid, signal.SIGKILL)
        assert sorted(failed) == ["next", "output", "wait", "wait_for"]


async def test_forgotten_job_raises(spawn: Spawn) -> None:
    async with spawn(args=["--max-retained", "1"]) as shell, shell.start("true") as job:
        await job.wait()
        for _ in range(3):
            await shell.bash("true")
        for call in (job.output, job.wait, job.kill, lambda: anext(job)):
            with pytest.raises(ShellNotFound):
                await call()


@ASYNC_ONLY
async def test_cancelled_calls_of_a_job_lose_nothing() -> None:
    written = "".join(f"{number}\n" for number in range(2_000))
    async with AsyncClient.spawn() as shell, shell.start("seq 0 1999; echo >&2") as job:
        await job.wait()
        texts, events = list[str](), list[Any]()

        async def cancel(turns: int, scope: anyio.CancelScope) -> None:
            for _ in range(turns):
                await anyio.lowlevel.checkpoint()
            scope.cancel()

        async def read() -> None:
            texts.append((await job.output(max_bytes=50)).stdout)

        async def iterate() -> None:
            if (event := await anext(job, None)) is not None:
                events.append(event)

        for work in (read, iterate):
            for turns in range(30):
                async with anyio.create_task_group() as tasks:
                    with anyio.CancelScope() as scope:
                        tasks.start_soon(cancel, turns, scope)
                        await work()
                    tasks.cancel_scope.cancel()
        texts.append((await job.output()).stdout)
        events += [event async for event in job]
        assert "".join(texts) == text_of(events) == written
        assert isinstance(events[-1], ExitEvent)


def test_interrupted_iteration_over_a_job_loses_nothing() -> None:
    class Interrupt(Exception):
        pass

    with (
        Client.spawn() as shell,
        shell.start("echo one; read -r; echo two", open_stdin=True) as job,
    ):
        assert text_of([next(job)]) == "one\n"
        receive = cast("Any", job)._receive

        def lose(ongoing: Any) -> Any:
            receive(ongoing)
            vars(job)["_receive"] = receive
            raise Interrupt

        # Each of two interrupts loses an item that the job has just received.
        shell.write_stdin(job.id, eof=True)
        for _ in range(2):
            vars(job)["_receive"] = lose
            with pytest.raises(Interrupt):
                next(job)
        *output, end = job
        assert text_of(output) == "two\n"
        assert isinstance(end, ExitEvent)


def test_job_that_nobody_iterates_over_receives_no_events() -> None:
    with Client.spawn() as shell, shell.start("seq 100000") as job:
        job.wait()
        assert job.started.subscription is None
        assert "_listening" not in vars(job)


def test_threads_share_a_job() -> None:
    with Client.spawn() as shell, shell.start("seq 20000") as job:
        items: list[Any] = []
        threads = [threading.Thread(target=lambda: items.extend(job)) for _ in range(3)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        (end,) = (each for each in items if isinstance(each, ExitEvent))
        items.remove(end)
        items.sort(key=lambda each: each.start)
        assert text_of(items) == "".join(f"{number}\n" for number in range(1, 20_001))
