"""Values as JSON, without a crash where memory is short.

`Encoder.encode` of msgspec 0.22 ends the process by SIGSEGV if it cannot enlarge its result;
`encode_into` raises MemoryError.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

# Most messages have room in it.
_START_BYTES: Final = 1_024


def _plain(value: Any) -> Any:
    """Return the value of a subclass, such as NumPy's float64, as JSON has it."""
    # Not `str(value)` and so on, which a subclass can define to be something else.
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int.__int__(value)
    if isinstance(value, float):
        return float.__float__(value)
    raise TypeError(f"JSON has no {type(value).__name__}")


_encoder: Final = msgspec.json.Encoder(enc_hook=_plain)


def encode(value: Any, encoder: msgspec.json.Encoder = _encoder) -> bytes:
    """Return `value` as JSON. Raises what msgspec does, and MemoryError."""
    buffer = bytearray(_START_BYTES)
    encoder.encode_into(value, buffer)
    return bytes(buffer)
