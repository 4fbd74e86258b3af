"""Decodes results from JSON, even the results of a newer daemon.

A newer daemon may send members and values that this client does not know. Unknown members are
dropped. A string that is not among the values of a `Literal` is returned unchanged.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any, Final, TypeVar, cast

import msgspec
from msgspec import inspect

from shelld_protocol.encoding import PLAIN, decode
from shelld_protocol.event_methods import NOTIFICATIONS, Event, OutputEvent

S = TypeVar("S", bound=msgspec.Struct)

_PLAIN: Final[dict[type[inspect.Type], type[Any]]] = {
    inspect.StrType: str,
    inspect.IntType: int,
    inspect.FloatType: float,
    inspect.BoolType: bool,
    inspect.NoneType: type(None),
}


_OUTPUT_STRINGS: Final = len(OutputEvent.__struct_fields__)
# The beginning of a message with output, up to its params. The params are the last member.
_OUTPUT_START: Final = b'{"jsonrpc":"2.0","method":"shell/output","params":'


@cache
def _decoder_of(shape: type[msgspec.Struct]) -> msgspec.json.Decoder[msgspec.Struct]:
    return msgspec.json.Decoder(shape)


def decode_result(shape: type[S], data: bytes) -> S:
    """Decode `data` (JSON) as `shape`. Raises `msgspec.DecodeError` if it does not match."""
    try:
        return cast("S", decode(data, _decoder_of(shape)))
    except msgspec.ValidationError:
        # This path is slow, but only the results of a newer daemon need it.
        return cast("S", _built(inspect.type_info(shape), decode(data, PLAIN)))


def decode_event(method: str, params: bytes) -> Event | None:
    """Return an event, or None for a notification that is unknown or malformed."""
    shape = NOTIFICATIONS.get(method)
    return None if shape is None else decode_or_none(shape, params)


def decode_or_none(shape: type[S], data: bytes) -> S | None:
    """Decode `data` (JSON) as `shape`. Return None if it has another form."""
    try:
        return decode_result(shape, data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def decode_output(message: bytes) -> OutputEvent | None:
    """If a message has the form in which the daemon sends output, return its event, otherwise None.

    Most messages with output are large. This function decodes them in one step instead of two.
    """
    if not message.startswith(_OUTPUT_START):
        return None
    params = message[len(_OUTPUT_START) : -1]
    try:
        decoder = _decoder_of(OutputEvent)
        return cast("OutputEvent", decode(params, decoder, strings=_OUTPUT_STRINGS))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


class _Subscribed(msgspec.Struct):
    subscription: str | None = None


def subscription_in(result: bytes) -> str:
    """Return the name of the subscription in a result, or "" if it has none."""
    try:
        found = decode(result, _decoder_of(_Subscribed), strings=1)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ""
    return cast("_Subscribed", found).subscription or ""


def from_members(members: dict[str, Any], default: S) -> S:
    """Return a copy of `default`, updated with the `members` that have the right type."""
    known: dict[str, Any] = {}
    for field in msgspec.structs.fields(type(default)):
        if field.encode_name in members:
            try:
                value = _built(inspect.type_info(field.type), members[field.encode_name])
            except msgspec.ValidationError:
                continue
            known[field.name] = value
    return msgspec.structs.replace(copy.deepcopy(default), **known)


def _built(info: inspect.Type, value: Any) -> Any:
    """Convert `value` (of plain types) to the type `info`. Raises `msgspec.ValidationError`."""
    built: Any
    match info:
        case inspect.Metadata():
            built = _built(info.type, value)
        case inspect.UnionType():
            built = _one_of(info.types, value)
        case inspect.StructType() if isinstance(value, dict):
            built = _struct(info, cast("dict[str, Any]", value))
        case inspect.ListType() if isinstance(value, list):
            built = [_built(info.item_type, item) for item in cast("Sequence[Any]", value)]
        case inspect.DictType() if isinstance(value, dict):
            items = cast("dict[str, Any]", value).items()
            built = {key: _built(info.value_type, item) for key, item in items}
        case inspect.AnyType():
            built = value
        case inspect.LiteralType() if isinstance(value, str):
            built = value
        case _:
            if type(info) not in _PLAIN:
                raise msgspec.ValidationError("the value has another type")
            built = msgspec.convert(value, _PLAIN[type(info)])
    return built


def _one_of(types: Iterable[inspect.Type], value: Any) -> Any:
    for info in types:
        try:
            return _built(info, value)
        except msgspec.ValidationError:
            continue
    raise msgspec.ValidationError("the value has none of the types")


def _struct(info: inspect.StructType, members: dict[str, Any]) -> Any:
    given: dict[str, Any] = {}
    for field in info.fields:
        if field.encode_name in members:
            given[field.name] = _built(field.type, members[field.encode_name])
        elif field.required:
            raise msgspec.ValidationError(f"there is no {field.encode_name}")
    return info.cls(**given)
