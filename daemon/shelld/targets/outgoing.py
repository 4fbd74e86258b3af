"""Sends requests to a target, as fast as it takes them, and never waits.

Owns the requests that are not sent, in their order. Invariant: a request that was sent in part is
sent to its end.
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from contextlib import suppress
from typing import Final

import anyio

from shelld.keeper.transient import TRANSIENT
from shelld_protocol.errors import RpcError

# While the system has no memory for a send, the next attempt comes after this time.
_SHORTAGE_PAUSE_S: Final = 0.1


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
        # Whether the event loop calls `_write`: when the target takes more, or at a time.
        self._is_writing = False
        self._next_attempt: asyncio.TimerHandle | None = None
        # How many bytes are not sent; and when the target has last taken some (the loop's time).
        self.backlog = 0
        self.sent_at = self._loop.time()

    def put(self, data: bytes, call: Call | None = None) -> None:
        """Send some bytes, now or when the target takes them. `call`: the call that they make."""
        if not data:
            return
        self._unsent.append((memoryview(data), call))
        self.backlog += len(data)
        if not self._is_writing and self._next_attempt is None:
            self._write()

    def withdraw(self, call: Call) -> None:
        """Do not send a call after all. Only for a call of which no byte was sent."""
        self._unsent = deque(item for item in self._unsent if item[1] is not call)
        self.backlog = sum(len(data) for data, _ in self._unsent)

    def _write(self) -> None:
        """Send what the target takes now. The event loop calls this again when it takes more."""
        self._next_attempt = None
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
        except OSError as error:
            self.stop()
            if error.errno in TRANSIENT:
                self._next_attempt = self._loop.call_later(_SHORTAGE_PAUSE_S, self._write)
            else:
                self._give_up()
            return
        self.stop()

    def _give_up(self) -> None:
        """Send nothing more, and let a target that is still there see the end of its input.

        Then the reader sees the end of the stream, and may still find answers before it.
        """
        self._unsent.clear()
        self.backlog = 0
        with suppress(OSError):
            self._connection.shutdown(socket.SHUT_WR)

    def stop(self) -> None:
        """Send nothing more by itself."""
        if self._next_attempt is not None:
            self._next_attempt.cancel()
            self._next_attempt = None
        if self._is_writing:
            self._loop.remove_writer(self._connection)
            self._is_writing = False
