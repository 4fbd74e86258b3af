"""The server: reads, frames and decodes messages, starts a task per request, settles each once.

Owns the set of requests in flight. A request is *accepted* when it enters that set, before the
first await. From then on, exactly one settlement ends it, whatever the cause: a result, an error, a
cancellation, the shutdown, a result that cannot be encoded, or a bug.

If our own code fails on a message or request, the server answers it with an error and goes on (see
`faults`).

One request never delays another, unless `--max-in-flight` requests are in flight. New requests then
wait, but cancellations still arrive. A client that does not read never delays a command: above
MAX_BACKLOG_BYTES of unread answers, the server stops *reading* requests, and nothing else.
"""

from __future__ import annotations

import asyncio
import enum
import math
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

import anyio
import anyio.abc
import anyio.lowlevel
import msgspec

from shelld.eventloop.workers import Worker, Workers, scope_is_cancelled
from shelld.methods.context import Daemon, LargeAnswers, RequestContext
from shelld.process import faults
from shelld.process.faults import answer_for
from shelld.process.logs import Log, write_without_waiting
from shelld.server.dispatch import Method, dispatch
from shelld.server.stdio import Input, Output
from shelld_protocol.encoding import decode
from shelld_protocol.errors import (
    RpcError,
    cancelled,
    message_too_large,
    parse_error,
    resource_exhausted,
    shutting_down,
)
from shelld_protocol.event_methods import Event
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
    id_at_start,
    id_key,
)
from shelld_protocol.params import decode_params
from shelld_protocol.structs import NoParams

logger = Log("shelld.serve")

# With more unread answers than this, the server reads no more requests.
MAX_BACKLOG_BYTES: Final = 8 * 1024 * 1024

# Once a batch has collected answers of this size, the answers of its other members must be small.
MAX_BATCH_BYTES: Final = 64 * 1024 * 1024

# If the code that reads requests fails, it tries again after a pause. The server gives the stream
# up after a few faults in a row, but only after many shortages: a shortage may last a minute.
READ_PAUSE_S: Final = 0.1
MAX_READ_FAULTS: Final = 3
MAX_READ_SHORTAGES: Final = 600

# How often to check whether a client that does not read its answers has closed its end.
HANG_UP_CHECK_S: Final = 0.25

# How many messages and members of batches start in a row before other tasks get a turn.
MAX_STARTED_IN_A_ROW: Final = 256

# How many requests may wait while `--max-in-flight` others run, and how many bytes their params may
# have together.
MAX_WAITING: Final = 20_000
MAX_WAITING_BYTES: Final = 16 * 1024 * 1024

# The length of one turn of `Server.drain`.
DRAIN_TURN_S: Final = 0.02

# How long after the grace period the server answers a cancelled request that does not end. Giving
# up on a command that survives SIGKILL takes up to 1.5 s more than the grace period.
CANCEL_MARGIN_S: Final = 2.0


class Cancellation(enum.Enum):
    """Whether a cancelled request gets an answer."""

    ANSWERED = enum.auto()
    SILENT = enum.auto()


# The cancellations of LSP, ACP and MCP: the param that names the request, and `Cancellation`.
CANCEL_METHODS: Final[Mapping[str, tuple[str, Cancellation]]] = {
    "$/cancelRequest": ("id", Cancellation.ANSWERED),
    "$/cancel_request": ("requestId", Cancellation.ANSWERED),
    "notifications/cancelled": ("requestId", Cancellation.SILENT),
}

# The methods that may start a command. Only a request for one of these has a command to wait for.
_STARTING_METHODS: Final = frozenset({"bash", "call_tool", "tools/call"})

_cancel_params: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])

# Delivers an answer, or None for "no answer". If it raises, it has written nothing.
Deliver = Callable[[bytes | None], None]


class InFlight:
    """A request between its acceptance and its one settlement."""

    __slots__ = (
        "cancellation",
        "context",
        "deliver",
        "key",
        "overdue",
        "raw_id",
        "request",
        "settled",
        "worker",
    )

    def __init__(self, request: Request, context: RequestContext, deliver: Deliver) -> None:
        self.request = request
        # The id of the answer, as JSON text.
        self.raw_id = NULL_ID if request.id is None else request.id
        self.key: IdKey | None = None if request.id is None else id_key(request.id)
        self.context = context
        self.deliver = deliver
        self.worker: Worker[InFlight] | None = None
        self.cancellation: Cancellation | None = None
        # A timer that the cancellation starts. It settles the request if the request's task does
        # not end.
        self.overdue: asyncio.TimerHandle | None = None
        self.settled = False

    def stop(self) -> None:
        """Cancel the request's task. This settles the request, unless it is settled already."""
        if self.worker is not None:
            self.worker.cancel()


class BatchReply:
    """Collects the answers to the members of a batch, and delivers them as one.

    `ids` holds each member's id as JSON text, or None if the member gets no answer.
    """

    def __init__(self, ids: list[bytes | None], deliver: Deliver) -> None:
        self._ids = ids
        self._deliver = deliver
        self._replies: dict[int, bytes | None] = {}
        self._bytes = 0

    def has_room(self) -> bool:
        """Whether another member may make a large answer.

        The batch holds all answers until the last one comes.
        """
        return self._bytes < MAX_BATCH_BYTES

    def take(self, position: int, reply: bytes | None) -> None:
        """Take the answer to the member at `position`."""
        self._replies[position] = reply
        self._bytes += len(reply or b"")
        while len(self._replies) == len(self._ids):
            answers = [answer for _, answer in sorted(self._replies.items()) if answer is not None]
            try:
                self._deliver(encode_batch(answers) if answers else None)
            except MemoryError as error:
                # Nothing was written. Joining needs as much memory as the answers themselves.
                if not self._shorten(answer_for(error, "a batch")):
                    raise
            else:
                return

    def _shorten(self, shortage: RpcError) -> bool:
        """Replace the largest answers by `shortage`, to save at least a quarter of all bytes.

        Returns False if no answer is longer than its replacement.
        """

        def size(position: int) -> int:
            return len(self._replies[position] or b"")

        total = left = sum(map(size, self._replies))
        for position in sorted(self._replies, key=size, reverse=True):
            shorter = encode_error(self._ids[position] or NULL_ID, shortage)
            if left <= total * 3 // 4 or len(shorter) >= size(position):
                break
            left -= size(position) - len(shorter)
            self._replies[position] = shorter
        return left < total


class Server:
    """Serves one client. `exit_code` is None until the client sends `exit`.

    `read_failure` says why the stream of requests was given up, although it has not ended.
    """

    def __init__(
        self,
        daemon: Daemon,
        methods: Mapping[str, Method],
        source: Input,
        output: Output,
        tasks: anyio.abc.TaskGroup,
        *,
        hint: str = "",
    ) -> None:
        """`hint` goes to stderr after a message that is not a request: perhaps a person types."""
        self.exit_code: int | None = None
        self.read_failure: str | None = None
        self._daemon = daemon
        self._methods = methods
        self._source = source
        self._output = output
        self._hint = hint.encode()
        self._workers = Workers(tasks, self._run, self._fail)
        self._large_answers = LargeAnswers(self._wait_for_room)
        self._frames = FrameReader(daemon.options.max_message_bytes)
        # Bytes read but not framed yet; b"" is the end of file.
        self._received: bytes | None = None
        # Failed reads in a row, and how many of them had a cause other than a shortage.
        self._read_failures = self._read_faults = 0
        # Members of a batch that have not started yet.
        self._members: deque[tuple[Single, Deliver, BatchReply]] = deque()
        # Whether the end of the stream was read, and whether it is known to follow what is unread.
        self._at_end = self._is_hung_up = False
        self._in_flight: set[InFlight] = set()
        # The requests in flight by id, for cancellations. A client may use an id several times.
        self._by_id: dict[IdKey, set[InFlight]] = {}
        # Requests in flight that start once others have ended, with the size of their params.
        self._waiting: OrderedDict[InFlight, int] = OrderedDict()
        self._waiting_bytes = 0
        self._is_starting = False
        self._fewer = anyio.Event()

    # -- reading ----------------------------------------------------------------------------

    async def read_requests(self) -> None:
        """Start a task for every request, until the stream ends or `exit` arrives.

        Sets `read_failure` if it gives the stream up.
        """
        try:
            while not self._is_over:
                try:
                    if self._read_failures:
                        await faults.pause(READ_PAUSE_S)
                    await self._read()
                except Exception as error:
                    self._note_failed_read(error)
        finally:
            self._workers.close()

    def _note_failed_read(self, error: Exception) -> None:
        is_fault = not faults.is_shortage(error)
        if not self._read_failures or (is_fault and not self._read_faults):
            faults.report("the reader of requests")
        self._read_failures += 1
        self._read_faults += is_fault
        if self._read_faults >= MAX_READ_FAULTS:
            self.read_failure = "an unexpected error"
        elif self._read_failures >= MAX_READ_SHORTAGES:
            self.read_failure = "the system is short of memory or another resource"

    async def _read(self) -> None:
        # Process the bytes that a failed attempt has read.
        self._frame_received()
        while not (self._is_over or self._start_requests()):
            await self._wait_to_read()
        if self._at_end:
            self._read_failures = self._read_faults = 0
        if not self._is_over:
            await self._source.watch(self._receive)

    @property
    def _is_over(self) -> bool:
        return (
            # After a failed attempt, some requests may not have started.
            (self._at_end and not self._read_failures)
            or self.read_failure is not None
            or self.exit_code is not None
            or self._output.is_broken
        )

    def _receive(self) -> bool:
        """Read, and start the requests that have arrived. Return True to stop reading for now."""
        self._received = self._source.read()
        self._frame_received()
        has_room = self._start_requests()
        self._read_failures = self._read_faults = 0
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
        """Start the requests that have arrived. Return False if there is no room for all."""
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
                self._write(encode_error(self._id_of(event), answer_for(error, "a message")))
        return True

    @property
    def _has_room(self) -> bool:
        """Whether to take another message: only if the client reads its answers."""
        # If the client is gone, there is no reason to wait.
        is_ending = self._at_end or self._is_hung_up
        return is_ending or self._output.backlog < MAX_BACKLOG_BYTES

    async def _wait_to_read(self) -> None:
        """Wait until there is room, or until the client has closed its end of the stream.

        In the second case, little is left to read, and the daemon must see the end of file.
        """
        while True:
            with anyio.move_on_after(HANG_UP_CHECK_S):
                await self._wait_for_room()
                return
            if self._source.is_hung_up():
                self._is_hung_up = True
                return

    async def _wait_for_room(self) -> None:
        """Let other tasks run, and wait until the client has read enough answers."""
        await anyio.lowlevel.checkpoint()
        if self._output.backlog >= MAX_BACKLOG_BYTES:
            await self._output.wait_empty()

    def _take(self, event: bytes | FrameError) -> None:
        if isinstance(event, FrameError):
            self._write(encode_error(self._id_of(event), self._frame_error(event)))
            return
        message = decode_message(event)
        if isinstance(message, Batch):
            ids = [getattr(member, "id", None) for member in message.members]
            batch = BatchReply(ids, self._write)
            for position, member in enumerate(message.members):
                self._members.append((member, partial(batch.take, position), batch))
        else:
            self._accept(message, self._write)

    def _id_of(self, event: bytes | FrameError) -> bytes:
        """Return the id at the start of a message, as JSON text; null if there is none."""
        if event is FrameError.NO_MEMORY:
            event = self._frames.refused_head
        return id_at_start(event) if isinstance(event, bytes) else NULL_ID

    def _frame_error(self, event: FrameError) -> RpcError:
        if event is FrameError.TOO_LARGE:
            return message_too_large(self._daemon.options.max_message_bytes)
        if event is FrameError.NO_MEMORY:
            return resource_exhausted("memory", event.value)
        return parse_error()

    def _accept(self, message: Single, deliver: Deliver, batch: BatchReply | None = None) -> None:
        """Start one request, or answer it at once. `deliver` is called exactly once."""
        entry: InFlight | None = None
        try:
            if isinstance(message, Response):
                deliver(None)
            elif isinstance(message, Invalid):
                deliver(encode_error(message.id, message.error))
                if self._hint:
                    write_without_waiting(2, self._hint)
            else:
                context = RequestContext(
                    self._daemon,
                    self._notify,
                    large_answers=self._large_answers,
                    is_notification=message.id is None,
                    request_id=message.id,
                    find_requests=self._contexts_of,
                    recipient=self,
                )
                if batch is not None:
                    context.has_room = batch.has_room
                entry = InFlight(message, context, deliver)
                self._begin(entry)
        except Exception as error:
            if entry is not None:
                self._fail(entry, error)
                return
            answer, raw_id = answer_for(error, "a request"), getattr(message, "id", None)
            deliver(None if raw_id is None else encode_error(raw_id, answer))

    def _begin(self, entry: InFlight) -> None:
        request = entry.request
        self._daemon.requests += 1
        logger.debug("request %.100r", request.method)
        if request.method == "exit":
            self.exit_code = 0 if self._daemon.draining else 1
            self._settle(entry, encode_result(entry.raw_id, None))
        elif request.id is None and request.method in CANCEL_METHODS:
            self._cancel(request)
            self._settle(entry, b"")
        elif self._daemon.draining:
            self._settle(entry, encode_error(entry.raw_id, shutting_down()))
        elif request.method == "shutdown":
            # Not in a task: `shutdown` must take effect before the next message.
            decode_params(NoParams, request.params)
            self._daemon.draining = True
            self._settle(entry, encode_result(entry.raw_id, None))
        elif (
            len(self._in_flight) >= self._daemon.options.max_in_flight
            # In the queue, `background` would wait for the very call that it should move to the
            # background.
            and request.method != "background"
        ):
            self._put_off(entry)
        else:
            self._enter(entry)
            entry.worker = self._workers.start(entry)

    def _enter(self, entry: InFlight) -> None:
        self._in_flight.add(entry)
        if entry.key is not None:
            self._by_id.setdefault(entry.key, set()).add(entry)

    def _put_off(self, entry: InFlight) -> None:
        """Let a request wait until others have ended. The server still reads cancellations."""
        size = len(entry.request.params)
        if len(self._waiting) >= MAX_WAITING or self._waiting_bytes + size > MAX_WAITING_BYTES:
            limit = self._daemon.options.max_in_flight
            message = f"Too many requests wait for {limit} others"
            answer = resource_exhausted("max_in_flight", message)
            self._settle(entry, encode_error(entry.raw_id, answer))
            return
        self._enter(entry)
        self._waiting[entry] = size
        self._waiting_bytes += size

    def _start_waiting(self) -> None:
        # Settling a request that cannot start calls this method again.
        if self._is_starting:
            return
        self._is_starting = True
        limit = self._daemon.options.max_in_flight
        try:
            while self._waiting and len(self._in_flight) - len(self._waiting) < limit:
                entry, size = self._waiting.popitem(last=False)
                self._waiting_bytes -= size
                try:
                    entry.worker = self._workers.start(entry)
                except Exception as error:
                    self._fail(entry, error)
        finally:
            self._is_starting = False

    # -- answering --------------------------------------------------------------------------

    async def _run(self, entry: InFlight) -> None:
        if entry.settled:
            # The task has failed before it got here.
            return
        try:
            await self._answer(entry)
        finally:
            entry.context.end_large_answer()

    async def _answer(self, entry: InFlight) -> None:
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
        except anyio.get_cancelled_exc_class():
            # If no scope is cancelled, the request has cancelled itself, which is a failure.
            if scope_is_cancelled():
                if entry.cancellation is None:
                    self._settle(entry, _answer_at_stop(entry))
                else:
                    cause = cancelled(entry.context.error_data)
                    self._settle(entry, encode_error(entry.raw_id, cause))
            raise
        self._settle(entry, reply)

    def _fail(self, entry: InFlight, error: BaseException) -> None:
        """Settle a request whose task has failed."""
        self._settle(entry, encode_error(entry.raw_id, answer_for(error, "a request")))

    def _settle(self, entry: InFlight, reply: bytes) -> None:
        """Deliver the answer to a request, unless the request is settled already."""
        if not entry.settled:
            silent = entry.request.id is None or entry.cancellation is Cancellation.SILENT
            entry.deliver(None if silent else reply)
            entry.settled = True
        entry.context.end()
        # Break a reference cycle: a cancelled task keeps the error, whose traceback refers to
        # `entry`.
        entry.worker = None
        if entry.overdue is not None:
            entry.overdue.cancel()
            entry.overdue = None
        self._in_flight.discard(entry)
        if entry.key is not None and (namesakes := self._by_id.get(entry.key)) is not None:
            namesakes.discard(entry)
            if not namesakes:
                del self._by_id[entry.key]
        self._fewer.set()
        if self._waiting:
            self._waiting_bytes -= self._waiting.pop(entry, 0)
            self._start_waiting()

    def _cancel(self, request: Request) -> None:
        member, cancellation = CANCEL_METHODS[request.method]
        try:
            named = decode(request.params, _cancel_params).get(member)
        except msgspec.DecodeError:
            return
        key = None if named is None else id_key(bytes(named))
        if key is None:
            return
        for entry in tuple(self._by_id.get(key, ())):
            entry.cancellation = cancellation
            entry.context.end()
            entry.stop()
            if entry in self._waiting:
                answer = cancelled(entry.context.error_data)
                self._settle(entry, encode_error(entry.raw_id, answer))
            elif entry.overdue is None and not entry.settled:
                patience = self._daemon.options.grace / 1000 + CANCEL_MARGIN_S
                loop = asyncio.get_running_loop()
                entry.overdue = loop.call_later(patience, self._give_up, entry)
        # Only the first cancellation counts. If this method fails before this line, the client can
        # cancel again.
        self._by_id.pop(key, None)

    def _contexts_of(self, request_id: int | str) -> list[RequestContext]:
        """Return the contexts of the requests with this id.

        Leaves out requests that have not begun, and those whose methods start no command.
        """
        key = id_key(msgspec.json.encode(request_id))
        entries = () if key is None else self._by_id.get(key, ())
        return [
            each.context
            for each in entries
            if each.request.method in _STARTING_METHODS and each not in self._waiting
        ]

    def _give_up(self, entry: InFlight) -> None:
        """Answer a cancelled request that does not end: a tool may ignore its cancellation."""
        logger.warning("a request goes on although it is cancelled: %.100r", entry.request.method)
        try:
            self._settle(entry, encode_error(entry.raw_id, cancelled(entry.context.error_data)))
        except Exception as error:
            self._fail(entry, error)

    def _write(self, reply: bytes | None) -> None:
        if reply is not None:
            framing = self._frames.framing or Framing.LINES
            self._output.write(encode_frame(reply, framing))

    def _notify(self, method: str, params: Mapping[str, Any]) -> bool:
        """Send a notification, or skip it if the client has too much unread output.

        Returns False if it was skipped and can be sent later, True if it was sent or the output is
        broken.
        """
        if self._output.backlog >= MAX_BACKLOG_BYTES:
            return self._output.is_broken
        self._write(encode_request(method, params))
        return True

    # -- events -----------------------------------------------------------------------------

    @property
    def backlog(self) -> int:
        """How many bytes wait for the client to read them."""
        return self._output.backlog

    def send(self, method: str, params: Event) -> None:
        """Send an event, now or once the client reads. Raises MemoryError."""
        self._write(encode_request(method, params))

    async def wait_until_read(self) -> None:
        """Wait until the client has read everything, or is gone."""
        await self._output.wait_empty()

    # -- stopping ---------------------------------------------------------------------------

    async def drain(self, seconds: float) -> None:
        """Wait at most `seconds` for requests in flight to end by themselves.

        Counts turns instead of looking at the clock. If a busy machine does not run this process
        for a while, that time counts as one turn at most. Meanwhile, the commands did not run
        either, or the daemon could not see them end.
        """
        for _ in range(math.ceil(seconds / DRAIN_TURN_S)):
            with anyio.move_on_after(DRAIN_TURN_S):
                while self._in_flight:
                    self._fewer = anyio.Event()
                    await self._fewer.wait()
            if not self._in_flight:
                return

    def leave_commands(self) -> None:
        """Move the foreground commands of requests in flight to the background, or kill them.

        Their requests are then answered. All other requests end with `drop_in_flight`.
        """
        for entry in list(self._in_flight):
            if entry.context.ends_with_client:
                entry.cancellation = Cancellation.ANSWERED
                entry.stop()
            else:
                entry.context.leave_command()

    def drop_in_flight(self) -> None:
        """Answer every request in flight as cancelled, and cancel it. No left command ends."""
        self._refuse_in_flight(_answer_to_dropped)

    def tell_of_detachment(self) -> None:
        """Tell the client that another one has taken its place, unless it has sent nothing yet."""
        if self._frames.framing is not None:
            self._write(encode_request("shell/detached", {}))

    def refuse_in_flight(self) -> None:
        """Answer and cancel every request in flight. Most get the error shutting_down."""
        self._refuse_in_flight(_answer_at_stop)

    def _refuse_in_flight(self, answer: Callable[[InFlight], bytes]) -> None:
        while self._members:
            # The daemon is draining, so it refuses these.
            self._accept(*self._members.popleft())
        self._waiting.clear()
        for entry in list(self._in_flight):
            try:
                entry.stop()
                self._settle(entry, answer(entry))
            except Exception as error:
                self._fail(entry, error)


def _answer_to_dropped(entry: InFlight) -> bytes:
    """Return the answer to a request whose client is lost."""
    return encode_error(entry.raw_id, cancelled())


def _answer_at_stop(entry: InFlight) -> bytes:
    """Return the answer to a request that the stop of the daemon ends."""
    result, shell = entry.context.result_at_stop, entry.context.command
    if result is None:
        # With the id, the client knows that output and the exit may follow.
        return encode_error(entry.raw_id, shutting_down(None if shell is None else shell.id))
    return encode_result(entry.raw_id, result)
