"""What a target sends, once the protocol has begun: from bytes to messages. Pure.

Owns the bytes of messages that are not complete. Decodes the members that lead to a call or a
client, and nothing else. Skips up to MAX_BANNER_BYTES of other text between two messages, because a
program on the way, such as ssh, may write it.
"""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import Raw

from shelld.process.logs import Log
from shelld.targets.greeting import MAX_BANNER_BYTES
from shelld.targets.naming import is_utf8
from shelld_protocol.encoding import decode
from shelld_protocol.framing import NEED_DATA, FrameError, FrameReader

logger = Log("shelld.targets")

# The longest answer: a read of 16 MiB from each stream, as escaped text, and its members.
MAX_ANSWER_BYTES: Final = 256 * 1024 * 1024

# How each message of a shelld begins.
_BEGINNING: Final = b'{"jsonrpc":"2.0",'


class Message(msgspec.Struct):
    """An answer or a notification, with undecoded members."""

    id: Raw = Raw()
    method: str = ""
    params: Raw = Raw()
    result: Raw = Raw()
    error: Raw = Raw()


_message: Final = msgspec.json.Decoder(Message)


class IncomingError(Exception):
    """No message can be found any more. The text is the end of a sentence about the target."""


def decode_message(data: bytes) -> Message:
    """Decode a message. Raises msgspec.DecodeError, UnicodeDecodeError and RecursionError."""
    return decode(data, _message)


class Incoming:
    """`target` is its name, for the log."""

    def __init__(self, target: str) -> None:
        self._target = target
        self._frames = FrameReader(MAX_ANSWER_BYTES)
        # How many bytes of other text have come since the last message.
        self._noise_bytes = 0

    def receive_data(self, data: bytes) -> None:
        self._frames.receive_data(data)

    def next_message(self) -> Message | None:
        """Return the next message, or None if it is not complete. Raises IncomingError."""
        while (frame := self._frames.next_event()) is not NEED_DATA:
            if isinstance(frame, FrameError):
                raise IncomingError(f"it has sent an invalid message: {frame.value}")
            if frame.startswith(b"{"):
                try:
                    # The decoder skips the strings of undecoded members without a look.
                    if is_utf8(frame):
                        message = decode_message(frame)
                        self._noise_bytes = 0
                        return message
                except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                    pass
                # It may be the answer that a call waits for.
                if frame.startswith(_BEGINNING):
                    raise IncomingError("it has sent an invalid message")
            self._skip(frame)
        return None

    def _skip(self, noise: bytes) -> None:
        """Skip a line that a program on the way has written."""
        if not self._noise_bytes:
            logger.info("target %s has sent a line that is no message", self._target)
        self._noise_bytes += len(noise) + 1
        if self._noise_bytes > MAX_BANNER_BYTES:
            raise IncomingError("it has sent too much that is no message")
