"""The server with methods that misbehave: every accepted request gets exactly one answer."""

from __future__ import annotations

import json
import logging
from collections import Counter
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from served import (
    DRAIN_S,
    METHODS,
    SECRET,
    cancel,
    request,
    served,
)
from shelld.server.serve import (
    MAX_STARTED_IN_A_ROW,
    Server,
)
from shelld_protocol.errors import ErrorKind


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


async def test_shutdown_is_in_the_debug_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "shelld.serve")
    async with served() as peer:
        peer.send(request("shutdown", 1))
        assert (await peer.receive())["result"] is None
    assert "request 'shutdown'" in caplog.messages


async def test_stall_does_not_use_up_drain_time() -> None:
    async with served(drain_s=DRAIN_S) as peer:
        peer.send(request("stalls", 1), request("forever", 2))
        peer.end()
        answers = {answer["id"]: answer for answer in [await peer.receive() for _ in range(2)]}
    assert answers[1]["result"] == "made it"
    assert answers[2]["error"]["code"] == ErrorKind.SHUTTING_DOWN.code


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


async def test_late_requests_are_refused_after_the_drain() -> None:
    async with served() as peer:
        peer.send(request("forever", 1), request("nothing", 2))
        assert (await peer.receive())["id"] == 2
        peer.end()
        assert (await peer.receive())["error"]["code"] == 1006


steps = st.lists(
    st.tuples(
        st.sampled_from(["request", "cancel", "notify", "batch", "turn"]),
        st.sampled_from(sorted(METHODS)),
        st.integers(0, 3),
    ),
    max_size=25,
)


@pytest.mark.slow
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
