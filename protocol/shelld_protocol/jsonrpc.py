"""JSON-RPC 2.0 envelopes: one message decoded to what it is, one reply encoded.

Owns the shape of a message, nothing of its meaning: params stay undecoded JSON until the method
that they are for is known. Ids are kept as the JSON text that the peer sent and echoed as such,
so no number and no string is ever changed on the way.

Reference: https://www.jsonrpc.org/specification
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import Any, Final, Literal, TypeAlias

import msgspec
from msgspec import Raw, Struct

from shelld_protocol.encoding import decode, encode
from shelld_protocol.errors import RpcError, internal_error, invalid_request, parse_error

NULL_ID: Final = b"null"

IdKey: TypeAlias = tuple[Literal["string", "number", "null"], object]
"""An id as it is compared: 1 and "1" differ, "a" and "\\u0061" do not."""


class Request(Struct, frozen=True):
    """A request, or a notification when `id` is None. `id` and `params` are JSON texts."""

    method: str
    params: bytes
    id: bytes | None


class Invalid(Struct, frozen=True):
    """Something that must be answered with `error`, under `id` (JSON text)."""

    error: RpcError
    id: bytes = NULL_ID


class Response(Struct, frozen=True):
    """A reply sent by the peer. We never ask anything, so it is ignored."""


Single: TypeAlias = Request | Invalid | Response


class Batch(Struct, frozen=True):
    """A batch of 1 to `MAX_BATCH_MEMBERS` members; every member stands for itself."""

    members: list[Single]


Message: TypeAlias = Single | Batch


class _Envelope(Struct, frozen=True):
    """Every member undecoded, so that one wrong type does not hide the id."""

    jsonrpc: Raw = Raw()
    id: Raw = Raw()
    method: Raw = Raw()
    params: Raw = Raw()
    result: Raw = Raw()
    error: Raw = Raw()


_envelope_decoder: Final = msgspec.json.Decoder(_Envelope)
_raw_decoder: Final = msgspec.json.Decoder(Raw)
_list_decoder: Final = msgspec.json.Decoder(list[Raw])
_string_decoder: Final = msgspec.json.Decoder(str)

_BLANK: Final = b" \t\r\n"

# msgspec and Python recurse for every level of nesting, and share one limit with the frames that
# call them (1,000 by default). A message is refused if it leaves fewer levels than this to
# whoever decodes or encodes a part of it later, wherever that happens.
_RESERVED_LEVELS: Final = 500
# What every daemon takes, the message's own object counted. How much more a daemon takes depends on
# its Python and its stack, so whoever does not want to be refused stays within this.
MAX_LEVELS: Final = 400
# A message with fewer brackets cannot be nested deeply, so it need not be checked.
_UNCHECKED_BRACKETS: Final = 100

# A member of two bytes costs the daemon a thousand, and its answer a hundred. Those who need more
# than a few at once can send batch after batch.
MAX_BATCH_MEMBERS: Final = 10_000

_JSON_NUMBER: Final = re.compile(rb"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?")


def decode_message(data: bytes) -> Message:
    """Tell what `data` (one message without its framing) is. Never raises for bad input."""
    data = data.strip(_BLANK)
    try:
        # msgspec does not check the UTF-8 of what it passes over undecoded.
        str(data, "utf-8")
        _check_depth(data)
        if data[:1] != b"[":
            return _decode_single(data)
        if _has_too_many_members(data):
            reason = f"a batch must not have more than {MAX_BATCH_MEMBERS} members"
            return Invalid(invalid_request(reason))
        members = [_decode_single(bytes(member)) for member in _list_decoder.decode(data)]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return Invalid(parse_error())
    return Batch(members) if members else Invalid(invalid_request("a batch must not be empty"))


def _has_too_many_members(data: bytes) -> bool:
    """Whether a batch has more than `MAX_BATCH_MEMBERS`. Takes no memory for members to know."""
    if data.count(b",") < MAX_BATCH_MEMBERS:
        return False
    try:
        _member_counter().decode(data)
    except msgspec.ValidationError:
        return True
    return False


@cache
def _member_counter() -> msgspec.json.Decoder[Struct]:
    """Return a decoder that refuses a longer array at its first member too many."""
    fields = [(f"member_{number}", Raw, Raw()) for number in range(MAX_BATCH_MEMBERS)]
    members = msgspec.defstruct("Members", fields, array_like=True, forbid_unknown_fields=True)
    return msgspec.json.Decoder(members)


def _check_depth(data: bytes) -> None:
    """Raise RecursionError for a message that is nested too deeply to be decoded anywhere."""
    if data.count(b"[") + data.count(b"{") > _UNCHECKED_BRACKETS:
        _raw_decoder.decode(b"[" * _RESERVED_LEVELS + data + b"]" * _RESERVED_LEVELS)


def _decode_single(data: bytes) -> Single:
    if data[:1] != b"{":
        # Outside a batch this may be no JSON at all, which has an error of its own.
        msgspec.json.decode(data, type=Raw)
        return Invalid(invalid_request("a request must be an object"))
    envelope = _envelope_decoder.decode(data)
    raw_id = bytes(envelope.id)
    id_is_valid = not raw_id or raw_id == NULL_ID or raw_id[0] in b'"-0123456789'
    reply_id = raw_id if raw_id and id_is_valid else NULL_ID
    has_method = bool(bytes(envelope.method))
    if not has_method and (bytes(envelope.result) or bytes(envelope.error)):
        return Response()
    reason = _why_invalid(envelope, id_is_valid)
    if reason is not None:
        return Invalid(invalid_request(reason), reply_id)
    params = bytes(envelope.params) or b"null"
    return Request(decode(envelope.method, _string_decoder), params, raw_id or None)


def _is_version(text: bytes) -> bool:
    # The second form is for text with escapes.
    return text == b'"2.0"' or (text[:1] == b'"' and decode(text, _string_decoder) == "2.0")


def _why_invalid(envelope: _Envelope, id_is_valid: bool) -> str | None:
    if not _is_version(bytes(envelope.jsonrpc)):
        return 'jsonrpc must be "2.0"'
    if not id_is_valid:
        return "id must be a string, a number or null"
    if bytes(envelope.method)[:1] != b'"':
        return "method must be a string"
    if bytes(envelope.params)[:1] not in (b"", b"{", b"[", b"n"):
        return "params must be an object or an array"
    return None


def id_key(raw_id: bytes) -> IdKey | None:
    """Return the id in a form that can be compared, or None if it is no valid id."""
    if raw_id == NULL_ID:
        return ("null", None)
    if raw_id[:1] == b'"':
        return ("string", decode(raw_id, _string_decoder))
    if _JSON_NUMBER.fullmatch(raw_id):
        # Numbers are compared as text: 1 and 1.0 are two ids, and no size is too big.
        return ("number", raw_id)
    return None


def encode_result(raw_id: bytes, result: Any) -> bytes:
    """Encode a result of any type msgspec knows. Raises TypeError or ValueError otherwise."""
    return encode({"jsonrpc": "2.0", "id": Raw(raw_id), "result": result})


def encode_error(raw_id: bytes, error: RpcError) -> bytes:
    """Encode an error reply: data that cannot be encoded becomes internal_error.

    An id that there is no memory for becomes null. Raises MemoryError if that is not enough.
    """
    try:
        return _encode_error(raw_id, error)
    except MemoryError:
        return _encode_error(NULL_ID, error)
    except (TypeError, ValueError, RecursionError):
        return _encode_error(raw_id, internal_error())


def _encode_error(raw_id: bytes, error: RpcError) -> bytes:
    body = {"code": error.kind.code, "message": error.message, "data": error.data}
    return encode({"jsonrpc": "2.0", "id": Raw(raw_id), "error": body})


def encode_batch(replies: list[bytes]) -> bytes:
    """Join encoded replies to the one array that answers a batch."""
    return b"[" + b",".join(replies) + b"]"


def encode_request(
    method: str,
    params: Any,
    request_id: int | str | None = None,
    convert: Callable[[Any], Any] | None = None,
) -> bytes:
    """Encode a request, or a notification when `request_id` is None.

    `convert` makes something that JSON has of other types. Raises TypeError for what is left of
    them, and ValueError or RecursionError.
    """
    message: dict[str, Any] = {"jsonrpc": "2.0", "method": method, "params": params}
    if request_id is not None:
        message["id"] = request_id
    return encode(message, msgspec.json.Encoder(enc_hook=convert))
