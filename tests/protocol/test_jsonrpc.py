"""JSON-RPC envelopes, tested without I/O: the kinds of messages, and the form of answers."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable
from functools import partial

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shelld_protocol.errors import ErrorKind, RpcError, internal_error
from shelld_protocol.jsonrpc import (
    MAX_BATCH_MEMBERS,
    MAX_LEVELS,
    NULL_ID,
    Batch,
    Invalid,
    Request,
    Response,
    decode_message,
    encode_error,
    encode_request,
    encode_result,
    id_at_start,
    id_key,
)


def test_request_keeps_params_and_id_verbatim() -> None:
    data = b'{"jsonrpc":"2.0","id": 1.0 ,"method":"x","params": [1, 2] }'
    assert decode_message(data) == Request("x", b"[1, 2]", b"1.0")


@pytest.mark.parametrize("missing", [b"", b',"params":null'])
def test_missing_params_are_null(missing: bytes) -> None:
    data = b'{"jsonrpc":"2.0","method":"x"%b}' % missing
    assert decode_message(data) == Request("x", b"null", None)


def test_the_version_may_be_spelled_with_escapes() -> None:
    data = b'{"jsonrpc":"\\u0032.0","id":1,"method":"\\u0078"}'
    assert decode_message(data) == Request("x", b"null", b"1")


@pytest.mark.parametrize(
    "data", [b'{"id":1,"result":2}', b'{"id":1,"error":{}}', b'{"jsonrpc":"2.0","result":null}']
)
def test_response_is_distinguished_from_request(data: bytes) -> None:
    assert isinstance(decode_message(data), Response)


def test_a_batch_keeps_the_order_of_its_members() -> None:
    batch = decode_message(b'[{"jsonrpc":"2.0","method":"a"},7,{"jsonrpc":"2.0","method":"b"}]')
    assert isinstance(batch, Batch)
    kinds = [type(member) for member in batch.members]
    assert kinds == [Request, Invalid, Request]


def test_nested_batch_is_invalid_member() -> None:
    batch = decode_message(b"[[]]")
    assert isinstance(batch, Batch)
    (member,) = batch.members
    assert isinstance(member, Invalid)
    assert member.error.kind is ErrorKind.INVALID_REQUEST


MEMBERS = [
    b"1",
    b"{}",
    b"[1,2,3]",
    b'",,,,"',
    b'{"jsonrpc":"2.0","id":1,"method":"x","params":[",",[{},{}]]}',
]


@pytest.mark.parametrize("member", MEMBERS)
def test_batch_over_the_member_limit_is_refused(member: bytes) -> None:
    batch = decode_message(b"[" + b",".join([member] * MAX_BATCH_MEMBERS) + b"]")
    assert isinstance(batch, Batch)
    assert len(batch.members) == MAX_BATCH_MEMBERS
    refused = decode_message(b"[" + b",".join([member] * (MAX_BATCH_MEMBERS + 1)) + b"]")
    assert isinstance(refused, Invalid)
    assert refused.error.message == (
        f"Invalid request: a batch must not have more than {MAX_BATCH_MEMBERS} members"
    )


def test_commas_within_members_are_not_counted() -> None:
    text = b"," * (MAX_BATCH_MEMBERS * 2)
    batch = decode_message(b'[{"jsonrpc":"2.0","method":"x","params":["%b"]},[1]]' % text)
    assert isinstance(batch, Batch)
    assert [type(member) for member in batch.members] == [Request, Invalid]
    broken = decode_message(b'["%b", no json]' % text)
    assert isinstance(broken, Invalid)
    assert broken.error.kind is ErrorKind.PARSE_ERROR


def test_oversized_batch_takes_little_memory() -> None:
    data = b"[" + b"1," * 5_000_000 + b"1]"
    decode_message(data)
    tracemalloc.start()
    try:
        decode_message(data)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # The decoder copies the message once, to check that it is UTF-8.
    assert peak < 2 * len(data)


@given(st.binary(max_size=200))
def test_decoding_arbitrary_bytes_never_raises(data: bytes) -> None:
    decode_message(data)
    decode_message(b"[" + data + b"]")
    decode_message(b'{"jsonrpc":"2.0","method":"x","id":' + data + b"}")


def _call_deeper(frames: int, decode: Callable[[], object]) -> object:
    return decode() if not frames else _call_deeper(frames - 1, decode)


@pytest.mark.parametrize("bracket", [(b"[", b"]"), (b'{"a":', b"}")])
@pytest.mark.parametrize("message", [b"%b", b"[%b]", b"[%b,7]"])
def test_accepted_nesting_also_decodes_on_deeper_stack(
    message: bytes, bracket: tuple[bytes, bytes]
) -> None:
    request = b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":%b}}'
    accepted = 0
    for depth in range(50, 1_100, 7):
        nest = bracket[0] * depth + b"1" + bracket[1] * depth
        decoded = decode_message(message % (request % nest))
        members = decoded.members if isinstance(decoded, Batch) else [decoded]
        for member in members:
            if isinstance(member, Request):
                accepted += 1
                decode = partial(msgspec.json.decode, member.params)
                _call_deeper(300, decode)
    assert accepted > 20


@pytest.mark.parametrize("bracket", [(b"[", b"]"), (b'{"a":', b"}")])
def test_promised_nesting_is_accepted_on_deeper_stack(
    bracket: tuple[bytes, bytes],
) -> None:
    # The message and its params are two of the levels.
    nest = bracket[0] * (MAX_LEVELS - 2) + b"1" + bracket[1] * (MAX_LEVELS - 2)
    request = b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":%b}}' % nest
    # This stack is deeper than the daemon's, and still fits on top of the tests' own stack.
    assert isinstance(_call_deeper(40, lambda: decode_message(request)), Request)


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


@given(json_values)
def test_valid_json_is_never_a_parse_error(value: object) -> None:
    message = decode_message(json.dumps(value).encode("utf-8", "surrogatepass"))
    members = message.members if isinstance(message, Batch) else [message]
    for member in members:
        if isinstance(member, Invalid):
            assert member.error.kind is ErrorKind.INVALID_REQUEST


def test_ids_are_equal_by_type_and_value() -> None:
    different = [b"1", b'"1"', b"1.0", b"null", b'""', b"-1", b'"a"']
    assert len({id_key(raw) for raw in different}) == len(different)
    assert id_key(b'"a"') == id_key(b'"\\u0061"')


@pytest.mark.parametrize("raw", [b"true", b"{}", b"[]", b"01", b"+1", b"."])
def test_invalid_id_has_no_key(raw: bytes) -> None:
    assert id_key(raw) is None


@pytest.mark.parametrize(
    ("start", "raw_id"),
    [
        (b'{"jsonrpc":"2.0","id":7,"method":', b"7"),
        (b'{"jsonrpc":"2.0","id":0,"method":"x"', b"0"),
        (b' { "jsonrpc" : "2.0" , "id" : -7 , "method" :', b"-7"),
        (b'{"jsonrpc":"2.0","id":"a b","method":', b'"a b"'),
        (b'{"jsonrpc":"2.0","id":"a\\u0062","method":', NULL_ID),
        (b'{"jsonrpc":"2.0","id":"\xff","method":', NULL_ID),
        (b'{"jsonrpc":"2.0","id":007,"method":', NULL_ID),
        (b'{"jsonrpc":"2.0","id":7,"result":', NULL_ID),
        (b'{"jsonrpc":"2.0","id":7', NULL_ID),
        (b'{"jsonrpc":"2.0","id":7.5,', NULL_ID),
        (b'{"jsonrpc":"2.0","method":"bash","params":{"id":7,', NULL_ID),
        (b'[{"jsonrpc":"2.0","id":7,', NULL_ID),
        (b"", NULL_ID),
    ],
)
def test_id_at_message_start_is_found(start: bytes, raw_id: bytes) -> None:
    assert id_at_start(start) == raw_id


def test_id_of_encoded_request_is_near_start() -> None:
    assert id_at_start(encode_request("bash", {"command": "x" * 1000}, 12)[:100]) == b"12"


def test_an_answer_echoes_the_id_unchanged() -> None:
    assert encode_result(b"1e400", None) == b'{"jsonrpc":"2.0","id":1e400,"result":null}'


def test_an_error_has_code_message_and_kind() -> None:
    error = json.loads(encode_error(b"1", internal_error()))["error"]
    assert error == {
        "code": -32603,
        "message": "Internal error",
        "data": {"kind": "internal_error"},
    }


@pytest.mark.parametrize("data", [{"x": object()}, {"x": "\ud800"}, {"x": {1: {2: object()}}}])
def test_an_error_that_cannot_be_encoded_becomes_internal(data: dict[str, object]) -> None:
    error = RpcError(ErrorKind.TIMEOUT, "message", data)
    assert json.loads(encode_error(b"7", error))["error"]["code"] == -32603


def test_a_result_that_cannot_be_encoded_raises() -> None:
    for result in (object(), "\ud800"):
        with pytest.raises((TypeError, ValueError)):
            encode_result(b"1", result)


def test_kinds_and_codes_are_unique() -> None:
    assert len({kind.code for kind in ErrorKind}) == len(ErrorKind)
    assert len({kind.value for kind in ErrorKind}) == len(ErrorKind)


def test_a_notification_has_no_id() -> None:
    assert "id" not in msgspec.json.decode(encode_request("x", {}))
    assert msgspec.json.decode(encode_request("x", {}, 5))["id"] == 5
