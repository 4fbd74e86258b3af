"""`Pipe` moves the output of a command to its store, and enlarges a pipe that is often full."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from typing import Any

import pytest

from shelld.keeper.transient import TRANSIENT
from shelld.output.retention import ShellOutput
from shelld.output.store import MemoryBlocks
from shelld.shells import pipe as pipe_module
from shelld.shells.pipe import MAX_ATTEMPTS, MAX_SHORTAGES, PUMP_BYTES, Pipe

USUAL = 65_536


class Piped:
    """A `Pipe`, the write end of its pipe, and the `ShellOutput` that stores the output."""

    def __init__(self) -> None:
        read, self.write_end = os.pipe()
        os.set_blocking(read, False)
        os.set_blocking(self.write_end, False)
        self.output = ShellOutput()
        self.pipe = Pipe(read, self.output, self.output.stdout)

    @property
    def size(self) -> int:
        return fcntl.fcntl(self.write_end, fcntl.F_GETPIPE_SZ)

    @property
    def received(self) -> bytes:
        return self.output.stdout.store.read(0, 1 << 30).data

    def close(self) -> None:
        self.pipe.close()
        os.close(self.write_end)


@pytest.fixture
def pipes() -> Iterator[list[Piped]]:
    made = [Piped() for _ in range(20)]
    yield made
    for one in made:
        one.close()


def test_a_pipe_is_pumped_until_end_of_file() -> None:
    piped = Piped()
    assert piped.pipe.pump()
    os.write(piped.write_end, b"abc")
    assert piped.pipe.pump()
    os.write(piped.write_end, b"def")
    os.close(piped.write_end)
    assert piped.pipe.pump()
    assert not piped.pipe.pump()
    assert piped.received == b"abcdef"
    piped.pipe.close()


def test_draining_takes_only_present_bytes(
    pipes: list[Piped], monkeypatch: pytest.MonkeyPatch
) -> None:
    piped = pipes[0]
    written = os.write(piped.write_end, b"x" * USUAL)
    real = os.readv

    def readv(descriptor: int, buffers: Any) -> int:
        count = real(descriptor, buffers)
        os.write(piped.write_end, b"y" * 1000)
        return count

    monkeypatch.setattr("os.readv", readv)
    piped.pipe.drain()
    assert piped.received == b"x" * written


def test_only_full_pipes_are_enlarged(pipes: list[Piped]) -> None:
    quiet, loud = pipes[:2]
    for _ in range(3):
        os.write(quiet.write_end, b"x" * (USUAL - 1))
        quiet.pipe.pump()
    os.write(loud.write_end, b"x" * USUAL)
    loud.pipe.pump()
    assert (quiet.size, loud.size) == (USUAL, PUMP_BYTES)
    # One read empties the whole pipe.
    content = os.urandom(PUMP_BYTES)
    assert os.write(loud.write_end, content) == PUMP_BYTES
    loud.pipe.pump()
    assert loud.received == b"x" * USUAL + content


def test_number_of_large_pipes_is_limited(pipes: list[Piped]) -> None:
    for piped in pipes:
        os.write(piped.write_end, b"x" * USUAL)
        piped.pipe.pump()
    large = [piped for piped in pipes if piped.size > USUAL]
    assert len(large) == 16
    pipes.remove(large[0])
    large[0].close()
    late = next(piped for piped in pipes if piped.size == USUAL)
    os.write(late.write_end, b"x" * USUAL)
    late.pipe.pump()
    assert late.size > USUAL


def test_refused_enlargement_is_ignored(
    pipes: list[Piped], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def refuse(*arguments: int) -> int:
        asked.append(arguments[1])
        raise PermissionError

    monkeypatch.setattr("fcntl.fcntl", refuse)
    for _ in range(3):
        os.write(pipes[0].write_end, b"x" * USUAL)
        assert pipes[0].pipe.pump()
    assert pipes[0].output.stdout.store.written == 3 * USUAL
    assert asked == [fcntl.F_SETPIPE_SZ]


@pytest.mark.parametrize("number", sorted(TRANSIENT))
def test_a_shortage_that_passes_loses_no_output(
    pipes: list[Piped], monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    piped = pipes[0]
    os.write(piped.write_end, b"abc")
    real, failures = os.readv, [OSError(number, "") for _ in range(MAX_ATTEMPTS)]

    def readv(*arguments: Any) -> int:
        if failures:
            raise failures.pop()
        return real(*arguments)

    monkeypatch.setattr("os.readv", readv)
    assert piped.pipe.pump()
    piped.pipe.drain()
    assert (piped.received, piped.output.error) == (b"abc", None)


@pytest.mark.parametrize("number", [errno.EIO, errno.EBADF])
def test_unreadable_pipe_is_reported_as_output_error(
    pipes: list[Piped], monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    piped = pipes[0]
    os.write(piped.write_end, b"abc")
    assert piped.pipe.pump()
    os.write(piped.write_end, b"def")

    def refuse(*_: object) -> int:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        patch.setattr("os.readv", refuse)
        assert not piped.pipe.pump()
        piped.pipe.drain()
    assert piped.output.stdout.store.written == 3
    assert piped.output.error == errno.errorcode[number]


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOMEM, errno.EINTR])
def test_pipe_of_unknown_size_is_drained(
    pipes: list[Piped], monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    piped = pipes[0]
    os.write(piped.write_end, b"x" * USUAL)

    def refuse(*_: object) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("fcntl.ioctl", refuse)
    piped.pipe.drain()
    assert piped.received == b"x" * USUAL


def test_draining_ends_after_competing_read(
    pipes: list[Piped], monkeypatch: pytest.MonkeyPatch
) -> None:
    # A command can open the read end of its own pipe through /proc.
    piped = pipes[0]
    os.write(piped.write_end, b"abcdef")
    real = fcntl.ioctl

    def ioctl(descriptor: int, request: int, size: bytearray) -> None:
        real(descriptor, request, size)
        assert os.read(descriptor, 4) == b"abcd"

    monkeypatch.setattr("fcntl.ioctl", ioctl)
    piped.pipe.drain()
    assert piped.received == b"ef"


class ShortBlocks(MemoryBlocks):
    """Blocks in memory. The first calls of `put` fail: `failures` is their number."""

    def __init__(self, failures: int) -> None:
        super().__init__()
        self.failures = failures

    def put(self, data: bytes | bytearray | memoryview) -> int | None:
        if self.failures:
            self.failures -= 1
            raise MemoryError
        return super().put(data)


@pytest.mark.parametrize("first", [0, 1, USUAL - 1])
def test_shortage_of_memory_loses_no_output(monkeypatch: pytest.MonkeyPatch, first: int) -> None:
    monkeypatch.setattr(pipe_module, "SHORTAGE_PAUSE_S", 0)
    piped = Piped()
    fcntl.fcntl(piped.write_end, fcntl.F_SETPIPE_SZ, 1 << 20)
    piped.output = ShellOutput(blocks=ShortBlocks(3))
    piped.pipe = Pipe(piped.pipe.descriptor, piped.output, piped.output.stdout)
    data = bytes(range(251)) * 1_500
    for part in (data[:first], data[first:]):
        if part:
            assert os.write(piped.write_end, part) == len(part)
            assert piped.pipe.pump()
    assert piped.received == data
    assert piped.output.written == len(data)
    piped.close()


def test_shortage_of_memory_without_an_end_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipe_module, "SHORTAGE_PAUSE_S", 0)
    piped = Piped()
    fcntl.fcntl(piped.write_end, fcntl.F_SETPIPE_SZ, 1 << 20)
    blocks = ShortBlocks(10**9)
    piped.output = ShellOutput(blocks=blocks)
    piped.pipe = Pipe(piped.pipe.descriptor, piped.output, piped.output.stdout)
    os.write(piped.write_end, bytes(2 * USUAL))
    with pytest.raises(MemoryError):
        piped.pipe.pump()
    assert blocks.failures == 10**9 - MAX_SHORTAGES
    piped.close()
