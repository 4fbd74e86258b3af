"""The server limits the answers that it keeps for a client that reads slowly."""

from __future__ import annotations

import anyio
import anyio.lowlevel
import pytest

from served import (
    LARGE_BYTES,
    SECRET,
    LargeBody,
    cancel,
    request,
    served,
)
from shelld.server.serve import (
    MAX_BACKLOG_BYTES,
)
from shelld_protocol.jsonrpc import encode_batch


@pytest.mark.slow
async def test_large_answers_are_encoded_as_client_reads() -> None:
    large = LargeBody()
    async with served(large=large) as peer:
        peer.send(*(request("large", number) for number in range(4)), cancel(1))
        with anyio.fail_after(60):
            while not large.made:
                await anyio.lowlevel.checkpoint()
        for _ in range(1000):
            await anyio.lowlevel.checkpoint()
        assert large.made == 1
        answers = {answer["id"]: answer for answer in [await peer.receive() for _ in range(4)]}
    assert large.made == 3
    assert answers[1]["error"]["data"]["kind"] == "cancelled"
    assert [len(answers[number]["result"]) for number in (0, 2, 3)] == [LARGE_BYTES] * 3


@pytest.mark.slow
async def test_full_batch_refuses_more_large_answers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    large, made = LargeBody(), 2
    monkeypatch.setattr("shelld.server.batch_reply.MAX_BATCH_BYTES", LARGE_BYTES + 1000)
    async with served(large=large) as peer:
        peer.send([request("large", number) for number in range(made + 2)])
        answers = await peer.receive()
        # There is room again for the next message.
        peer.send(request("large", "alone"))
        assert len((await peer.receive())["result"]) == LARGE_BYTES
    assert large.made == made + 1
    assert [len(answer["result"]) for answer in answers[:made]] == [LARGE_BYTES] * made
    refused = [answer["error"]["data"] for answer in answers[made:]]
    assert refused == [{"kind": "resource_exhausted", "limit": "memory"}] * 2


async def test_nothing_waits_for_a_client_that_is_gone() -> None:
    async with served() as peer:
        peer.send(request("talks", 1))
        with anyio.fail_after(60):
            while peer.server.backlog < MAX_BACKLOG_BYTES:
                await anyio.lowlevel.checkpoint()
            peer.stop_reading()
            await peer.server.wait_until_read()
        assert peer.server.backlog == 0


async def test_batch_member_failing_in_server_is_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    failures = iter([False, True])

    class Unsure(type):
        def __instancecheck__(cls, instance: object) -> bool:
            if next(failures, False):
                raise RuntimeError(SECRET)
            return False

    class Response(metaclass=Unsure):
        """This class replaces the first class in the server's `isinstance` checks."""

    monkeypatch.setattr("shelld.server.serve.Response", Response)
    async with served() as peer:
        peer.send([request("nothing", number) for number in range(3)])
        answers = await peer.receive()
    assert [answer["id"] for answer in answers] == [0, 1, 2]
    assert answers[1]["error"]["data"]["kind"] == "internal_error"
    assert [answers[number]["result"] for number in (0, 2)] == [None, None]


async def test_batch_without_memory_drops_largest_answers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def join(replies: list[bytes]) -> bytes:
        if sum(map(len, replies)) > LARGE_BYTES + 1000:
            raise MemoryError
        return encode_batch(replies)

    monkeypatch.setattr("shelld.server.batch_reply.encode_batch", join)
    async with served(large=LargeBody()) as peer:
        peer.send([request("large", 0), request("nothing", "small"), request("large", 1)])
        answers = {answer["id"]: answer for answer in await peer.receive()}
    refused = [answer["error"]["data"] for answer in answers.values() if "error" in answer]
    assert refused == [{"kind": "resource_exhausted", "limit": "memory"}]
    assert answers["small"]["result"] is None


@pytest.mark.slow
async def test_small_answers_pass_large_ones_that_wait() -> None:
    async with served(large=LargeBody()) as peer:
        peer.send(*(request("large", number) for number in range(3)), request("nothing", 3))
        answered = [(await peer.receive())["id"] for _ in range(4)]
    assert answered.index(3) < 3


async def test_requests_over_the_waiting_limit_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shelld.server.in_flight.MAX_WAITING", 1)
    async with served(max_in_flight=1) as peer:
        peer.send(request("forever", 1), request("nothing", 2), request("nothing", 3))
        refusal = await peer.receive()
        assert refusal["id"] == 3
        assert refusal["error"]["code"] == 1005
        assert refusal["error"]["data"]["limit"] == "max_in_flight"
        peer.send(cancel(1))
        assert {(await peer.receive())["id"] for _ in range(2)} == {1, 2}


async def test_large_params_that_wait_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shelld.server.in_flight.MAX_WAITING_BYTES", 100)
    async with served(max_in_flight=1) as peer:
        large = {"jsonrpc": "2.0", "id": 2, "method": "nothing", "params": {"x": "x" * 100}}
        peer.send(request("forever", 1), large, request("nothing", 3))
        assert (await peer.receive())["id"] == 2
        peer.send(cancel(1))
        assert {(await peer.receive())["id"] for _ in range(2)} == {1, 3}


async def test_notification_over_the_limit_gets_no_answer() -> None:
    async with served(max_in_flight=1) as peer:
        peer.send(request("forever", 1), {"jsonrpc": "2.0", "method": "nothing"}, cancel(1))
        assert (await peer.receive())["id"] == 1


async def test_unread_notifications_over_backlog_limit_are_dropped() -> None:
    async with served() as peer:
        peer.send(request("talks", 1))
        messages = [await peer.receive()]
        while "id" not in messages[-1]:
            messages.append(await peer.receive())
        numbers = [message["params"]["number"] for message in messages[:-1]]
        assert numbers == sorted(set(numbers))
        assert messages[-1]["result"] == len(numbers)
        assert MAX_BACKLOG_BYTES <= 10_100 * len(numbers) < 2 * MAX_BACKLOG_BYTES


async def test_requests_that_wait_for_ever_delay_no_other() -> None:
    async with served() as peer:
        peer.send(*(request("forever", number) for number in range(200)))
        peer.send(request("nothing", "x"))
        assert (await peer.receive())["id"] == "x"
