"""One look for all that wait until a socket listens."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Callable

import anyio
import pytest

from shelld.inspection import sockets
from shelld.inspection.socket_news import SocketNews
from shelld.inspection.sockets import Socket

FIRST, SECOND = Socket(1, 80, "::"), Socket(2, 81, "::")


class Kernel:
    """Lists the sockets that a test sets, and counts the looks."""

    def __init__(self) -> None:
        self.listening: list[Socket] | None = []
        self.looks = 0

    def list(self, _place: str) -> list[Socket]:
        self.looks += 1
        if self.listening is None:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return self.listening


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Kernel:
    kernel = Kernel()
    monkeypatch.setattr(sockets, "listening", kernel.list)
    return kernel


async def until(condition: Callable[[], bool]) -> None:
    with anyio.fail_after(30):
        while not condition():
            await anyio.sleep(0.005)


async def look_again(kernel: Kernel) -> None:
    """Wait for a look that begins from now on."""
    before = kernel.looks
    await until(lambda: kernel.looks > before)


async def test_only_new_sockets_are_news(kernel: Kernel) -> None:
    news, woken = SocketNews(), list[int]()
    kernel.listening = [FIRST]
    with news.watching(lambda: woken.append(news.count)):
        first = news.count
        woken.clear()
        for now, more in (([FIRST], 0), ([FIRST, SECOND], 1), ([SECOND], 1), ([FIRST, SECOND], 2)):
            kernel.listening = now
            await look_again(kernel)
            assert news.count == first + more
            assert news.listening == frozenset(now)
    assert woken == [first + 1, first + 2]


async def test_one_look_wakes_all(kernel: Kernel) -> None:
    news, woken = SocketNews(), list[str]()
    with news.watching(lambda: woken.append("a")), news.watching(lambda: woken.append("b")):
        before = kernel.looks
        kernel.listening = [FIRST]
        await until(lambda: bool(woken))
        assert sorted(woken) == ["a", "b"]
        assert kernel.looks == before + 1


async def test_nobody_looks_once_nobody_watches(kernel: Kernel) -> None:
    news = SocketNews()
    with news.watching(lambda: None):
        pass
    before = kernel.looks
    # Longer than the longest pause between two looks.
    await anyio.sleep(0.3)
    assert kernel.looks == before


async def test_look_that_fails_is_followed_by_another(kernel: Kernel) -> None:
    news = SocketNews()
    kernel.listening = None
    with news.watching(lambda: None):
        await look_again(kernel)
        assert news.count == 0
        kernel.listening = [FIRST]
        await until(lambda: news.count == 1)


async def test_pauses_grow_until_there_is_news(
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
