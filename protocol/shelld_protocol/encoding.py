"""Encodes and decodes JSON, without a crash when memory is short.

msgspec 0.22 crashes with SIGSEGV if `Encoder.encode` cannot enlarge its result, or if a decoder
cannot allocate a string. So `encode` uses `encode_into`, which raises MemoryError. `decode` first
allocates and frees as much memory as the strings of the message may take. If memory is short, this
allocation raises MemoryError.
"""

from __future__ import annotations

from typing import Any, Final, TypeVar

import msgspec

T = TypeVar("T")

# The first size of the buffer of `encode`. Most messages fit into it.
_START_BYTES: Final = 1_024

# A message shorter than `_SHORT` takes at most `_MOST_PER_BYTE` bytes of memory per byte of JSON.
# The worst case is `"a",`: it costs a string object and a slot in a list.
_SHORT: Final = 2_048
_MOST_PER_BYTE: Final = 20
# The overhead of a string, and its slot in a list or dict.
_STRING_BYTES: Final = 80


def _plain(value: Any) -> Any:
    """Return the plain value of a subclass, such as NumPy's float64. Raises TypeError."""
    # Do not call `str(value)` or the like, because a subclass can override these calls.
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int.__int__(value)
    if isinstance(value, float):
        return float.__float__(value)
    raise TypeError(f"JSON has no {type(value).__name__}")


# A decoder that makes plain types.
PLAIN: Final[msgspec.json.Decoder[Any]] = msgspec.json.Decoder()
_encoder: Final = msgspec.json.Encoder(enc_hook=_plain)


def encode(value: Any, encoder: msgspec.json.Encoder = _encoder) -> bytes:
    """Return `value` as JSON. Raises msgspec's errors, and MemoryError."""
    buffer = bytearray(_START_BYTES)
    encoder.encode_into(value, buffer)
    return bytes(buffer)


def decode(
    data: bytes | msgspec.Raw, decoder: msgspec.json.Decoder[T], strings: int | None = None
) -> T:
    """Return the value of `data` (JSON). Raises msgspec's errors, and MemoryError.

    If the decoder's type limits how many strings it makes, `strings` is this limit. If `strings` is
    None, this function counts the strings of a long text, which takes as long as decoding the text.
    """
    size = len(memoryview(data))
    if size < _SHORT:
        bytes(size * _MOST_PER_BYTE)
    else:
        data = bytes(data)
        # The factor 2 is necessary because the longest string is in memory twice if it has escapes.
        bytes(2 * size + (_strings_in(data) if strings is None else strings) * _STRING_BYTES)
    return decoder.decode(data)


def _strings_in(data: bytes) -> int:
    ends = data.count(b'"')
    if ends * _STRING_BYTES > len(data):
        # A quote after a backslash ends a string only if that backslash is itself escaped.
        ends += data.count(b'\\\\"') - data.count(b'\\"')
    return ends // 2
