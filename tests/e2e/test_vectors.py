"""JSON-RPC 2.0, tested in both framings with examples from its specification and implementations.

The vectors are based on the examples of https://www.jsonrpc.org/specification#examples and on those
that other projects' conformance suites add. Each vector lists the text that the test sends, and all
messages that it receives, in any order.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from shelld_protocol.framing import Framing, encode_frame
from support import Json, raw_daemon


def result(request_id: Any) -> Json:
    return {"jsonrpc": "2.0", "id": request_id, "result": {}}


def error(request_id: Any, code: int) -> Json:
    return {"jsonrpc": "2.0", "id": request_id, "error": {"code": code}}


PING = '{"jsonrpc": "2.0", "method": "ping"'

# Each vector has the text that the test sends, and the messages that it receives. A nested list is
# the answer to a batch.
VECTORS: list[tuple[str, list[Any]]] = [
    (PING + ', "id": 1}', [result(1)]),
    (PING + ', "params": [], "id": 2}', [result(2)]),
    (PING + ', "params": {}, "id": "three"}', [result("three")]),
    (PING + ', "params": null, "id": 4.5}', [result(4.5)]),
    ('{"id": 0, "params": {}, "method": "ping", "jsonrpc": "2.0"}', [result(0)]),
    (PING + ', "id": ""}', [result("")]),
    (PING + ', "id": -1}', [result(-1)]),
    (PING + ', "id": null}', [result(None)]),
    (PING + ', "id": 9007199254740993}', [result(9007199254740993)]),
    (PING + ', "id": "\\u0031"}', [result("1")]),
    (PING + ', "later": {"member": 1}, "id": 1}', [result(1)]),
    # Notifications.
    (PING + "}", []),
    ('{"jsonrpc": "2.0", "method": "foobar"}', []),
    ('{"jsonrpc": "2.0", "method": "bash", "params": {}}', []),
    # Errors.
    ('{"jsonrpc": "2.0", "method": "foobar", "id": "1"}', [error("1", -32601)]),
    ('{"jsonrpc": "2.0", "method": "foobar, "params": "bar", "baz]', [error(None, -32700)]),
    ('{"jsonrpc": "2.0", "method": 1, "params": "bar"}', [error(None, -32600)]),
    ('{"jsonrpc": "2.0", "method": "ping", "params": "bar", "id": 1}', [error(1, -32600)]),
    ('{"jsonrpc": "2.0", "id": 1}', [error(1, -32600)]),
    ('{"method": "ping", "id": 1}', [error(1, -32600)]),
    ('{"jsonrpc": 2.0, "method": "ping", "id": 1}', [error(1, -32600)]),
    ('{"jsonrpc": "2.1", "method": "ping", "id": 1}', [error(1, -32600)]),
    ("{}", [error(None, -32600)]),
    ('"x"', [error(None, -32600)]),
    ("nonsense", [error(None, -32700)]),
    ('{"jsonrpc": "2.0", "method": "bash", "params": {}, "id": 1}', [error(1, -32602)]),
    ('{"jsonrpc": "2.0", "method": "bash", "params": [1], "id": 1}', [error(1, -32602)]),
    ('{"jsonrpc": "2.0", "method": "bash", "params": {"x": 1}, "id": 1}', [error(1, -32602)]),
    # These messages are answers to requests that the daemon never sent.
    ('{"jsonrpc": "2.0", "id": 1, "result": 19}', []),
    ('{"jsonrpc": "2.0", "id": 1, "error": {"code": 1, "message": "no"}}', []),
    # Batches.
    ("[]", [error(None, -32600)]),
    ("[1]", [[error(None, -32600)]]),
    ("[1, 2, 3]", [[error(None, -32600)] * 3]),
    ("[[]]", [[error(None, -32600)]]),
    ('[{"jsonrpc": "2.0", "method": "ping", "id": 1},', [error(None, -32700)]),
    (f'[{PING}, "id": 1}}, {PING}, "id": "2"}}]', [[result(1), result("2")]]),
    (f'[{PING}}}, {{"jsonrpc": "2.0", "method": "foobar"}}]', []),
    ('[{"jsonrpc": "2.0", "id": 1, "result": 19}]', []),
    (
        f'[{PING}, "id": 1}}, {PING}}}, {{"foo": "boo"}}, 7, '
        '{"jsonrpc": "2.0", "method": "foo.get", "params": {"name": "myself"}, "id": "5"}, '
        f'{{"jsonrpc": "2.0", "id": 3, "result": 1}}, {PING}, "id": "9"}}]',
        [
            [
                *(result(1), error(None, -32600), error(None, -32600)),
                *(error("5", -32601), result("9")),
            ]
        ],
    ),
]


def without_texts(message: Json | list[Any]) -> Any:
    """Return a message in the form that the list of vectors uses. An error has only its code."""
    if isinstance(message, list):
        return [without_texts(each) for each in message]
    if "error" in message:
        return {**message, "error": {"code": message["error"]["code"]}}
    return message


@pytest.mark.slow
@pytest.mark.parametrize("framing", Framing)
def test_every_vector_gets_the_listed_answers(framing: Framing) -> None:
    with raw_daemon() as daemon:
        for number, (sent, expected) in enumerate(VECTORS):
            barrier = f"barrier-{number}"
            ping = json.dumps({"jsonrpc": "2.0", "id": barrier, "method": "ping"})
            daemon.send_raw(encode_frame(sent.encode(), framing))
            daemon.send_raw(encode_frame(ping.encode(), framing))
            received: list[Any] = []
            while result(barrier) not in received or len(received) <= len(expected):
                received.append(without_texts(daemon.receive()))
            received.remove(result(barrier))
            assert received == expected, sent
        daemon.send_raw(encode_frame(PING.encode() + b', "id": "the end"}', framing))
        assert daemon.receive() == result("the end")


def test_message_with_header_may_contain_newlines() -> None:
    with raw_daemon() as daemon:
        pretty = json.dumps(json.loads(PING + ', "id": 1}'), indent=2)
        daemon.send_raw(encode_frame(pretty.encode(), Framing.CONTENT_LENGTH))
        assert daemon.receive() == result(1)
