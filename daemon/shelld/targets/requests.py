"""Sends the requests of one link, and records each request until its call ends.

Owns the numbers of the requests, and the requests that wait for the target's greeting. Never waits
for the target, and never reads its answers.

Invariant: a request that is too large for the target is not sent. The target's error would not
contain the id of the request.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from typing import Final

from shelld.targets.naming import request_id_for
from shelld.targets.outgoing import Call, Outgoing
from shelld_protocol.encoding import encode
from shelld_protocol.errors import RpcError, message_too_large, resource_exhausted

# If unsent requests have more bytes than this, new requests are refused. A slow connection may take
# minutes for one long request, so others must be able to wait behind it.
MAX_UNSENT_BYTES: Final = 64 * 1024 * 1024


class Requests:
    """Holds the requests to a target. `count` is how many requests there were so far."""

    def __init__(self, target: str, outgoing: Outgoing) -> None:
        self._target = target
        self._outgoing = outgoing
        self._calls: dict[bytes, Call] = {}
        # Requests that wait for the greeting.
        self._waiting: deque[tuple[bytes, Call | None]] = deque()
        # The longest message that the target takes. None until its greeting.
        self._max_message_bytes: int | None = None
        self._is_closed = False
        self.count = 0

    def begin(self, method: str, params: bytes, request_id: bytes | None) -> Call:
        """Send a request now, or once the target is connected. `params` is JSON text.

        Raises `RpcError` (resource_exhausted, invalid_request).
        """
        self.count += 1
        call = Call(request_id_for(self.count, request_id))
        message = b'{"jsonrpc":"2.0","id":%b,"method":%b,"params":%b}' % (
            call.far_id,
            encode(method),
            params,
        )
        waiting = sum(len(each) for each, _ in self._waiting)
        # Before the greeting, the backlog may be a bundle, which does not count towards the limit.
        unsent = 0 if self._max_message_bytes is None else self._outgoing.backlog
        if unsent + waiting > MAX_UNSENT_BYTES:
            size = f"{MAX_UNSENT_BYTES >> 20} MiB"
            waits = f"More than {size} of requests wait for target {self._target} already"
            raise resource_exhausted("target", waits)
        self._check_size(message)
        self._calls[call.far_id] = call
        self.send(message, call)
        return call

    def _check_size(self, message: bytes) -> None:
        """Raise an error for a message that is too large.

        If such a message were sent, the target's error would not contain the id of the message.
        """
        if self._max_message_bytes is not None and len(message) > self._max_message_bytes:
            raise message_too_large(self._max_message_bytes)

    def send(self, message: bytes, call: Call | None = None) -> None:
        """Send a message now, or once the target is connected."""
        if self._is_closed:
            return
        if self._max_message_bytes is None:
            self._waiting.append((message, call))
        else:
            self._outgoing.put(message + b"\n", call)

    def open(self, max_message_bytes: int) -> None:
        """Send the waiting requests, because the target is connected."""
        self._max_message_bytes = max_message_bytes
        while self._waiting:
            message, call = self._waiting.popleft()
            try:
                self._check_size(message)
            except RpcError as error:
                if call is not None:
                    call.finish(error=error.with_traceback(None))
            else:
                self.send(message, call)

    def cancel(self, call: Call) -> None:
        """Cancel a request at the target, or forget the request if no byte of it was sent."""
        if not call.is_sent:
            self._waiting = deque(item for item in self._waiting if item[1] is not call)
            self._outgoing.withdraw(call)
        if call.is_left or not call.is_sent:
            call.finish()
            return
        params = b'{"id":%b}' % call.far_id
        self.send(b'{"jsonrpc":"2.0","method":"$/cancelRequest","params":%b}' % params)

    def leave(self, call: Call) -> None:
        """Move a call's command to the background at the target, because the client is lost."""
        call.is_left = True
        params = b'{"request_id":%b}' % call.far_id
        # If the request waits for the greeting, this message follows it, and is withdrawn with it.
        self.send(b'{"jsonrpc":"2.0","method":"background","params":%b}' % params, call)

    def call_of(self, far_id: bytes) -> Call | None:
        """Return the call of a request that is not over; None if there is no such call."""
        return self._calls.get(far_id)

    @property
    def calls(self) -> Collection[Call]:
        """The calls that are not over."""
        return self._calls.values()

    def forget(self, call: Call) -> None:
        self._calls.pop(call.far_id, None)

    def close(self) -> None:
        """Send nothing more, because the link is over."""
        self._is_closed = True
        self._outgoing.stop()
