"""Frames and decodes arbitrary bytes, in pieces of any size.

Framing and decoding never raise, and never hold more data than allowed. The size of the pieces does
not affect the result.
"""

from __future__ import annotations

import msgspec

from shelld_protocol.errors import RpcError
from shelld_protocol.framing import NEED_DATA, FrameError, FrameReader
from shelld_protocol.jsonrpc import (
    NULL_ID,
    Batch,
    Invalid,
    Request,
    decode_message,
    encode_error,
    encode_result,
)
from shelld_protocol.mcp import CallToolMcpParams, InitializeParams
from shelld_protocol.params import decode_params
from shelld_protocol.shell_methods import BashOutputParams, BashParams, KillShellParams
from shelld_protocol.structs import Params

# The limit is small, so that inputs exceed it.
LIMIT = 200

_PARAMS: list[type[Params]] = [
    *(BashParams, BashOutputParams, KillShellParams, InitializeParams, CallToolMcpParams),
]


def check(data: bytes) -> None:
    """Decode the stream in `data`. The first byte of `data` sets the size of the pieces. Raise
    AssertionError if a promise is broken.
    """
    piece = (data[0] if data else 0) + 1
    stream = data[1:]
    events = _events(stream, piece)
    assert events == _events(stream, len(stream) + 1)
    for event in events:
        if isinstance(event, bytes):
            assert len(event) <= LIMIT
            _check_message(event)


def _events(stream: bytes, piece: int) -> list[bytes | FrameError]:
    reader = FrameReader(LIMIT)
    found: list[bytes | FrameError] = []
    for start in range(0, len(stream), piece):
        reader.receive_data(stream[start : start + piece])
        while (event := reader.next_event()) is not NEED_DATA:
            found.append(event)
    reader.receive_eof()
    while (event := reader.next_event()) is not NEED_DATA:
        found.append(event)
    return found


def _check_message(data: bytes) -> None:
    message = decode_message(data)
    members = message.members if isinstance(message, Batch) else [message]
    assert members
    for member in members:
        if isinstance(member, Invalid):
            _check_answer(encode_error(member.id, member.error), member.id)
        elif isinstance(member, Request):
            _check_answer(encode_result(member.id or NULL_ID, None), member.id or NULL_ID)
            for params_type in _PARAMS:
                try:
                    params = decode_params(params_type, member.params)
                except RpcError as error:
                    _check_answer(encode_error(NULL_ID, error), NULL_ID)
                else:
                    assert isinstance(params, params_type)


def _check_answer(answer: bytes, raw_id: bytes) -> None:
    """Check that the answer is one line of JSON with the id as it was sent."""
    assert b"\n" not in answer
    decoded = msgspec.json.decode(answer, type=dict[str, msgspec.Raw])
    assert bytes(decoded["id"]) == raw_id
