"""Output is written in order, and writing never blocks, no matter what kind of file it goes to."""

from __future__ import annotations

import asyncio
import fcntl
import gc
import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from served import failing
from shelld.eventloop.readiness import Watch
from shelld.eventloop.threads import Thread
from shelld.server.startup import StartupError
from shelld.server.stdio import LITTLE_BYTES, Input, Output


def pipe_pair(_path: Path) -> tuple[int, int]:
    return os.pipe()


def socket_pair(_path: Path) -> tuple[int, int]:
    read, write = socket.socketpair()
    return read.detach(), write.detach()


def read_all(descriptor: int, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = os.read(descriptor, 65536)
        assert piece
        data += piece
    return data


@pytest.mark.parametrize("make", [pipe_pair, socket_pair])
async def test_unread_output_arrives_in_order(
    tmp_path: Path, make: Callable[[Path], tuple[int, int]]
) -> None:
    read, write = make(tmp_path)
    output = Output(write)
    pieces = [b"%d:" % number + b"x" * size for number, size in enumerate([1, 4096, 300_000] * 10)]
    with anyio.fail_after(60):
        for piece in pieces:
            output.write(piece)
        assert output.backlog > 1_000_000
        expected = b"".join(pieces)
        data = await anyio.to_thread.run_sync(read_all, read, len(expected))
        await output.wait_empty()
    assert data == expected
    assert output.backlog == 0
    output.write(b"small")
    assert os.read(read, 100) == b"small"
    os.close(read)
    output.close()
    os.close(write)


@pytest.mark.parametrize("make", [pipe_pair, socket_pair])
async def test_answers_arrive_whole_on_a_nonblocking_stream(
    tmp_path: Path, make: Callable[[Path], tuple[int, int]]
) -> None:
    read, write = make(tmp_path)
    os.set_blocking(write, False)
    output = Output(write)
    pieces = [b"%d:" % number + b"x" * size for number, size in enumerate([1, 4096, 300_000] * 10)]
    expected = b"".join(pieces)
    with anyio.fail_after(60):
        for piece in pieces:
            output.write(piece)
        # Nothing has been read, so the stream is full and the writer has met EAGAIN.
        assert output.backlog > 1_000_000
        assert not output.is_broken
        data = await anyio.to_thread.run_sync(read_all, read, len(expected))
        await output.wait_empty()
    assert data == expected
    assert not os.get_blocking(write)
    os.close(read)
    output.close()
    os.close(write)


async def test_written_output_is_freed_once_read() -> None:
    read, write = os.pipe()
    output = Output(write)
    data = b"x" * 3_000_000
    references = sys.getrefcount(data)
    with anyio.fail_after(60):
        output.write(data)
        # The pipe has taken the beginning of the data, and the queue holds a view of the rest. At
        # the next write, the pipe is full, so all data of this write goes to the queue.
        output.write(data)
        await anyio.to_thread.run_sync(read_all, read, 2 * len(data))
        while sys.getrefcount(data) != references:
            await anyio.sleep(0.001)
    os.close(read)
    output.close()
    os.close(write)


async def test_wait_below_a_size_ends_before_everything_is_read() -> None:
    read, write = os.pipe()
    output = Output(write)
    for _ in range(60):
        output.write(b"x" * 100_000)
    received = 0
    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(output.wait_below, 2_000_000)
            await anyio.wait_all_tasks_blocked()
            assert output.backlog >= 2_000_000
            received = len(await anyio.to_thread.run_sync(read_all, read, 5_300_000))
        assert 0 < output.backlog < 2_000_000
        await anyio.to_thread.run_sync(read_all, read, 6_000_000 - received)
        await output.wait_empty()
        await output.wait_below(2_000_000)
    os.close(read)
    output.close()
    os.close(write)


async def test_writer_fills_the_pipe_and_no_more() -> None:
    read, write = os.pipe()
    output = Output(write)
    for size in (100, 30_000, 65_536):
        output.write(b"x" * size)
        assert (output.backlog, len(os.read(read, 100_000))) == (0, size)
    output.write(b"x" * 40_000)
    output.write(b"y" * 30_000)
    assert output.backlog == 30_000
    await anyio.to_thread.run_sync(read_all, read, 70_000)
    with anyio.fail_after(60):
        await output.wait_empty()
        output.write(b"z" * 200_000)
        assert output.backlog == 200_000 - 65_536
        await anyio.to_thread.run_sync(read_all, read, 200_000)
        await output.wait_empty()
    output.close()
    os.close(read)
    os.close(write)


async def test_shrunk_pipe_never_blocks() -> None:
    read, write = os.pipe()
    output = Output(write)
    fcntl.fcntl(read, fcntl.F_SETPIPE_SZ, 4096)
    with anyio.fail_after(60):
        output.write(b"x" * 20_000)
        assert output.backlog == 20_000 - 4096
        await anyio.to_thread.run_sync(read_all, read, 20_000)
        await output.wait_empty()
    output.close()
    os.close(read)
    os.close(write)


async def test_answers_are_written_one_by_one_if_joining_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    failures = 0

    def fail(_pieces: list[memoryview]) -> memoryview:
        nonlocal failures
        failures += 1
        raise MemoryError

    monkeypatch.setattr("shelld.server.stdio._joined", fail)
    read, write = os.pipe()
    output = Output(write)
    expected = b"".join(b"%06d" % number for number in range(50_000))
    with anyio.fail_after(60):
        for start in range(0, len(expected), 1000):
            output.write(expected[start : start + 1000])
        data = await anyio.to_thread.run_sync(read_all, read, len(expected))
        await output.wait_empty()
    assert data == expected
    assert failures
    assert not output.is_broken
    os.close(read)
    output.close()
    os.close(write)


async def test_output_to_a_file_is_complete(tmp_path: Path) -> None:
    descriptor = os.open(tmp_path / "out", os.O_WRONLY | os.O_CREAT)
    output = Output(descriptor)
    with anyio.fail_after(60):
        for number in range(100):
            output.write(b"%d\n" % number)
        await output.wait_empty()
    output.close()
    os.close(descriptor)
    assert (tmp_path / "out").read_text() == "".join(f"{number}\n" for number in range(100))


@pytest.mark.parametrize("size", [10, 1_000_000])
async def test_vanished_reader_is_noticed_at_next_write(size: int) -> None:
    read, write = os.pipe()
    output = Output(write)
    os.close(read)
    with anyio.fail_after(60):
        output.write(b"x" * size)
        await output.wait_broken()
    assert output.is_broken
    output.write(b"more")
    os.close(write)


async def test_reader_leaving_in_the_middle_is_noticed() -> None:
    read, write = os.pipe()
    output = Output(write)
    output.write(b"x" * 1_000_000)
    os.read(read, 10)
    os.close(read)
    with anyio.fail_after(60):
        await output.wait_broken()
    os.close(write)


async def test_nothing_follows_a_cut_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(_output: Output, _rest: memoryview) -> None:
        raise MemoryError

    read, write = os.pipe()
    output = Output(write)
    monkeypatch.setattr(Output, "_enqueue", fail)
    output.write(b"x" * 1_000_000)
    assert output.is_broken
    assert output.failure is not None
    written = len(os.read(read, 1_000_000))
    output.write(b"next")
    os.set_blocking(read, False)
    with pytest.raises(BlockingIOError):
        os.read(read, 10)
    assert 0 < written < 1_000_000
    output.close()
    os.close(read)
    os.close(write)


def test_input_is_read_in_small_pieces_if_memory_is_short(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read, write = os.pipe()
    data = os.urandom(LITTLE_BYTES + 1)
    os.write(write, data)
    real = os.read

    def no_memory_for(descriptor: int, size: int) -> bytes:
        if size > LITTLE_BYTES:
            raise MemoryError
        return real(descriptor, size)

    source = Input(read)
    monkeypatch.setattr(os, "read", no_memory_for)
    assert source.read() == data[:LITTLE_BYTES]
    assert source.read() == data[LITTLE_BYTES:]
    os.close(write)
    assert source.read() == b""
    os.close(read)


def test_a_nonblocking_source_without_data_has_not_ended() -> None:
    read, write = os.pipe()
    os.set_blocking(read, False)
    source = Input(read)
    assert source.read() is None
    os.write(write, b"request")
    assert source.read() == b"request"
    os.close(write)
    assert source.read() == b""
    os.close(read)


async def test_output_that_cannot_start_leaves_its_descriptor_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(_thread: Thread[None]) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(Thread, "start", refuse)
    read, write = socket_pair(Path())
    with pytest.raises(StartupError):
        Output(write)
    gc.collect()
    os.close(write)
    os.close(read)


async def test_stream_is_not_watched_any_more_although_the_first_attempt_to_stop_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Watch, "close", failing(Watch.close, 1, MemoryError))
    read, write = os.pipe()
    source = Input(read)
    os.write(write, b"x")
    with pytest.raises(MemoryError):
        await source.watch(lambda: True)
    # The event loop returns False if it does not watch the descriptor.
    assert not asyncio.get_running_loop().remove_reader(read)
    os.close(write)
    os.close(read)


async def test_stream_is_released_by_the_second_attempt_if_the_first_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read, write = socket_pair(Path())
    output = Output(write)
    output.write(b"x")
    detach = failing(socket.socket.detach, 1, MemoryError)
    monkeypatch.setattr(socket.socket, "detach", detach)
    with pytest.raises(MemoryError):
        output.release()
    output.release()
    # The reader gets the end of file once the thread has closed the stream.
    while await anyio.to_thread.run_sync(os.read, read, 1):
        pass
    # From now on, the descriptor number `write` belongs to the read end. If a socket object for
    # this number were left, it would close the read end.
    os.dup2(read, write)
    del output
    gc.collect()
    os.close(write)
    os.close(read)
