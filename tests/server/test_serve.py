"""The server with methods that misbehave: every accepted request gets exactly one answer."""

from __future__ import annotations

import gc
import itertools
import json
import logging
import math
import os
import time
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shelld.eventloop.workers import Workers
from shelld.methods.context import Daemon, RequestContext
from shelld.process import faults
from shelld.process.options import Options
from shelld.server.dispatch import as_method
from shelld.server.serve import (
    MAX_BACKLOG_BYTES,
    MAX_READ_FAULTS,
    MAX_READ_SHORTAGES,
    MAX_STARTED_IN_A_ROW,
    READ_PAUSE_S,
    InFlight,
    Server,
)
from shelld.server.stdio import Input, Output
from shelld.shells.manager import Manager
from shelld_protocol.errors import ErrorKind, RpcError
from shelld_protocol.framing import FrameError, FrameReader
from shelld_protocol.jsonrpc import decode_message, encode_batch
from shelld_protocol.structs import NoParams

SECRET = "/home/secret/path"

Body = Callable[[RequestContext, NoParams], Awaitable[Any]]


async def nothing(_context: RequestContext, _params: NoParams) -> None:
    return None


async def broken(_context: RequestContext, _params: NoParams) -> None:
    raise RuntimeError(SECRET)


async def broken_type(_context: RequestContext, _params: NoParams) -> None:
    raise TypeError(SECRET)


async def unencodable(_context: RequestContext, _params: NoParams) -> object:
    return object()


async def surrogate(_context: RequestContext, _params: NoParams) -> str:
    return "\ud800"


async def own_error(_context: RequestContext, _params: NoParams) -> None:
    raise RpcError(ErrorKind.SPAWN_FAILED, "no", {"errno": "ENOENT"})


async def unencodable_error(_context: RequestContext, _params: NoParams) -> None:
    raise RpcError(ErrorKind.SPAWN_FAILED, "no", {"errno": object()})


async def group(_context: RequestContext, _params: NoParams) -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(broken, _context, _params)


async def forever(_context: RequestContext, _params: NoParams) -> None:
    await anyio.sleep_forever()


async def slow_to_die(_context: RequestContext, _params: NoParams) -> None:
    try:
        await anyio.sleep_forever()
    finally:
        with anyio.CancelScope(shield=True):
            for _ in range(3):
                await anyio.lowlevel.checkpoint()


async def deaf(_context: RequestContext, _params: NoParams) -> str:
    with anyio.CancelScope(shield=True):
        for _ in range(5):
            await anyio.lowlevel.checkpoint()
    return "done anyway"


BODIES: dict[str, Body] = {
    body.__name__: body
    for body in (
        *(nothing, broken, broken_type, unencodable, surrogate, own_error, unencodable_error),
        *(group, forever, slow_to_die, deaf),
    )
}
METHODS = {name: as_method(NoParams, body) for name, body in BODIES.items()}


async def talks(context: RequestContext, _params: NoParams) -> int:
    """Send far more than the daemon should keep for a client that does not read.

    Returns how many notifications were sent.
    """
    return sum(
        context.notify("progress", {"number": number, "text": "x" * 10_000})
        for number in range(3 * MAX_BACKLOG_BYTES // 10_000)
    )


class Peer:
    """The client's ends of the pipes."""

    def __init__(self, stdin: int, stdout: int) -> None:
        # Set by `served`.
        self.server: Server
        self._stdin: int | None = stdin
        self._stdout = stdout
        self._data = b""

    def send(self, *messages: Any) -> None:
        self.write(b"".join(json.dumps(message).encode() + b"\n" for message in messages))

    def write(self, data: bytes) -> None:
        assert self._stdin is not None
        os.write(self._stdin, data)

    def end(self) -> None:
        if self._stdin is not None:
            os.close(self._stdin)
            self._stdin = None

    async def receive(self) -> Any:
        with anyio.fail_after(10):
            while b"\n" not in self._data:
                await anyio.wait_readable(self._stdout)
                self._data += os.read(self._stdout, 65536)
        line, _, self._data = self._data.partition(b"\n")
        return json.loads(line)

    async def rest(self) -> list[Any]:
        while data := os.read(self._stdout, 65536):
            self._data += data
        return [json.loads(line) for line in self._data.splitlines()]


@asynccontextmanager
async def served(
    max_in_flight: int = 4096, drain_s: float = 0.05, large: Body | None = None
) -> AsyncGenerator[Peer]:
    """Run a server over pipes. When the block ends, the server's input ends, and it must stop."""
    stdin, stdin_end = os.pipe()
    stdout, stdout_end = os.pipe()
    peer = Peer(stdin_end, stdout)
    try:
        with anyio.fail_after(30):
            async with anyio.create_task_group() as tasks:
                draining = anyio.Event()
                more = {"talks": talks, "holds": holds, "stalls": stalls_after(draining)}
                more["large"] = large or forever
                methods = METHODS | {name: as_method(NoParams, body) for name, body in more.items()}
                daemon = Daemon(Options(max_in_flight=max_in_flight), Manager())
                output = Output(stdout_end)
                peer.server = server = Server(daemon, methods, Input(stdin), output, tasks)

                async def serve() -> None:
                    await server.read_requests()
                    # Tasks that wait for this event run only after the time of the drain has begun.
                    draining.set()
                    await server.drain(drain_s)
                    server.refuse_in_flight()

                tasks.start_soon(serve)
                yield peer
                peer.end()
                output.close()
    finally:
        peer.end()
        for descriptor in (stdin, stdout, stdout_end):
            os.close(descriptor)


LARGE_BYTES = MAX_BACKLOG_BYTES + (1 << 20)


class LargeBody:
    """A body with large answers; it counts the answers that it has made."""

    def __init__(self) -> None:
        self.made = 0

    async def __call__(self, context: RequestContext, _params: NoParams) -> str:
        await context.begin_large_answer()
        self.made += 1
        return "x" * LARGE_BYTES


class Held:
    """Stands for a command's output, held by its request."""

    alive = 0

    def __init__(self) -> None:
        Held.alive += 1

    def __del__(self) -> None:
        Held.alive -= 1


async def holds(_context: RequestContext, _params: NoParams) -> None:
    held = Held()
    await anyio.sleep_forever()
    del held


DRAIN_S = 0.5


def stalls_after(draining: anyio.Event) -> Body:
    """Return a body that simulates a machine that stops running the daemon while it drains."""

    async def stalls(_context: RequestContext, _params: NoParams) -> str:
        await draining.wait()
        time.sleep(DRAIN_S + 0.1)  # noqa: ASYNC251 - nothing else may run meanwhile
        for _ in range(5):
            await anyio.lowlevel.checkpoint()
        return "made it"

    return stalls


def request(method: str, request_id: Any, params: Any = None) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}


def cancel(request_id: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": "$/cancelRequest", "params": {"id": request_id}}


@pytest.mark.parametrize("is_batch", [True, False])
async def test_other_tasks_run_while_many_requests_start(
    monkeypatch: pytest.MonkeyPatch, is_batch: bool
) -> None:
    total = 10 * MAX_STARTED_IN_A_ROW
    turn = 0
    accepted: Counter[int] = Counter()
    accept = Server._accept  # pyright: ignore[reportPrivateUsage]

    def noted(server: Server, message: Any, *rest: Any) -> None:
        accepted[turn] += 1
        accept(server, message, *rest)

    async def take_turns() -> None:
        nonlocal turn
        while True:
            turn += 1
            await anyio.lowlevel.checkpoint()

    monkeypatch.setattr(Server, "_accept", noted)
    async with served() as peer, anyio.create_task_group() as tasks:
        tasks.start_soon(take_turns)
        peer.send(*([[7] * total] if is_batch else [7] * total))
        for _ in range(1 if is_batch else total):
            await peer.receive()
        tasks.cancel_scope.cancel()
    assert accepted.total() == total
    assert max(accepted.values()) <= MAX_STARTED_IN_A_ROW


async def test_messages_before_end_of_input_are_answered() -> None:
    total = 2 * MAX_STARTED_IN_A_ROW + 1
    async with served() as peer:
        peer.send(*(request("nothing", number) for number in range(total)))
        peer.end()
        answered = [(await peer.receive())["id"] for _ in range(total)]
    assert sorted(answered) == list(range(total))


async def test_large_answers_are_encoded_as_client_reads() -> None:
    large = LargeBody()
    async with served(large=large) as peer:
        peer.send(*(request("large", number) for number in range(4)), cancel(1))
        with anyio.fail_after(10):
            while not large.made:
                await anyio.lowlevel.checkpoint()
        for _ in range(1000):
            await anyio.lowlevel.checkpoint()
        assert large.made == 1
        answers = {answer["id"]: answer for answer in [await peer.receive() for _ in range(4)]}
    assert large.made == 3
    assert answers[1]["error"]["data"]["kind"] == "cancelled"
    assert [len(answers[number]["result"]) for number in (0, 2, 3)] == [LARGE_BYTES] * 3


async def test_full_batch_refuses_more_large_answers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    large, made = LargeBody(), 2
    monkeypatch.setattr("shelld.server.serve.MAX_BATCH_BYTES", LARGE_BYTES + 1000)
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
        """Replaces the first class in the server's `isinstance` checks."""

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

    monkeypatch.setattr("shelld.server.serve.encode_batch", join)
    async with served(large=LargeBody()) as peer:
        peer.send([request("large", 0), request("nothing", "small"), request("large", 1)])
        answers = {answer["id"]: answer for answer in await peer.receive()}
    refused = [answer["error"]["data"] for answer in answers.values() if "error" in answer]
    assert refused == [{"kind": "resource_exhausted", "limit": "memory"}]
    assert answers["small"]["result"] is None


async def test_shutdown_is_in_the_debug_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "shelld.serve")
    async with served() as peer:
        peer.send(request("shutdown", 1))
        assert (await peer.receive())["result"] is None
    assert "request 'shutdown'" in caplog.messages


async def test_small_answers_pass_large_ones_that_wait() -> None:
    async with served(large=LargeBody()) as peer:
        peer.send(*(request("large", number) for number in range(3)), request("nothing", 3))
        answered = [(await peer.receive())["id"] for _ in range(4)]
    assert answered.index(3) < 3


async def test_stall_does_not_use_up_drain_time() -> None:
    async with served(drain_s=DRAIN_S) as peer:
        peer.send(request("stalls", 1), request("forever", 2))
        peer.end()
        answers = {answer["id"]: answer for answer in [await peer.receive() for _ in range(2)]}
    assert answers[1]["result"] == "made it"
    assert answers[2]["error"]["code"] == ErrorKind.SHUTTING_DOWN.code


async def test_cancelled_request_is_freed_without_garbage_collection() -> None:
    async with served() as peer:
        gc.disable()
        try:
            peer.send(request("holds", 1), request("nothing", 2))
            assert (await peer.receive())["id"] == 2
            assert Held.alive == 1
            peer.send(cancel(1))
            assert (await peer.receive())["error"]["data"]["kind"] == "cancelled"
            with anyio.fail_after(10):
                while Held.alive:
                    await anyio.sleep(0.001)
        finally:
            gc.enable()


@pytest.mark.parametrize(
    "method", ["broken", "broken_type", "unencodable", "surrogate", "unencodable_error", "group"]
)
async def test_unexpected_exception_is_internal_error_without_text(
    method: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, "shelld")
    async with served() as peer:
        peer.send(request(method, 1))
        answer = await peer.receive()
        assert answer["error"] == {
            "code": -32603,
            "message": "Internal error",
            "data": {"kind": "internal_error"},
        }
        assert SECRET not in json.dumps(answer)
        peer.send(request("nothing", 2))
        assert await peer.receive() == {"jsonrpc": "2.0", "id": 2, "result": None}


async def test_rpc_error_of_method_arrives_unchanged() -> None:
    async with served() as peer:
        peer.send(request("own_error", 1))
        error = (await peer.receive())["error"]
        assert error == {
            "code": 1004,
            "message": "no",
            "data": {"kind": "spawn_failed", "errno": "ENOENT"},
        }


def failing(
    function: Callable[..., Any], times: float, error: type[Exception] = ValueError
) -> Callable[..., Any]:
    """Return a function that raises `times` times before it calls `function`."""
    calls = itertools.count(1)

    def fail_first(*args: Any) -> Any:
        if next(calls) <= times:
            raise error(SECRET)
        return function(*args)

    return fail_first


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
    monkeypatch.setattr("shelld.server.serve.READ_PAUSE_S", 0.001)
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


async def test_a_shortage_is_no_fault_and_each_attempt_takes_its_time(
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
        with anyio.fail_after(10):
            while peer.server.read_failure is None:
                await anyio.lowlevel.checkpoint()
    assert peer.server.read_failure == "the system is short of memory or another resource"
    assert pauses == [READ_PAUSE_S] * (MAX_READ_SHORTAGES - 1)
    assert faults.count() == before
    assert caplog.messages == ["the reader of requests: The daemon is short of memory"]


async def test_requests_before_the_end_are_answered_after_a_shortage(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("shelld.server.serve.READ_PAUSE_S", 0.001)
    receive_eof = vars(FrameReader)["receive_eof"]

    def end_without_memory(frames: FrameReader) -> None:
        receive_eof(frames)
        monkeypatch.setattr(
            FrameReader, "next_event", failing(FrameReader.next_event, 1, MemoryError)
        )

    monkeypatch.setattr(FrameReader, "receive_eof", end_without_memory)
    async with served(drain_s=5) as peer:
        # Without a newline, only the end makes this a message.
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


async def test_shielded_cleanup_of_a_cancelled_method_is_finished() -> None:
    async with served() as peer:
        peer.send(request("slow_to_die", 1), cancel(1))
        assert (await peer.receive())["error"]["code"] == -32800


async def test_method_ignoring_cancellation_is_answered_once() -> None:
    async with served() as peer:
        peer.send(request("deaf", 1), cancel(1), request("nothing", 2))
        answers = [await peer.receive(), await peer.receive()]
        assert sorted(answer["id"] for answer in answers) == [1, 2]


async def test_late_requests_are_refused_after_the_drain() -> None:
    async with served() as peer:
        peer.send(request("forever", 1), request("nothing", 2))
        assert (await peer.receive())["id"] == 2
        peer.end()
        assert (await peer.receive())["error"]["code"] == 1006


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


async def test_cancellation_costs_the_same_at_any_load(
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
    ids = list(range(50))
    async with served(max_in_flight=len(ids) // 2) as peer:
        # Half of the requests wait until others have ended.
        peer.send(*(request("forever", request_id) for request_id in ids))
        peer.send(*(cancel(request_id) for request_id in ids))
        answers = [await peer.receive() for _ in ids]
    assert sorted(answer["id"] for answer in answers) == ids
    assert {answer["error"]["code"] for answer in answers} == {-32800}
    # A few comparisons per request: when it is entered, found and removed.
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


async def test_requests_over_the_waiting_limit_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shelld.server.serve.MAX_WAITING", 1)
    async with served(max_in_flight=1) as peer:
        peer.send(request("forever", 1), request("nothing", 2), request("nothing", 3))
        refusal = await peer.receive()
        assert refusal["id"] == 3
        assert refusal["error"]["code"] == 1005
        assert refusal["error"]["data"]["limit"] == "max_in_flight"
        peer.send(cancel(1))
        assert {(await peer.receive())["id"] for _ in range(2)} == {1, 2}


async def test_large_params_that_wait_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shelld.server.serve.MAX_WAITING_BYTES", 100)
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


steps = st.lists(
    st.tuples(
        st.sampled_from(["request", "cancel", "notify", "batch", "turn"]),
        st.sampled_from(sorted(METHODS)),
        st.integers(0, 3),
    ),
    max_size=25,
)


@settings(max_examples=60)
@given(steps)
def test_each_request_gets_one_answer(
    script: list[tuple[str, str, int]],
) -> None:
    logger = logging.getLogger("shelld")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        anyio.run(play, script)
    finally:
        logger.setLevel(level)


async def play(script: list[tuple[str, str, int]]) -> None:
    expected: list[Any] = []
    batches = 0
    answers: list[Any] = []
    async with served() as peer:
        for action, method, number in script:
            if action == "request":
                peer.send(request(method, number))
                expected.append(number)
            elif action == "cancel":
                peer.send(cancel(number))
            elif action == "notify":
                peer.send({"jsonrpc": "2.0", "method": method})
            elif action == "batch":
                peer.send([request(method, number), {"jsonrpc": "2.0", "method": method}, 7])
                expected += [number, None]
                batches += 1
            else:
                await anyio.lowlevel.checkpoint()
        peer.end()
        while len(answers) < len(expected):
            message = await peer.receive()
            answers += message if isinstance(message, list) else [message]
    assert sorted(map(repr, (answer["id"] for answer in answers))) == sorted(map(repr, expected))
    assert all(("result" in answer) != ("error" in answer) for answer in answers)
