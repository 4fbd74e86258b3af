"""The loop: read, frame, decode, start a task for each request, settle each exactly once.

Owns the set of requests in flight. A request is *accepted* when it is entered there, before
anything is awaited; from then on every way it can end (result, error, cancel, shutdown, a result
that cannot be encoded, a bug) leads to its one `settle`.

If our own code fails at a message or a request, that one is answered with an error, and the next
one is read (see `faults`).

Never lets one request delay another, and never lets a client that does not read delay a command:
when too many requests or too many unread answers are outstanding, it stops *reading* requests,
and nothing else.
"""

from __future__ import annotations

import enum
import logging
import math
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

import anyio
import anyio.abc
import anyio.lowlevel
import msgspec

from shelld import faults
from shelld.dispatch import Method, dispatch
from shelld.faults import answer_for
from shelld.methods.context import Context, Daemon
from shelld.stdio import Input, Output
from shelld.workers import Worker, Workers
from shelld_protocol.errors import (
    RpcError,
    cancelled,
    message_too_large,
    parse_error,
    resource_exhausted,
    shutting_down,
)
from shelld_protocol.framing import NEED_DATA, FrameError, FrameReader, Framing, encode_frame
from shelld_protocol.jsonrpc import (
    NULL_ID,
    Batch,
    IdKey,
    Invalid,
    Request,
    Response,
    Single,
    decode_message,
    encode_batch,
    encode_error,
    encode_request,
    encode_result,
    id_key,
)

logger = logging.getLogger("shelld.serve")

# Answers that wait for the client to read them, before no more requests are read.
MAX_BACKLOG_BYTES: Final = 8 * 1024 * 1024

# After this many failures in a row of our code that reads requests, the stream counts as ended.
MAX_READ_FAILURES: Final = 3

# Messages and members of batches that are started in a row, before all else gets its turn.
MAX_STARTED_IN_A_ROW: Final = 256

# How finely `Server.drain` counts its time.
DRAIN_TURN_S: Final = 0.02

# While no requests are read: how often to look whether the client is still there.
HANG_UP_POLL_S: Final = 0.5


class Cancellation(enum.Enum):
    """How a request that was cancelled is answered."""

    ANSWERED = enum.auto()
    SILENT = enum.auto()


# Method -> (the param that names the request, how it is answered): LSP, ACP, MCP.
CANCEL_METHODS: Final[Mapping[str, tuple[str, Cancellation]]] = {
    "$/cancelRequest": ("id", Cancellation.ANSWERED),
    "$/cancel_request": ("requestId", Cancellation.ANSWERED),
    "notifications/cancelled": ("requestId", Cancellation.SILENT),
}

_cancel_params: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])

# Takes the answer, or None for "no answer". If it raises, nothing was written.
Deliver = Callable[[bytes | None], None]


class InFlight:
    """A request between its acceptance and its one settlement."""

    __slots__ = (
        "cancellation",
        "context",
        "deliver",
        "id",
        "key",
        "raw_id",
        "request",
        "settled",
        "worker",
    )

    def __init__(self, request: Request, context: Context, deliver: Deliver) -> None:
        self.request = request
        self.id = request.id
        # The id of its answer, as JSON text.
        self.raw_id = NULL_ID if request.id is None else request.id
        self.key: IdKey | None = None if request.id is None else id_key(request.id)
        self.context = context
        self.deliver = deliver
        self.worker: Worker[InFlight] | None = None
        self.cancellation: Cancellation | None = None
        self.settled = False

    def stop(self) -> None:
        """Cancel what it does, which then settles it if nobody has."""
        if self.worker is not None:
            self.worker.cancel()


class BatchReply:
    """Collects the answers to the members of a batch, and delivers them as one."""

    def __init__(self, size: int, deliver: Deliver) -> None:
        self._size = size
        self._deliver = deliver
        self._replies: dict[int, bytes | None] = {}

    def take(self, position: int, reply: bytes | None) -> None:
        """Take the answer to the member at `position`."""
        self._replies[position] = reply
        if len(self._replies) == self._size:
            answers = [answer for _, answer in sorted(self._replies.items()) if answer is not None]
            self._deliver(encode_batch(answers) if answers else None)


class Server:
    """Serves one client. `exit_code` is set once the client has said `exit`."""

    def __init__(
        self,
        daemon: Daemon,
        methods: Mapping[str, Method],
        source: Input,
        output: Output,
        tasks: anyio.abc.TaskGroup,
    ) -> None:
        self.exit_code: int | None = None
        self._daemon = daemon
        self._methods = methods
        self._source = source
        self._output = output
        self._workers = Workers(tasks, self._answer, self._fail)
        self._frames = FrameReader(daemon.options.max_message_bytes)
        # What was read and not framed yet; b"" is the end of file.
        self._received: bytes | None = None
        # Attempts to read that have failed in a row.
        self._read_failures = 0
        # Members of a batch that are still to be started.
        self._members: deque[tuple[Single, Deliver]] = deque()
        # All has been read.
        self._at_end = False
        # Or not yet, but the client is known to be gone.
        self._is_alone = False
        # A client may have one id in flight several times.
        self._in_flight: set[InFlight] = set()
        self._fewer = anyio.Event()
        self._logs_requests = logger.isEnabledFor(logging.DEBUG)

    # -- reading ----------------------------------------------------------------------------

    async def read_requests(self) -> None:
        """Have a task for every request, until the stream ends or `exit` arrives."""
        try:
            while not self._is_over:
                try:
                    await self._read()
                except Exception:
                    faults.report("the reader of requests")
                    self._read_failures += 1
                    self._at_end = self._read_failures == MAX_READ_FAILURES
        finally:
            self._workers.close()

    async def _read(self) -> None:
        # If the last attempt failed, what it has read is still to be processed.
        self._frame_received()
        while not (self._is_over or self._start_requests()):
            await self._wait_for_room()
        if not self._is_over:
            await self._source.watch(self._receive)

    @property
    def _is_over(self) -> bool:
        return self._at_end or self.exit_code is not None or self._output.is_broken

    def _receive(self) -> bool:
        """Read, and start what has arrived; True if nothing is to be read, at least for now."""
        self._received = self._source.read()
        self._frame_received()
        has_room = self._start_requests()
        self._read_failures = 0
        return not has_room or self._is_over

    def _frame_received(self) -> None:
        data = self._received
        if data:
            self._frames.receive_data(data)
        elif data is not None:
            self._at_end = True
            self._frames.receive_eof()
        self._received = None

    def _start_requests(self) -> bool:
        """Start what has arrived; False if there is no room for all of it, or not yet."""
        started = 0
        while self.exit_code is None or self._members:
            if not self._has_room or (started == MAX_STARTED_IN_A_ROW and not self._at_end):
                return False
            started += 1
            if self._members:
                self._accept(*self._members.popleft())
                continue
            event = self._frames.next_event()
            if event is NEED_DATA:
                break
            try:
                self._take(event)
            except Exception as error:
                self._write(encode_error(NULL_ID, answer_for(error, "a message")))
        return True

    @property
    def _has_room(self) -> bool:
        """Whether another request may be started."""
        if self._at_end or self._is_alone:
            # Once the client is gone there is nothing more to hold back.
            return True
        return (
            len(self._in_flight) < self._daemon.options.max_in_flight
            and self._output.backlog < MAX_BACKLOG_BYTES
        )

    async def _wait_for_room(self) -> None:
        """Wait until another request may be started, or the client is gone."""
        await anyio.lowlevel.checkpoint()
        while len(self._in_flight) >= self._daemon.options.max_in_flight:
            # Its end cannot be seen by reading, as nothing is read now.
            if self._source.has_hung_up():
                self._is_alone = True
                return
            self._fewer = anyio.Event()
            with anyio.move_on_after(HANG_UP_POLL_S):
                await self._fewer.wait()
        if self._output.backlog >= MAX_BACKLOG_BYTES:
            await self._output.wait_empty()

    def _take(self, event: bytes | FrameError) -> None:
        if isinstance(event, FrameError):
            self._write(encode_error(NULL_ID, self._frame_error(event)))
            return
        message = decode_message(event)
        if isinstance(message, Batch):
            batch = BatchReply(len(message.members), self._write)
            for position, member in enumerate(message.members):
                self._members.append((member, partial(batch.take, position)))
        else:
            self._accept(message, self._write)

    def _frame_error(self, event: FrameError) -> RpcError:
        if event is FrameError.TOO_LARGE:
            return message_too_large(self._daemon.options.max_message_bytes)
        if event is FrameError.NO_MEMORY:
            return resource_exhausted("memory", event.value)
        return parse_error()

    def _accept(self, message: Single, deliver: Deliver) -> None:
        """Start one request, or answer it at once. `deliver` is called exactly once."""
        if isinstance(message, Response):
            deliver(None)
            return
        if isinstance(message, Invalid):
            deliver(encode_error(message.id, message.error))
            return
        entry: InFlight | None = None
        try:
            entry = InFlight(message, Context(self._daemon, self._notify), deliver)
            self._begin(entry)
        except Exception as error:
            answer = answer_for(error, "a request")
            if entry is not None:
                self._settle(entry, encode_error(entry.raw_id, answer))
            else:
                deliver(None if message.id is None else encode_error(message.id, answer))

    def _begin(self, entry: InFlight) -> None:
        request = entry.request
        self._daemon.requests += 1
        if request.method == "exit":
            self.exit_code = 0 if self._daemon.draining else 1
            self._settle(entry, encode_result(entry.raw_id, None))
        elif request.id is None and request.method in CANCEL_METHODS:
            self._cancel(request)
            self._settle(entry, b"")
        elif self._daemon.draining:
            self._settle(entry, encode_error(entry.raw_id, shutting_down()))
        else:
            if self._logs_requests:
                logger.debug("request %.100r", request.method)
            self._in_flight.add(entry)
            entry.worker = self._workers.start(entry)

    # -- answering --------------------------------------------------------------------------

    async def _answer(self, entry: InFlight) -> None:
        if entry.settled:
            # It failed between its start and this moment.
            return
        reply: bytes | None = None
        request = entry.request
        try:
            result = await dispatch(self._methods, entry.context, request.method, request.params)
            if isinstance(result, RpcError):
                reply = encode_error(entry.raw_id, result)
            else:
                reply = encode_result(entry.raw_id, result)
        except Exception as error:
            # The result could not be encoded.
            reply = encode_error(entry.raw_id, answer_for(error, "a request"))
        finally:
            if reply is None:
                # Something has cut it short: the client, or the end of the daemon.
                was_asked = entry.cancellation is not None
                cause = cancelled(entry.context.error_data) if was_asked else shutting_down()
                reply = encode_error(entry.raw_id, cause)
            self._settle(entry, reply)

    def _fail(self, entry: InFlight, error: BaseException) -> None:
        """Settle a request whose task has failed."""
        self._settle(entry, encode_error(entry.raw_id, answer_for(error, "a request")))

    def _settle(self, entry: InFlight, reply: bytes) -> None:
        """Deliver the answer of a request, unless that has been done."""
        if not entry.settled:
            silent = entry.id is None or entry.cancellation is Cancellation.SILENT
            entry.deliver(None if silent else reply)
            entry.settled = True
        entry.context.is_over = True
        # A task that was cancelled keeps the error, whose traceback leads to `entry`.
        entry.worker = None
        self._in_flight.discard(entry)
        self._fewer.set()

    def _cancel(self, request: Request) -> None:
        member, cancellation = CANCEL_METHODS[request.method]
        try:
            named = _cancel_params.decode(request.params).get(member)
        except msgspec.DecodeError:
            return
        key = None if named is None else id_key(bytes(named))
        if key is None:
            return
        for entry in [entry for entry in self._in_flight if entry.key == key]:
            entry.cancellation = cancellation
            entry.context.is_over = True
            entry.stop()

    def _write(self, reply: bytes | None) -> None:
        if reply is not None:
            framing = self._frames.framing or Framing.LINES
            self._output.write(encode_frame(reply, framing))

    def _notify(self, method: str, params: Mapping[str, Any]) -> None:
        """Send a notification, but none to a client that does not even read answers."""
        if self._output.backlog < MAX_BACKLOG_BYTES:
            self._write(encode_request(method, params))

    # -- stopping ---------------------------------------------------------------------------

    async def drain(self, seconds: float) -> None:
        """Wait that long for requests in flight to end by themselves.

        The time is counted in turns, of which a busy machine that does not run this process takes
        one at most: commands have had no time then either, or their ends have not been seen yet.
        """
        for _ in range(math.ceil(seconds / DRAIN_TURN_S)):
            with anyio.move_on_after(DRAIN_TURN_S):
                while self._in_flight:
                    self._fewer = anyio.Event()
                    await self._fewer.wait()
            if not self._in_flight:
                return

    def refuse_in_flight(self) -> None:
        """Answer everything in flight with shutting_down, and cancel it."""
        for entry in list(self._in_flight):
            entry.stop()
            self._settle(entry, encode_error(entry.raw_id, shutting_down()))
