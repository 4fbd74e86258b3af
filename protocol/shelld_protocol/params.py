"""Decodes the JSON of ``params`` into the method's Struct, or raises an error that says what is
wrong.

The fast path is a single msgspec decode. If the decode fails, this module checks each value. This
slow path accepts the forms that the protocol tolerates (positional params, null for an absent
value, 2000.0 for 2000, aliases), and makes the error message (-32602). msgspec's own error texts
are never parsed or passed on.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final, NoReturn, TypeVar, cast

import msgspec

from shelld_protocol.encoding import PLAIN, decode
from shelld_protocol.errors import invalid_params, missing_parameter
from shelld_protocol.parameters import Parameter, parameters_of
from shelld_protocol.structs import Params

P = TypeVar("P", bound=Params)

# The byte with which a JSON object or array begins.
_OPENINGS: Final = {"object": b"{", "array": b"["}

_raw_object: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_raw_array: Final = msgspec.json.Decoder(list[msgspec.Raw])


@cache
def _decoder(params_type: type[Params]) -> msgspec.json.Decoder[Params]:
    return msgspec.json.Decoder(params_type)


def decode_params(params_type: type[P], raw: bytes) -> P:
    """Decode `raw` (a JSON object, array or null). Raises `RpcError` (invalid_params)."""
    if raw[:1] == b"{":
        try:
            return cast("P", decode(raw, _decoder(params_type)))
        except msgspec.ValidationError:
            pass
    return _decode_leniently(params_type, raw)


def members_of(params_type: type[Params], raw: bytes) -> dict[str, msgspec.Raw]:
    """Return the params of `raw` by name, undecoded. Raises `RpcError` (invalid_params)."""
    return _by_name(parameters_of(params_type), raw)


def _decode_leniently(params_type: type[P], raw: bytes, within: str = "") -> P:
    parameters = parameters_of(params_type)
    given = _by_name(parameters, raw)
    for alias, name in params_type.aliases.items():
        if alias in given:
            value = given.pop(alias)
            # A null counts as absent, whether the client used the parameter's name or an alias.
            if name not in given or bytes(given[name]) == b"null":
                given[name] = value
            elif bytes(value) not in (b"null", bytes(given[name])):
                raise invalid_params(f"Invalid value for {alias}: must equal {name}", alias)
    values: dict[str, Any] = {}
    for name, parameter in parameters.items():
        if name not in given:
            if parameter.model.required:
                raise missing_parameter(within + name)
            continue
        if bytes(given[name]) == b"null" and not parameter.model.required:
            # Null means absent, unless the parameter has null as a value.
            if parameter.null_is_a_value:
                values[name] = None
            continue
        values[name] = _checked(parameter, bytes(given[name]), within)
    if params_type.__struct_config__.forbid_unknown_fields:
        for name in given:
            if name not in parameters:
                shown = within + (name if len(name) <= 100 else name[:100] + "...")
                raise invalid_params(f"Unknown parameter: {shown}", shown)
    return msgspec.convert(values, params_type)


def _by_name(parameters: dict[str, Parameter], raw: bytes) -> dict[str, msgspec.Raw]:
    if raw[:1] == b"{":
        return decode(raw, _raw_object)
    if raw[:1] != b"[":
        return {}
    values = _raw_array.decode(raw)
    while values and bytes(values[-1]) == b"null":
        values.pop()
    if len(values) > len(parameters):
        raise invalid_params(f"Too many positional parameters: at most {len(parameters)}")
    return dict(zip(parameters, values, strict=False))


def _checked(parameter: Parameter, raw: bytes, within: str) -> Any:
    """Return the value of one parameter. Raises `RpcError` if it is invalid."""
    name = within + parameter.model.name
    if within:
        named = msgspec.structs.replace(parameter.model, name=name)
        parameter = parameter._replace(model=named)
    model = parameter.model
    try:
        value = decode(raw, PLAIN)
        if model.type == "number" and type(value) is int:
            value = float(value)
    except (msgspec.ValidationError, UnicodeDecodeError, OverflowError):
        # A number is too large for a float and for a machine integer.
        _refused(parameter, raw)
    if parameter.other_type is not None:
        other = msgspec.structs.replace(model, type=parameter.other_type)
        if other.problem_with(value) is None:
            return value
        if model.problem_with(value) is not None:
            types = f"{model.type} or {parameter.other_type}"
            raise invalid_params(f"Invalid type for {name}: expected {types}", name)
    if (problem := parameter.problem_with(value)) is not None:
        raise invalid_params(problem, name)
    if model.type == "integer":
        return int(value)
    if parameter.struct is not None:
        return _decode_leniently(parameter.struct, raw, f"{name}.")
    if parameter.holds_strings:
        for member in cast("dict[str, Any]", value).values():
            if not (isinstance(member, str) or member is None):
                raise invalid_params(f"Invalid type for {name}: expected object of strings", name)
    return value


def _refused(parameter: Parameter, raw: bytes) -> NoReturn:
    """Raise the error for a value in which a number is too large."""
    name, expected = parameter.model.name, parameter.model.type
    if raw[:1] != _OPENINGS.get(expected):
        raise invalid_params(f"Invalid type for {name}: expected {expected}", name) from None
    if parameter.struct is not None:
        # This call fails too, and names the member that has the number.
        _decode_leniently(parameter.struct, raw, f"{name}.")
    raise invalid_params(f"Invalid value for {name}: a number in it is too large", name) from None
