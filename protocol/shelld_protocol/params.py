"""From the JSON of ``params`` to the method's Struct, or to the sentence that says what is wrong.

The fast path is one msgspec decode. Only what it refuses is looked at again, value by value:
for the leniencies of the protocol (positional params, null for absent, 2000.0 for 2000, aliases)
and for the sentence of the -32602. msgspec's own error texts are never parsed nor passed on.
"""

from __future__ import annotations

from functools import cache
from typing import Annotated, Any, Final, Literal, TypeVar, cast, get_args, get_origin

import msgspec

from shelld_protocol.errors import RpcError, invalid_params
from shelld_protocol.methods import Params

P = TypeVar("P", bound=Params)

_raw_object: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_raw_array: Final = msgspec.json.Decoder(list[msgspec.Raw])


@cache
def _decoder(params_type: type[Params]) -> msgspec.json.Decoder[Params]:
    return msgspec.json.Decoder(params_type)


@cache
def _fields(params_type: type[Params]) -> tuple[msgspec.structs.FieldInfo, ...]:
    return msgspec.structs.fields(params_type)


def decode_params(params_type: type[P], raw: bytes) -> P:
    """Decode `raw` (a JSON object, array or null). Raises `RpcError` (invalid_params)."""
    if raw[:1] == b"{":
        try:
            return cast("P", _decoder(params_type).decode(raw))
        except msgspec.ValidationError:
            pass
    return _decode_leniently(params_type, raw)


def _decode_leniently(params_type: type[P], raw: bytes) -> P:
    given = _by_name(params_type, raw)
    fields = {field.encode_name: field for field in _fields(params_type)}
    for alias, name in params_type.aliases.items():
        if alias in given:
            value = given.pop(alias)
            if name in given and bytes(given[name]) != bytes(value):
                raise invalid_params(f"Invalid value for {alias}: must equal {name}", alias)
            given.setdefault(name, value)
    values: dict[str, Any] = {}
    for name, field in fields.items():
        if name not in given:
            if field.required:
                raise invalid_params(f"Missing required parameter: {name}", name)
            continue
        shape = _shape(field.type)
        if bytes(given[name]) == b"null" and not field.required:
            # Null is a value only where it differs from leaving the parameter out.
            if shape.nullable and field.default is not None:
                values[name] = None
            continue
        values[name] = _checked(name, shape, bytes(given[name]))
    for name in given:
        if name not in fields:
            shown = name if len(name) <= 100 else name[:100] + "..."
            raise invalid_params(f"Unknown parameter: {shown}", shown)
    return params_type(**values)


def _by_name(params_type: type[Params], raw: bytes) -> dict[str, msgspec.Raw]:
    if raw[:1] == b"{":
        return _raw_object.decode(raw)
    if raw[:1] != b"[":
        return {}
    values = _raw_array.decode(raw)
    while values and bytes(values[-1]) == b"null":
        values.pop()
    names = [field.encode_name for field in _fields(params_type)]
    if len(values) > len(names):
        raise invalid_params(f"Too many positional parameters: at most {len(names)}")
    return dict(zip(names, values, strict=False))


class _Shape(msgspec.Struct, frozen=True):
    """A parameter's type, taken apart once."""

    nullable: bool
    type: msgspec.inspect.Type
    choices: tuple[Any, ...]


_EXPECTED: Final[dict[type[msgspec.inspect.Type], str]] = {
    msgspec.inspect.StrType: "string",
    msgspec.inspect.LiteralType: "string",
    msgspec.inspect.IntType: "integer",
    msgspec.inspect.BoolType: "boolean",
    msgspec.inspect.DictType: "object",
}


@cache
def _shape(annotation: Any) -> _Shape:
    info = _unwrapped(msgspec.inspect.type_info(annotation))
    # Taken from the annotation, as msgspec.inspect sorts them.
    choices = _literal_choices(annotation)
    if not isinstance(info, msgspec.inspect.UnionType):
        return _Shape(False, info, choices)
    members = [_unwrapped(member) for member in info.types]
    (only,) = (m for m in members if not isinstance(m, msgspec.inspect.NoneType))
    return _Shape(True, only, choices)


def _literal_choices(annotation: Any) -> tuple[Any, ...]:
    if get_origin(annotation) is Literal:
        return get_args(annotation)
    if get_origin(annotation) is Annotated:
        return _literal_choices(get_args(annotation)[0])
    return ()


def _unwrapped(info: msgspec.inspect.Type) -> msgspec.inspect.Type:
    return info.type if isinstance(info, msgspec.inspect.Metadata) else info


def _checked(name: str, shape: _Shape, raw: bytes) -> Any:  # noqa: PLR0912 - a table of cases
    """Return the value of one parameter, or raise the sentence that it breaks."""
    expected = _EXPECTED[type(shape.type)]
    try:
        value = msgspec.json.decode(raw)
    except (msgspec.ValidationError, UnicodeDecodeError):
        # A number that no float and no integer of the machine can hold.
        raise _wrong_type(name, expected) from None
    match shape.type:
        case msgspec.inspect.StrType(min_length=min_length):
            if not isinstance(value, str):
                raise _wrong_type(name, expected)
            if min_length is not None and len(value) < min_length:
                sentence = f"Value for {name} is shorter than minimum length: {min_length}"
                raise invalid_params(sentence, name)
        case msgspec.inspect.LiteralType():
            if not isinstance(value, str):
                raise _wrong_type(name, expected)
            if value not in shape.choices:
                sentence = f"Invalid value for {name}: must be one of {list(shape.choices)}"
                raise invalid_params(sentence, name)
        case msgspec.inspect.IntType(ge=minimum, le=maximum):
            value = _integer(name, value)
            if minimum is not None and value < minimum:
                raise invalid_params(f"Value for {name} is below minimum: {minimum}", name)
            if maximum is not None and value > maximum:
                raise invalid_params(f"Value for {name} exceeds maximum: {maximum}", name)
        case msgspec.inspect.BoolType():
            if not isinstance(value, bool):
                raise _wrong_type(name, expected)
        case _:
            value = _string_map(name, value)
    return value


def _integer(name: str, value: Any) -> int:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        raise _wrong_type(name, "integer")
    return value


def _string_map(name: str, value: Any) -> dict[str, str | None]:
    if not isinstance(value, dict):
        raise _wrong_type(name, "object")
    members = cast("dict[str, Any]", value)
    for member in members.values():
        if member is not None and not isinstance(member, str):
            raise invalid_params(f"Invalid type for {name}: expected object of strings", name)
    return cast("dict[str, str | None]", members)


def _wrong_type(name: str, expected: str) -> RpcError:
    return invalid_params(f"Invalid type for {name}: expected {expected}", name)
