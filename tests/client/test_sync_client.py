"""`Client` has the same methods without `await`, and any thread may call them."""

from __future__ import annotations

import errno
import inspect
import os
import select
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from both_clients import ANSWERING, peer
from shelld_client import AsyncClient, Client, CommandTimedOut, DaemonExited, SpawnFailed
from shelld_client.link import Link
from support import descendants, is_alive, wait_for


@pytest.fixture
def shell() -> Iterator[Client]:
    with Client.spawn() as client:
        yield client


def test_sync_client_has_the_async_methods() -> None:
    def methods(client: type) -> dict[str, list[str]]:
        return {
            name: list(inspect.signature(method).parameters)
            for name, method in inspect.getmembers(client, inspect.isfunction)
            if not name.startswith("_")
        }

    assert methods(Client) == methods(AsyncClient)


def test_methods_return_results(shell: Client) -> None:
    assert shell.bash("echo hi").stdout == "hi\n"
    job = shell.bash("echo up; sleep 300", run_in_background=True)
    assert shell.bash_output(job.bash_id, wait=60_000).stdout == "up\n"
    assert [info.bash_id for info in shell.list_shells()][1:] == [job.bash_id]
    assert shell.kill_shell(job.bash_id).status == "killed"
    shell.bash("sleep 300", session="mine", run_in_background=True)
    assert [info.shells for info in shell.list_sessions() if info.session == "mine"] == [1]
    assert len(shell.get_session("mine").shells) == 1
    assert shell.get_session().env == {}
    assert shell.close_session("mine").killed == 1
    assert shell.server_info().pid == shell.pid
    shell.ping()
    with pytest.raises(CommandTimedOut):
        shell.bash("sleep 300", timeout=1000)


def test_many_threads_share_a_client(shell: Client) -> None:
    def echo(number: int) -> str:
        return shell.bash(f"echo {number}").stdout

    with ThreadPoolExecutor(16) as threads:
        outputs = list(threads.map(echo, range(100)))
    assert outputs == [f"{number}\n" for number in range(100)]


def test_an_interrupted_call_is_cancelled_in_the_daemon(shell: Client) -> None:
    def interrupt() -> None:
        wait_for(lambda: any(info.pid for info in shell.list_shells()), "the command")
        os.kill(os.getpid(), signal.SIGINT)

    # A process that was started in the background may ignore SIGINT.
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    thread = threading.Thread(target=interrupt)
    thread.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            shell.bash("sleep 300")
    finally:
        signal.signal(signal.SIGINT, handler)
    thread.join()
    wait_for(lambda: not any(info.is_running for info in shell.list_shells()), "its end")


def test_leaving_the_client_ends_everything() -> None:
    with Client.spawn() as shell:
        shell.bash("setsid sleep 300 &")
        pids = [shell.pid, *descendants(shell.pid)]
    assert not [pid for pid in pids if is_alive(pid)]
    with pytest.raises(DaemonExited):
        shell.ping()


def test_unstartable_program_is_spawn_failed() -> None:
    with pytest.raises(SpawnFailed), Client.spawn(["/nonexistent/shelld"]):
        pass


def test_killed_daemon_fails_the_call(shell: Client) -> None:
    shell.ping()
    os.kill(shell.pid, signal.SIGKILL)
    with pytest.raises(DaemonExited):
        shell.bash("true")


def test_a_shortage_of_memory_ends_the_daemon(monkeypatch: pytest.MonkeyPatch) -> None:
    is_short = threading.Event()
    make_poll = select.poll

    class Poll:
        def __init__(self) -> None:
            sources = make_poll()
            self.register, self.unregister = sources.register, sources.unregister
            self._poll = sources.poll

        def poll(self, timeout: int | None) -> list[tuple[int, int]]:
            if is_short.is_set():
                raise OSError(errno.ENOMEM, "Cannot allocate memory")
            return self._poll(timeout)

    monkeypatch.setattr("shelld_client.pump.select.poll", Poll)
    with Client.spawn(peer(f"trap '' TERM; {ANSWERING}")) as client:
        client.ping()
        is_short.set()
        with pytest.raises(DaemonExited):
            while True:
                client.ping()
    # Not even a zombie is left; the suite's own fixtures check descriptors.
    with pytest.raises(ProcessLookupError):
        os.kill(client.pid, 0)


def test_logging_finaliser_leaves_no_thread_entry(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names: list[str] = []
    receive = Link._receive  # pyright: ignore[reportPrivateUsage]

    def receive_and_log(link: Link, data: bytes) -> None:
        # `logging` also looks up the thread's name, for every record.
        names.append(threading.current_thread().name)
        receive(link, data)

    monkeypatch.setattr(Link, "_receive", receive_and_log)
    for _ in range(3):
        with Client.spawn(peer(ANSWERING)) as client:
            client.ping()
    assert names
    assert [thread.name for thread in threading.enumerate() if "Dummy" in thread.name] == []
