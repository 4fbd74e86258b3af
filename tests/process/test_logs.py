"""Log lines on stderr are whole and in order, and writing them never blocks."""

from __future__ import annotations

import logging
import os
import pty
import socket
from collections.abc import Callable

import pytest

from shelld.process.logs import DescriptorHandler


def pipe_pair() -> tuple[int, int]:
    return os.pipe()


def socket_pair() -> tuple[int, int]:
    read, write = socket.socketpair()
    return read.detach(), write.detach()


def record(text: str) -> logging.LogRecord:
    return logging.LogRecord("shelld", logging.INFO, "", 0, text, None, None)


def read_all(descriptor: int) -> list[str]:
    os.set_blocking(descriptor, False)
    data = b""
    try:
        while piece := os.read(descriptor, 1 << 20):
            data += piece
    except BlockingIOError:
        pass
    return data.decode().splitlines()


@pytest.mark.parametrize("make", [pipe_pair, socket_pair])
@pytest.mark.parametrize("size", [100, 20_000])
def test_unread_lines_are_dropped_and_counted(
    make: Callable[[], tuple[int, int]], size: int
) -> None:
    read, write = make()
    handler = DescriptorHandler(write)
    emitted = 0
    while not handler.dropped:
        handler.emit(record(f"{emitted} " + "x" * size))
        emitted += 1
    for _ in range(4):
        handler.emit(record("unread"))
    # The last line that was read may be incomplete.
    whole = read_all(read)[: emitted - 1]
    assert whole == [f"{number} " + "x" * size for number in range(emitted - 1)]
    handler.emit(record("read again"))
    assert read_all(read)[-2:] == [
        "5 log lines were dropped: the log did not accept them",
        "read again",
    ]
    assert handler.dropped == 0
    assert os.get_blocking(write)
    os.close(read)
    os.close(write)


def test_a_closed_stderr_is_no_error() -> None:
    read, write = os.pipe()
    os.close(read)
    handler = DescriptorHandler(write)
    handler.emit(record("nobody is there"))
    assert handler.dropped == 1
    os.close(write)


def test_unread_terminal_does_not_block_logs() -> None:
    read, write = pty.openpty()
    handler = DescriptorHandler(write)
    while not handler.dropped:
        handler.emit(record("x" * 100))
    assert os.get_blocking(write)
    while handler.dropped:
        os.read(read, 1 << 16)
        handler.emit(record("read again"))
    os.close(read)
    os.close(write)
