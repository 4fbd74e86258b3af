"""Every call to a target ends, even if a part of the daemon fails."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator

import anyio
import pytest

from leaks import descriptors_beyond, descriptors_of
from shelld.keeper.pool import RunnerPool
from shelld.process import faults
from shelld.targets import link as link_module
from shelld.targets.link import Link
from shelld.targets.targets import Target
from shelld_protocol.errors import ErrorKind, RpcError
from support import DEADLINE_S


@pytest.fixture
def pool() -> Iterator[RunnerPool]:
    pool = RunnerPool()
    yield pool
    pool.close()


async def test_call_ends_although_making_its_error_fails_once(
    pool: RunnerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures = iter([RuntimeError()])

    def quoted(*texts: bytes) -> str:
        for failure in failures:
            raise failure
        return ""

    monkeypatch.setattr(link_module, "quoted", quoted)
    link = Link("gone", ["true"], pool)
    calls = [link.begin("ping", b"{}", b"%d" % number) for number in range(2)]
    with anyio.fail_after(DEADLINE_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(faults.keep_running, link.run, "a link")
            for call in calls:
                with pytest.raises(RpcError) as caught:
                    await link.answer(call)
                assert caught.value.kind is ErrorKind.TARGET_LOST


async def test_link_that_cannot_run_is_not_used_again(pool: RunnerPool) -> None:
    def fail(_task: object) -> None:
        raise MemoryError

    target = Target("box", ["cat"], bootstrap=False)
    with pytest.raises(MemoryError):
        target.connected(pool, fail)
    assert target.info.state == "unused"


async def test_process_ends_although_making_its_link_fails(
    pool: RunnerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_connection: object) -> None:
        raise MemoryError

    # This starts the keeper.
    Link("gone", ["true"], pool).close()
    monkeypatch.setattr(link_module, "Outgoing", fail)
    before = descriptors_of(os.getpid())
    with pytest.raises(MemoryError):
        Link("gone", ["cat"], pool)
    assert descriptors_beyond(os.getpid(), before) == []


async def test_event_loop_forgets_a_link_although_removal_fails_once(
    pool: RunnerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = asyncio.get_running_loop()
    link = Link("gone", ["true"], pool)
    descriptor, forget = link._connection.fileno(), loop.remove_reader  # pyright: ignore[reportPrivateUsage]
    failures = iter([MemoryError()])

    def remove_reader(number: int) -> bool:
        for failure in failures if number == descriptor else ():
            raise failure
        return forget(number)

    monkeypatch.setattr(loop, "remove_reader", remove_reader)
    # The failure may occur in a callback of the event loop. The event loop then continues.
    handler = loop.get_exception_handler()
    loop.set_exception_handler(lambda _loop, _context: None)
    try:
        with anyio.fail_after(DEADLINE_S):
            await faults.keep_running(link.run, "a link")
    finally:
        loop.set_exception_handler(handler)
    # `forget` returns whether the event loop still watched the descriptor.
    assert not forget(descriptor)
