"""Values as JSON, without a crash where memory is short.

`Encoder.encode` of msgspec 0.22 ends the process by SIGSEGV if it cannot enlarge its result;
`encode_into` raises MemoryError.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

# Most messages have room in it.
_START_BYTES: Final = 1_024

_encoder: Final = msgspec.json.Encoder()


def encode(value: Any, encoder: msgspec.json.Encoder = _encoder) -> bytes:
    """Return `value` as JSON. Raises what msgspec does, and MemoryError."""
    buffer = bytearray(_START_BYTES)
    encoder.encode_into(value, buffer)
    return bytes(buffer)
