"""Checks that values can be sent as JSON without a silent conversion. Pure."""

from __future__ import annotations

import enum
import math
import os
from collections.abc import Mapping, Sequence
from typing import cast

import msgspec

from shelld_client.errors import refused_here
from shelld_protocol import errors
from shelld_protocol.encoding import encode
from shelld_protocol.jsonrpc import MAX_LEVELS


def require_json(value: object, name: str = "", level: int = 2) -> None:
    """Raise `InvalidParams` or TypeError for values that JSON cannot express.

    The encoder would silently convert many of them: NaN to null, bytes to base64, a set to a list,
    a number as a key to a string.

    Also raise `InvalidParams` for nesting that is too deep, because the daemon would refuse the
    message without naming its id. `level` is the nesting depth of the value in its message; the
    params have level 2.
    """
    if isinstance(value, enum.Enum):
        # The encoder sends the value of an enum member.
        value = value.value
    if value is None or isinstance(value, (str, int)):
        return
    if isinstance(value, float):
        if not math.isfinite(value):
            reason = f"Invalid value for {name}: {value} is not a number in JSON"
            raise refused_here(errors.invalid_params(reason, name))
    elif isinstance(value, (bytes, bytearray, memoryview)):
        raise refused_here(
            errors.invalid_params(f"Invalid type for {name}: bytes are not text", name)
        )
    elif isinstance(value, (Mapping, list, tuple)) and level > MAX_LEVELS:
        parameter = name.partition(".")[0]
        reason = f"Invalid value for {parameter}: a message has at most {MAX_LEVELS} nested levels"
        raise refused_here(errors.invalid_params(reason, parameter))
    elif isinstance(value, Mapping):
        for key, member in cast("Mapping[object, object]", value).items():
            if not isinstance(key, str):
                raise TypeError(f"JSON has no {type(key).__name__} as a name")
            require_json(member, f"{name}.{key}" if name else key, level + 1)
    elif isinstance(value, (list, tuple)):
        for member in cast("Sequence[object]", value):
            require_json(member, name, level + 1)
    else:
        plain(value)


def name_of_surrogate(params: Mapping[str, object]) -> str:
    """Return the name of the first parameter whose text has a lone surrogate."""
    for name, value in params.items():
        try:
            encode(value, msgspec.json.Encoder(enc_hook=plain))
        except UnicodeEncodeError:
            return name
    return "params"


def plain(value: object) -> object:
    """Return the JSON equivalent of a value whose type the encoder does not know.

    Raises TypeError if there is none.
    """
    # Do not call `str(value)` or the like, because a subclass can override the method behind such a
    # call.
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int.__int__(value)
    if isinstance(value, float):
        return float.__float__(value)
    if isinstance(value, Mapping):
        return dict(cast("Mapping[object, object]", value))
    name = type(value).__name__
    if isinstance(value, os.PathLike):
        path = os.fspath(cast("os.PathLike[str] | os.PathLike[bytes]", value))
        if isinstance(path, str):
            return path
    raise TypeError(f"JSON has no {name}")
