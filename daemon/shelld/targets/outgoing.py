"""Sends requests to a target, as fast as it takes them, and never waits.

Owns the requests that are not sent, in their order. Invariant: a request that was sent in part is
sent to its end.
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque

import anyio

from shelld_protocol.errors import RpcError


class Call:
    """A request to a target. `far_id` is its id there, as JSON text."""

    __slots__ = ("done", "error", "far_id", "is_left", "is_sent", "result")

    def __init__(self, far_id: bytes) -> None:
        self.far_id = far_id
        self.done = anyio.Event()
        # Whether the target has got some of it.
        self.is_sent = False
        # Whether its command keeps running even if the call is cancelled.
        self.is_left = False
        self.result: bytes | None = None
        self.error: RpcError | None = None

    def finish(self, result: bytes | None = None, error: RpcError | None = None) -> None:
        self.result, self.error = result, error
        self.done.set()


class Outgoing:
    """Needs the event loop on which it was made."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._loop = asyncio.get_running_loop()
        # The rest of each message, with its call.
        self._unsent: deque[tuple[memoryview, Call | None]] = deque()
        self._is_writing = False
        # How many bytes are not sent; and when the target has last taken some (the loop's time).
        self.backlog = 0
        self.sent_at = self._loop.time()

    def put(self, data: bytes, call: Call | None = None) -> None:
        """Send some bytes, now or when the target takes them. `call`: the call that they make."""
        if not data:
            return
        self._unsent.append((memoryview(data), call))
        self.backlog += len(data)
        if not self._is_writing:
            self._write()

    def withdraw(self, call: Call) -> None:
        """Do not send a call after all. Only for a call of which no byte was sent."""
        self._unsent = deque(item for item in self._unsent if item[1] is not call)
        self.backlog = sum(len(data) for data, _ in self._unsent)

    def _write(self) -> None:
        """Send what the target takes now. The event loop calls this again when it takes more."""
        try:
            while self._unsent:
                data, call = self._unsent[0]
                sent = self._connection.send(data)
                self.sent_at = self._loop.time()
                if call is not None:
                    call.is_sent = True
                self.backlog -= sent
                self._unsent[0] = (data[sent:], call)
                if sent == len(data):
                    self._unsent.popleft()
        except BlockingIOError:
            if not self._is_writing:
                self._loop.add_writer(self._connection, self._write)
                self._is_writing = True
            return
        except OSError:
            # The reader sees the end of the stream, too, and may still find answers before it.
            self._unsent.clear()
        self.stop()

    def stop(self) -> None:
        """Send nothing more."""
        if self._is_writing:
            self._loop.remove_writer(self._connection)
            self._is_writing = False
