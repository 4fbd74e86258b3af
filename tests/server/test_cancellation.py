"""Cancelled requests are answered once, and their ids can be used again."""

from __future__ import annotations

import gc

import anyio
import pytest

from served import (
    SECRET,
    Held,
    cancel,
    request,
    served,
)
from shelld.methods.context import RequestContext
from shelld.server.in_flight import InFlight
from shelld_protocol.structs import NoParams


async def test_cancelled_request_is_freed_without_garbage_collection() -> None:
    async with served() as peer:
        gc.disable()
        try:
            peer.send(request("holds", 1), request("nothing", 2))
            assert (await peer.receive())["id"] == 2
            assert Held.alive == 1
            peer.send(cancel(1))
            assert (await peer.receive())["error"]["data"]["kind"] == "cancelled"
            with anyio.fail_after(60):
                while Held.alive:
                    await anyio.sleep(0.001)
        finally:
            gc.enable()


async def test_shielded_cleanup_of_a_cancelled_method_is_finished() -> None:
    async with served() as peer:
        peer.send(request("slow_to_die", 1), request("nothing", 2))
        assert (await peer.receive())["id"] == 2
        peer.send(cancel(1))
        assert (await peer.receive())["error"]["code"] == -32800


async def test_method_ignoring_cancellation_is_answered_once() -> None:
    async with served() as peer:
        peer.send(request("deaf", 1), request("nothing", 2))
        assert (await peer.receive())["id"] == 2
        peer.send(cancel(1))
        assert (await peer.receive())["id"] == 1
        peer.send(request("nothing", 3))
        assert (await peer.receive())["id"] == 3


async def test_request_cancelled_silently_before_it_begins_does_not_begin() -> None:
    bodies: list[str] = []

    async def note(_context: RequestContext, _params: NoParams) -> None:
        bodies.append("run")

    async with served(large=note) as peer:
        for request_id in (1, 2):
            params = {"requestId": request_id}
            silently = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}
            # The second request finds an idle worker.
            peer.send(request("large", request_id), silently, request("nothing", 3))
            assert (await peer.receive())["id"] == 3
    assert bodies == []


async def test_cancellations_are_read_while_requests_wait() -> None:
    async with served(max_in_flight=2) as peer:
        waiting = [request("nothing", 3), request("nothing", 4), request("forever", 5)]
        cancels = [cancel(5), cancel(4), cancel(1)]
        peer.send(request("forever", 1), request("forever", 2), *waiting, *cancels)
        answers = [(await peer.receive())["id"] for _ in range(4)]
        # Waiting requests are cancelled at once.
        assert answers[:2] == [5, 4]
        assert set(answers[2:]) == {1, 3}
        peer.send(request("nothing", 6))
        assert await peer.receive() == {"jsonrpc": "2.0", "id": 6, "result": None}


async def test_cost_of_a_cancellation_does_not_grow_with_the_requests(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    comparisons = 0

    class CountedKey:
        def __init__(self, raw_id: bytes) -> None:
            self._raw_id = raw_id

        def __hash__(self) -> int:
            return int(self._raw_id)

        def __eq__(self, other: object) -> bool:
            nonlocal comparisons
            comparisons += 1
            return isinstance(other, CountedKey) and self._raw_id == other._raw_id

    monkeypatch.setattr("shelld.server.serve.id_key", CountedKey)
    monkeypatch.setattr("shelld.server.in_flight.id_key", CountedKey)
    ids = list(range(50))
    async with served(max_in_flight=len(ids) // 2) as peer:
        # Half of the requests wait until running requests have ended.
        peer.send(*(request("forever", request_id) for request_id in ids))
        peer.send(*(cancel(request_id) for request_id in ids))
        answers = [await peer.receive() for _ in ids]
    assert sorted(answer["id"] for answer in answers) == ids
    assert {answer["error"]["code"] for answer in answers} == {-32800}
    # Each request costs a few comparisons, when its id is added to the table, found there, and
    # removed.
    assert comparisons < 10 * len(ids)


async def test_request_can_be_cancelled_after_failed_cancellation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    failures = iter([True])
    stop = InFlight.stop

    def fail_once(entry: InFlight) -> None:
        if next(failures, False):
            raise RuntimeError(SECRET)
        stop(entry)

    monkeypatch.setattr(InFlight, "stop", fail_once)
    async with served() as peer:
        peer.send(request("forever", 1), cancel(1), cancel(1))
        assert (await peer.receive())["error"]["data"]["kind"] == "cancelled"


async def test_cancelled_id_can_be_used_again() -> None:
    async with served() as peer:
        peer.send(request("forever", 1), request("forever", 1), cancel(1), request("forever", 1))
        assert [(await peer.receive())["id"] for _ in range(2)] == [1, 1]
        peer.send(request("nothing", 2))
        assert (await peer.receive())["id"] == 2
        peer.send(cancel(1), cancel(1), request("nothing", 3))
        assert {(await peer.receive())["id"] for _ in range(2)} == {1, 3}
