"""Splits the bytes that a target sends into messages, once the protocol has begun. Pure.

Owns the bytes of messages that are not complete. Decodes only the name of the method. All other
members stay JSON text. Skips up to MAX_BANNER_BYTES of other text between two messages, because a
program between the two daemons, such as ssh, may write such text.
"""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import Raw

from shelld.process.logs import Log
from shelld.targets.greeting import MAX_BANNER_BYTES
from shelld.targets.naming import is_utf8
from shelld_protocol.encoding import decode
from shelld_protocol.framing import NEED_DATA, FrameError, FrameReader, Framing

logger = Log("shelld.targets")

# The longest answer has 16 MiB of text from each stream, and its other members. Escape sequences in
# the JSON make the text longer.
MAX_ANSWER_BYTES: Final = 256 * 1024 * 1024

# The beginning of every message that a shelld daemon sends.
_BEGINNING: Final = b'{"jsonrpc":"2.0",'


class Message(msgspec.Struct):
    """Holds an answer or a notification with undecoded members."""

    id: Raw = Raw()
    method: str = ""
    params: Raw = Raw()
    result: Raw = Raw()
    error: Raw = Raw()


_message: Final = msgspec.json.Decoder(Message)


class IncomingError(Exception):
    """The rest of the stream cannot be split into messages.

    The caller writes the beginning of a sentence about the target, and the error's text completes
    the sentence.
    """


def decode_message(data: bytes) -> Message:
    """Decode a message. Raises msgspec.DecodeError, UnicodeDecodeError and RecursionError."""
    return decode(data, _message)


class Incoming:
    """Splits the stream of one target. `target` is the target's name, for the log."""

    def __init__(self, target: str) -> None:
        self._target = target
        self._frames = FrameReader(MAX_ANSWER_BYTES)
        # A shelld at a target sends one message a line. Do not look for a Content-Length header,
        # because other text may begin like one.
        self._frames.framing = Framing.LINES
        # The number of bytes of other text since the last message.
        self._noise_bytes = 0

    def receive_data(self, data: bytes) -> None:
        self._frames.receive_data(data)

    def next_message(self) -> Message | None:
        """Return the next message, or None if it is not complete. Raises IncomingError."""
        while (frame := self._frames.next_event()) is not NEED_DATA:
            if isinstance(frame, FrameError):
                raise IncomingError(f"it has sent an invalid message: {frame.value}")
            if frame.startswith(b"{") and (message := self._decoded(frame)) is not None:
                return message
            if (start := frame.find(_BEGINNING)) >= 0:
                if start > 0:
                    # The text before the message has no end of line.
                    self._skip(frame[:start])
                if (message := self._decoded(frame[start:])) is not None:
                    return message
                # A call may wait for this message, so it must not be skipped.
                raise IncomingError("it has sent an invalid message")
            self._skip(frame)
        return None

    def _decoded(self, frame: bytes) -> Message | None:
        """Return the message in a line, or None if the line is not a message."""
        try:
            # The decoder does not check the strings of undecoded members, so check them here.
            if is_utf8(frame):
                message = decode_message(frame)
                self._noise_bytes = 0
                return message
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            pass
        return None

    def _skip(self, noise: bytes) -> None:
        """Skip text that is not a message."""
        if not self._noise_bytes:
            logger.info("target %s has sent a line that is not a message", self._target)
        self._noise_bytes += len(noise) + 1
        if self._noise_bytes > MAX_BANNER_BYTES:
            raise IncomingError("it has sent too much text that is not a message")
