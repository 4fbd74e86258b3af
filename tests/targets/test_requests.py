"""Requests to a target that is not connected yet."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from shelld.targets.outgoing import Outgoing
from shelld.targets.requests import Requests


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    near, far = socket.socketpair()
    near.setblocking(False)
    with near, far:
        yield near, far


def sent_to(far: socket.socket) -> list[Any]:
    far.setblocking(False)
    try:
        return [json.loads(line) for line in far.recv(65536).splitlines()]
    except BlockingIOError:
        return []


async def test_command_left_before_it_is_sent_moves_to_the_background(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    requests = Requests("box", Outgoing(ends[0]))
    call = requests.begin("bash", b'{"command":"make"}', b"1")
    requests.leave(call)
    requests.open(65536)
    bash, background = sent_to(ends[1])
    assert (bash["method"], background["method"]) == ("bash", "background")
    assert background["params"] == {"request_id": bash["id"]}


async def test_command_left_and_cancelled_before_it_is_sent_is_never_sent(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    requests = Requests("box", Outgoing(ends[0]))
    call = requests.begin("bash", b'{"command":"make"}', b"1")
    requests.leave(call)
    requests.cancel(call)
    assert call.done.is_set()
    requests.open(65536)
    assert sent_to(ends[1]) == []
