"""Decodes JSON-RPC 2.0 messages, and encodes requests and replies.

Owns the shape of a message, but not its meaning. The params stay undecoded JSON until the method is
known. Ids are kept and returned as the JSON text that the peer sent, so no number or string ever
changes.

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

# Matches the beginning of a request in the form that `encode_request` makes. The pattern matches
# only ids without escapes, so the matched bytes are the JSON text of the id.
_ID_AT_START: Final = re.compile(
    rb'\s*\{\s*"jsonrpc"\s*:\s*"2\.0"\s*,\s*"id"\s*:\s*'
    rb'(-?(?:0|[1-9]\d{0,17})|"[ !#-\[\]-~]*")\s*,\s*"method"\s*:'
)

IdKey: TypeAlias = tuple[Literal["string", "number", "null"], object]
"""An id in comparable form: 1 and "1" differ, "a" and "\\u0061" are equal."""


class Request(Struct, frozen=True):
    """A request, or a notification if `id` is None. `id` and `params` are JSON texts."""

    method: str
    params: bytes
    id: bytes | None


class Invalid(Struct, frozen=True):
    """An invalid message. The answer to the message has `error` and `id` (JSON text)."""

    error: RpcError
    id: bytes = NULL_ID


class Response(Struct, frozen=True):
    """A reply sent by the peer. The daemon sends no requests, so it ignores replies."""


Single: TypeAlias = Request | Invalid | Response


class Batch(Struct, frozen=True):
    """A batch of 1 to `MAX_BATCH_MEMBERS` independent members."""

    members: list[Single]


Message: TypeAlias = Single | Batch


class _Envelope(Struct, frozen=True):
    """An envelope with undecoded members: the id is known even if another member is wrong."""

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

# msgspec and Python recurse once per level of nesting. They share one recursion limit (1,000 by
# default), which also counts the calling frames. Other code later decodes or encodes parts of a
# message, and needs this many levels. If a message leaves fewer levels, it is refused.
_RESERVED_LEVELS: Final = 500
# The nesting that every daemon accepts, including the message's own object. Some daemons accept
# more, depending on their Python and stack. A client that stays within this limit is never refused
# for depth.
MAX_LEVELS: Final = 400
# A message with at most this many brackets is not nested deeply, so its depth is not checked.
_UNCHECKED_BRACKETS: Final = 100

# The maximum number of members of a batch. The limit is necessary because for a member of two
# bytes, the daemon needs 1,000 bytes of memory, and sends an answer of 100 bytes. A client with
# more requests can send several batches.
MAX_BATCH_MEMBERS: Final = 10_000

_JSON_NUMBER: Final = re.compile(rb"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?")


def decode_message(data: bytes) -> Message:
    """Decode `data`, one message without its framing. Never raises for bad input."""
    data = data.strip(_BLANK)
    try:
        # msgspec does not check the UTF-8 of members that it leaves undecoded.
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


def id_at_start(data: bytes) -> bytes:
    """Return the id (JSON text) at the start of an undecodable message, or null if it has none."""
    start = _ID_AT_START.match(data)
    return NULL_ID if start is None else start[1]


def _has_too_many_members(data: bytes) -> bool:
    """Return whether a batch has too many members, without allocating the members."""
    if data.count(b",") < MAX_BATCH_MEMBERS:
        return False
    try:
        _member_counter().decode(data)
    except msgspec.ValidationError:
        return True
    return False


@cache
def _member_counter() -> msgspec.json.Decoder[Struct]:
    """Return a decoder that rejects an array at the first member over `MAX_BATCH_MEMBERS`."""
    fields = [(f"member_{number}", Raw, Raw()) for number in range(MAX_BATCH_MEMBERS)]
    members = msgspec.defstruct("Members", fields, array_like=True, forbid_unknown_fields=True)
    return msgspec.json.Decoder(members)


def _check_depth(data: bytes) -> None:
    """Raise RecursionError if a message is nested so deeply that other code could fail on it."""
    if data.count(b"[") + data.count(b"{") > _UNCHECKED_BRACKETS:
        _raw_decoder.decode(b"[" * _RESERVED_LEVELS + data + b"]" * _RESERVED_LEVELS)


def _decode_single(data: bytes) -> Single:
    if data[:1] != b"{":
        # If the message is not JSON at all, this call raises, and the answer is a parse error.
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
    # The second comparison finds a version that is written with escapes.
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
    """Return the id in comparable form, or None if it is invalid."""
    if raw_id == NULL_ID:
        return ("null", None)
    if raw_id[:1] == b'"':
        return ("string", decode(raw_id, _string_decoder))
    if _JSON_NUMBER.fullmatch(raw_id):
        # Compare numbers as text. So 1 and 1.0 are different ids, and no number is too large.
        return ("number", raw_id)
    return None


def encode_result(raw_id: bytes, result: Any) -> bytes:
    """Encode a result. Raises TypeError or ValueError for a type that msgspec does not support."""
    return encode({"jsonrpc": "2.0", "id": Raw(raw_id), "result": result})


def encode_error(raw_id: bytes, error: RpcError) -> bytes:
    """Encode an error reply. If `error` cannot be encoded, encode internal_error instead.

    If memory is short, use null as the id. If memory is too short even for that reply, raises
    MemoryError.
    """
    try:
        return _encode_error(raw_id, error)
    except MemoryError:
        return _encode_error(NULL_ID, error)
    except (TypeError, ValueError, RecursionError):
        return _encode_error(raw_id, internal_error())


def _encode_error(raw_id: bytes, error: RpcError) -> bytes:
    body = {"code": error.code, "message": error.message, "data": error.data}
    return encode({"jsonrpc": "2.0", "id": Raw(raw_id), "error": body})


def encode_batch(replies: list[bytes]) -> bytes:
    """Join encoded replies into the array that answers a batch."""
    return b"[" + b",".join(replies) + b"]"


def encode_request(
    method: str,
    params: Any,
    request_id: int | str | None = None,
    convert: Callable[[Any], Any] | None = None,
) -> bytes:
    """Encode a request, or a notification if `request_id` is None.

    If msgspec cannot encode a value, `convert` must return a value that msgspec can encode. Raises
    TypeError for values that `convert` does not handle; ValueError or RecursionError for other
    failures.
    """
    message: dict[str, Any] = {"jsonrpc": "2.0"}
    if request_id is not None:
        # Put the id early in the message, so that `id_at_start` finds it.
        message["id"] = request_id
    message |= {"method": method, "params": params}
    return encode(message, msgspec.json.Encoder(enc_hook=convert))
