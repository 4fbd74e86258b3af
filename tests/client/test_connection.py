"""A connection finds the pending call for each answer by its request id, and does no I/O."""

from __future__ import annotations

import collections
import dataclasses
import datetime
import decimal
import enum
import json
import logging
import math
import sys
import uuid
from collections.abc import Callable
from pathlib import Path
from types import FrameType, MappingProxyType
from typing import Any

import msgspec
import pytest

from shelld_client.connection import MAX_BANNER_BYTES, Connection, wire_logger
from shelld_client.errors import (
    CommandBlocked,
    CommandTimedOut,
    InvalidParams,
    ProtocolError,
    RequestCancelled,
    ResourceExhausted,
    SessionNotFound,
    ShellError,
    ShellNotFound,
    ShuttingDown,
    SpawnFailed,
)


def test_answers_reach_their_calls_in_any_order() -> None:
    connection: Connection[str] = Connection()
    for name in ("a", "b", "c"):
        connection.call(connection.new_id(), "ping", {}, name)
    stream = b"".join(b'{"jsonrpc":"2.0","id":%d,"result":%d}\n' % (i, i * 10) for i in (3, 2, 1))
    answered = [pair for byte in stream for pair in connection.receive(bytes([byte]))]
    assert answered == [("c", b"30"), ("b", b"20"), ("a", b"10")]
    assert connection.take_pending() == []


def test_requests_are_lines_with_unique_ids() -> None:
    connection: Connection[None] = Connection()
    first = connection.call(connection.new_id(), "bash", {"command": "ä\n"}, None)
    second = connection.call(connection.new_id(), "bash", {}, None)
    assert first.endswith(b"\n")
    assert first.count(b"\n") == 1
    message = json.loads(first)
    assert message == {"jsonrpc": "2.0", "id": 1, "method": "bash", "params": {"command": "ä\n"}}
    assert json.loads(second)["id"] == 2


class Colour(enum.Enum):
    RED = "red"
    RAW = msgspec.Raw(b"1")
    MANY = frozenset("ab")


class Number(enum.IntEnum):
    ONE = 1


@dataclasses.dataclass
class Point:
    x: float = math.nan


class Struct(msgspec.Struct):
    x: float = math.nan


UNLIKE_JSON: list[object] = [
    {math.nan},
    frozenset("a"),
    decimal.Decimal("1.5"),
    datetime.datetime(2000, 1, 1, tzinfo=datetime.UTC),
    uuid.UUID(int=0),
    Point(),
    Struct(),
    Colour.RAW,
    Colour.MANY,
    msgspec.Raw(b'1,"x":2'),
    {"a": 1}.keys(),
    iter("a"),
    {1: "a", "1": "b"},
    {None: 1},
    {b"a": 1},
]


@pytest.mark.parametrize("value", UNLIKE_JSON, ids=lambda value: type(value).__name__)
def test_a_value_that_json_would_change_is_refused(value: object) -> None:
    connection: Connection[str] = Connection()
    for params in ({"x": value}, {"x": [{"y": (value,)}]}):
        with pytest.raises(TypeError, match="JSON has no"):
            connection.call(connection.new_id(), "x", params, "call")
    assert connection.take_pending() == []


def test_values_that_json_has_are_sent() -> None:
    connection: Connection[str] = Connection()
    plain = {"a": [1, 1.5, True, None, "x"], "b": {"c": (2,)}, "d": Path("/tmp")}
    frame = connection.call(1, "x", {**plain, "e": Colour.RED, "f": Number.ONE}, "call")
    assert json.loads(frame)["params"] == {
        "a": [1, 1.5, True, None, "x"],
        "b": {"c": [2]},
        "d": "/tmp",
        "e": "red",
        "f": 1,
    }


class Text(str):
    __slots__ = ()

    def __str__(self) -> str:
        return "other"


class Whole(int):
    def __int__(self) -> int:
        return 0


class Real(float):
    def __float__(self) -> float:
        return 0.0


class OfText(enum.Enum):
    TEXT = Text("x")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (Text("ä"), "ä"),
        (Whole(7), 7),
        (Real(0.1), 0.1),
        (OfText.TEXT, "x"),
        (MappingProxyType({Text("b"): Text("c")}), {"b": "c"}),
        (
            collections.UserDict(b=[collections.ChainMap({"c": (Real(1.5),)})]),
            {"b": [{"c": [1.5]}]},
        ),
    ],
    ids=lambda value: type(value).__name__,
)
def test_subclasses_and_mappings_are_sent_as_base_types(value: object, expected: object) -> None:
    connection: Connection[str] = Connection()
    for params, sent in (({"a": value}, {"a": expected}), ({"a": [value]}, {"a": [expected]})):
        frame = connection.call(connection.new_id(), "x", params, "call")
        assert json.loads(frame)["params"] == sent


@pytest.mark.parametrize("value", [Real("nan"), MappingProxyType({"x": Real("inf")})])
def test_subclasses_of_numbers_are_checked_like_numbers(value: object) -> None:
    with pytest.raises(InvalidParams, match="is not a number in JSON"):
        Connection[str]().call(1, "x", {"a": value}, "call")


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
        (1006, ShuttingDown),
        (1007, SessionNotFound),
        (-32800, RequestCancelled),
        (424242, ShellError),
    ],
)
def test_error_code_becomes_its_exception(code: int, kind: type[ShellError]) -> None:
    connection: Connection[str] = Connection()
    connection.call(connection.new_id(), "x", {}, "call")
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
    connection.call(connection.new_id(), "x", {}, "call")
    line = b'{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"m","data":%b}}\n' % data
    ((_, error),) = connection.receive(line)
    assert isinstance(error, ShellError)
    assert error.kind is None


@pytest.mark.parametrize(
    "line",
    [
        b"Welcome to host\n",
        b"[]\n",
        b'{"id":1,"result":1}\n',
        b"{\xff}\n",
        b'{"jsonrpc":"2.0","id":"x","result":1}\n',
        b'{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"Parse error"}}\n',
        b"Content-Length: x\r\n\r\n",
        b'{"a":' * 100_000 + b"\n",
    ],
)
def test_impossible_messages_are_protocol_errors(line: bytes) -> None:
    connection = greeted()
    with pytest.raises(ProtocolError):
        list(connection.receive(line))


def test_unexpected_answers_are_dropped() -> None:
    connection: Connection[str] = Connection()
    connection.call(connection.new_id(), "x", {}, "call")
    cancel = json.loads(connection.cancel(1))
    assert cancel == {"jsonrpc": "2.0", "method": "$/cancelRequest", "params": {"id": 1}}
    assert connection.cancel(1) == b""
    answer = b'{"jsonrpc":"2.0","id":1,"result":1}\n'
    notification = b'{"jsonrpc":"2.0","method":"notifications/progress","params":{}}\n'
    assert list(connection.receive(answer + notification + answer)) == []


PONG = b'{"jsonrpc":"2.0","id":1,"result":{}}\n'


def greeted() -> Connection[str]:
    """Return a connection whose peer has answered a first call."""
    connection: Connection[str] = Connection()
    connection.call(connection.new_id(), "ping", {}, "first")
    assert list(connection.receive(PONG)) == [("first", b"{}")]
    return connection


def test_answers_before_garbage_are_handed_out() -> None:
    connection = greeted()
    connection.call(connection.new_id(), "ping", {}, "second")
    connection.call(connection.new_id(), "ping", {}, "third")
    answered = connection.receive(b'{"jsonrpc":"2.0","id":2,"result":2}\nno json\n')
    assert next(answered) == ("second", b"2")
    with pytest.raises(ProtocolError):
        next(answered)
    assert connection.take_pending() == ["third"]


def test_a_peer_that_echoes_requests_is_an_error() -> None:
    connection: Connection[str] = Connection()
    request = connection.call(connection.new_id(), "ping", {}, "call")
    with pytest.raises(ProtocolError, match="echoes"):
        list(connection.receive(request))


BANNERS = [
    b"Welcome to host\nLast login: today\n",
    b"Welcome to host\r\n\r\n",
    b"Password: ",
    b"{ not json\n{\n",
    b'{"motd":"hello"}\n[]\n7\n"text"\nnull\n',
    b'{"id":1,"result":{}}\n',
    b'{"jsonrpc":"2.0", no json\n',
    b'say {"jsonrpc":"2.0",',
    bytes(range(256)) * 4,
    b"\xef\xbb\xbf",
    b"\x1b[2J\x1b]0;title\x07",
    b"Content-Length: 10\r\n\r\n",
    b"Connected.\n",
    b'{"a":' * 5_000 + b"\n",
    b"line\n" * (MAX_BANNER_BYTES // 5),
    b"x" * (MAX_BANNER_BYTES - len(PONG)),
]


@pytest.mark.parametrize("banner", BANNERS, ids=lambda banner: repr(banner[:20]))
@pytest.mark.parametrize("size", [1, 7, 4096, 1 << 20])
def test_a_banner_is_skipped_in_any_split(banner: bytes, size: int) -> None:
    connection: Connection[str] = Connection()
    connection.call(connection.new_id(), "ping", {}, "call")
    stream = banner + PONG
    answered = [
        pair
        for start in range(0, len(stream), size)
        for pair in connection.receive(stream[start : start + size])
    ]
    assert answered == [("call", b"{}")]
    assert connection.said == ""


@pytest.mark.parametrize("banner", [b"line\n" * MAX_BANNER_BYTES, b"x" * (MAX_BANNER_BYTES + 1)])
@pytest.mark.parametrize("size", [997, 1 << 20])
def test_a_banner_without_end_is_a_protocol_error(banner: bytes, size: int) -> None:
    connection: Connection[str] = Connection()
    connection.call(connection.new_id(), "ping", {}, "call")
    with pytest.raises(ProtocolError, match=r"it wrote '(line line|xxxx)"):
        for start in range(0, len(banner), size):
            list(connection.receive(banner[start : start + size]))


def test_banner_is_quoted_on_one_short_line() -> None:
    connection: Connection[str] = Connection()
    list(connection.receive(b"\x1b[1mWelcome\x1b[0m\r\n\xff" + b"." * 10_000 + b"\nPassword: "))
    assert connection.said.startswith("; it wrote '[1mWelcome [0m")
    assert connection.said.endswith("... Password:'")
    assert len(connection.said) < 500


def test_only_text_before_first_message_is_skipped() -> None:
    connection = greeted()
    with pytest.raises(ProtocolError):
        list(connection.receive(b"Broadcast message from root\n"))


def test_secret_input_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    params = {"bash_id": "shell_1", "text": "swordfish", "keys": ["s"], "base64": "c3dvcmQ="}
    with caplog.at_level(logging.DEBUG, logger=wire_logger.name):
        for secret in (True, False):
            sent = Connection[object]().call(
                1, "write_stdin", {**params, "secret": secret}, object()
            )
            assert b"swordfish" in sent
    secret, plain = (json.loads(text.removeprefix("-> ")) for text in caplog.messages)
    assert secret["params"] == {"bash_id": "shell_1", "secret": True}
    assert plain["params"] == {**params, "secret": False}


def test_a_log_handler_that_raises_costs_no_answer() -> None:
    class Broken(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            raise RuntimeError

    handler = Broken()
    wire_logger.addHandler(handler)
    wire_logger.setLevel(logging.DEBUG)
    try:
        greeted()
    finally:
        wire_logger.removeHandler(handler)
        wire_logger.setLevel(logging.NOTSET)


def steps_of(work: Callable[[], object]) -> int:
    """Return how many interpreter steps `work` takes."""
    steps = 0

    def count(frame: FrameType, event: str, _arg: object) -> Any:
        nonlocal steps
        frame.f_trace_opcodes = True
        steps += event == "opcode"
        return count

    before = sys.gettrace()
    sys.settrace(count)
    try:
        work()
    finally:
        sys.settrace(before)
    return steps


def test_cancelling_takes_no_longer_with_more_calls() -> None:
    connection: Connection[int] = Connection()
    for number in range(1000):
        connection.call(connection.new_id(), "ping", {}, number)
    among_many = steps_of(lambda: connection.cancel(500))
    assert len(connection.take_pending()) == 999
    connection.call(connection.new_id(), "ping", {}, 1000)
    assert among_many <= steps_of(lambda: connection.cancel(1001))
