"""If the server's own code fails, or if memory is short, the server loses no message."""

from __future__ import annotations

import itertools
import json
import math
from functools import partial
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from served import (
    failing,
    request,
    served,
)
from shelld.eventloop.workers import Workers
from shelld.methods.context import RequestContext
from shelld.process import faults
from shelld.server.request_reader import MAX_READ_FAULTS, MAX_READ_SHORTAGES, READ_PAUSE_S
from shelld.server.serve import Server
from shelld_protocol.framing import FrameError, FrameReader
from shelld_protocol.jsonrpc import decode_message
from shelld_protocol.structs import NoParams


async def test_a_reader_that_fails_loses_no_message(monkeypatch: pytest.MonkeyPatch) -> None:
    failing_twice = failing(FrameReader.receive_data, MAX_READ_FAULTS - 1)
    monkeypatch.setattr(FrameReader, "receive_data", failing_twice)
    async with served() as peer:
        peer.send(request("nothing", 1), request("nothing", 2))
        assert [(await peer.receive())["id"] for _ in range(2)] == [1, 2]


@pytest.mark.parametrize("method", ["receive_data", "next_event"])
async def test_last_message_is_answered_after_memory_shortage(
    monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    shortages = failing(getattr(FrameReader, method), MAX_READ_FAULTS + 1, MemoryError)
    monkeypatch.setattr("shelld.server.request_reader.READ_PAUSE_S", 0.001)
    monkeypatch.setattr(FrameReader, method, shortages)
    async with served() as peer:
        peer.send(request("nothing", 1))
        assert (await peer.receive())["id"] == 1


async def test_a_reader_that_always_fails_gives_the_stream_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(FrameReader, "receive_data", failing(FrameReader.receive_data, math.inf))
    before = faults.count()
    async with served() as peer:
        peer.send(request("nothing", 1))
    assert faults.count() == before + 1
    assert peer.server.read_failure == "an unexpected error"


async def test_requests_in_flight_are_answered_when_the_stream_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with served() as peer:
        peer.send(request("forever", 1), request("nothing", 2))
        assert (await peer.receive())["id"] == 2
        always = failing(FrameReader.receive_data, math.inf)
        monkeypatch.setattr(FrameReader, "receive_data", always)
        peer.send(request("nothing", 3))
        refused = await peer.receive()
        assert (refused["id"], refused["error"]["code"]) == (1, 1006)


async def test_reader_pauses_after_each_shortage_and_counts_no_fault(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    pauses: list[float] = []

    async def pause(seconds: float) -> None:
        pauses.append(seconds)
        await anyio.lowlevel.checkpoint()

    monkeypatch.setattr(faults, "pause", pause)
    always = failing(FrameReader.receive_data, math.inf, MemoryError)
    monkeypatch.setattr(FrameReader, "receive_data", always)
    before = faults.count()
    async with served() as peer:
        peer.send(request("nothing", 1))
        with anyio.fail_after(60):
            while peer.server.read_failure is None:
                await anyio.lowlevel.checkpoint()
    assert peer.server.read_failure == "the system is short of memory or another resource"
    assert pauses == [READ_PAUSE_S] * (MAX_READ_SHORTAGES - 1)
    assert faults.count() == before
    assert caplog.messages == ["the reader of requests: The daemon is short of memory"]


async def test_requests_before_the_end_are_answered_after_a_shortage(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("shelld.server.request_reader.READ_PAUSE_S", 0.001)
    receive_eof = vars(FrameReader)["receive_eof"]

    def end_without_memory(frames: FrameReader) -> None:
        receive_eof(frames)
        monkeypatch.setattr(
            FrameReader, "next_event", failing(FrameReader.next_event, 1, MemoryError)
        )

    monkeypatch.setattr(FrameReader, "receive_eof", end_without_memory)
    async with served(drain_s=5) as peer:
        # This line has no newline, so it becomes a message only at the end of the input.
        peer.write(json.dumps(request("nothing", 1)).encode())
        peer.end()
        assert (await peer.receive())["id"] == 1
    assert peer.server.read_failure is None


async def test_a_refused_message_keeps_its_id_when_its_answer_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    frame_error = vars(Server)["_frame_error"]
    monkeypatch.setattr(Server, "_frame_error", failing(frame_error, 1, MemoryError))
    events: list[bytes | FrameError] = [FrameError.NO_MEMORY]
    next_event = FrameReader.next_event

    def without_memory(frames: FrameReader) -> Any:
        frames.refused_head = json.dumps(request("nothing", 7)).encode()
        return events.pop() if events else next_event(frames)

    monkeypatch.setattr(FrameReader, "next_event", without_memory)
    async with served() as peer:
        peer.send(request("nothing", 8))
        answers = [await peer.receive(), await peer.receive()]
        assert [answer["id"] for answer in answers] == [7, 8]
        assert answers[0]["error"]["data"]["limit"] == "memory"


async def test_message_failing_in_server_is_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("shelld.server.serve.decode_message", failing(decode_message, 1))
    async with served() as peer:
        peer.send(request("nothing", 1), request("nothing", 2))
        error = {"code": -32603, "message": "Internal error", "data": {"kind": "internal_error"}}
        assert await peer.receive() == {"jsonrpc": "2.0", "id": 1, "error": error}
        assert (await peer.receive())["id"] == 2


async def test_no_member_runs_of_a_batch_that_is_refused_for_lack_of_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bodies: list[str] = []

    async def note(_context: RequestContext, _params: NoParams) -> None:
        bodies.append("run")

    calls = itertools.count(1)

    def partial_once(function: Any, *args: Any) -> Any:
        if next(calls) > 1:
            raise MemoryError
        return partial(function, *args)

    async with served(large=note) as peer:
        monkeypatch.setattr("shelld.server.serve.partial", partial_once)
        peer.send([request("large", 1), request("large", 2)])
        refused = await peer.receive()
        assert (refused["id"], refused["error"]["data"]["kind"]) == (None, "resource_exhausted")
        monkeypatch.undo()
        peer.send(request("nothing", 3))
        assert (await peer.receive())["id"] == 3
    assert bodies == []


async def test_request_failing_in_server_is_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Workers, "start", failing(Workers[Any].start, 1))
    async with served() as peer:
        peer.send(request("nothing", 1), request("nothing", 2))
        first, second = await peer.receive(), await peer.receive()
        assert (first["id"], first["error"]["code"]) == (1, -32603)
        assert (second["id"], second["result"]) == (2, None)


@pytest.mark.parametrize(
    ("error", "kind"), [(MemoryError, "resource_exhausted"), (ValueError, "internal_error")]
)
async def test_request_failing_in_settlement_is_answered(
    monkeypatch: pytest.MonkeyPatch, error: type[Exception], kind: str
) -> None:
    settle = vars(Server)["_settle"]
    calls = iter((True,))

    def fail_first(*args: Any) -> None:
        if next(calls, False):
            raise error
        settle(*args)

    monkeypatch.setattr(Server, "_settle", fail_first)
    async with served() as peer:
        peer.send(request("nothing", 1), request("nothing", 2))
        first, second = await peer.receive(), await peer.receive()
        assert (first["id"], first["error"]["data"]["kind"]) == (1, kind)
        assert (second["id"], second["result"]) == (2, None)


async def test_request_without_memory_for_any_answer_is_answered_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("shelld.server.serve.RETRY_S", 0.001)
    monkeypatch.setattr(Server, "_settle", failing(vars(Server)["_settle"], 4, MemoryError))
    async with served() as peer:
        peer.send(request("nothing", 1))
        answer = await peer.receive()
        assert (answer["id"], answer["error"]["data"]["limit"]) == (1, "memory")


@pytest.mark.parametrize("is_batch", [False, True])
async def test_invalid_request_without_memory_for_any_answer_is_answered_later(
    monkeypatch: pytest.MonkeyPatch, *, is_batch: bool
) -> None:
    monkeypatch.setattr("shelld.server.serve.RETRY_S", 0.001)
    write = vars(Server)["_write"]
    monkeypatch.setattr(Server, "_write", failing(write, 5, MemoryError))
    async with served() as peer:
        invalid = {"jsonrpc": "2.0", "id": 1, "method": 2}
        peer.send([invalid] if is_batch else invalid)
        answer = await peer.receive()
        answer = answer[0] if is_batch else answer
        assert (answer["id"], answer["error"]["data"]["limit"]) == (1, "memory")
        peer.send(request("nothing", 3))
        assert (await peer.receive())["id"] == 3


async def test_message_that_cannot_be_taken_is_answered_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("shelld.server.serve.RETRY_S", 0.001)
    write = vars(Server)["_write"]
    monkeypatch.setattr(Server, "_write", failing(write, 3, MemoryError))
    no_memory = failing(decode_message, 1, MemoryError)
    monkeypatch.setattr("shelld.server.serve.decode_message", no_memory)
    async with served() as peer:
        peer.send(request("nothing", 1))
        answer = await peer.receive()
        assert (answer["id"], answer["error"]["data"]["limit"]) == (1, "memory")
