"""What happens to requests if sending them fails although the target is still there."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Iterator
from typing import cast

import anyio
import pytest
from anyio.lowlevel import checkpoint

from shelld.targets.outgoing import Outgoing
from support import DEADLINE_S


class Connection:
    """A connection. Its method `send` fails once with each of these errors, and then works."""

    def __init__(self, real: socket.socket, *errors: int) -> None:
        self._real = real
        self._errors = iter(errors)
        self.shutdown = real.shutdown
        self.fileno = real.fileno

    def send(self, data: bytes) -> int:
        for number in self._errors:
            raise OSError(number, os.strerror(number))
        return self._real.send(data)


def outgoing_to(ours: socket.socket, *errors: int) -> Outgoing:
    return Outgoing(cast("socket.socket", Connection(ours, *errors)))


@pytest.fixture
def sockets() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        theirs.setblocking(False)
        yield ours, theirs


async def read(theirs: socket.socket) -> bytes:
    with anyio.fail_after(DEADLINE_S):
        await anyio.wait_readable(theirs)
        return theirs.recv(100)


@pytest.mark.parametrize("number", [errno.ENOMEM, errno.ENOBUFS, errno.EAGAIN])
async def test_a_send_without_memory_is_repeated(
    number: int, sockets: tuple[socket.socket, socket.socket]
) -> None:
    ours, theirs = sockets
    outgoing = outgoing_to(ours, number, number)
    outgoing.put(b"one ")
    outgoing.put(b"two")
    assert outgoing.backlog == len("one two")
    got = b""
    while len(got) < len("one two"):
        got += await read(theirs)
    assert (got, outgoing.backlog) == (b"one two", 0)
    outgoing.stop()


async def test_a_stopped_send_is_not_repeated(
    sockets: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = sockets
    monkeypatch.setattr("shelld.targets.outgoing._SHORTAGE_PAUSE_S", 0.0)
    outgoing = outgoing_to(ours, errno.ENOMEM)
    outgoing.put(b"one")
    outgoing.stop()
    for _ in range(3):
        await checkpoint()
    with pytest.raises(BlockingIOError):
        theirs.recv(100)


async def test_a_target_sees_the_end_of_its_input_after_a_failed_send(
    sockets: tuple[socket.socket, socket.socket],
) -> None:
    ours, theirs = sockets
    outgoing = outgoing_to(ours, errno.EPIPE)
    outgoing.put(b"one")
    assert await read(theirs) == b""
    # The daemon can still read the messages that the target sent before.
    theirs.send(b"answer")
    assert ours.recv(100) == b"answer"
    assert outgoing.backlog == 0
