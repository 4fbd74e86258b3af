"""One client of a lasting daemon. Knows whether the client is still there, and ends its requests.

Never decides that the client is lost. `Clients` decides this, and closes everything that belongs to
the client. Invariant: `part` takes a bounded time.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
from collections.abc import Iterator, Mapping
from typing import Final, Literal

import anyio

from shelld.events.subscriptions import Subscriptions
from shelld.lasting.handshake import STDOUT_FAILED, End, send
from shelld.server.dispatch import Method
from shelld.server.serve import Server
from shelld.server.stdio import Output

# When a client is lost, its requests in flight get `DRAIN_S` to end by themselves. After that, the
# commands of the requests that have not ended get `HAND_OVER_S` to move to the background. Before
# the daemon stops writing, the client gets `FLUSH_S` to read the remaining answers. A client that
# has only closed its stream of requests gets `FINISH_FLUSH_S`.
DRAIN_S: Final = 0.5
HAND_OVER_S: Final = 0.5
FLUSH_S: Final = 0.3
FINISH_FLUSH_S: Final = 1.5

# The methods that only MCP has. A client that speaks MCP gets only notifications that MCP has.
_MCP_METHODS: Final = frozenset(
    {
        "initialize",
        "server/discover",
        "tools/list",
        "tools/call",
        "tasks/get",
        "tasks/update",
        "tasks/cancel",
        "subscriptions/listen",
    }
)


class RecordedMethods(Mapping[str, Method]):
    """The methods of a client, with a record of the methods that the client has called."""

    def __init__(self, methods: Mapping[str, Method]) -> None:
        self._methods = methods
        self._called: set[str] = set()

    def __getitem__(self, name: str) -> Method:
        method = self._methods[name]
        self._called.add(name)
        return method

    def __iter__(self) -> Iterator[str]:
        return iter(self._methods)

    def __len__(self) -> int:
        return len(self._methods)

    @property
    def called_is_mcp(self) -> bool:
        """True if the client has called only methods of MCP. `ping` belongs to both protocols."""
        return bool(self._called & _MCP_METHODS) and self._called <= _MCP_METHODS | {"ping"}


class AttachedClient:
    """One client. `connection` leads to the client's `shelld attach`."""

    def __init__(
        self,
        connection: socket.socket,
        streams: tuple[int, int],
        methods: RecordedMethods,
        server: Server,
        output: Output,
    ) -> None:
        self.methods = methods
        self.connection = connection
        self.streams = streams
        self.server = server
        self.output = output
        # `Clients` cancels this scope to end the service of the client.
        self.reading = anyio.CancelScope()
        # The descriptor from which requests are read, until it is closed.
        self._requests = [streams[0]]
        # True when the reply to the client's `shelld attach` was sent.
        self.is_welcome = False
        self.is_stolen = False
        # True when `Clients` has begun to release the client.
        self.is_leaving = False
        # True if the client has not read all answers.
        self._has_unread = False
        # If this is set, the client's requests get no time to end by themselves.
        self.cut_short = anyio.Event()
        self.gone = anyio.Event()

    def close(self) -> None:
        """Tell the client's `shelld attach` the reason, and close the streams and the connection.

        If this method fails, call it again.
        """
        self._has_unread |= self.output.backlog > 0 and not self.output.is_broken
        self.output.release()
        while self._requests:
            os.close(self._requests.pop())
        self._say_goodbye()
        self.connection.close()

    def _say_goodbye(self) -> None:
        # Send nothing. If the stream ends without a reply, `shelld attach` tries again.
        if not self.is_welcome:
            return
        reason: Literal["stolen", "detached"] = "stolen" if self.is_stolen else "detached"
        has_failed = self._has_unread or self.output.failure is not None
        exit_code = STDOUT_FAILED if has_failed else 0
        with contextlib.suppress(OSError):
            send(self.connection, End(reason, exit_code))

    @property
    def has_no_reader(self) -> bool:
        """True if no process can read an answer any more."""
        # On a socket, POLLRDHUP means only that the client sends no more requests. It still reads
        # answers.
        return self.output.is_broken or bool(_events(self.streams[1]) & ~select.POLLRDHUP)

    @property
    def is_lost(self) -> bool:
        """True if the client or its `shelld attach` is gone, even if `Clients` has not noticed."""
        is_gone = bool(_events(self.streams[0])) or is_hung_up(self.connection)
        return self.is_leaving or is_gone or self.has_no_reader

    @property
    def is_finishing(self) -> bool:
        """True if the client has closed its stream of requests, and still reads answers."""
        is_gone = is_hung_up(self.connection) or self.has_no_reader
        return bool(_events(self.streams[0])) and not is_gone

    async def part(self, subscriptions: Subscriptions) -> None:
        """End the client's requests, and let the client read the last answers."""
        if self.is_stolen:
            if not self.methods.called_is_mcp:
                self.server.tell_of_detachment()
        elif not self.has_no_reader:
            await self.server.drain(DRAIN_S, self.cut_short)
        if not self.is_stolen and is_hung_up(self.connection):
            # If the client reconnects, it repeats the requests that got no answer. The remaining
            # answers would only say that the client was lost, so do not send them.
            await self._flush()
            self.output.release()
        self.server.leave_commands()
        await self.server.drain(HAND_OVER_S)
        self.server.drop_in_flight()
        subscriptions.lose_client()
        is_finishing = self.is_finishing and not self.is_stolen
        await self._flush(FINISH_FLUSH_S if is_finishing else FLUSH_S)

    async def _flush(self, seconds: float = FLUSH_S) -> None:
        with anyio.move_on_after(seconds):
            await self.output.wait_empty()


def is_hung_up(connection: socket.socket) -> bool:
    """Return whether a `shelld attach` is gone."""
    return bool(_events(connection.fileno()))


def _events(descriptor: int) -> int:
    """Return the events that poll(2) reports: a hang-up, an error, the end of input. The result is
    0 if there are no events.
    """
    poll = select.poll()
    poll.register(descriptor, select.POLLRDHUP)
    return next((events for _, events in poll.poll(0)), 0)
