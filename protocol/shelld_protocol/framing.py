"""Converts bytes to messages and back, with either of the two framings of JSON-RPC over stdio.

Owns the bytes that were received but not yet returned. Never does I/O, and never decodes a message.

A stream is either newline-delimited (one JSON value per line) or LSP-framed (``Content-Length``
headers). The first byte that is neither blank nor part of a byte order mark decides which framing
the whole stream has. If the byte is ``C`` or ``c``, it starts a header, because a JSON-RPC message
starts with ``{`` or ``[``, never with a letter.

Invariants:

* The buffer never holds more than ``max_message_bytes`` plus the data of one ``receive_data`` call.
* A message that is over the limit or does not fit in memory yields one `FrameError` and is skipped.
  The following messages are intact.
* The search for a line end looks at each byte only once, however small the received pieces are.
* The messages and errors of a stream do not depend on the pieces in which the stream arrives.
* If a Content-Length is wrong, at most its message and the next one are lost, because the reader
  also finds a header that stands on the last line of a body.
* Among headers, a line that is not a header yields one `FrameError`. The headers before and after
  it stay valid.
"""

from __future__ import annotations

import enum
import re
from typing import Final

DEFAULT_MAX_MESSAGE_BYTES: Final = 64 * 1024 * 1024

# If a line is longer than this, only its end is searched for a header. Real headers are under 60
# bytes.
MAX_HEADER_LINE_BYTES: Final = 4096
_HEADER_END_BYTES: Final = 100

# If a Content-Length was too small, the rest of the body comes before the next header, on the same
# line.
_LENGTH_HEADER: Final = re.compile(
    rb"(?:.*[\]}])?[ \t]*content-length[ \t]*:(.*)", re.IGNORECASE | re.DOTALL
)

# The beginning of a header: its name (a token of RFC 9110) and the colon. No JSON value begins like
# a header.
_HEADER: Final = re.compile(rb"[ \t]*[!#$%&'*+.^_`|~0-9A-Za-z-]+[ \t]*:")

# How much of a refused message to keep. This is enough to find an id at its beginning.
_HEAD_BYTES: Final = 100

_BLANK: Final = b" \t\r\n"
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"


class Framing(enum.Enum):
    """The ways to delimit messages on the stream."""

    LINES = "lines"
    CONTENT_LENGTH = "content-length"


class FrameError(enum.Enum):
    """The reasons why a message or a line was dropped. The value is a sentence for people."""

    TOO_LARGE = "Message exceeds the size limit"
    BAD_HEADER = "Header section has no valid Content-Length"
    NO_HEADER = "A line among the headers is not a header"
    NO_MEMORY = "There is no memory for the message"


class NeedData(enum.Enum):
    """The type that has `NEED_DATA` as its only value."""

    TOKEN = enum.auto()


NEED_DATA: Final = NeedData.TOKEN


def encode_frame(payload: bytes, framing: Framing) -> bytes:
    """Return `payload` (one JSON value without raw newlines), framed for the stream."""
    if framing is Framing.LINES:
        return payload + b"\n"
    # Send only this header, because Emacs expects it to come first.
    return b"Content-Length: %d\r\n\r\n%b" % (len(payload), payload)


class FrameReader:
    """Splits a stream of bytes into messages.

    Feed it with `receive_data` and `receive_eof`, then call `next_event` until it returns
    `NEED_DATA`. `framing` is None until the first byte that decides the framing has arrived.
    `refused_head` is the beginning of the last refused message or line: a message that was too
    large or did not fit in memory, or a line that is not a header.
    """

    framing: Framing | None
    refused_head: bytes

    def __init__(self, max_message_bytes: int = DEFAULT_MAX_MESSAGE_BYTES) -> None:
        self.framing = None
        self.refused_head = b""
        self._limit = max_message_bytes
        self._buffer = bytearray()
        self._searched = 0
        self._eof = False
        # For `LINES`: whether to drop the rest of a refused line.
        self._skipping_line = False
        # For `CONTENT_LENGTH`: how many bytes of a refused body are still to be dropped.
        self._skip_bytes = 0
        # For `CONTENT_LENGTH`: the length of the body, once the headers are complete.
        self._body_length: int | None = None
        self._header_length: int | None = None
        self._header_seen = False
        # For `CONTENT_LENGTH`: the first bytes of the current header line, and whether the line is
        # too long. If it is too long, the rest of the line is dropped.
        self._line_is_long = False
        self._line_start = b""
        self._out_of_memory = False

    def receive_data(self, data: bytes) -> None:
        """Take the next bytes of the stream, in a piece of any size.

        If memory is short, drop the unfinished message to free some memory. If there is no
        unfinished message, take no bytes, and raise MemoryError; another call with the same data
        may succeed.
        """
        try:
            self._store(data)
        except MemoryError:
            if not self._give_up_message(data):
                raise
            self._store(data)

    def _store(self, data: bytes) -> None:
        """Add `data` to the buffer, but not the parts that belong to a skipped message.

        Raises MemoryError.
        """
        if self._buffer or not (self._skipping_line or self._skip_bytes):
            # While a line is skipped, the buffer is empty or begins with the newline of that line.
            self._buffer += data
        elif self._skipping_line:
            end = data.find(b"\n")
            if end >= 0:
                self._buffer += data[end:]
        else:
            dropped = min(self._skip_bytes, len(data))
            left = self._skip_bytes - dropped
            self._buffer += data[dropped:]
            self._skip_bytes = left

    def _give_up_message(self, data: bytes) -> bool:
        """Drop the unfinished message, and skip its rest when it arrives.

        `data` is the next part of the stream. There was no memory to keep it. Return False if there
        is no unfinished message. If this function raises MemoryError, it has changed nothing.
        """
        if self._skipping_line or self._skip_bytes:
            # An earlier call has dropped the message, and `refused_head` has the message's
            # beginning.
            return False
        head = bytes(self._buffer[:_HEAD_BYTES])
        head += data[: _HEAD_BYTES - len(head)]
        if self._body_length is not None:
            self._skip_bytes = self._body_length - len(self._buffer)
            self._body_length = None
        elif self.framing is Framing.LINES and head.lstrip(b" \t\r")[:1] not in (b"", b"\n"):
            self._skipping_line = True
            head = head.partition(b"\n")[0]
        else:
            # If the header is incomplete, or the line is blank so far, we cannot tell where the
            # next message starts.
            return False
        self.refused_head = head
        self._drop_buffer()
        self._out_of_memory = True
        return True

    def receive_eof(self) -> None:
        """Mark the end of the stream. An unfinished last line then counts as a message."""
        self._eof = True

    def next_event(self) -> bytes | FrameError | NeedData:
        """Return the next message, `NEED_DATA`, or an error in place of a message that was dropped.

        Raises MemoryError if memory is short. The buffer is then unchanged, and another call may
        succeed.
        """
        if self._out_of_memory:
            self._out_of_memory = False
            return FrameError.NO_MEMORY
        if not self._buffer:
            return NEED_DATA
        if self.framing is None and not self._detect():
            return NEED_DATA
        return self._next_line() if self.framing is Framing.LINES else self._next_body()

    def _detect(self) -> bool:
        buffer = self._buffer
        while True:
            stripped = buffer.lstrip(_BLANK)
            if stripped.startswith(_BYTE_ORDER_MARK):
                buffer[:] = stripped[len(_BYTE_ORDER_MARK) :]
                continue
            break
        buffer[:] = stripped
        if not buffer or (not self._eof and _BYTE_ORDER_MARK.startswith(bytes(buffer[:3]))):
            return False
        self.framing = Framing.CONTENT_LENGTH if buffer[0] in b"cC" else Framing.LINES
        return True

    # -- newline-delimited ------------------------------------------------------------------

    def _next_line(self) -> bytes | FrameError | NeedData:
        while True:
            end = self._end_of_line()
            if end is None:
                if self._skipping_line:
                    self._drop_buffer()
                elif self._is_too_long(len(self._buffer)):
                    self.refused_head = bytes(self._buffer[:_HEAD_BYTES])
                    self._drop_buffer()
                    self._skipping_line = True
                    return FrameError.TOO_LARGE
                return NEED_DATA
            if self._skipping_line:
                self._skipping_line = False
                self._remove(end + 1)
            elif self._is_too_long(end):
                self.refused_head = bytes(self._buffer[:_HEAD_BYTES])
                self._remove(end + 1)
                return FrameError.TOO_LARGE
            elif line := self._take(end, end + 1):
                return line

    def _is_too_long(self, size: int) -> bool:
        """Return whether a line of `size` bytes exceeds the limit.

        A carriage return at its end does not count, because it belongs to the line end.
        """
        return size > self._limit + self._buffer.startswith(b"\r", size - 1)

    def _end_of_line(self) -> int | None:
        """Return the length of the next line without its newline.

        Return None while the line is unfinished.
        """
        end = self._buffer.find(b"\n", self._searched)
        if end >= 0:
            return end
        size = len(self._buffer)
        if self._eof and size:
            return size
        self._searched = size
        return None

    def _take(self, size: int, removed: int) -> bytes | FrameError:
        """Remove `removed` bytes; return the first `size` of them, stripped of blanks."""
        message: bytes | FrameError
        try:
            message = bytes(memoryview(self._buffer)[:size]).strip(_BLANK)
        except MemoryError:
            self.refused_head = bytes(self._buffer[:_HEAD_BYTES])
            message = FrameError.NO_MEMORY
        self._remove(removed)
        return message

    def _remove(self, size: int) -> None:
        del self._buffer[:size]
        self._searched = 0

    def _drop_buffer(self) -> None:
        self._buffer.clear()
        self._searched = 0

    # -- Content-Length ---------------------------------------------------------------------

    def _next_body(self) -> bytes | FrameError | NeedData:
        while True:
            if self._skip_bytes:
                dropped = min(self._skip_bytes, len(self._buffer))
                del self._buffer[:dropped]
                self._skip_bytes -= dropped
                if self._skip_bytes:
                    return NEED_DATA
            if self._body_length is not None:
                if len(self._buffer) < self._body_length:
                    return NEED_DATA
                body = self._take(self._body_length, self._body_length)
                self._body_length = None
                if body:
                    return body
                continue
            event = self._read_header_line()
            if event is not None:
                return event

    def _read_header_line(self) -> FrameError | NeedData | None:
        """Consume one header line. If the result is None, the caller must check the state again."""
        end = None if self._eof and b"\n" not in self._buffer else self._end_of_line()
        if end is None:
            if len(self._buffer) > MAX_HEADER_LINE_BYTES:
                if not self._line_is_long:
                    self._line_start = bytes(self._buffer[:_HEAD_BYTES])
                del self._buffer[:-_HEADER_END_BYTES]
                self._searched = len(self._buffer)
                self._line_is_long = True
            return NEED_DATA
        is_long = self._line_is_long or end > MAX_HEADER_LINE_BYTES
        start = max(0, end - _HEADER_END_BYTES) if is_long else 0
        line = bytes(self._buffer[start:end]).strip(_BLANK)
        head = bytes(self._buffer[: min(end, _HEAD_BYTES)])
        head = self._line_start if self._line_is_long else head
        self._remove(end + 1)
        if line or is_long:
            self._line_is_long = False
            if header := _LENGTH_HEADER.fullmatch(line):
                digits = header[1].strip(_BLANK)
                # A number of 18 digits exceeds any limit, and int() must not parse thousands of
                # digits.
                valid = digits.isdigit() and len(digits) <= 18
                self._header_length = int(digits) if valid else None
            elif not _HEADER.match(head):
                # The line may be a request, and the sender of a request must not wait for ever.
                self.refused_head = head
                return FrameError.NO_HEADER
            self._header_seen = True
            return None
        length, seen = self._header_length, self._header_seen
        self._header_length, self._header_seen = None, False
        if length is None:
            # A blank line without a header before it separates messages.
            return FrameError.BAD_HEADER if seen else None
        if length > self._limit:
            self._skip_bytes = length
            return FrameError.TOO_LARGE
        self._body_length = length
        return None
