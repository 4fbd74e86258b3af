"""Targets that send messages which shelld never sends. The far end is a small program that breaks
the rules.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest

from shelld_protocol.about import PROTOCOL
from support import Json, RawDaemon, raw_daemon

pytestmark = pytest.mark.slow

# This program answers `server_info` as a shelld does. Its argument is an expression whose value is
# bytes. It answers each later request with these bytes. In the expression, `i` is the id of the
# request, as JSON text, and `methods` has the methods of all requests so far.
_PEER = """
import json, os, signal, sys

def out(data):
    while data:
        data = data[os.write(1, data):]

def answer(i, result):
    return b'{"jsonrpc":"2.0","id":%b,"result":%b}\\n' % (i, result)

methods = []
for line in sys.stdin.buffer:
    message = json.loads(line)
    if "id" not in message:
        continue
    methods.append(message["method"])
    i = json.dumps(message["id"]).encode()
    if message["method"] == "server_info":
        limits = b'{"maxMessageBytes":1000000}'
        out(answer(i, b'{"version":"0","protocol":PROTOCOL,"limits":%b}' % limits))
    else:
        out(eval(sys.argv[1]))
"""


@pytest.fixture(scope="module")
def hub() -> Iterator[RawDaemon]:
    with raw_daemon(stderr_is_silent=False) as daemon:
        yield daemon
        assert daemon.call("ping") == {}


def add_target(hub: RawDaemon, name: str, expression: str) -> None:
    peer = _PEER.replace("PROTOCOL", str(PROTOCOL))
    hub.call("add_target", {"name": name, "argv": [sys.executable, "-c", peer, expression]})


def request(hub: RawDaemon, name: str, expression: str, method: str = "bash") -> Any:
    """Add a target, send it a request, and return the answer. Fail if the daemon sends an invalid
    message.
    """
    add_target(hub, name, expression)
    params = {"target": name, **({"command": "true"} if method == "bash" else {})}
    return hub.answer(hub.request(method, params))


@pytest.mark.parametrize(
    ("name", "result"),
    [
        ("utf8", rb'{"x":"\xff"}'),
        ("surrogate", rb'{"x":"\\ud800"}'),
        ("escape", rb'{"x":"\\q"}'),
        ("control", rb'{"x":"\x01"}'),
        ("nan", rb'{"x":NaN}'),
        ("unclosed", b"[[[]"),
    ],
)
def test_invalid_answer_cuts_the_connection(hub: RawDaemon, name: str, result: bytes) -> None:
    answer = request(hub, name, f"answer(i, b'{result.decode()}')")
    assert answer["error"]["code"] == 1011
    assert "invalid message" in answer["error"]["message"]


def test_nesting_without_end_cuts_the_connection(hub: RawDaemon) -> None:
    answer = request(hub, "nest", "answer(i, b'[' * 100_000 + b']' * 100_000)")
    assert answer["error"]["code"] == 1011


@pytest.mark.parametrize("listed", ['{"a":1}', "7"])
def test_result_of_another_shape_is_an_error_of_the_target(hub: RawDaemon, listed: str) -> None:
    name = f"shape{len(listed)}"
    answer = request(hub, name, f"""answer(i, b'{{"shells":{listed}}}')""", "list_shells")
    assert answer["error"]["code"] == 1011
    assert "invalid result" in answer["error"]["message"]


def test_ids_that_are_not_strings_stay_unchanged(hub: RawDaemon) -> None:
    answer = request(hub, "ids", """answer(i, b'{"shells":[1,null,"a"]}')""", "get_session")
    assert answer["result"] == {"shells": [1, None, "ids:a"]}


@pytest.mark.parametrize("own", ["n}{", "n01", "x", "nNaN"])
def test_invalid_id_of_a_request_in_an_event_is_null(hub: RawDaemon, own: str) -> None:
    name = "event" + "".join(each for each in own if each.isalnum())
    params = f'{{"subscription":"s","requestId":"1-{own}"}}'
    event = f"""b'{{"jsonrpc":"2.0","method":"shell/output","params":{params}}}\\n'"""
    assert request(hub, name, f"{event} + answer(i, b'{{}}')")["result"] == {}
    [found] = [each for each in hub.unclaimed if each["params"]["subscription"] == f"{name}:s"]
    assert found["params"]["requestId"] is None


def test_reader_learns_that_no_event_follows_the_error_of_a_command(hub: RawDaemon) -> None:
    data = '{"kind":"timeout","bash_id":"shell_1","subscription":"sub_1"}'
    error = f'{{"code":1001,"message":"Command timed out","data":{data}}}'
    answer = f"""b'{{"jsonrpc":"2.0","id":%b,"error":{error}}}\\n' % i"""
    add_target(hub, "dead", f"(out({answer}), os._exit(0))")
    params = {"command": "sleep 2", "target": "dead", "notify": ["output", "exit"]}
    hub.forget_answers()
    call = hub.request("bash", params)
    assert hub.answer(call)["error"]["data"]["subscription"] == "dead:sub_1"
    lost = hub.receive()
    assert (lost["method"], lost["params"]["requestId"]) == ("shell/lost", call)
    assert lost["params"]["subscription"] == "dead:sub_1"


@pytest.mark.parametrize("more", [{}, {"idempotency_key": None}])
@pytest.mark.parametrize(
    ("method", "params", "result", "undo"),
    [
        (
            "bash",
            {"command": "true", "run_in_background": True},
            '{"bash_id":"far","status":"running"}',
            {"shell_id": "far"},
        ),
        ("subscribe", {"events": ["exit"]}, '{"subscription":"far"}', {"subscription": "far"}),
    ],
)
def test_request_that_succeeds_although_it_was_cancelled_is_undone(
    hub: RawDaemon, method: str, params: Json, result: str, undo: Json, *, more: Json
) -> None:
    def event(name: str) -> str:
        params = '{"subscription":"far"}'
        return f"""b'{{"jsonrpc":"2.0","method":"shell/{name}","params":{params}}}\\n'"""

    # The target answers only after the cancellation has arrived.
    late = f"out({event('begun')}) or sys.stdin.buffer.readline() and answer(i, b'{result}')"
    undone = f"{event('undone')} + answer(i, b'{{}}')"
    name = f"late-{method}-{len(more)}"
    add_target(hub, name, f"{undone} if message['params'] == {undo} else {late}")
    hub.forget_answers()
    call = hub.request(method, {"target": name, **params, **more})
    assert hub.receive()["method"] == "shell/begun"
    hub.notify("$/cancelRequest", {"id": call})
    assert hub.receive()["method"] == "shell/undone"
    assert hub.answer(call)["error"]["code"] == -32800


@pytest.mark.parametrize(
    ("method", "params", "result", "left"),
    [
        (
            "bash",
            {"command": "true", "run_in_background": True},
            '{"bash_id":"far","status":"running"}',
            "kept-bash:far",
        ),
        ("subscribe", {"events": ["exit"]}, '{"subscription":"far"}', None),
    ],
)
def test_cancelled_request_with_a_key_is_not_undone(
    hub: RawDaemon, method: str, params: Json, result: str, left: str | None
) -> None:
    event = """b'{"jsonrpc":"2.0","method":"shell/begun","params":{"subscription":"far"}}\\n'"""
    late = f"out({event}) or sys.stdin.buffer.readline() and answer(i, b'{result}')"
    name = f"kept-{method}"
    seen = """answer(i, b'{"shells":[],"seen":%b}' % json.dumps(methods[1:]).encode())"""
    add_target(hub, name, f"{late} if message['method'] == '{method}' else {seen}")
    hub.forget_answers()
    call = hub.request(method, {"target": name, "idempotency_key": "mine", **params})
    assert hub.receive()["method"] == "shell/begun"
    hub.notify("$/cancelRequest", {"id": call})
    error = hub.answer(call)["error"]
    assert (error["code"], error["data"].get("bash_id")) == (-32800, left)
    # If the daemon had sent a request to undo this, the target would have seen it before
    # `list_shells`.
    assert hub.call("list_shells", {"target": name})["seen"] == [method, "list_shells"]


def test_text_without_end_between_messages_cuts_the_connection(hub: RawDaemon) -> None:
    answer = request(hub, "noise", "b'x\\n' * 1_000_000")
    assert answer["error"]["code"] == 1011
    assert "too much text that is not a message" in answer["error"]["message"]


def test_some_text_between_messages_is_skipped(hub: RawDaemon) -> None:
    assert request(hub, "some", "b'{x\\n' * 1_000 + answer(i, b'{}')")["result"] == {}


def test_error_gives_the_number_of_a_signal_without_a_name(hub: RawDaemon) -> None:
    answer = request(hub, "signal", "os.kill(os.getpid(), signal.SIGRTMIN + 3)")
    assert "ended by signal " in answer["error"]["message"]
