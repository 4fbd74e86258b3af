"""`attach(reconnect=True)` of both clients, with connections that are lost."""

from __future__ import annotations

import fcntl
import gc
import os
import signal
import termios
from array import array
from collections.abc import Callable, Coroutine, Generator, Iterator
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    ExitStack,
    contextmanager,
    suppress,
)
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias, cast

import anyio
import pytest

from both_clients import Attach, Shell, attach_of, client_of
from lasting import Lasting, lasting_user
from shelld_client import (
    AsyncClient,
    BashResult,
    Client,
    DaemonExited,
    ExitEvent,
    OutputEvent,
    ShellError,
    TargetLost,
)
from shelld_client.async_ongoing import AsyncOngoing
from shelld_client.mailbox import End
from shelld_client.ongoing import Ongoing
from support import Gate, is_alive, wait_for

pytestmark = [pytest.mark.slow, pytest.mark.timeout(method="thread")]

# The kind of event loop makes a difference only where `AsyncClient` waits, so only the tests of
# such waits have this mark.
ON_ALL_LOOPS = pytest.mark.parametrize("kind", ["sync", "asyncio", "trio"])

OPEN_INPUT: Final = {"run_in_background": True, "open_stdin": True}


@pytest.fixture
def user(tmp_path: Path) -> Iterator[Lasting]:
    with lasting_user(tmp_path / "runtime") as user:
        user.runtime.mkdir()
        yield user


Attached: TypeAlias = Callable[[], AbstractAsyncContextManager[Shell]]


@pytest.fixture(params=["sync", "asyncio"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def attach(kind: str) -> Attach:
    return attach_of(kind)


@pytest.fixture
def attached(attach: Attach, user: Lasting) -> Attached:
    return partial(attach, "work", env=user.env, reconnect=True)


def lose_connection(shell: Shell) -> None:
    """Kill `shelld attach`, as a crash would."""
    # The process may have ended earlier. In this case, `Client` may have noticed the loss and
    # reaped the process.
    with suppress(ProcessLookupError):
        os.kill(shell.pid, signal.SIGKILL)


async def has_lost_connection(shell: Shell) -> None:
    """Wait until a client without a call under way has noticed that its connection is lost."""
    client = client_of(shell)
    owner = client if isinstance(client, AsyncClient) else vars(client)["_link"]
    with anyio.fail_after(40):
        while (vars(owner).get("_failure") or vars(owner).get("failure")) is None:
            await anyio.sleep(0.01)


async def generation_of(shell: Shell) -> int:
    """Return how many connections the daemon has had."""
    attachment = (await shell.server_info()).attachment
    assert attachment is not None
    generation: int = attachment.generation
    return generation


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
        while not [each for each in await shell.list_shells() if each.pid]:
            await anyio.sleep(0.01)
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


@ON_ALL_LOOPS
async def test_events_go_on_without_a_gap_or_a_double(attached: Attached) -> None:
    async with attached() as shell:
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


async def test_continued_events_end_although_the_shell_ended_without_a_client(
    attached: Attached, tmp_path: Path
) -> None:
    gate = Gate(tmp_path / "gate")
    options = {"run_in_background": True, "notify": ["prompt"]}
    async with attached() as shell:
        job = await shell.bash(gate.wait, **options)
        async with shell.events(subscription=job.subscription) as events:
            lose_connection(shell)
            await has_lost_connection(shell)
            gate.open()
            pid = job.pid
            while pid is not None and is_alive(pid):
                await anyio.sleep(0.01)
            assert [each async for each in events] == []


async def test_job_goes_on_and_ends_with_its_block(attached: Attached) -> None:
    async with attached() as shell:
        text = ""
        async with shell.start("echo $$; echo one; sleep 300") as job:
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


async def test_iteration_over_a_job_goes_on(attached: Attached) -> None:
    async with attached() as shell:
        text, is_lost = "", False
        async with shell.start("for i in {1..40}; do echo $i; sleep 0.02; done") as job:
            async for event in job:
                if isinstance(event, OutputEvent):
                    text += event.text
                if not is_lost:
                    is_lost = True
                    lose_connection(shell)
        assert text == "".join(f"{number}\n" for number in range(1, 41))


async def test_iteration_over_a_job_leaves_no_subscription_behind(
    attached: Attached, tmp_path: Path
) -> None:
    async with attached() as shell:
        gate = Gate(tmp_path / "gate")
        async with shell.start(f"echo one; {gate.wait}; echo two; sleep 300") as job:
            before = (await anext(job)).subscription
            lose_connection(shell)
            await has_lost_connection(shell)
            gate.open()
            event = await anext(job)
            assert event.subscription != before
            assert event.text == "two\n"
            with pytest.raises(ShellError):
                async with shell.events(subscription=before):
                    pass


async def has_subscription(shell: Shell, name: str) -> bool:
    """Return whether the daemon knows a subscription. If the daemon knows it, end the
    subscription.
    """
    try:
        async with shell.events(subscription=name):
            return True
    except ShellError:
        return False


@pytest.mark.parametrize("is_attached_again", [False, True])
async def test_events_left_without_a_connection_leave_no_subscription_behind(
    attached: Attached, is_attached_again: bool
) -> None:
    async with attached() as shell:
        async with shell.events(events=["exit"]) as events:
            name = events.subscription
            lose_connection(shell)
            await has_lost_connection(shell)
            if is_attached_again:
                await shell.ping()
        assert not await has_subscription(shell, name)


async def test_events_that_went_on_leave_no_subscription_behind(attached: Attached) -> None:
    async with attached() as shell:
        async with shell.events(events=["exit"]) as events:
            name = events.subscription
            for number in range(2):
                lose_connection(shell)
                await has_lost_connection(shell)
                job = await shell.bash("true", run_in_background=True)
                event = await anext(events)
                assert (event.bash_id, event.seq) == (job.bash_id, number + 1)
            lose_connection(shell)
            await has_lost_connection(shell)
        assert not await has_subscription(shell, name)


async def test_subscription_that_another_reader_has_continued_stays(attached: Attached) -> None:
    async with attached() as shell, AsyncExitStack() as second:
        async with shell.events(events=["exit"]) as events:
            name = events.subscription
            lose_connection(shell)
            await has_lost_connection(shell)
            again = await second.enter_async_context(shell.events(subscription=name))
        job = await shell.bash("true", run_in_background=True)
        assert (await anext(again)).bash_id == job.bash_id


async def test_job_dropped_without_a_connection_is_killed(attached: Attached) -> None:
    async with attached() as shell:
        job = await shell.start("sleep 300").__aenter__()
        name = job.id
        lose_connection(shell)
        await has_lost_connection(shell)
        del job
        gc.collect()
        read = await shell.bash_output(name, until="exit", wait=60_000)
        assert read.status == "killed"


@pytest.fixture
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the clients give up soon when they attach again."""
    monkeypatch.setattr("shelld_client.client.RECONNECT_S", 0.5)
    monkeypatch.setattr("shelld_client.sync.RECONNECT_S", 0.5)


@contextmanager
def occupied(user: Lasting, shell: Shell) -> Generator[None]:
    """Let the connection be lost, and keep the daemon occupied for the block."""
    lose_connection(shell)
    with user.attach("--name", "work") as other:
        assert other.call("ping") == {}
        yield


@pytest.mark.usefixtures("hurry")
async def test_events_go_on_after_attempts_that_have_failed(
    attached: Attached, user: Lasting
) -> None:
    async with attached() as shell, shell.events(events=["exit"]) as events:
        with occupied(user, shell):
            await has_lost_connection(shell)
            for _ in range(4):
                with pytest.raises(ShellError):
                    await anext(events)
        # The daemon may not have noticed yet that the other client has left.
        with anyio.fail_after(60):
            while True:
                with suppress(ShellError):
                    await shell.bash("exit 3")
                    break
        assert (await anext(events)).exit_code == 3


@pytest.mark.usefixtures("hurry")
async def test_job_left_without_a_connection_is_killed(attached: Attached, user: Lasting) -> None:
    async with attached() as shell:
        async with AsyncExitStack() as other, shell.start("sleep 300") as job:
            other.enter_context(occupied(user, shell))
            await has_lost_connection(shell)
        with anyio.fail_after(60):
            while True:
                with suppress(ShellError):
                    read = await shell.bash_output(job.id, until="exit", wait=10_000)
                    break
        assert read.status == "killed"


@contextmanager
def stopped(pid: int) -> Generator[None]:
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


async def begin_to_attach_again(shell: Shell) -> None:
    """Lose the connection during a call. The daemon must be stopped, so that it does not answer."""
    before = shell.pid
    lose_connection(shell)
    while shell.pid == before:
        await anyio.sleep(0.01)


async def lose_answer(shell: Shell, call: Callable[[], Coroutine[Any, Any, object]]) -> None:
    """Lose the connection before the daemon reads a call, and wait for the end of the call."""
    daemon = (await shell.server_info()).pid
    async with anyio.create_task_group() as tasks:
        with stopped(daemon):
            tasks.start_soon(call)
            while not has_unread_input(daemon):
                await anyio.sleep(0.01)
            await begin_to_attach_again(shell)


async def cancel_lost_call(
    shell: Shell, call: Callable[[], Coroutine[Any, Any, object]], *, runs: bool = False
) -> None:
    """Lose the connection before the answer to a call comes, and cancel the call before the client
    is attached again.

    With `runs`, the command of the call runs by then. Otherwise the daemon has not read the call.
    """
    daemon = (await shell.server_info()).pid
    with ExitStack() as stack:
        async with anyio.create_task_group() as tasks:
            if not runs:
                stack.enter_context(stopped(daemon))
            tasks.start_soon(call)
            if runs:
                while not [each for each in await shell.list_shells() if each.pid]:
                    await anyio.sleep(0.01)
                stack.enter_context(stopped(daemon))
            while not (runs or has_unread_input(daemon)):
                await anyio.sleep(0.01)
            await begin_to_attach_again(shell)
            tasks.cancel_scope.cancel()


def has_unread_input(pid: int) -> bool:
    """Return whether a pipe of a process has bytes that it has not read."""
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        if entry.is_fifo():
            with entry.open("rb") as pipe:
                unread = array("i", [0])
                fcntl.ioctl(pipe, termios.FIONREAD, unread)
            if unread[0]:
                return True
    return False


async def test_job_with_a_key_starts_although_the_answer_was_lost(
    attached: Attached, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    async with attached() as shell:
        job = shell.start(f"echo started >> {log}; sleep 300", idempotency_key="1")
        await lose_answer(shell, job.__aenter__)
        while not log.exists():
            await anyio.sleep(0.01)
        await job.__aexit__(None, None, None)
        [info] = await shell.list_shells()
        assert (info.bash_id, info.status) == (job.id, "killed")
        assert log.read_text() == "started\n"


async def test_subscription_begins_once_although_its_answer_was_lost(attached: Attached) -> None:
    async with attached() as shell:
        events = shell.events(events=["exit"])
        await lose_answer(shell, events.__aenter__)
        await shell.bash("exit 3")
        assert (await anext(events)).exit_code == 3
        async with shell.events(events=["exit"]) as other:
            # After the number of the subscription, a name has a mark of eight characters.
            assert [each.subscription[:-8] for each in (events, other)] == ["sub_1", "sub_2"]
        await events.__aexit__(None, None, None)


async def test_stream_with_a_key_goes_on(attached: Attached, tmp_path: Path) -> None:
    log, text, is_lost = tmp_path / "log", "", False
    command = f"echo started >> {log}; for i in {{1..40}}; do echo $i; sleep 0.02; done"
    async with attached() as shell:
        async with shell.stream(command, idempotency_key="1") as stream:
            async for item in stream:
                if isinstance(item, OutputEvent):
                    text += item.text
                if not is_lost:
                    is_lost = True
                    lose_connection(shell)
        assert stream.result.exit_code == 0
    assert text == "".join(f"{number}\n" for number in range(1, 41))
    assert log.read_text() == "started\n"


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
        # Another client starts a new daemon, and leaves it.
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


async def test_next_call_repeats_a_cancelled_attempt_to_attach(attached: Attached) -> None:
    async with attached() as shell:
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
    """Make the client attach again through a script of sh. The script's arguments are the usual
    command line.
    """
    reconnect = vars(client_of(shell))["_reconnect"]
    reconnect.command = ["/bin/sh", "-c", script, "sh", *reconnect.command]


@pytest.mark.parametrize("mishap", ["kill -9 $$", "exec sleep 300", "exit 2"])
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


async def test_interrupted_iteration_goes_on(
    kind: str, attached: Attached, monkeypatch: pytest.MonkeyPatch
) -> None:
    interruptions = ["the subscription was continued, but its answer is lost"]
    answer: Any = (Ongoing if kind == "sync" else AsyncOngoing).answer

    def interrupt() -> None:
        if interruptions:
            raise RuntimeError(interruptions.pop())

    def answer_in_thread(ongoing: Ongoing) -> bytes:
        found: bytes = answer(ongoing)
        interrupt()
        return found

    async def answer_in_task(ongoing: AsyncOngoing) -> bytes:
        found: bytes = await answer(ongoing)
        interrupt()
        return found

    async with attached() as shell:
        job = await shell.bash("read -r; echo one; read -r; echo two", **OPEN_INPUT)
        async with shell.events(bash_id=job.bash_id) as events:
            lose_connection(shell)
            await has_lost_connection(shell)
            monkeypatch.setattr(Ongoing, "answer", answer_in_thread)
            monkeypatch.setattr(AsyncOngoing, "answer", answer_in_task)
            await shell.write_stdin(job.bash_id, "\n")
            with pytest.raises(RuntimeError, match="its answer is lost"):
                await anext(events)
            await shell.write_stdin(job.bash_id, "\n")
            found = [each async for each in events]
        assert "".join(each.text for each in found if isinstance(each, OutputEvent)) == "one\ntwo\n"
        assert [each.seq for each in found] == list(range(1, len(found) + 1))


@pytest.mark.parametrize("ends_before", [True, False])
async def test_events_that_were_lost_while_they_were_sent_again_come_once_more(
    attached: Attached, monkeypatch: pytest.MonkeyPatch, *, ends_before: bool
) -> None:
    def lose_in_thread(ongoing: Ongoing) -> None:
        while not isinstance(item := ongoing.next(), End):
            pass
        monkeypatch.undo()
        raise item.why

    async def lose_in_task(ongoing: AsyncOngoing) -> None:
        while not isinstance(item := await ongoing.next(), End):
            pass
        monkeypatch.undo()
        raise item.why

    async with attached() as shell:
        job = await shell.bash("echo one; read -r", **OPEN_INPUT)
        async with shell.events(bash_id=job.bash_id) as first:
            await anext(first)
            if ends_before:
                await shell.write_stdin(job.bash_id, "\n")
                await anext(first)
            async with shell.events(subscription=first.subscription, from_seq=0) as again:
                lose_connection(shell)
                monkeypatch.setattr(Ongoing, "next_event", lose_in_thread)
                monkeypatch.setattr(AsyncOngoing, "next_event", lose_in_task)
                output = await anext(again)
                if not ends_before:
                    await shell.write_stdin(job.bash_id, "\n")
                rest = [each async for each in again]
    assert [each.seq for each in (output, *rest)] == [1, 2]
    assert isinstance(rest[-1], ExitEvent)


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
            while not [each for each in await shell.list_shells() if each.pid]:
                await anyio.sleep(0.01)
            # Hold this lock, as each waiting task does for a moment after an attempt to attach
            # again.
            async with vars(shell)["_replacing"]:
                os.kill(shell.pid, signal.SIGKILL)
                while not found:
                    await anyio.sleep(0.01)
        assert found[0].code is None


@pytest.mark.parametrize("reconnect", [False, True])
async def test_key_continues_the_events_of_an_earlier_connection(
    attach: Attach, user: Lasting, reconnect: bool
) -> None:
    async with attach("work", env=user.env) as shell:
        job = await shell.bash("echo hello", run_in_background=True)
        options = {"bash_id": job.bash_id, "idempotency_key": "1"}
        lost = shell.events(**options)
        await lost.__aenter__()
        assert [type(await anext(lost)) for _ in range(2)] == [OutputEvent, ExitEvent]
        lose_connection(shell)
    async with (
        attach("work", env=user.env, reconnect=reconnect) as shell,
        shell.events(**options) as events,
    ):
        assert events.subscription == lost.subscription
        assert [type(event) async for event in events] == [OutputEvent, ExitEvent]


@pytest.mark.parametrize("kind", ["asyncio", "trio"])
async def test_cancelled_repeat_of_events_leaves_no_subscription_behind(
    attached: Attached,
) -> None:
    async with attached() as shell:
        await cancel_lost_call(shell, shell.events(events=["exit"]).__aenter__)
        async with shell.events(events=["exit"]) as events:
            # After the number of the subscription, a name has a mark of eight characters.
            mark = events.subscription[-8:]
        assert not await has_subscription(shell, f"sub_1{mark}")


def start_with_key(
    shell: Shell, way: str, command: str
) -> Callable[[], Coroutine[Any, Any, object]]:
    """Return the function that starts a command with a key, as a call, a job or a stream."""

    async def start() -> object:
        if way == "job":
            return await shell.start(command, idempotency_key="1").__aenter__()
        if way == "stream":
            return await anext(shell.stream(command, idempotency_key="1"))
        background = way == "background"
        return await shell.bash(command, idempotency_key="1", run_in_background=background)

    return start


@pytest.mark.parametrize("kind", ["asyncio", "trio"])
@pytest.mark.parametrize(
    ("way", "runs"),
    [*((way, False) for way in ("bash", "background", "job", "stream")), ("bash", True)],
)
async def test_call_with_a_key_that_is_cancelled_while_it_is_repeated_leaves_no_command(
    attached: Attached, way: str, runs: bool
) -> None:
    async with attached() as shell:
        call = start_with_key(shell, way, "sleep 300")
        await cancel_lost_call(shell, call, runs=runs)
        await has_no_running_shell(shell)


async def has_no_running_shell(shell: Shell) -> None:
    """Wait until no command runs. Fails if a command goes on."""
    with anyio.fail_after(60):
        while [each for each in await shell.list_shells() if each.status == "running"]:
            await anyio.sleep(0.01)


async def test_stream_with_a_key_that_is_left_without_a_connection_is_killed(
    attached: Attached,
) -> None:
    async with attached() as shell:
        async with shell.stream("echo one; sleep 300", idempotency_key="1") as stream:
            event = await anext(stream)
            lose_connection(shell)
            await has_lost_connection(shell)
        read = await shell.bash_output(event.bash_id, until="exit", wait=60_000)
        assert read.status == "killed"


@pytest.mark.parametrize("kind", ["asyncio", "trio"])
async def test_stream_with_a_key_that_is_cancelled_while_it_is_repeated_is_killed(
    attached: Attached,
) -> None:
    async with attached() as shell:
        async with shell.stream("echo one; sleep 300", idempotency_key="1") as stream:
            event = await anext(stream)
            await cancel_lost_call(shell, stream.__anext__, runs=True)
        read = await shell.bash_output(event.bash_id, until="exit", wait=60_000)
        assert read.status == "killed"


async def test_repeated_stream_leaves_no_subscription_behind(
    attached: Attached, tmp_path: Path
) -> None:
    gates = [Gate(tmp_path / f"gate{number}") for number in range(2)]
    command = "; ".join(f"echo; {gate.wait}" for gate in gates)
    async with attached() as shell:
        names = list[str]()
        async with shell.stream(f"{command}; echo; sleep 300", idempotency_key="1") as stream:
            for gate in gates:
                names.append((await anext(stream)).subscription)
                lose_connection(shell)
                await has_lost_connection(shell)
                gate.open()
            last = await anext(stream)
            assert len({*names, last.subscription}) == 3
            assert not [name for name in names if await has_subscription(shell, name)]
