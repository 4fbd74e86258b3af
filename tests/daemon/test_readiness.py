"""To wait for a descriptor, under either event loop."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator

import anyio
import anyio.lowlevel
import pytest

from shelld.readiness import Readiness


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe()
    yield ends
    for descriptor in ends:
        os.close(descriptor)


@pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
async def test_it_tells_of_every_write(pipe: tuple[int, int]) -> None:
    readiness = Readiness(pipe[0])
    for number in range(3):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(readiness.wait)
            await anyio.lowlevel.checkpoint()
            os.write(pipe[1], b"%d" % number)
        assert os.read(pipe[0], 10) == b"%d" % number
    readiness.close()


async def test_who_does_not_come_back_is_not_told_again(pipe: tuple[int, int]) -> None:
    readiness = Readiness(pipe[0])
    os.write(pipe[1], b"left unread")
    with anyio.fail_after(10):
        await readiness.wait()
        loop = asyncio.get_running_loop()
        for _ in range(3):
            await anyio.lowlevel.checkpoint()
        # Else the loop would do nothing but tell.
        assert not loop.remove_reader(pipe[0])
        await readiness.wait()
    readiness.close()


@pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
async def test_a_wait_can_be_cancelled_and_begun_again(pipe: tuple[int, int]) -> None:
    readiness = Readiness(pipe[0])
    with anyio.move_on_after(0):
        await readiness.wait()
    os.write(pipe[1], b"x")
    with anyio.fail_after(10):
        await readiness.wait()
    readiness.close()
