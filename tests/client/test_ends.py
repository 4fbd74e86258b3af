"""The end of clients. At any moment, the program may leave a client's `with` block, cancel the
client's task, or abandon the client.
"""

from __future__ import annotations

import asyncio
import functools
import gc
import subprocess
import sys
import threading
import warnings
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from both_clients import ANSWERING, peer
from shelld_client import AsyncClient, Client, DaemonExited, ShellError
from shelld_client.connection import Connection
from support import Gate, in_threads, is_alive, wait_for


class Interposed:
    """A coroutine that calls `interfere` when it waits for the `step`-th time."""

    def __init__(self, coroutine: Any, step: int, interfere: Callable[[], object]) -> None:
        self._coroutine = coroutine
        self._interfere = interfere
        self.steps_left = step

    def __await__(self) -> Generator[Any, Any, Any]:
        inner = self._coroutine.__await__()
        resume: Callable[[], Any] = functools.partial(next, inner)
        while True:
            try:
                waits_for = resume()
            except StopIteration as end:
                return end.value
            self.steps_left -= 1
            if self.steps_left == 0:
                self._interfere()
            try:
                value = yield waits_for
            except BaseException as error:
                resume = functools.partial(inner.throw, error)
            else:
                resume = functools.partial(inner.send, value)


async def use(command: list[str] | None, pids: list[int]) -> None:
    async with AsyncClient.spawn(command) as client:
        pids.append(client.pid)
        await client.ping()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(client.bash, "echo 1")
            await client.bash("cat", stdin="x" * 100_000)


async def all_of(work: Awaitable[None]) -> None:
    await work


@pytest.mark.slow
@pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
async def test_scope_cancelled_at_every_wait_ends_daemon(anyio_backend: str) -> None:
    step, was_cancelled = 0, True
    while was_cancelled:
        step += 1
        pids: list[int] = []
        scope = anyio.CancelScope()
        work = Interposed(use(None, pids), step, scope.cancel)
        with scope:
            await all_of(work)
        was_cancelled = work.steps_left <= 0
        assert not any(map(is_alive, pids))
    assert step > 4


@pytest.mark.slow
def test_task_cancelled_at_every_wait_ends_daemon() -> None:
    async def cancelled_at(step: int, pids: list[int]) -> bool:
        task: asyncio.Task[None]
        work = Interposed(use(None, pids), step, lambda: task.cancel())  # noqa: PLW0108 - it is not there yet
        task = asyncio.create_task(all_of(work))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("shelld_client.child.CLOSE_TIMEOUT_S", 2)
            await asyncio.wait([task])
        assert task.cancelled() or task.exception() is None
        return work.steps_left <= 0

    step, was_cancelled = 0, True
    while was_cancelled:
        step += 1
        pids: list[int] = []
        was_cancelled = asyncio.run(cancelled_at(step, pids))
        assert not any(map(is_alive, pids))
    assert step > 4


@pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
async def test_cancelling_before_the_start_starts_no_daemon(anyio_backend: str) -> None:
    client = AsyncClient.spawn(peer("cat > /dev/null"))
    with anyio.CancelScope() as scope:
        scope.cancel()
        await client.__aenter__()
    with pytest.raises(DaemonExited, match="not entered"):
        _ = client.pid


@pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
async def test_an_async_client_can_be_left_twice(anyio_backend: str) -> None:
    async with AsyncClient.spawn(peer("cat > /dev/null")) as client:
        pid = client.pid
        await client.__aexit__(None, None, None)
    assert not is_alive(pid)


@pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
async def test_every_leaving_task_sees_daemon_ended(
    anyio_backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shelld_client.child.CLOSE_TIMEOUT_S", 60)
    gate = Gate(tmp_path / "gate")
    client = AsyncClient.spawn(peer(f"cat > /dev/null; {gate.wait}"))
    await client.__aenter__()
    ends: list[bool] = []

    async def leave() -> None:
        await client.__aexit__(None, None, None)
        ends.append(is_alive(client.pid))

    async def leave_when_cancelled() -> None:
        with anyio.CancelScope() as scope:
            scope.cancel()
            await leave()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(leave)
        await anyio.wait_all_tasks_blocked()
        tasks.start_soon(leave)
        tasks.start_soon(leave_when_cancelled)
        await anyio.wait_all_tasks_blocked()
        assert ends == []
        gate.open()
    assert ends == [False] * 3


def test_leaving_fails_the_calls_of_all_threads() -> None:
    client = Client.spawn()
    client.__enter__()
    ends: list[str] = []
    running = threading.Barrier(9)

    def work(number: int) -> None:
        running.wait()
        if number == 0:
            client.__exit__(None, None, None)
            return
        with pytest.raises(DaemonExited):
            while True:
                client.bash("true", session=None, stdin="x" * 1000 * number)
        ends.append("raised")

    in_threads(9, work)
    assert ends == ["raised"] * 8


@pytest.mark.parametrize("client", [Client, AsyncClient])
def test_unentered_client_is_collected(client: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        client.spawn()
        gc.collect()


FORGETFUL = {
    "sync": "from shelld_client import Client; print(Client.spawn().__enter__().pid)",
    "async": """
import asyncio
from shelld_client import AsyncClient
async def main():
    client = AsyncClient.spawn()
    await client.__aenter__()
    print(client.pid)
asyncio.run(main())
""",
}


@pytest.mark.parametrize("kind", FORGETFUL)
def test_program_that_never_leaves_client_ends_daemon(kind: str) -> None:
    program = subprocess.run(  # noqa: PLW1510
        [sys.executable, "-c", FORGETFUL[kind]], capture_output=True, text=True, timeout=100
    )
    pid = int(program.stdout)
    wait_for(lambda: not is_alive(pid), "the end of the daemon")


LATE = """
import asyncio
from shelld_client import AsyncClient
async def enter():
    return await AsyncClient.spawn().__aenter__()
client = asyncio.run(enter())
try:
    asyncio.run(client.ping())
except RuntimeError as error:
    print(error)
"""


def test_a_call_on_another_event_loop_is_refused() -> None:
    program = subprocess.run(  # noqa: PLW1510
        [sys.executable, "-c", LATE], capture_output=True, text=True, timeout=100
    )
    assert program.stdout == "the client was entered on another event loop\n"


@pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
async def test_async_client_may_be_left_in_another_task(anyio_backend: str) -> None:
    client = AsyncClient.spawn(peer(ANSWERING))
    # pytest-asyncio enters an asynchronous fixture in one task, and runs the test in another task.
    # anyio's plugin does not.
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(client.__aenter__)
    await client.ping()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(client.__aexit__, None, None, None)
    assert not is_alive(client.pid)


async def pids_of_a_peer() -> AsyncGenerator[int, None]:
    async with AsyncClient.spawn(peer(ANSWERING)) as client:
        while True:
            await client.ping()
            yield client.pid


@pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
@pytest.mark.filterwarnings("ignore:Async generator:ResourceWarning")
async def test_an_abandoned_generator_cancels_nobody(anyio_backend: str) -> None:
    pids: list[int] = []
    with anyio.fail_after(60):
        async for pid in pids_of_a_peer():
            pids.append(pid)
            break
        gc.collect()
        while is_alive(*pids):
            await anyio.sleep(0.01)
        # After the peers are dead, the client needs a few more iterations of the event loop to end.
        for _ in range(20):
            await anyio.lowlevel.checkpoint()


@pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
async def test_client_keeps_running_after_the_scope_that_entered_it_ends(
    anyio_backend: str,
) -> None:
    pids, pid = pids_of_a_peer(), 0
    with anyio.CancelScope() as scope:
        pid = await anext(pids)
        scope.cancel()
    with anyio.CancelScope():
        assert await anext(pids) == pid
        await pids.aclose()
    assert not is_alive(pid)


@pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
async def test_a_client_whose_task_fails_fails_its_calls(
    anyio_backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise MemoryError

    async with AsyncClient.spawn(peer(ANSWERING)) as client:
        monkeypatch.setattr(Connection, "receive", fail)
        for _ in range(2):
            with pytest.raises(ShellError, match=r"the client has failed: .*MemoryError"):
                await client.ping()
    assert not is_alive(client.pid)


# This function cancels all tasks but its own, as programs do when a signal asks them to end.
CANCELLING = """
import asyncio
from shelld_client import AsyncClient, DaemonExited
async def main():
    async with AsyncClient.spawn() as client:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.wait(others)
        try:
            await client.ping()
        except DaemonExited as error:
            print(error)
asyncio.run(main())
"""


def test_cancelled_client_task_fails_its_calls() -> None:
    program = subprocess.run(  # noqa: PLW1510
        [sys.executable, "-c", CANCELLING], capture_output=True, text=True, timeout=100
    )
    assert program.stdout == "the client's task was cancelled\n"


# The background task of the client is cancelled before it has run at all.
CANCELLED_AT_ONCE = """
import asyncio
from shelld_client import AsyncClient, DaemonExited
async def main():
    client = AsyncClient.spawn(start_timeout=None)
    entering = asyncio.create_task(client.__aenter__())
    await asyncio.sleep(0)
    (background,) = asyncio.all_tasks() - {entering, asyncio.current_task()}
    background.cancel()
    try:
        await entering
    except DaemonExited as error:
        print(error)
asyncio.run(main())
"""


def test_client_task_cancelled_before_start_fails_calls() -> None:
    program = subprocess.run(  # noqa: PLW1510
        [sys.executable, "-c", CANCELLED_AT_ONCE], capture_output=True, text=True, timeout=100
    )
    assert program.stdout == "the client's task was cancelled\n"


@pytest.mark.parametrize("is_running", [False, True])
def test_leaving_on_another_event_loop_is_refused(is_running: bool) -> None:
    client = AsyncClient.spawn(peer(ANSWERING))
    event_loop = asyncio.new_event_loop()
    event_loop.run_until_complete(client.__aenter__())
    thread = threading.Thread(target=event_loop.run_forever)
    if is_running:
        thread.start()
    try:
        with pytest.raises(RuntimeError, match="entered on another event loop"):
            asyncio.run(client.__aexit__(None, None, None))
        assert not is_alive(client.pid)
    finally:
        if is_running:
            event_loop.call_soon_threadsafe(event_loop.stop)
            thread.join()
        # The client's pipes can be closed only on the event loop that watches them.
        event_loop.run_until_complete(client.__aexit__(None, None, None))
        event_loop.close()
