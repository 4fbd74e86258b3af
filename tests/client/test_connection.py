"""Request ids to pending calls, without I/O."""

from __future__ import annotations

import json

import pytest

from shelld_client.connection import Connection
from shelld_client.errors import (
    CommandBlocked,
    CommandTimedOut,
    InvalidParams,
    ProtocolError,
    ResourceExhausted,
    ShellError,
    ShellNotFound,
    SpawnFailed,
)


def test_answers_find_their_calls_in_any_order_and_any_split() -> None:
    connection: Connection[str] = Connection()
    ids = [connection.call("ping", {}, name)[0] for name in ("a", "b", "c")]
    stream = b"".join(b'{"jsonrpc":"2.0","id":%d,"result":%d}\n' % (i, i * 10) for i in ids[::-1])
    answered = [pair for byte in stream for pair in connection.receive(bytes([byte]))]
    assert answered == [("c", b"30"), ("b", b"20"), ("a", b"10")]
    assert connection.take_pending() == []


def test_a_request_is_a_line_with_an_id_of_its_own() -> None:
    connection: Connection[None] = Connection()
    _, first = connection.call("bash", {"command": "ä\n"}, None)
    _, second = connection.call("bash", {}, None)
    assert first.endswith(b"\n")
    assert first.count(b"\n") == 1
    message = json.loads(first)
    assert message == {"jsonrpc": "2.0", "id": 1, "method": "bash", "params": {"command": "ä\n"}}
    assert json.loads(second)["id"] == 2


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (1001, CommandTimedOut),
        (1002, CommandBlocked),
        (1003, ShellNotFound),
        (1004, SpawnFailed),
        (1005, ResourceExhausted),
        (-32602, InvalidParams),
        (-32603, ShellError),
        (1006, ShellError),
        (424242, ShellError),
    ],
)
def test_errors_become_the_exceptions_of_the_contract(code: int, kind: type[ShellError]) -> None:
    connection: Connection[str] = Connection()
    connection.call("x", {}, "call")
    body = {"code": code, "message": "text", "data": {"kind": "k", "stdout": "out"}}
    line = json.dumps({"jsonrpc": "2.0", "id": 1, "error": body}).encode() + b"\n"
    ((_, error),) = connection.receive(line)
    assert type(error) is kind
    assert isinstance(error, ShellError)
    assert (str(error), error.code, error.kind) == ("text", code, "k")
    if isinstance(error, CommandTimedOut):
        assert (error.stdout, error.stderr) == ("out", "")


@pytest.mark.parametrize("data", [b"null", b"3", b'"x"', b"[]", b"{}"])
def test_error_data_of_any_type_is_taken(data: bytes) -> None:
    connection: Connection[str] = Connection()
    connection.call("x", {}, "call")
    line = b'{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"m","data":%b}}\n' % data
    ((_, error),) = connection.receive(line)
    assert isinstance(error, ShellError)
    assert error.kind is None


@pytest.mark.parametrize(
    "line",
    [
        b"Welcome to host\n",
        b"[]\n",
        b"{\xff}\n",
        b'{"jsonrpc":"2.0","id":"x","result":1}\n',
        b'{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"Parse error"}}\n',
        b"Content-Length: x\r\n\r\n",
        b'{"a":' * 100_000 + b"\n",
    ],
)
def test_what_no_daemon_says_is_a_protocol_error(line: bytes) -> None:
    connection: Connection[str] = Connection()
    with pytest.raises(ProtocolError):
        connection.receive(line)


def test_what_nobody_waits_for_is_dropped() -> None:
    connection: Connection[str] = Connection()
    request_id, _ = connection.call("x", {}, "call")
    cancel = json.loads(connection.cancel(request_id))
    assert cancel == {"jsonrpc": "2.0", "method": "$/cancelRequest", "params": {"id": request_id}}
    answer = b'{"jsonrpc":"2.0","id":1,"result":1}\n'
    notification = b'{"jsonrpc":"2.0","method":"notifications/progress","params":{}}\n'
    assert connection.receive(answer + notification + answer) == []
