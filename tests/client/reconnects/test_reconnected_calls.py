"""Calls of clients with `attach(reconnect=True)`, whose connections are lost."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, cast

import anyio
import pytest

from both_clients import Attach, Shell, client_of
from lasting import Lasting
from lost_connections import (
    ON_ALL_LOOPS,
    Attached,
    begin_to_attach_again,
    cancel_lost_call,
    end_connections_at,
    generation_of,
    has_lost_connection,
    has_unread_input,
    lose_connection,
    occupied,
    wait_until_command_runs,
)
from shelld_client import (
    AsyncClient,
    BashResult,
    Client,
    DaemonExited,
    ProtocolError,
    ShellError,
    TargetLost,
    WaitTimedOut,
    calls,
)
from shelld_client.connection import Connection
from shelld_client.link import Link
from support import Gate, is_alive, stopped, wait_for

pytestmark = [pytest.mark.slow, pytest.mark.timeout(method="thread")]


async def lose_under_way(shell: Shell, method: str, *args: Any, **options: Any) -> object:
    """Lose the connection while a call waits for a command; return the call's result or error."""
    found: list[object] = []

    async def call() -> None:
        try:
            found.append(await getattr(shell, method)(*args, **options))
        except ShellError as error:
            found.append(error)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(call)
        await wait_until_command_runs(shell)
        lose_connection(shell)
    return found[0]


@ON_ALL_LOOPS
async def test_next_call_attaches_again(attached: Attached) -> None:
    async with attached() as shell:
        await shell.bash("cd /usr; x=1")
        first = await shell.server_info()
        lose_connection(shell)
        await has_lost_connection(shell)
        assert (await shell.bash("echo $PWD $x")).stdout == "/usr 1\n"
        assert (await shell.server_info()).pid == first.pid
        assert await generation_of(shell) == 2


@ON_ALL_LOOPS
async def test_call_with_a_key_is_repeated_and_starts_nothing_twice(
    attached: Attached, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    async with attached() as shell:
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
                # The daemon may answer a call on the old connection before it sees the end of that
                # connection.
                while await generation_of(shell) < generation:
                    await anyio.sleep(0.01)
            gate.open()
        assert found[0].stdout == "end\n"
        assert log.read_text() == "started\n"


async def test_lost_call_without_a_key_is_reported_as_possibly_started(attached: Attached) -> None:
    async with attached() as shell:
        error = await lose_under_way(shell, "bash", "sleep 300")
        assert isinstance(error, TargetLost)
        assert error.maybe_started
        assert error.target == "work"
        [left] = await shell.list_shells()
        assert left.is_running
        await shell.kill_shell(left.bash_id)


@pytest.mark.parametrize("streams", [["stdout"], ["stdout", "stderr"]])
async def test_reads_by_offset_are_repeated(attached: Attached, streams: list[str]) -> None:
    async with attached() as shell:
        job = await shell.bash("echo one; sleep 0.5; echo two", run_in_background=True)
        options = {"until": "exit", "wait": 60_000}
        offsets = {f"{name}_offset": 0 for name in streams}
        read: Any = await lose_under_way(shell, "bash_output", job.bash_id, **options, **offsets)
        assert (read.stdout, read.exit_code) == ("one\ntwo\n", 0)


async def test_read_of_a_screen_is_repeated(attached: Attached, tmp_path: Path) -> None:
    gate = Gate(tmp_path / "gate")
    command = f"{gate.wait}; read -rp 'Name: ' name"
    async with attached() as shell:
        job = await shell.bash(command, tty=True, run_in_background=True)
        found: list[object] = []

        async def call() -> None:
            options = {"until": "prompt", "wait": 60_000}
            found.append(await shell.read_screen(job.bash_id, **options))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call)
            await wait_until_command_runs(shell)
            lose_connection(shell)
            while await generation_of(shell) < 2:
                await anyio.sleep(0.01)
            gate.open()
        [screen] = cast("list[Any]", found)
        assert screen.lines[0] == "Name:"
        await shell.kill_shell(job.bash_id)


async def test_daemon_that_died_is_not_replaced(attached: Attached) -> None:
    async with attached() as shell:
        pid = (await shell.server_info()).pid
        os.kill(pid, signal.SIGKILL)
        lose_connection(shell)
        for _ in range(2):
            with pytest.raises(DaemonExited) as raised:
                await shell.ping()
            assert raised.value.exit_code == 6
        wait_for(lambda: not is_alive(pid))


async def test_client_does_not_join_a_new_daemon_of_the_same_name(
    attached: Attached, user: Lasting
) -> None:
    async with attached() as shell:
        lose_connection(shell)
        await has_lost_connection(shell)
        assert user.run("stop", "work").returncode == 0
        # Another client starts a new daemon, and disconnects.
        with user.attach("--name", "work") as other:
            other.call("ping")
        wait_for(lambda: user.list()[0]["client"] is None)
        with pytest.raises(DaemonExited) as raised:
            await shell.bash("true", idempotency_key="1")
        assert raised.value.exit_code == 6


async def test_client_does_not_take_a_stolen_daemon_back(attached: Attached, user: Lasting) -> None:
    async with attached() as shell:
        with user.attach("--name", "work", "--steal") as thief:
            thief.call("ping")
            for _ in range(2):
                with pytest.raises(DaemonExited) as raised:
                    await shell.ping()
                assert raised.value.exit_code == 4
            thief.call("ping")


async def test_stolen_daemon_is_not_taken_back_although_attach_ends_late(
    attached: Attached, user: Lasting
) -> None:
    async with attached() as shell:
        with stopped(shell.pid):
            with user.attach("--name", "work", "--steal") as thief:
                thief.call("ping")
                await has_lost_connection(shell)
            # The other client has left, so no client is attached now.
            wait_for(lambda: not is_attached(user))
            for _ in range(2):
                with pytest.raises(DaemonExited) as raised:
                    await shell.ping()
                assert raised.value.exit_code == 4


async def test_next_call_repeats_a_cancelled_attempt_to_attach(attached: Attached) -> None:
    async with attached() as shell:
        pid = (await shell.server_info()).pid
        lose_connection(shell)
        with stopped(pid):
            with anyio.move_on_after(0.3) as scope:
                await shell.ping()
            assert scope.cancelled_caught
        await shell.ping()


async def test_client_that_does_not_reconnect_fails_as_before(
    attach: Attach, user: Lasting
) -> None:
    async with attach("work", env=user.env) as shell:
        lose_connection(shell)
        with pytest.raises(DaemonExited) as raised:
            for _ in range(2):
                await shell.bash("sleep 300", idempotency_key="1")
        assert raised.value.signal == "SIGKILL"


def go_through(shell: Shell, script: str) -> None:
    """Make the client attach again through an sh script. The script gets, as its arguments, the
    command that the client would run otherwise.
    """
    reconnect = vars(client_of(shell))["_reconnect"]
    reconnect.command = ["/bin/sh", "-c", script, "sh", *reconnect.command]


@pytest.mark.parametrize("mishap", ["kill -9 $$", "exec sleep 300", "exit 1", "exit 2"])
async def test_failed_attempt_to_attach_is_repeated(
    attached: Attached, tmp_path: Path, mishap: str
) -> None:
    was_here = tmp_path / "was_here"
    async with attached() as shell:
        # Shorten the limit for one attempt, because a busy machine may need several attempts before
        # the client gives up after 30 seconds.
        vars(client_of(shell))["_start_timeout"] = 8.0
        go_through(shell, f'[ -e {was_here} ] || {{ : > {was_here}; {mishap}; }}; exec "$@"')
        lose_connection(shell)
        await has_lost_connection(shell)
        await shell.ping()
        assert was_here.exists()
        await shell.ping()
        assert await generation_of(shell) == 2


async def test_error_of_failed_attempts_is_that_of_the_last_one_not_cut_short(
    attached: Attached, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The first attempt fails at once, and the limit cuts the second short.
    for module in ("client", "sync"):
        monkeypatch.setattr(f"shelld_client.{module}.RECONNECT_S", 3.0)
    was_here = tmp_path / "was_here"
    async with attached() as shell:
        go_through(shell, f"[ -e {was_here} ] && exec sleep 300; : > {was_here}; exit 2")
        lose_connection(shell)
        await has_lost_connection(shell)
        with pytest.raises(DaemonExited) as raised:
            await shell.ping()
        assert raised.value.exit_code == 2


@pytest.mark.usefixtures("hurry")
async def test_calls_that_wait_for_a_failed_attempt_to_attach_make_no_attempts_of_their_own(
    attached: Attached, tmp_path: Path
) -> None:
    attempts, calls = tmp_path / "attempts", 8

    async def call(shell: Shell) -> None:
        with pytest.raises(ShellError):
            await shell.ping()

    async with attached() as shell:
        go_through(shell, f"echo >> {attempts}; exec sleep 300")
        lose_connection(shell)
        await has_lost_connection(shell)
        async with anyio.create_task_group() as tasks:
            for _ in range(calls):
                tasks.start_soon(call, shell)
        # A call that comes after a failed attempt makes an attempt of its own.
        assert 1 <= len(attempts.read_text().splitlines()) < calls


async def test_client_can_be_left_while_it_attaches_again(
    attached: Attached, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    failures: list[ShellError] = []

    async def call(shell: Shell) -> None:
        with pytest.raises(DaemonExited, match="the client is closed") as raised:
            await shell.ping()
        failures.append(raised.value)

    async with anyio.create_task_group() as tasks, attached() as shell:
        go_through(shell, f"echo $$ > {log}.new; mv {log}.new {log}; exec sleep 300")
        lose_connection(shell)
        await has_lost_connection(shell)
        tasks.start_soon(call, shell)
        while not log.exists():
            await anyio.sleep(0.01)
    assert failures
    assert not is_alive(int(log.read_text()))


def test_thread_that_attaches_again_while_the_client_is_left_stays_not_attached(
    user: Lasting, monkeypatch: pytest.MonkeyPatch
) -> None:
    errors = list[ShellError]()

    def call() -> None:
        try:
            client.ping()
        except ShellError as error:
            errors.append(error)

    def begin_to_attach(client: Client) -> bool:
        # At the end of the `with` block, the client first checks whether this process is a fork.
        monkeypatch.undo()
        before = client.pid
        thread.start()
        wait_for(lambda: client.pid != before)
        return False

    thread = threading.Thread(target=call)
    with Client.attach("work", env=user.env, reconnect=True) as client:
        lose_connection(cast("Shell", client))
        wait_for(lambda: vars(client)["_link"].failure is not None)
        monkeypatch.setattr(Client, "_is_forked", property(begin_to_attach))
    thread.join()
    assert len(errors) == 1
    wait_for(lambda: not is_attached(user))


def test_client_is_left_although_the_wait_for_its_last_answers_is_interrupted(
    user: Lasting, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_args: object) -> None:
        raise KeyboardInterrupt

    client: Any = Client.attach("work", env=user.env, reconnect=True)
    client.__enter__()
    unanswered = client._begin(calls.bash("sleep 300", {}))
    monkeypatch.setattr(Link, "exchange", interrupt)
    with pytest.raises(KeyboardInterrupt):
        client.__exit__(None, None, None)
    monkeypatch.undo()
    unanswered.abandon()
    with pytest.raises(DaemonExited, match="the client is closed"):
        client.ping()
    wait_for(lambda: not is_attached(user))


async def test_client_attaches_again_although_its_directory_is_gone(
    attach: Attach, user: Lasting, tmp_path: Path
) -> None:
    directory = tmp_path / "directory"
    directory.mkdir()
    async with attach("work", env=user.env, cwd=directory, reconnect=True) as shell:
        directory.rmdir()
        lose_connection(shell)
        await has_lost_connection(shell)
        await shell.ping()
        assert await generation_of(shell) == 2


async def test_calls_at_the_same_time_attach_once(attached: Attached) -> None:
    async with attached() as shell:
        lose_connection(shell)
        await has_lost_connection(shell)
        async with anyio.create_task_group() as tasks:
            for _ in range(8):
                tasks.start_soon(shell.ping)
        assert await generation_of(shell) == 2


def test_signal_handler_does_not_wait_for_the_thread_that_attaches(user: Lasting) -> None:
    said: list[str] = []

    def handle(_number: int, _frame: object) -> None:
        with pytest.raises(DaemonExited) as raised:
            client.ping()
        said.append(str(raised.value))

    before = signal.signal(signal.SIGUSR1, handle)
    try:
        with Client.attach("work", env=user.env, reconnect=True) as client:
            go_through(cast("Shell", client), 'kill -USR1 $PPID; exec "$@"')
            os.kill(client.pid, signal.SIGKILL)
            with suppress(TargetLost):
                client.bash("sleep 300")
            client.ping()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert said == ["the daemon was killed by SIGKILL"]


async def test_call_that_waits_during_a_second_loss_is_reported_lost(user: Lasting) -> None:
    async with AsyncClient.attach("work", env=user.env, reconnect=True) as shell:
        found: list[ShellError] = []

        async def call() -> None:
            with pytest.raises(TargetLost) as raised:
                await shell.bash("sleep 300")
            found.append(raised.value)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call)
            await wait_until_command_runs(cast("Shell", shell))
            # Hold this lock. After the client has tried to attach again, each waiting task needs
            # this lock for a moment.
            async with vars(shell)["_replacing"]:
                os.kill(shell.pid, signal.SIGKILL)
                while not found:
                    await anyio.sleep(0.01)
        assert found[0].code is None


def start_with_key(
    shell: Shell, way: str, command: str
) -> Callable[[], Coroutine[Any, Any, object]]:
    """Return a function that starts `command` with an idempotency key.

    `way` says whether the command runs as a call, a job or a stream.
    """

    async def start() -> object:
        if way == "job":
            return await shell.start(command, idempotency_key="1").__aenter__()
        if way == "stream":
            return await anext(shell.stream(command, idempotency_key="1"))
        return await shell.bash(command, idempotency_key="1")

    return start


@pytest.mark.parametrize("kind", ["asyncio", "trio"])
@pytest.mark.parametrize(
    ("way", "runs"), [("bash", False), ("job", False), ("stream", False), ("bash", True)]
)
async def test_call_with_a_key_that_is_cancelled_while_it_is_repeated_leaves_no_command(
    attached: Attached, way: str, runs: bool
) -> None:
    async with attached() as shell:
        call = start_with_key(shell, way, "sleep 300")
        await cancel_lost_call(shell, call, runs=runs)
        await has_no_running_shell(shell)


def test_call_that_finds_a_command_starts_none() -> None:
    call = calls.bash("make", {"idempotency_key": "1"})
    again = calls.find_again(call)
    assert again is not None
    assert again.params == {**call.params, "key_must_exist": True}
    assert calls.find_again(calls.bash("make", {})) is None


@pytest.mark.parametrize("kind", ["asyncio", "trio"])
async def test_cancelled_call_that_was_never_sent_starts_nothing(
    attached: Attached, user: Lasting
) -> None:
    async with attached() as shell:
        with occupied(user, shell):
            await has_lost_connection(shell)
            async with anyio.create_task_group() as tasks:
                before = shell.pid
                tasks.start_soon(start_with_key(shell, "bash", "sleep 300"))
                while shell.pid == before:
                    await anyio.sleep(0.01)
                tasks.cancel_scope.cancel()
        with anyio.fail_after(60):
            while True:
                with suppress(ShellError):
                    assert not await shell.list_shells()
                    break


@pytest.mark.parametrize("wait", [-1, 600_001, True, None, "1"])
def test_invalid_wait_of_a_repeated_read_is_not_changed(wait: Any) -> None:
    call = calls.bash_output("shell_1", {"stdout_offset": 0, "wait": wait})
    assert calls.with_time_left(call, 5.0) is call


@pytest.mark.parametrize(("wait", "left"), [(600_000, 595_000), (5_001, 1), (5_000, 0), (1, 0)])
def test_repeated_wait_lasts_for_the_rest_of_its_time(wait: int, left: int) -> None:
    call = calls.bash_output("shell_1", {"stdout_offset": 0, "wait": wait})
    assert calls.with_time_left(call, 5.0).params["wait"] == left


async def test_background_start_that_is_cancelled_while_it_is_repeated_goes_on(
    user: Lasting,
) -> None:
    async with AsyncClient.attach("work", env=user.env, reconnect=True) as client:
        shell = cast("Shell", client)
        start = partial(client.bash, "sleep 300", idempotency_key="1", run_in_background=True)
        await cancel_lost_call(shell, start)
        found = await client.bash(
            "sleep 300", idempotency_key="1", run_in_background=True, key_must_exist=True
        )
        assert found.status == "running"


async def test_call_with_a_key_that_is_cancelled_when_its_connection_is_lost_leaves_no_command(
    user: Lasting, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail = vars(AsyncClient)["_fail"]

    def cancel_first(client: AsyncClient, failure: ShellError) -> None:
        wait_for(lambda: not is_attached(user))
        task.cancel()
        monkeypatch.undo()
        fail(client, failure)

    async with AsyncClient.attach("work", env=user.env, reconnect=True) as client:
        shell = cast("Shell", client)
        task = asyncio.create_task(client.bash("sleep 300", idempotency_key="1"))
        await wait_until_command_runs(shell)
        monkeypatch.setattr(AsyncClient, "_fail", cancel_first)
        lose_connection(shell)
        with pytest.raises(asyncio.CancelledError):
            await task
        await has_no_running_shell(shell)


def test_call_with_a_key_that_is_interrupted_when_its_connection_is_lost_leaves_no_command(
    user: Lasting, monkeypatch: pytest.MonkeyPatch
) -> None:
    class InterruptError(Exception):
        pass

    is_interrupted = threading.Event()

    def interrupt(_number: int, _frame: object) -> None:
        is_interrupted.set()
        raise InterruptError

    ended = vars(Link)["_ended"]

    def interrupt_first(link: Link, error: ProtocolError | None) -> None:
        if not is_interrupted.is_set():
            wait_for(lambda: not is_attached(user))
            os.kill(os.getpid(), signal.SIGUSR1)
            is_interrupted.wait()
        ended(link, error)

    monkeypatch.setattr(Link, "_ended", interrupt_first)
    before = signal.signal(signal.SIGUSR1, interrupt)
    try:
        with Client.attach("work", env=user.env, reconnect=True) as client:
            with pytest.raises(InterruptError):
                client.bash(f"kill -KILL {client.pid}; sleep 300", idempotency_key="1")
            wait_for(lambda: not [each for each in client.list_shells() if each.is_running])
    finally:
        signal.signal(signal.SIGUSR1, before)


def is_attached(user: Lasting) -> bool:
    [daemon] = user.list()
    return daemon["client"] is not None


async def has_no_running_shell(shell: Shell) -> None:
    """Wait until no command runs. Fails if a command goes on."""
    with anyio.fail_after(60):
        while [each for each in await shell.list_shells() if each.status == "running"]:
            await anyio.sleep(0.01)


async def test_wait_of_a_job_does_not_begin_again_after_a_loss(
    attached: Attached, monkeypatch: pytest.MonkeyPatch
) -> None:
    later_s = 0.0

    class Clock:
        @staticmethod
        def monotonic() -> float:
            return time.monotonic() + later_s

    for module in ("client", "sync"):
        monkeypatch.setattr(f"shelld_client.{module}.time", Clock)
    async with attached() as shell, shell.start("sleep 300") as job:

        async def wait() -> None:
            with pytest.raises(WaitTimedOut):
                await job.wait(timeout=500)

        daemon = (await shell.server_info()).pid
        with anyio.fail_after(60):
            async with anyio.create_task_group() as tasks:
                with stopped(daemon):
                    tasks.start_soon(wait)
                    while not has_unread_input(daemon):
                        await anyio.sleep(0.01)
                    later_s = 500
                    await begin_to_attach_again(shell)


@pytest.mark.parametrize("method", ["list_shells", "stream", "start"])
async def test_call_that_ends_each_connection_raises(
    attached: Attached, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    end_connections_at(monkeypatch, "list_shells|echo deadly")
    async with attached() as shell:
        with pytest.raises(TargetLost), anyio.fail_after(60):
            if method == "list_shells":
                await shell.list_shells()
            elif method == "stream":
                await anext(shell.stream("echo deadly", idempotency_key="1"))
            else:
                async with shell.start("echo deadly", idempotency_key="1"):
                    pass
        # Another call attaches again.
        assert (await shell.bash("echo alive", idempotency_key="2")).stdout == "alive\n"


async def test_error_names_the_cause_if_an_attempt_is_cut_short(
    attached: Attached, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("client", "sync"):
        monkeypatch.setattr(f"shelld_client.{module}.RECONNECT_S", 0)
    async with attached() as shell:
        lose_connection(shell)
        await has_lost_connection(shell)
        with pytest.raises(DaemonExited):
            await shell.list_shells()


@ON_ALL_LOOPS
async def test_answers_of_a_daemon_that_has_lost_the_client_are_not_taken(
    attached: Attached, user: Lasting, kind: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    go_on, found = tmp_path / "go on", dict[str, Any]()
    command = f"until [ -e '{go_on}' ]; do sleep 0.05; done; echo done"

    async def stream(shell: Shell, **options: Any) -> list[Any]:
        return [item async for item in shell.stream(command, **options)]

    async def keep(name: str, call: Callable[[], Coroutine[Any, Any, object]]) -> None:
        try:
            found[name] = await call()
        except ShellError as error:
            found[name] = error

    async with attached() as shell:
        job = await shell.bash(command, run_in_background=True)
        wait = partial(shell.bash_output, stdout_offset=0, until="exit", wait=60_000)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(keep, "key", partial(shell.bash, command, idempotency_key="1"))
            tasks.start_soon(keep, "stream", partial(stream, shell, idempotency_key="2"))
            tasks.start_soon(keep, "wait", partial(wait, job.bash_id))
            tasks.start_soon(keep, "no key", partial(shell.bash, command))
            while len([each for each in await shell.list_shells() if each.pid]) < 4:
                await anyio.sleep(0.01)
            await lose_unnoticed(shell, user, kind, monkeypatch)
            go_on.touch()
        assert found["key"].stdout == found["stream"][-1].stdout == "done\n"
        assert (found["wait"].stdout, found["wait"].exit_code) == ("done\n", 0)
        assert isinstance(found["no key"], TargetLost)


async def lose_unnoticed(
    shell: Shell, user: Lasting, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lose the connection, and let the client notice the loss only after the daemon has answered
    all calls.
    """

    def lose() -> None:
        lose_connection(shell)
        wait_for(lambda: not is_attached(user))

    if kind != "sync":
        # This call blocks the event loop, so no answer is read meanwhile.
        lose()
        return
    receive, is_lost = Connection[Any].receive, threading.Event()

    def receive_and_lose(connection: Connection[Any], data: bytes) -> Iterator[Any]:
        yield from receive(connection, data)
        monkeypatch.undo()
        lose()
        is_lost.set()

    monkeypatch.setattr(Connection, "receive", receive_and_lose)
    await shell.ping()
    await anyio.to_thread.run_sync(is_lost.wait, abandon_on_cancel=True)
