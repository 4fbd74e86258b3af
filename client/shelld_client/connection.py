"""The client's half of the protocol, without I/O: request ids to pending calls.

Bytes that arrived go in, answered calls come out; calls go in, bytes to send come out. What a
pending call is, is up to the caller: any object.

At level DEBUG the logger ``shelld_client.wire`` shows every message, sent ("->") and received
("<-"); they contain commands and their output.
"""

from __future__ import annotations

import logging
from typing import Any, Final, Generic, TypeVar

import msgspec

from shelld_client.errors import ProtocolError, ShellError, error_from_wire
from shelld_protocol.framing import NEED_DATA, FrameError, FrameReader, Framing, encode_frame
from shelld_protocol.jsonrpc import encode_request

T = TypeVar("T")

# An answer is at most two streams of 16 MiB as JSON, in which a byte can take six.
MAX_ANSWER_BYTES: Final = 256 * 1024 * 1024


class _WireError(msgspec.Struct):
    code: int
    message: str
    data: Any = None


class _Answer(msgspec.Struct):
    id: int | str | float | None = None
    result: msgspec.Raw = msgspec.Raw()
    error: _WireError | None = None
    method: str | None = None


wire_logger: Final = logging.getLogger("shelld_client.wire")

_decoder: Final = msgspec.json.Decoder(_Answer)


class Connection(Generic[T]):
    """`T` is the caller's type of a pending call."""

    def __init__(self) -> None:
        self._frames = FrameReader(MAX_ANSWER_BYTES)
        self._next_id = 1
        self._pending: dict[int, T] = {}

    def call(self, method: str, params: dict[str, Any], pending: T) -> tuple[int, bytes]:
        """Return the new call's id and the bytes that ask for it.

        Raises `ProtocolError` for params that JSON has no words for, as a lone surrogate.
        """
        request_id = self._next_id
        try:
            frame = encode_frame(encode_request(method, params, request_id), Framing.LINES)
        except (TypeError, ValueError) as error:
            raise ProtocolError(f"the parameters of {method} cannot be encoded") from error
        self._next_id += 1
        _log_message("->", frame)
        self._pending[request_id] = pending
        return request_id, frame

    def cancel(self, request_id: int) -> bytes:
        """Forget a call whose answer nobody wants; return the bytes that end it in the daemon."""
        self._pending.pop(request_id, None)
        frame = encode_frame(encode_request("$/cancelRequest", {"id": request_id}), Framing.LINES)
        _log_message("->", frame)
        return frame

    def receive(self, data: bytes) -> list[tuple[T, bytes | ShellError]]:
        """Return the calls that `data` answers, each with its result (JSON) or its error.

        Raises `ProtocolError` for what no daemon sends.
        """
        self._frames.receive_data(data)
        answered: list[tuple[T, bytes | ShellError]] = []
        while (event := self._frames.next_event()) is not NEED_DATA:
            if isinstance(event, FrameError):
                raise ProtocolError(f"the peer sent no valid message: {event.value}")
            _log_message("<-", event)
            try:
                answer = _decoder.decode(event)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                raise ProtocolError("the peer sent something that is no JSON-RPC message") from None
            if answer.method is not None:
                # A notification: none is asked for, so none is needed.
                continue
            if not isinstance(answer.id, int):
                detail = answer.error.message if answer.error is not None else "no error"
                raise ProtocolError(f"the peer could not tell what it answers: {detail}")
            pending = self._pending.pop(answer.id, None)
            if pending is None:
                continue
            if answer.error is not None:
                error = answer.error
                answered.append((pending, error_from_wire(error.code, error.message, error.data)))
            else:
                answered.append((pending, bytes(answer.result)))
        return answered

    def take_pending(self) -> list[T]:
        """Return all calls that will never be answered, and forget them."""
        pending = list(self._pending.values())
        self._pending.clear()
        return pending


def _log_message(direction: str, message: bytes) -> None:
    if wire_logger.isEnabledFor(logging.DEBUG):
        wire_logger.debug("%s %s", direction, message.decode("utf-8", "replace").rstrip())
