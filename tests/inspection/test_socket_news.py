"""All calls that wait for a listening socket share one listing of the sockets."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial

import anyio
import pytest

from shelld.inspection import socket_news, sockets
from shelld.inspection.socket_news import SocketNews, SocketWatch
from shelld.inspection.sockets import Socket

FIRST, SECOND = Socket(1, 80, "::"), Socket(2, 81, "::")


class Kernel:
    """This object stands for the kernel.

    It lists the sockets that a test sets, and counts the listings.
    """

    def __init__(self) -> None:
        self.listening: list[Socket] | None = []
        self.listings = 0
        self.number: int | None = None
        self.counts = 0

    def list(self, _proc_dir: str) -> list[Socket]:
        self.listings += 1
        if self.listening is None:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return self.listening

    def count(self, _proc_dir: str) -> int | None:
        self.counts += 1
        return self.number


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Kernel:
    kernel = Kernel()
    monkeypatch.setattr(sockets, "listening", kernel.list)
    monkeypatch.setattr(sockets, "number_of", kernel.count)
    return kernel


async def until(condition: Callable[[], bool]) -> None:
    with anyio.fail_after(60):
        while not condition():
            await anyio.sleep(0.005)


async def next_listing(kernel: Kernel) -> None:
    """Wait until `kernel` lists the sockets again."""
    before = kernel.listings
    await until(lambda: kernel.listings > before)


async def test_only_new_sockets_wake_the_watchers(kernel: Kernel) -> None:
    news, woken = SocketNews(), list[int]()
    kernel.listening = [FIRST]
    with news.watching(lambda: woken.append(news.count)):
        first = news.count
        woken.clear()
        for now, more in (([FIRST], 0), ([FIRST, SECOND], 1), ([SECOND], 1), ([FIRST, SECOND], 2)):
            kernel.listening = now
            await next_listing(kernel)
            assert news.count == first + more
            assert news.listening == frozenset(now)
    assert woken == [first + 1, first + 2]


async def test_one_listing_of_sockets_wakes_all_watchers(kernel: Kernel) -> None:
    news, woken = SocketNews(), list[tuple[str, int]]()

    def note(watcher: str) -> None:
        woken.append((watcher, kernel.listings))

    with news.watching(partial(note, "a")), news.watching(partial(note, "b")):
        listing = kernel.listings + 1
        kernel.listening = [FIRST]
        await until(lambda: len(woken) >= 2)
    assert sorted(woken) == [("a", listing), ("b", listing)]


async def test_listings_of_sockets_stop_when_the_last_watch_ends(kernel: Kernel) -> None:
    news = SocketNews()
    with news.watching(lambda: None):
        pass
    before = kernel.listings
    # This time is longer than the longest pause between two listings.
    await anyio.sleep(0.3)
    assert kernel.listings == before


async def test_failed_listing_of_sockets_is_repeated(kernel: Kernel) -> None:
    news = SocketNews()
    kernel.listening = None
    with news.watching(lambda: None):
        await next_listing(kernel)
        assert news.count == 0
        kernel.listening = [FIRST]
        await until(lambda: news.count == 1)


async def test_pauses_between_listings_grow_until_a_socket_appears(
    kernel: Kernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    news, pauses = SocketNews(), list[float]()
    loop, now = asyncio.get_running_loop(), 100.0
    waiting: list[Callable[[], None]] = []

    def call_later(delay: float, call: Callable[[], None]) -> asyncio.TimerHandle:
        pauses.append(delay)
        waiting.append(call)
        return asyncio.TimerHandle(0, call, (), loop)

    with monkeypatch.context() as patched:
        patched.setattr(loop, "call_later", call_later)
        patched.setattr("time.monotonic", lambda: now)
        patched.setattr("time.thread_time", lambda: 0.0)
        with news.watching(lambda: None):
            for passed_s in (1.0, 4.0, 60.0):
                now += passed_s
                waiting.pop()()
            kernel.listening = [FIRST]
            waiting.pop()()
    assert pauses == pytest.approx([0.04, 0.04, 0.1, 0.2, 0.04])


# -- other namespaces -------------------------------------------------------------------------

PROC_DIR = "/proc/self"
# For each line that it reads, this program makes one more listening socket.
SERVER = """
import socket, sys
servers = []
print("ready", flush=True)
for line in sys.stdin:
    servers.append(socket.create_server(("127.0.0.1", 0)))
"""


@pytest.fixture
def namespace() -> int:
    """The network namespace of this process, which stands for another namespace."""
    return os.stat(f"{PROC_DIR}/ns/net").st_ino


async def test_sockets_of_another_namespace_are_counted_before_they_are_listed(
    kernel: Kernel, namespace: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket_news, "_LIST_ANYWAY_S", 3_600.0)
    news, kernel.number = SocketNews(), 0
    with news.watching_elsewhere(namespace, PROC_DIR, lambda: None):
        await until(lambda: kernel.counts >= 4)
        assert kernel.listings == 1
        kernel.number = 1
        await until(lambda: kernel.listings == 2)


@pytest.mark.parametrize("number", [None, 1])
async def test_sockets_are_listed_although_their_number_is_the_same_or_unknown(
    kernel: Kernel, namespace: int, monkeypatch: pytest.MonkeyPatch, number: int | None
) -> None:
    monkeypatch.setattr(socket_news, "_LIST_ANYWAY_S", 0.0)
    monkeypatch.setattr(socket_news, "_LIST_COST_SHARE", 0)
    kernel.listening, kernel.number = [FIRST], number
    news = SocketNews()
    with SocketWatch(news, lambda: None) as watch:
        watch.follow({namespace: PROC_DIR})
        seen = watch.count
        kernel.listening = [SECOND]
        await until(lambda: watch.count >= seen + 2)


async def test_watchers_of_a_namespace_share_its_listings(
    kernel: Kernel, namespace: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    news, kernel.number, woken = SocketNews(), 0, list[tuple[str, int]]()
    there = f"/proc/{os.getpid()}"

    def listening(proc_dir: str) -> list[Socket]:
        # In the daemon's namespace, no socket ever changes.
        return kernel.list(proc_dir) if proc_dir == there else []

    def note(watcher: str) -> None:
        woken.append((watcher, kernel.counts))

    monkeypatch.setattr(sockets, "listening", listening)
    with (
        SocketWatch(news, partial(note, "a")) as first,
        SocketWatch(news, partial(note, "b")) as second,
    ):
        for watch in (first, second):
            watch.follow({namespace: there})
        count = kernel.counts + 1
        kernel.listening, kernel.number = [FIRST], 1
        await until(lambda: len(woken) >= 2)
    assert sorted(woken) == [("a", count), ("b", count)]


async def test_pauses_grow_with_the_number_of_namespaces(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    used_s, pauses = 0.0, list[float]()
    loop = asyncio.get_running_loop()

    def number_of(_proc_dir: str) -> int:
        nonlocal used_s
        used_s += 0.01
        return 0

    def proc_dir(_news: SocketNews) -> str:
        return PROC_DIR

    def call_later(delay: float, call: Callable[[], None]) -> asyncio.TimerHandle:
        pauses.append(delay)
        return asyncio.TimerHandle(0, call, (), loop)

    with monkeypatch.context() as patched, SocketWatch(SocketNews(), lambda: None) as watch:
        patched.setattr(sockets, "number_of", number_of)
        patched.setattr(loop, "call_later", call_later)
        patched.setattr("time.thread_time", lambda: used_s)
        patched.setattr(SocketNews, "_proc_dir", proc_dir)
        watch.follow(dict.fromkeys(range(1, 4), PROC_DIR))
    assert pauses == pytest.approx([0.4, 0.8, 1.2])


async def test_namespace_without_processes_wakes_watchers_and_is_dropped(
    kernel: Kernel, namespace: int
) -> None:
    news = SocketNews()
    with SocketWatch(news, lambda: None) as watch:
        # First one process is in the namespace, then another, and then none.
        watch.follow({namespace: "/proc/0"})
        assert watch.count == 1
        watch.follow({namespace: PROC_DIR})
        await until(lambda: kernel.counts >= 2)
        watch.follow({})
        before = kernel.counts
        await next_listing(kernel)
        await next_listing(kernel)
        assert kernel.counts == before


@pytest.fixture
def server() -> Iterator[subprocess.Popen[bytes]]:
    """A program in a network namespace of its own."""
    enter = ["unshare", "--user", "--map-root-user", "--net"]
    if shutil.which("unshare") is None or subprocess.run([*enter, "true"], check=False).returncode:
        pytest.skip("needs namespaces")
    command = [*enter, sys.executable, "-c", SERVER]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        yield child
        child.stdin.close()


def has_more_than(watch: SocketWatch, count: int) -> bool:
    return watch.count > count


async def test_new_socket_in_another_namespace_wakes_the_watchers(
    server: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Usually, the sockets are also listed again after some time. In this test, this time is too
    # long, so only the number of sockets can reveal a new socket.
    monkeypatch.setattr(socket_news, "_LIST_ANYWAY_S", 3_600.0)
    proc_dir = f"/proc/{server.pid}"
    with SocketWatch(SocketNews(), lambda: None) as watch:
        watch.follow({os.stat(f"{proc_dir}/ns/net").st_ino: proc_dir})
        assert sockets.number_of(proc_dir) == 0
        for number in (1, 2):
            seen = watch.count
            assert server.stdin is not None
            server.stdin.write(b"\n")
            server.stdin.flush()
            await until(partial(has_more_than, watch, seen))
            assert sockets.number_of(proc_dir) == number
