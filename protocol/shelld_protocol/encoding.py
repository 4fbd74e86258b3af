"""Values as JSON and back, without a crash where memory is short.

msgspec 0.22 ends the process by SIGSEGV if `Encoder.encode` cannot enlarge its result, and if a
decoder cannot allocate a string. `encode_into` raises MemoryError. Before a message is decoded,
`decode` allocates what its strings may take, and gives it back.
"""

from __future__ import annotations

from typing import Any, Final, TypeVar

import msgspec

T = TypeVar("T")

# Most messages have room in it.
_START_BYTES: Final = 1_024

# A shorter message cannot take more than this for each byte: `"a",` takes a string, and its place.
_SHORT: Final = 2_048
_MOST_PER_BYTE: Final = 20
# A string beside its text, and its place in a list or dict.
_STRING_BYTES: Final = 80


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


# For a value of plain types.
PLAIN: Final[msgspec.json.Decoder[Any]] = msgspec.json.Decoder()
_encoder: Final = msgspec.json.Encoder(enc_hook=_plain)


def encode(value: Any, encoder: msgspec.json.Encoder = _encoder) -> bytes:
    """Return `value` as JSON. Raises what msgspec does, and MemoryError."""
    buffer = bytearray(_START_BYTES)
    encoder.encode_into(value, buffer)
    return bytes(buffer)


def decode(data: bytes | msgspec.Raw, decoder: msgspec.json.Decoder[T]) -> T:
    """Return what `data` (JSON) says. Raises what msgspec does, and MemoryError."""
    # The longest text is in memory twice if it has escapes.
    size = len(memoryview(data))
    if size < _SHORT:
        bytes(size * _MOST_PER_BYTE)
    else:
        data = bytes(data)
        # A quote behind a backslash ends a string only if that backslash is escaped itself.
        ends = data.count(b'"') - data.count(b'\\"') + data.count(b'\\\\"')
        strings = ends // 2
        bytes(2 * size + strings * _STRING_BYTES)
    return decoder.decode(data)
