"""Ids in messages get the name of their target, and nothing else changes."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from shelld.targets.naming import (
    named_error,
    named_event,
    named_result,
    request_id_for,
    request_id_in,
    split,
)
from shelld_protocol.errors import ErrorKind
from shelld_protocol.jsonrpc import encode_error


def renamed(method: str, result: object) -> object:
    return json.loads(bytes(named_result(method, "box", json.dumps(result).encode())))


@pytest.mark.parametrize(
    ("method", "result", "expected"),
    [
        ("bash", {"bash_id": "shell_1", "stdout": "x"}, {"bash_id": "box:shell_1", "stdout": "x"}),
        ("bash", {"bash_id": "in:shell_1"}, {"bash_id": "box:in:shell_1"}),
        (
            "kill_shell",
            {"shell_id": "shell_1", "message": "Shell shell_1 terminated"},
            {"shell_id": "box:shell_1", "message": "Shell box:shell_1 terminated"},
        ),
        (
            "subscribe",
            {"subscription": "sub_1", "bash_id": "shell_1", "seq": 0},
            {"subscription": "box:sub_1", "bash_id": "box:shell_1", "seq": 0},
        ),
        ("list_shells", {"shells": [{"bash_id": "a"}]}, {"shells": [{"bash_id": "box:a"}]}),
        ("get_session", {"shells": ["a", "b"]}, {"shells": ["box:a", "box:b"]}),
        ("list_targets", {"targets": [{"name": "in"}]}, {"targets": [{"name": "box:in"}]}),
        # Elsewhere in a result, a member may have the name `bash_id` although it is not an id of a
        # shell.
        ("get_session", {"env": {"bash_id": "shell_1"}}, {"env": {"bash_id": "shell_1"}}),
        ("bash", {"new": {"bash_id": "shell_1"}}, {"new": {"bash_id": "shell_1"}}),
        ("bash", {"dryRun": True}, {"dryRun": True}),
        ("unsubscribe", {}, {}),
        ("explain_command", None, None),
    ],
)
def test_ids_in_a_result_get_the_name_of_the_target(
    method: str, result: object, expected: object
) -> None:
    assert renamed(method, result) == expected


def test_error_keeps_its_code_and_members() -> None:
    sent = {
        "code": 4321,
        "message": "Shell a: no",
        "data": {"kind": "new", "bash_id": "a", "n": [1]},
    }
    error = named_error("box", json.dumps(sent).encode())
    assert json.loads(encode_error(b"1", error))["error"] == {
        "code": 4321,
        "message": "Shell box:a: no",
        "data": {"kind": "new", "bash_id": "box:a", "n": [1]},
    }
    assert error.kind is ErrorKind.INTERNAL_ERROR


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("Shell shell_1ab takes no input: it", "Shell box:shell_1ab takes no input: it"),
        ("The terminal of shell in:shell_1 shows", "The terminal of shell box:in:shell_1 shows"),
        ("Shell limit reached", "Shell limit reached"),
    ],
)
def test_message_of_an_error_names_the_target_of_its_shell(message: str, expected: str) -> None:
    sent = {"code": 1008, "message": message, "data": {"reason": "ended"}}
    assert named_error("box", json.dumps(sent).encode()).message == expected


def test_error_of_an_inner_target_names_all_targets_on_the_way() -> None:
    message = "The connection to target in is gone: the target in ended"
    sent = {"code": 1011, "message": message, "data": {"kind": "target_lost", "target": "in"}}
    error = named_error("box", json.dumps(sent).encode())
    assert error.kind is ErrorKind.TARGET_LOST
    shown = json.loads(encode_error(b"1", error))["error"]
    assert shown["data"]["target"] == "box:in"
    assert shown["message"] == "The connection to target box:in is gone: the target in ended"


def test_name_of_an_inner_target_may_be_any_text() -> None:
    sent = {"code": 1011, "message": r"target \1( is", "data": {"target": r"\1("}}
    assert named_error("box", json.dumps(sent).encode()).message == r"target box:\1( is"


def test_lost_subscription_at_an_inner_target_names_all_targets_on_the_way() -> None:
    sent = {"subscription": "in:s", "target": "in", "message": "Target in cannot be reached: x"}
    event = named_event("box", json.dumps(sent).encode())
    assert event is not None
    assert {name: json.loads(bytes(raw)) for name, raw in event.items()} == {
        "subscription": "box:in:s",
        "target": "box:in",
        "message": "Target box:in cannot be reached: x",
    }


def test_event_names_its_target_and_the_request_of_the_client() -> None:
    far_id = json.loads(request_id_for(7, b'"mine"'))
    sent = {"subscription": "s", "bash_id": "a", "requestId": far_id, "seq": 1}
    event = named_event("box", json.dumps(sent).encode())
    assert event is not None
    assert json.loads(json.dumps({k: json.loads(bytes(v)) for k, v in event.items()})) == {
        "subscription": "box:s",
        "bash_id": "box:a",
        "requestId": "mine",
        "seq": 1,
        "target": "box",
    }


@pytest.mark.parametrize(("own", "named"), [(None, {}), (b"null", {"requestId": b"null"})])
def test_event_of_a_request_without_an_id_names_no_request(
    own: bytes | None, named: dict[str, bytes]
) -> None:
    event = named_event("box", b'{"subscription":"s","requestId":%b}' % request_id_for(7, own))
    assert event is not None
    assert {name: bytes(raw) for name, raw in event.items() if name == "requestId"} == named


@pytest.mark.parametrize("own", [None, b"9", b'"mine"'])
def test_event_of_an_earlier_request_is_left_out(own: bytes | None) -> None:
    event = b'{"subscription":"s","requestId":%b}' % request_id_for(7, own)
    assert named_event("box", event, 8) is None
    assert named_event("box", event, 7) is not None
    assert named_event("box", b'{"subscription":"s","requestId":"other"}', 8) is not None


def test_notification_without_a_subscription_is_no_event() -> None:
    assert named_event("box", b'{"progressToken":1}') is None


@given(st.none() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text())
def test_request_id_survives_its_conversion_for_the_target(request_id: object) -> None:
    raw = json.dumps(request_id).encode()
    far = request_id_for(12, raw)
    assert isinstance(json.loads(far), str)
    assert request_id_in(far) == raw


def test_request_id_of_a_notification_is_null() -> None:
    assert request_id_in(request_id_for(3, None)) == b"null"


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b'"box:shell_1"', ("box", "shell_1")),
        (b'"box:in:shell_1"', ("box", "in:shell_1")),
        (b'"shell_1"', None),
        (b"1", None),
        (b"null", None),
    ],
)
def test_id_is_split_at_its_first_colon(raw: bytes, expected: object) -> None:
    assert split(Raw(raw)) == expected
