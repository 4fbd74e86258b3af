"""Sends requests to a target as fast as the target takes them, and never waits.

Owns the unsent requests, in their order. Invariant: if the first part of a request was sent, its
other parts are sent as well.
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

# The pause between two attempts to send while the system has no memory for sending.
_SHORTAGE_PAUSE_S: Final = 0.1


class Call:
    """Holds a request to a target. `far_id` is the id that the target sees, as JSON text."""

    __slots__ = ("done", "error", "far_id", "is_left", "is_sent", "result")

    def __init__(self, far_id: bytes) -> None:
        self.far_id = far_id
        self.done = anyio.Event()
        # Whether any byte of the request was sent.
        self.is_sent = False
        # Whether the request's command keeps running if the call is cancelled.
        self.is_left = False
        self.result: bytes | None = None
        self.error: RpcError | None = None

    def finish(self, result: bytes | None = None, error: RpcError | None = None) -> None:
        self.result, self.error = result, error
        self.done.set()


class Outgoing:
    """Sends over one connection. Must be used on the event loop on which it was created."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._loop = asyncio.get_running_loop()
        # The part of each message that was not sent yet, with the message's call.
        self._unsent: deque[tuple[memoryview, Call | None]] = deque()
        # Whether the event loop calls `_write` when the target can take more.
        self._is_writing = False
        # The timer that calls `_write` after a pause.
        self._next_attempt: asyncio.TimerHandle | None = None
        # The number of unsent bytes.
        self.backlog = 0
        # The time (of the event loop) at which the target last took bytes.
        self.sent_at = self._loop.time()

    def put(self, data: bytes, call: Call | None = None) -> None:
        """Send bytes now, or when the target takes them. The bytes belong to `call`."""
        if not data:
            return
        self._unsent.append((memoryview(data), call))
        self.backlog += len(data)
        if not self._is_writing and self._next_attempt is None:
            self._write()

    def withdraw(self, call: Call) -> None:
        """Remove a call from the unsent requests.

        Use this method only if no byte of the call was sent.
        """
        self._unsent = deque(item for item in self._unsent if item[1] is not call)
        self.backlog = sum(len(data) for data, _ in self._unsent)

    def _write(self) -> None:
        """Send what the target takes now.

        The event loop calls this again when the target can take more.
        """
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
        """Send nothing more, and close the target's input.

        A target that still runs ends when its input is closed. So the reader sees the end of the
        stream, and may still find answers before the end.
        """
        self._unsent.clear()
        self.backlog = 0
        with suppress(OSError):
            self._connection.shutdown(socket.SHUT_WR)

    def stop(self) -> None:
        """Stop the event loop from calling `_write`."""
        if self._next_attempt is not None:
            self._next_attempt.cancel()
            self._next_attempt = None
        if self._is_writing:
            self._loop.remove_writer(self._connection)
            self._is_writing = False
