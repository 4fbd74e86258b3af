"""Implements the client's half of the protocol without I/O, and maps request ids to pending calls.

Takes calls and returns the bytes to send; takes received bytes and returns the answered calls. The
caller chooses the object that represents a pending call.

Only one thread calls `receive`. Any thread, finaliser or signal handler may call all other methods
at any time, even while `receive` runs. This is safe without a lock, because each change of shared
state is a single dictionary operation.

A banner, such as the output of a login shell, may precede the peer's first message. After the first
message, all data must be messages.

At level DEBUG, the logger ``shelld_client.wire`` logs every message, sent ("->") and received
("<-"), with commands and their output, but without input that `secret` protects. The thread that
delivers answers never logs: the holder of a logging lock may be waiting for one of these answers.
The next thread that makes a call logs these messages.
"""

from __future__ import annotations

import collections
import itertools
import logging
import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final, Generic, Literal, NamedTuple, Protocol, TypeVar, cast

import msgspec

from shelld_client.errors import (
    AnswerTooLarge,
    InvalidParams,
    MessageTooLarge,
    ProtocolError,
    ShellError,
    error_from_wire,
    refused_here,
)
from shelld_client.json_values import name_of_surrogate, plain, require_json
from shelld_client.ownership import Ownership
from shelld_client.reentrant import may_wait
from shelld_client.results import decode_event, decode_or_none, decode_output
from shelld_protocol import errors
from shelld_protocol.encoding import decode
from shelld_protocol.event_methods import (
    LOST_NOTIFICATION,
    OVER_NOTIFICATION,
    Event,
    LostSubscription,
    SubscriptionOver,
)
from shelld_protocol.framing import (
    DEFAULT_MAX_MESSAGE_BYTES,
    NEED_DATA,
    FrameError,
    FrameReader,
    Framing,
    encode_frame,
)
from shelld_protocol.jsonrpc import encode_request

T = TypeVar("T")

# An answer has at most two streams of 16 MiB, and a byte of a stream can take six bytes in JSON.
MAX_ANSWER_BYTES: Final = 256 * 1024 * 1024

# Login banners are a few KiB. Longer text comes from a program that will never answer.
MAX_BANNER_BYTES: Final = 64 * 1024

# How many characters of a banner to quote in an exception, from its beginning and its end.
_QUOTED_HEAD: Final = 100
_QUOTED_TAIL: Final = 300

# The text with which every message of the daemon begins. If a banner has no final newline, this
# text shows where the message begins.
_MESSAGE_START: Final = b'{"jsonrpc":"2.0"'

# How the daemon's answers begin, up to the id.
_ANSWER_START: Final = re.compile(
    rb'\s*\{\s*"jsonrpc"\s*:\s*"2\.0"\s*,\s*"id"\s*:\s*(\d{1,18})\s*,'
)


class _WireError(msgspec.Struct):
    code: int
    message: str
    data: Any = None


class _Message(msgspec.Struct):
    jsonrpc: Literal["2.0"]
    id: int | str | float | None = None
    result: msgspec.Raw = msgspec.Raw()
    error: _WireError | None = None
    method: str | None = None
    params: msgspec.Raw = msgspec.Raw()


class EventListener(Protocol):
    """Receives the events of a request. `take_event` must not wait."""

    def take_event(self, event: Event) -> None: ...

    def fail(self, error: ShellError) -> None: ...

    def end(self) -> None: ...


# The notification that another client has taken the daemon.
_DETACHED: Final = "shell/detached"

# The params of write_stdin that hold input.
_WRITTEN: Final = frozenset({"text", "keys", "base64"})

wire_logger: Final = logging.getLogger("shelld_client.wire")

_decoder: Final = msgspec.json.Decoder(_Message)
# How many strings of a message without an error are decoded: its version, id and method.
_MESSAGE_STRINGS: Final = 3
_HEAD_BYTES: Final = 1_000


class _Pending(NamedTuple, Generic[T]):
    call: T
    # The size of the request's message in bytes.
    size: int


class Connection(Generic[T]):
    """Connects calls with answers.

    `T` is the type of the object with which the caller represents a pending call.
    """

    def __init__(self, max_message_bytes: int = DEFAULT_MAX_MESSAGE_BYTES) -> None:
        """Create the state of a connection.

        `max_message_bytes` is the peer's limit, until an error of the peer names another limit.
        """
        self._frames = FrameReader(MAX_ANSWER_BYTES)
        self._max_message_bytes = max_message_bytes
        self._ids = itertools.count(1)
        self._pending: dict[int, _Pending[T]] = {}
        # The listener for the events of each request, by the id of the request.
        self._listeners: dict[int, EventListener] = {}
        self.ownership = Ownership()
        # Whether the connection has ended, so that no answer will come.
        self.is_over = False
        # Whether the daemon has said that another client has taken it.
        self.is_stolen = False
        # The data before the first message, or None once a message has come.
        self._banner: bytearray | None = bytearray()
        # The length, in bytes, of the complete lines in the banner. None of them contains a
        # message.
        self._skipped = 0
        # Whether logging was on at the last check. A check can wait for a lock, so code that must
        # not wait uses this value instead.
        self._is_logging = False
        # Messages to be logged later, because the code that sent or received them must not wait for
        # a lock.
        self._unlogged: collections.deque[tuple[str, bytes]] = collections.deque()

    @property
    def said(self) -> str:
        """Text for the end of error messages. It quotes the peer's banner.

        It is "" once a message has come.
        """
        text = "".join(
            character if character.isprintable() else " "
            for character in (self._banner or b"").decode("utf-8", "replace")
        )
        text = " ".join(text.split())
        if len(text) > _QUOTED_HEAD + _QUOTED_TAIL:
            text = f"{text[:_QUOTED_HEAD]} ... {text[-_QUOTED_TAIL:]}"
        return f"; it wrote {text!r}" if text else ""

    def new_id(self) -> int:
        """Return the id of a new call. `cancel` accepts the id at any time, even before `call`."""
        return next(self._ids)

    def call(self, request_id: int, method: str, params: dict[str, Any], pending: T) -> bytes:
        """Register a call, and return the bytes of its request.

        Encodes paths as text. Raises `InvalidParams` for NaN, infinity, bytes, lone surrogates and
        nesting that is too deep, TypeError for other types that JSON does not have, and
        `ProtocolError` for anything else that JSON cannot express. Also raises `MessageTooLarge`,
        and MemoryError if there is no memory to encode the request.
        """
        try:
            require_json(params)
            message = encode_request(method, params, request_id, plain)
        except InvalidParams:
            raise
        except TypeError as error:
            raise TypeError(f"the parameters of {method} cannot be encoded: {error}") from error
        except UnicodeEncodeError as error:
            name = name_of_surrogate(params)
            reason = f"Invalid value for {name}: must not contain lone surrogates"
            raise refused_here(errors.invalid_params(reason, name)) from error
        except (ValueError, RecursionError) as error:
            raise ProtocolError(f"the parameters of {method} cannot be encoded") from error
        if len(message) > self._max_message_bytes:
            raise MessageTooLarge(len(message), self._max_message_bytes)
        frame = encode_frame(message, Framing.LINES)
        self._log("->", _without_secret(method, params, request_id) or frame)
        self._pending[request_id] = _Pending(pending, len(message))
        return frame

    def cancel(self, request_id: int) -> bytes:
        """Forget a pending call, and return the bytes that cancel the call in the daemon.

        Return b"" if the call is not pending.
        """
        frame = self.ask_to_cancel(request_id)
        return frame if self._pending.pop(request_id, None) is not None else b""

    def ask_to_cancel(self, request_id: int) -> bytes:
        """Return the bytes that cancel a call in the daemon. The call stays pending.

        Return b"" if the call is not pending.
        """
        if request_id not in self._pending:
            return b""
        frame = encode_frame(encode_request("$/cancelRequest", {"id": request_id}), Framing.LINES)
        self._log("->", frame)
        return frame

    def receive(self, data: bytes) -> Iterator[tuple[T, bytes | ShellError]]:
        """Yield each call that `data` answers, with its result (JSON) or its error.

        If the data contains something that no daemon sends, first yields the answers that precede
        it, then raises `ProtocolError`.
        """
        if self._banner is not None:
            data = self._after_banner(self._banner, data)
        self._frames.receive_data(data)
        while (event := self._frames.next_event()) is not NEED_DATA:
            if isinstance(event, FrameError):
                yield from self._without_answer(event)
                continue
            self._log("<-", event)
            if self._tell_output(event):
                continue
            message = _decode(event)
            if message is None:
                raise ProtocolError("the peer sent something that is not a JSON-RPC message")
            if message.method is not None:
                if message.id in self._pending:
                    raise ProtocolError("the peer echoes our requests, so it is not shelld")
                self._tell_event(message.method, message.params)
                continue
            if message.id is None and (limit := _size_limit_in(message)) is not None:
                self._max_message_bytes = limit
                yield from self._take_larger_than(limit)
                continue
            if not isinstance(message.id, int):
                detail = message.error.message if message.error is not None else "no error"
                raise ProtocolError(f"the peer could not tell what it answers: {detail}")
            pending = self._pending.pop(message.id, None)
            if pending is None:
                continue
            if message.error is not None:
                error = message.error
                yield pending.call, error_from_wire(error.code, error.message, error.data)
            else:
                yield pending.call, bytes(message.result)

    def _tell_output(self, message: bytes) -> bool:
        """If a message is an output event, pass it on.

        Return whether the message is an output event.
        """
        event = decode_output(message) if self._listeners else None
        self._tell(event)
        return event is not None

    def _tell_event(self, method: str, params: msgspec.Raw) -> None:
        if method == _DETACHED:
            self.is_stolen = True
        if not self._listeners:
            return
        if method == LOST_NOTIFICATION:
            self._tell_lost(bytes(params))
        elif method == OVER_NOTIFICATION:
            self._tell_over(bytes(params))
        else:
            self._tell(decode_event(method, bytes(params)))

    def _tell_lost(self, params: bytes) -> None:
        """End the listener of a subscription if its target is lost."""
        lost = decode_or_none(LostSubscription, params)
        if lost is None or not isinstance(lost.request_id, int):
            return
        self.ownership.lost(lost.subscription)
        listener = self._listeners.pop(lost.request_id, None)
        if listener is not None:
            error = errors.target_lost(lost.target, lost.message, maybe_started=True, text="")
            listener.fail(error_from_wire(error.code, error.message, error.data))

    def _tell_over(self, params: bytes) -> None:
        """End the listener of a subscription that has no more events."""
        over = decode_or_none(SubscriptionOver, params)
        if over is not None and isinstance(over.request_id, int):
            listener = self._listeners.pop(over.request_id, None)
            if listener is not None:
                listener.end()

    def _tell(self, event: Event | None) -> None:
        """Pass an event to the listener of its request, if there is one."""
        if event is not None and isinstance(event.request_id, int):
            listener = self._listeners.get(event.request_id)
            if listener is not None:
                listener.take_event(event)

    def listen(self, request_id: int, listener: EventListener) -> None:
        """Pass the events of a request to `listener`, until `unlisten`."""
        self._listeners[request_id] = listener

    def unlisten(self, request_id: int) -> None:
        self._listeners.pop(request_id, None)

    def claim(self, subscription: str, request_id: int) -> int | None:
        """Record that a request has begun a subscription, or has taken it over from an earlier
        request.

        Return the earlier request, if it still reads the subscription. The reader of the earlier
        request gets an error.
        """
        before = self.ownership.claim(subscription, request_id)
        listener = None if before is None else self._listeners.pop(before, None)
        if listener is not None:
            listener.fail(ShellError(f"{subscription} was continued by another reader"))
        return before

    @property
    def has_unanswered(self) -> bool:
        """Whether an answer may still come, even if nobody waits for it."""
        return bool(self._pending)

    def take_listeners(self) -> list[EventListener]:
        """Return all listeners, and forget them, because no more events will come."""
        listeners: list[EventListener] = []
        with suppress(KeyError):
            while True:
                listeners.append(self._listeners.popitem()[1])
        return listeners

    def _without_answer(self, event: FrameError) -> Iterator[tuple[T, ShellError]]:
        """If the call whose answer could not be received is still pending, yield it.

        Raises `ProtocolError` if the data does not begin with the start of a daemon's answer and an
        id. Then the data is not a message, or the client cannot know which call waits for the
        answer.
        """
        start = _ANSWER_START.match(self._frames.refused_head)
        if event is FrameError.BAD_HEADER or start is None:
            raise ProtocolError(f"the peer sent no valid message: {event.value}")
        pending = self._pending.pop(int(start[1]), None)
        if pending is not None:
            reason = f"the answer has more than {MAX_ANSWER_BYTES} bytes"
            if event is FrameError.NO_MEMORY:
                reason = "there is no memory for the answer"
            yield pending.call, AnswerTooLarge(reason)

    def _take_larger_than(self, limit: int) -> Iterator[tuple[T, ShellError]]:
        """Yield the calls with more than `limit` bytes.

        The peer refuses such calls, but does not name their ids.
        """
        for request_id, pending in self._pending.copy().items():
            if pending.size > limit and self._pending.pop(request_id, None) is not None:
                yield pending.call, MessageTooLarge(pending.size, limit)

    def _after_banner(self, banner: bytearray, data: bytes) -> bytes:
        """Return the data from the first message on. Return b"" while no message has come."""
        banner += data
        while (end := banner.find(b"\n", self._skipped)) >= 0:
            line = bytes(banner[self._skipped : end])
            for start in (0, line.rfind(_MESSAGE_START)):
                if start >= 0 and _decode(line[start:]) is not None:
                    self._banner = None
                    return bytes(banner[self._skipped + start :])
            self._skipped = end + 1
        if max(self._skipped, len(banner) - self._skipped) > MAX_BANNER_BYTES:
            raise ProtocolError(f"the peer writes something other than messages{self.said}")
        return b""

    def _log(self, direction: str, message: bytes) -> None:
        if may_wait():
            self._is_logging = wire_logger.isEnabledFor(logging.DEBUG)
            if self._is_logging:
                self.write_log()
                _log_message(direction, message)
        elif self._is_logging:
            self._unlogged.append((direction, message))

    def write_log(self) -> None:
        """Log the messages that `receive` could not log.

        Only the callers' threads call this method.
        """
        if may_wait():
            with suppress(IndexError):
                while True:
                    _log_message(*self._unlogged.popleft())

    def take_pending(self) -> list[T]:
        """Return all pending calls, and forget them, because no more answers will come."""
        # Set `is_over` first. If another thread makes a call now, the call is among the pending
        # calls, or the thread sees `is_over`.
        self.is_over = True
        pending: list[T] = []
        with suppress(KeyError):
            while True:
                pending.append(self._pending.popitem()[1].call)
        return pending


def _size_limit_in(message: _Message) -> int | None:
    """If `message` says that a request was too large, return the peer's limit, otherwise None."""
    data = message.error and message.error.data
    limit = (
        cast("dict[str, object]", data).get("max_message_bytes") if isinstance(data, dict) else 0
    )
    return limit if isinstance(limit, int) and limit > 0 else None


def _decode(data: bytes) -> _Message | None:
    """Return a message, or None if `data` is not a JSON-RPC message."""
    # Only a message with an error is decoded as a whole. The member "error" comes right after the
    # id.
    strings = None if b'"error"' in data[:_HEAD_BYTES] else _MESSAGE_STRINGS
    try:
        return decode(data, _decoder, strings)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _without_secret(method: str, params: dict[str, Any], request_id: int) -> bytes:
    """Return the request without its secret input, for the log.

    Return b"" if no input is secret.
    """
    if not params.get("secret"):
        return b""
    shown = {name: value for name, value in params.items() if name not in _WRITTEN}
    return encode_request(method, shown, request_id, plain)


def _log_message(direction: str, message: bytes) -> None:
    # If a logging handler raises, the call must still get its answer.
    with suppress(Exception):
        wire_logger.debug("%s %s", direction, message.decode("utf-8", "replace").rstrip())
