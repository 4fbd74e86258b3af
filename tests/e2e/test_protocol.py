"""JSON-RPC 2.0 over the real daemon: the specification's examples, batches, ids, framing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from support import Gate, RawDaemon, wait_for


def error_of(answer: dict[str, Any]) -> tuple[int, str]:
    return answer["error"]["code"], answer["error"]["data"]["kind"]


@pytest.mark.parametrize(
    ("line", "code", "request_id"),
    [
        # https://www.jsonrpc.org/specification#examples
        (b'{"jsonrpc": "2.0", "method": "foobar, "params": "bar", "baz]', -32700, None),
        (b'{"jsonrpc": "2.0", "method": 1, "params": "bar"}', -32600, None),
        (b"[]", -32600, None),
        (b'[{"jsonrpc": "2.0", "method": "sum"}, {"jsonrpc": "2.0", "method"', -32700, None),
        (b'{"jsonrpc": "2.0", "method": "foobar", "id": "1"}', -32601, "1"),
        # The answer to an invalid request has the id of the request, if that id can be read.
        (b'{"jsonrpc": "1.0", "method": "ping", "id": 7}', -32600, 7),
        (b'{"method": "ping", "id": 7}', -32600, 7),
        (b'{"jsonrpc": "2.0", "id": 7}', -32600, 7),
        (b'{"jsonrpc": "2.0", "method": null, "id": 7}', -32600, 7),
        (b'{"jsonrpc": "2.0", "method": "ping", "params": 3, "id": "x"}', -32600, "x"),
        (b'{"jsonrpc": "2.0", "method": "ping", "id": true}', -32600, None),
        (b'{"jsonrpc": "2.0", "method": "ping", "id": []}', -32600, None),
        (b'{"jsonrpc": "2.0", "method": "ping", "id": {}}', -32600, None),
        (b"1", -32600, None),
        (b"null", -32600, None),
        (b'"ping"', -32600, None),
        (b"true false", -32700, None),
        (b"\xff\xfe", -32700, None),
        (b'{"jsonrpc": "2.0", "method": "ping", "id": "\xff"}', -32700, None),
        (b'{"jsonrpc": "2.0", "method": "ping", "id": 1, "x": "\xc3"}', -32700, None),
        (b'{"jsonrpc": "2.0", "method": "ping", "id": "\\ud800"}', -32700, None),
        (b'{"jsonrpc": "2.0", "method": "ping", "id": 1, "params": {"\\udfff": 1}}', -32700, None),
        (b'{"jsonrpc": "2.0", "method": "ping", "id": NaN}', -32700, None),
        (b'{"jsonrpc": "2.0", "method": "ping", "id": 01}', -32700, None),
        (b'{"jsonrpc": "2.0", "method": "pi\0ng", "id": 1}', -32700, None),
        (b'{"jsonrpc": "2.0", "method": "rpc.nope", "id": 1}', -32601, 1),
        (b'{"jsonrpc": "2.0", "method": "$/nope", "id": 1}', -32601, 1),
        (b'{"jsonrpc": "2.0", "method": "", "id": 1}', -32601, 1),
    ],
)
def test_malformed_request_gets_its_error(
    daemon: RawDaemon, line: bytes, code: int, request_id: object
) -> None:
    daemon.send_raw(line + b"\n")
    answer = daemon.receive()
    assert answer["error"]["code"] == code
    assert answer["id"] == request_id
    assert set(answer) == {"jsonrpc", "id", "error"}
    assert daemon.call("ping") == {}


@pytest.mark.parametrize(
    "raw_id",
    [
        *("0", "-0", "1", "-5", "1.5", "1.0", "1e400", '""', '"1"', '"a\\u0000b"', "null"),
        *("9" * 5000, '"\\ud83d\\ude00"', "18446744073709551616"),
    ],
)
def test_ids_are_echoed_exactly(daemon: RawDaemon, raw_id: str) -> None:
    daemon.send_raw(b'{"jsonrpc":"2.0","method":"ping","id":%b}\n' % raw_id.encode())
    data = b""
    while not data.endswith(b"\n"):
        data += daemon.read_bytes()
    assert data == b'{"jsonrpc":"2.0","id":%b,"result":{}}\n' % raw_id.encode()


def test_last_duplicate_member_wins(daemon: RawDaemon) -> None:
    daemon.send_raw(b'{"jsonrpc":"2.0","id":1,"method":"nope","method":"ping","id":2}\n')
    assert daemon.receive() == {"jsonrpc": "2.0", "id": 2, "result": {}}


@pytest.mark.parametrize("params", [None, [], {}, [None], [None, None]])
def test_empty_params_have_many_forms(daemon: RawDaemon, params: object) -> None:
    daemon.send({"jsonrpc": "2.0", "id": 1, "method": "ping", "params": params})
    assert daemon.receive()["result"] == {}
    daemon.send({"jsonrpc": "2.0", "id": 1, "method": "bash", "params": params})
    assert daemon.receive()["error"]["message"] == "Missing required parameter: command"


def test_positional_params_are_in_schema_order(daemon: RawDaemon) -> None:
    result = daemon.call("bash", ["echo hi", "greet", 5000, None, "/", None])
    assert (result["stdout"], result["description"], result["cwd"]) == ("hi\n", "greet", "/")
    error = daemon.fail("ping", [1])
    assert error["code"] == -32602


def test_null_means_absent_for_optional_params(daemon: RawDaemon) -> None:
    names = ("description", "timeout", "run_in_background", "cwd", "env", "stdin", "strip_ansi")
    result = daemon.bash("echo hi", **dict.fromkeys(names))
    assert result["stdout"] == "hi\n"


def test_notifications_are_never_answered(daemon: RawDaemon, tmp_path: Any) -> None:
    daemon.notify("nope", {})
    daemon.notify("ping", {"bad": "params"})
    daemon.notify("bash", {"command": f"touch {tmp_path}/ran"})
    daemon.send({"jsonrpc": "2.0", "method": "bash", "params": {"command": ""}})
    wait_for((tmp_path / "ran").exists, "the notification's command")
    daemon.request("ping", request_id="only")
    assert daemon.receive()["id"] == "only"


def test_responses_sent_by_the_client_are_ignored(daemon: RawDaemon) -> None:
    daemon.send({"jsonrpc": "2.0", "id": 9, "result": 1})
    daemon.send({"jsonrpc": "2.0", "id": 9, "error": {"code": 1, "message": "x"}})
    daemon.send([{"jsonrpc": "2.0", "id": 9, "result": 1}])
    daemon.request("ping", request_id="only")
    assert daemon.receive()["id"] == "only"


def test_batch_is_answered_member_by_member(daemon: RawDaemon) -> None:
    daemon.send(
        [
            {"jsonrpc": "2.0", "id": "slow", "method": "bash", "params": {"command": "sleep 0.2"}},
            {"jsonrpc": "2.0", "method": "ping"},
            1,
            {"foo": "boo"},
            {"jsonrpc": "2.0", "id": 9, "result": 1},
            {"jsonrpc": "2.0", "id": 5, "method": "foo.get"},
            {"jsonrpc": "2.0", "id": "fast", "method": "ping"},
            {"jsonrpc": "2.0", "method": "$/cancelRequest", "params": {"id": "none"}},
        ]
    )
    answers = daemon.receive()
    assert [answer["id"] for answer in answers] == ["slow", None, None, 5, "fast"]
    codes = [answer.get("error", {}).get("code") for answer in answers]
    assert codes == [None, -32600, -32600, -32601, None]


def test_invalid_batch_members_are_answered_singly(daemon: RawDaemon) -> None:
    daemon.send_raw(b"[1,2,3]\n")
    assert [error_of(answer) for answer in daemon.receive()] == [(-32600, "invalid_request")] * 3


def test_batch_of_notifications_is_not_answered(daemon: RawDaemon) -> None:
    daemon.send([{"jsonrpc": "2.0", "method": "ping"}] * 3)
    daemon.request("ping", request_id="only")
    assert daemon.receive()["id"] == "only"


@pytest.mark.slow
def test_batch_of_ten_thousand_gets_one_array(daemon: RawDaemon) -> None:
    total = 10_000
    daemon.send([{"jsonrpc": "2.0", "id": i, "method": "ping"} for i in range(total)])
    assert [answer["id"] for answer in daemon.receive()] == list(range(total))


def test_batch_over_the_member_limit_is_refused(daemon: RawDaemon) -> None:
    daemon.send_raw(b"[" + b"1," * 300_000 + b"1]\n")
    answer = daemon.receive()
    assert (answer["id"], *error_of(answer)) == (None, -32600, "invalid_request")
    assert answer["error"]["message"].endswith("a batch must not have more than 10000 members")
    assert daemon.call("ping") == {}


def test_answers_arrive_in_order_of_completion(daemon: RawDaemon, tmp_path: Path) -> None:
    last, second = Gate(tmp_path / "last"), Gate(tmp_path / "second")
    for name, command in (("c", last.wait), ("b", second.wait), ("a", "true")):
        daemon.request("bash", {"command": command}, name)
    assert daemon.receive()["id"] == "a"
    second.open()
    assert daemon.receive()["id"] == "b"
    last.open()
    assert daemon.receive()["id"] == "c"


def test_repeated_id_in_flight_is_answered_twice(daemon: RawDaemon) -> None:
    for text in ("one", "two"):
        daemon.request("bash", {"command": f"sleep 0.1; echo {text}"}, "same")
    outputs = {daemon.receive()["result"]["stdout"] for _ in range(2)}
    assert outputs == {"one\n", "two\n"}


@pytest.mark.parametrize(
    ("method", "params", "message", "parameter"),
    [
        ("bash", {}, "Missing required parameter: command", "command"),
        ("bash", {"command": 1}, "Invalid type for command: expected string", "command"),
        ("bash", {"command": None}, "Invalid type for command: expected string", "command"),
        (
            "bash",
            {"command": ""},
            "Value for command is shorter than minimum length: 1",
            "command",
        ),
        (
            "bash",
            {"command": "x", "timeout": "5"},
            "Invalid type for timeout: expected integer",
            "timeout",
        ),
        (
            "bash",
            {"command": "x", "timeout": True},
            "Invalid type for timeout: expected integer",
            "timeout",
        ),
        (
            "bash",
            {"command": "x", "timeout": 1500.5},
            "Invalid type for timeout: expected integer",
            "timeout",
        ),
        (
            "bash",
            {"command": "x", "timeout": 999},
            "Value for timeout is below minimum: 1000",
            "timeout",
        ),
        (
            "bash",
            {"command": "x", "timeout": 600_001},
            "Value for timeout exceeds maximum: 600000",
            "timeout",
        ),
        (
            "bash",
            {"command": "x", "run_in_background": "yes"},
            "Invalid type for run_in_background: expected boolean",
            "run_in_background",
        ),
        (
            "bash",
            {"command": "x", "cwd": ""},
            "Value for cwd is shorter than minimum length: 1",
            "cwd",
        ),
        ("bash", {"command": "x", "env": []}, "Invalid type for env: expected object", "env"),
        (
            "bash",
            {"command": "x", "env": {"A": 1}},
            "Invalid type for env: expected object of strings",
            "env",
        ),
        (
            "bash",
            {"command": "x", "env": {"": "x"}},
            "Invalid value for env: a name must not be empty nor contain = or NUL",
            "env",
        ),
        (
            "bash",
            {"command": "x", "env": {"A=B": "x"}},
            "Invalid value for env: a name must not be empty nor contain = or NUL",
            "env",
        ),
        (
            "bash",
            {"command": "x", "env": {"A": "\0"}},
            "Invalid value for env: must not contain NUL",
            "env",
        ),
        (
            "explain_command",
            {"command": "a", "env": dict.fromkeys(map(str, range(20_001)), "")},
            "Too many items in env: at most 20000",
            "env",
        ),
        ("bash", {"command": "a\0b"}, "Invalid value for command: must not contain NUL", "command"),
        (
            "bash",
            {"command": "a", "cwd": "\0"},
            "Invalid value for cwd: must not contain NUL",
            "cwd",
        ),
        (
            "explain_command",
            {"command": "a", "cwd": "\0"},
            "Invalid value for cwd: must not contain NUL",
            "cwd",
        ),
        (
            "explain_command",
            {"command": "a", "env": {"A": "\0"}},
            "Invalid value for env: must not contain NUL",
            "env",
        ),
        (
            "bash",
            {"command": "x", "on_timeout": "explode"},
            "Invalid value for on_timeout: must be one of ['kill', 'background']",
            "on_timeout",
        ),
        ("bash", {"command": "x", "foo": 1}, "Unknown parameter: foo", "foo"),
        ("ping", {"foo": 1}, "Unknown parameter: foo", "foo"),
        ("bash_output", {"bash_id": "x", "wait": -1}, "Value for wait is below minimum: 0", "wait"),
        (
            "bash_output",
            {"bash_id": "x", "max_bytes": 16_777_217},
            "Value for max_bytes exceeds maximum: 16777216",
            "max_bytes",
        ),
        (
            "bash_output",
            {"bash_id": "x", "until": "never"},
            "Invalid value for until: must be one of "
            "['output', 'exit', 'prompt', 'match', 'quiet', 'listening']",
            "until",
        ),
    ],
)
def test_invalid_params_get_the_specified_message(
    daemon: RawDaemon, method: str, params: object, message: str, parameter: str
) -> None:
    error = daemon.fail(method, params)
    assert error == {
        "code": -32602,
        "message": message,
        "data": {"kind": "invalid_params", "parameter": parameter},
    }


@pytest.mark.parametrize("number", ["1e308", "-1e308", "1e400", "9" * 400])
def test_huge_numbers_are_refused(daemon: RawDaemon, number: str) -> None:
    line = b'{"jsonrpc":"2.0","id":1,"method":"bash","params":{"command":"x","timeout":%b}}\n'
    daemon.send_raw(line % number.encode())
    assert daemon.receive()["error"]["code"] == -32602


def test_an_integral_float_is_an_integer(daemon: RawDaemon) -> None:
    assert daemon.bash("echo hi", timeout=2000.0)["stdout"] == "hi\n"


def test_discover_returns_an_openrpc_document(daemon: RawDaemon) -> None:
    document = daemon.call("rpc.discover")
    assert document["openrpc"].startswith("1.")
    names = [method["name"] for method in document["methods"]]
    assert names[:7] == [
        "bash",
        "bash_output",
        "write_stdin",
        "resize_shell",
        "read_screen",
        "kill_shell",
        "list_shells",
    ]


@pytest.mark.slow
def test_server_info_has_limits_and_counters(new_daemon: RawDaemon) -> None:
    new_daemon.bash("true")
    new_daemon.background("sleep 300")
    info = new_daemon.call("server_info")
    assert (info["name"], info["protocol"]) == ("shelld", 1)
    assert info["pid"] == new_daemon.pid
    assert info["limits"]["maxShells"] == 256
    assert info["limits"]["maxMessageBytes"] == 64 * 1024 * 1024
    assert info["containment"]["mechanism"] in {"subreaper", "process-group"}
    assert info["counters"]["shellsStarted"] == 2
    assert info["counters"]["shellsRunning"] == 1
    assert info["uptimeMs"] >= 0
