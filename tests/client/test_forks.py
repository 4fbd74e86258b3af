"""Clients in a forked child, which has a copy of the client but no daemon."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import anyio
import pytest

from both_clients import peer, spawn_of
from shelld_client import AsyncClient, Client, DaemonExited, SpawnFailed

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def forks_with_threads() -> Iterator[None]:
    # Python 3.12 and later warn about a fork of a process with several threads.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        yield


def in_child(work: Callable[[], object]) -> int:
    """Call `work` in a forked child; return the child's exit code."""
    pid = os.fork()
    if pid == 0:
        code = 1
        # A child that hangs fails the test and does not outlive it.
        signal.alarm(30)
        try:
            work()
            code = 0
        except SystemExit as error:
            code = int(str(error.code))
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def refuses(client: Client) -> None:
    with pytest.raises(DaemonExited, match="another process"):
        client.bash("echo CHILD")


def test_a_forked_child_cannot_use_the_client() -> None:
    with Client.spawn() as client:
        assert in_child(lambda: refuses(client)) == 0
        assert client.bash("echo PARENT", session=None).stdout == "PARENT\n"


@pytest.mark.parametrize("what", ["events", "start", "stream"])
def test_a_forked_child_cannot_iterate(what: str) -> None:
    with Client.spawn() as client:
        begun: dict[str, Any] = {
            "events": client.events(),
            "start": client.start("sleep 300"),
            "stream": client.stream("echo begun; sleep 300"),
        }
        with begun[what] as items:
            if what == "stream":
                next(items)

            def iterate() -> None:
                with pytest.raises(DaemonExited, match="another process"):
                    next(items)

            assert in_child(iterate) == 0


def run_in_child(client: Client) -> None:
    refuses(client)
    sys.exit(7)


def test_a_process_of_multiprocessing_cannot_use_the_client() -> None:
    with Client.spawn() as client:
        process = multiprocessing.get_context("fork").Process(target=run_in_child, args=(client,))
        process.start()
        process.join()
        assert process.exitcode == 7
        process.close()
        client.ping()


def test_leaving_in_forked_child_keeps_daemon_running() -> None:
    with Client.spawn() as client:
        assert in_child(lambda: client.__exit__(None, None, None)) == 0
        assert client.bash("echo still").stdout == "still\n"


def test_unstarted_client_can_be_left_in_forked_child() -> None:
    client = Client.spawn(["/missing/shelld"])
    with pytest.raises(SpawnFailed):
        client.__enter__()
    assert in_child(lambda: client.__exit__(None, None, None)) == 0


@pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
async def test_forked_child_does_not_disturb_async_client(anyio_backend: str) -> None:
    async with AsyncClient.spawn() as client:

        def step(coroutine: Any) -> None:
            # The child has no event loop of its own, so its calls must not wait.
            with pytest.raises(StopIteration):
                coroutine.send(None)

        def use() -> None:
            with pytest.raises(DaemonExited, match="another process"):
                client.bash("echo CHILD").send(None)
            step(client.__aexit__(None, None, None))

        assert in_child(use) == 0
        # The child has removed nothing from the epoll instance that it shares with its parent's
        # event loop.
        with anyio.fail_after(60):
            assert (await client.bash("echo still")).stdout == "still\n"


def test_a_new_client_works_in_a_forked_child() -> None:
    def work() -> None:
        with Client.spawn() as own:
            assert own.bash("echo own").stdout == "own\n"

    with Client.spawn() as client:
        assert in_child(work) == 0
        client.ping()


def test_thread_of_forked_child_can_enter_client() -> None:
    entered: list[str] = []

    def enter() -> None:
        with Client.spawn() as own:
            entered.append(own.bash("echo own").stdout)

    def work() -> None:
        # This thread may get the same identifier as the client's thread in the parent.
        thread = threading.Thread(target=enter)
        thread.start()
        thread.join()
        assert entered == ["own\n"]

    with Client.spawn() as client:
        client.ping()
        assert in_child(work) == 0


def open_files() -> set[str]:
    files: set[str] = set()
    for number in os.listdir("/proc/self/fd"):
        # The list contains the descriptor that `os.listdir` used, which is closed by now.
        with suppress(FileNotFoundError):
            files.add(os.readlink(f"/proc/self/fd/{number}"))
    return files


@pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
@pytest.mark.parametrize("is_async", [False, True])
async def test_forked_child_holds_no_daemon_pipe(anyio_backend: str, is_async: bool) -> None:
    spawn = spawn_of(anyio_backend if is_async else "sync")
    async with spawn(peer("cat > /dev/null")) as client:
        pipes = {os.readlink(f"/proc/{client.pid}/fd/{number}") for number in (0, 1, 2)}

        def hold_none() -> None:
            assert not pipes & open_files()

        assert pipes <= open_files()
        assert in_child(hold_none) == 0
