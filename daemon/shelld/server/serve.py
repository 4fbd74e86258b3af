"""The server.

It takes the messages of one client, starts a task for each request, and settles each request once.

A request is *accepted* when it enters the table of requests in flight, before the first await. From
then on, exactly one settlement ends the request. The cause may be a result, an error, a
cancellation, the shutdown, a result that cannot be encoded, or a bug.

If our own code fails on a message or request, the server answers it with an error and goes on (see
`faults`).

One request never delays another, unless `--max-in-flight` requests are in flight. New requests then
wait, but cancellations still arrive. A client that does not read never delays a command. If more
than MAX_BACKLOG_BYTES of answers are unread, the server stops only *reading* requests.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

import anyio
import anyio.abc
import anyio.lowlevel
import msgspec

from shelld.eventloop.workers import Workers, scope_is_cancelled
from shelld.methods.context import Daemon, LargeAnswers, RequestContext
from shelld.process.faults import answer_for
from shelld.process.logs import Log, write_without_waiting
from shelld.server.batch_reply import BatchReply, Deliver
from shelld.server.dispatch import Method, dispatch
from shelld.server.in_flight import CANCEL_METHODS, Cancellation, InFlight, RequestTable
from shelld.server.request_reader import RequestReader
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
from shelld_protocol.event_methods import Event, SubscriptionOver
from shelld_protocol.framing import NEED_DATA, FrameError, FrameReader, Framing, encode_frame
from shelld_protocol.jsonrpc import (
    NULL_ID,
    Batch,
    Invalid,
    Request,
    Response,
    Single,
    decode_message,
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

# After the server has started this many messages and batch members, other tasks can run.
MAX_STARTED_IN_A_ROW: Final = 256

# `Server.drain` waits in steps of this length.
DRAIN_TURN_S: Final = 0.02

# If a cancelled request does not end, the server answers it this long after the grace period. If a
# command survives SIGKILL, the daemon gives up at most 1.5 s after the grace period.
CANCEL_MARGIN_S: Final = 2.0

# The pause before another attempt to answer, if there was no memory even for an error.
RETRY_S: Final = 0.1


# The methods that may start a command. Only a request for one of these methods can have a command.
_STARTING_METHODS: Final = frozenset({"bash", "call_tool", "tools/call"})

_cancel_params: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])


class Server:
    """Serves one client. `exit_code` is None until the client sends `exit`."""

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
        """If a message is not a request, the server writes `hint` to stderr, for a person who
        types.
        """
        self.exit_code: int | None = None
        self._daemon = daemon
        self._methods = methods
        self._output = output
        self._hint = hint.encode()
        self._workers = Workers(tasks, self._run, self._fail)
        self._large_answers = LargeAnswers(self._wait_for_room)
        self._frames = FrameReader(daemon.options.max_message_bytes)
        self._reader = RequestReader(
            source,
            self._frames,
            start=self._start_requests,
            wait_for_room=self._wait_for_room,
            wants_no_more=self._wants_no_more,
        )
        # Contains each member of a batch until the member starts.
        self._members: deque[tuple[Single, Deliver, BatchReply]] = deque()
        self._requests = RequestTable(daemon.options.max_in_flight)
        self._is_starting = False

    # -- reading ----------------------------------------------------------------------------

    @property
    def read_failure(self) -> str | None:
        """The reason why the server stopped reading requests before the end of the stream, or
        None.
        """
        return self._reader.failure

    async def read_requests(self) -> None:
        """Start a task for every request, until the stream ends or `exit` arrives.

        If the server gives up reading the stream, `read_failure` has the reason.
        """
        try:
            await self._reader.run()
        finally:
            self._workers.close()

    def _wants_no_more(self) -> bool:
        return self.exit_code is not None or self._output.is_broken

    def _start_requests(self) -> bool:
        """Start the requests that have arrived. Return False if there is no room for all."""
        started = 0
        while self.exit_code is None or self._members:
            if not self._has_room or (started == MAX_STARTED_IN_A_ROW and not self._reader.at_end):
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
                self._refuse(event, error)
        return True

    @property
    def _has_room(self) -> bool:
        """True if the server may take another message, because few answers are unread."""
        # If the client is gone, there is no reason to wait.
        return self._reader.is_ending or self._output.backlog < MAX_BACKLOG_BYTES

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
            try:
                for position, member in enumerate(message.members):
                    self._members.append((member, partial(batch.take, position), batch))
            except BaseException:
                # One error answers the whole batch, so none of its members may run.
                self._members.clear()
                raise
        else:
            self._accept(message, self._write)

    def _refuse(self, event: bytes | FrameError, error: Exception) -> None:
        """Answer a message that the server could not take.

        If there is no memory for the answer, try again later.
        """
        answer, event = answer_for(error, "a message"), self._kept_part(event)
        try:
            self._write(encode_error(self._id_of(event), answer))
        except MemoryError:
            _retry(partial(self._refuse, event, answer))

    def _kept_part(self, event: bytes | FrameError) -> bytes | FrameError:
        """If `event` is NO_MEMORY or NO_HEADER, `frames` has kept the beginning of the message.
        Return this beginning. Otherwise, return `event`. Call this before the next message is
        framed.
        """
        is_refused = event in (FrameError.NO_MEMORY, FrameError.NO_HEADER)
        return self._frames.refused_head if is_refused else event

    def _id_of(self, event: bytes | FrameError) -> bytes:
        """Return the id at the start of a message, as JSON text. Return null if there is no id."""
        event = self._kept_part(event)
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
            self._fail_at_once(message, deliver, error)

    def _fail_at_once(self, message: Single, deliver: Deliver, error: Exception) -> None:
        """Answer a message that is not a request in flight.

        If there is no memory for the answer, try again later.
        """
        answer, raw_id = answer_for(error, "a request"), getattr(message, "id", None)
        try:
            deliver(None if raw_id is None else encode_error(raw_id, answer))
        except MemoryError:
            _retry(partial(self._fail_at_once, message, deliver, answer))

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
            # Handle this request here, not in a task, because `shutdown` must take effect before
            # the next message.
            decode_params(NoParams, request.params)
            self._daemon.draining = True
            self._settle(entry, encode_result(entry.raw_id, None))
        elif (
            self._requests.is_full
            # If `background` had to wait, it would wait for the call that it should move to the
            # background.
            and request.method != "background"
        ):
            self._put_off(entry)
        else:
            self._requests.enter(entry)
            entry.worker = self._workers.start(entry)

    def _put_off(self, entry: InFlight) -> None:
        """Let a request wait until running requests have ended. The server still reads
        cancellations.
        """
        if not self._requests.put_off(entry):
            limit = self._daemon.options.max_in_flight
            message = f"Too many requests wait for {limit} others"
            answer = resource_exhausted("max_in_flight", message)
            self._settle(entry, encode_error(entry.raw_id, answer))

    def _start_waiting(self) -> None:
        # If a request cannot start, its settlement calls this method again.
        if self._is_starting:
            return
        self._is_starting = True
        try:
            while (entry := self._requests.next_to_start()) is not None:
                self._start(entry)
        finally:
            self._is_starting = False

    def _start(self, entry: InFlight) -> None:
        """Start a request that has waited."""
        try:
            entry.worker = self._workers.start(entry)
        except Exception as error:
            self._fail(entry, error)

    # -- answering --------------------------------------------------------------------------

    async def _run(self, entry: InFlight) -> None:
        if entry.settled:
            # The task failed before it reached this line, and the request already has its answer.
            return
        is_silent = entry.cancellation is Cancellation.SILENT
        if is_silent and entry.request.method not in _STARTING_METHODS:
            # The cancellation came before this task began. Do not begin the request, because a
            # method may do its work before its first await. If `subscribe` did its work, for
            # example, the client would never learn of the new subscription. But a request for a
            # method in `_STARTING_METHODS` may repeat an earlier call that has started a command.
            # Let such a request begin, so that the cancellation ends the command.
            self._settle(entry, encode_error(entry.raw_id, cancelled()))
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
        """Settle a request that has failed.

        If there is no memory for the answer, try again later.
        """
        try:
            entry.context.end_large_answer()
        finally:
            answer = answer_for(error, "a request")
            try:
                self._settle(entry, encode_error(entry.raw_id, answer))
            except MemoryError:
                _retry(partial(self._fail, entry, answer))

    def _settle(self, entry: InFlight, reply: bytes) -> None:
        """Deliver the answer to a request, unless the request is settled already."""
        if not entry.settled:
            silent = entry.request.id is None or entry.cancellation is Cancellation.SILENT
            entry.deliver(None if silent else reply)
            entry.settled = True
        entry.context.end()
        # Break a reference cycle, because a cancelled task keeps the error, whose traceback refers
        # to `entry`.
        entry.worker = None
        if entry.overdue is not None:
            entry.overdue.cancel()
            entry.overdue = None
        self._requests.leave(entry)
        if self._requests.has_waiting:
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
        for entry in self._requests.with_id(key):
            entry.cancellation = cancellation
            entry.context.end()
            entry.stop()
            if self._requests.is_waiting(entry) and entry.request.method == "bash":
                # Begin this request out of turn. If the request repeats a call whose command runs,
                # the cancellation ends this command. Otherwise, the request ends before it starts a
                # command.
                self._requests.take_out_of_turn(entry)
                self._start(entry)
                entry.stop()
            if self._requests.is_waiting(entry):
                answer = cancelled(entry.context.error_data)
                self._settle(entry, encode_error(entry.raw_id, answer))
            elif entry.overdue is None and not entry.settled:
                patience = self._daemon.options.grace / 1000 + CANCEL_MARGIN_S
                loop = asyncio.get_running_loop()
                entry.overdue = loop.call_later(patience, self._give_up, entry)
        # Only the first cancellation counts. If this method fails before this line, the client can
        # cancel again.
        self._requests.forget_id(key)

    def _contexts_of(self, request_id: int | str) -> list[RequestContext]:
        """Return the contexts of the requests with this id.

        Leaves out requests that have not begun, and requests for methods that start no command.
        """
        key = id_key(msgspec.json.encode(request_id))
        entries = () if key is None else self._requests.with_id(key)
        return [
            each.context
            for each in entries
            if each.request.method in _STARTING_METHODS and not self._requests.is_waiting(each)
        ]

    def _give_up(self, entry: InFlight) -> None:
        """Answer a cancelled request that does not end. A tool may ignore its cancellation."""
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

        Returns False if the notification was skipped and can be sent later. Returns True if it was
        sent, or if the output is broken.
        """
        if self._output.backlog >= MAX_BACKLOG_BYTES:
            return self._output.is_broken
        self._write(encode_request(method, params))
        return True

    # -- events -----------------------------------------------------------------------------

    @property
    def backlog(self) -> int:
        """The number of bytes that wait for the client to read them; 0 if the client is gone."""
        return 0 if self._output.is_broken else self._output.backlog

    def send(self, method: str, params: Event | SubscriptionOver) -> None:
        """Send an event now, or later when the client reads. Raises MemoryError."""
        self._write(encode_request(method, params))

    async def wait_until_read(self) -> None:
        """Wait until the client has read all answers and events, or is gone."""
        await self._output.wait_empty()

    async def wait_below(self, size: int) -> None:
        """Wait until the backlog is below `size`. All calls must give the same `size`."""
        await self._output.wait_below(size)

    # -- stopping ---------------------------------------------------------------------------

    async def drain(self, seconds: float, cut_short: anyio.Event | None = None) -> None:
        """Wait until all requests in flight have ended by themselves, but at most `seconds`. Stop
        waiting when `cut_short` is set.

        Counts steps of `DRAIN_TURN_S` instead of comparing clock times. If a busy machine does not
        run this process for a while, that time counts as one step at most. During that time, the
        commands did not run either, or the daemon could not see that they had ended.
        """
        for _ in range(math.ceil(seconds / DRAIN_TURN_S)):
            with anyio.move_on_after(DRAIN_TURN_S):
                await self._requests.wait_until_empty()
            if not self._requests or (cut_short is not None and cut_short.is_set()):
                return

    def leave_commands(self) -> None:
        """Move the foreground commands of requests in flight to the background, or kill them.

        The requests of these commands then get their answers. All other requests end with
        `drop_in_flight`.
        """
        for entry in self._requests.all():
            if entry.context.ends_with_client:
                entry.cancellation = Cancellation.ANSWERED
                entry.stop()
            else:
                entry.context.leave_command()

    def drop_in_flight(self) -> None:
        """Answer every request in flight as cancelled, and cancel its task.

        Commands in the background go on.
        """
        self._refuse_in_flight(_answer_to_dropped)

    def tell_of_detachment(self) -> None:
        """Tell the client that another client has taken its place.

        Do nothing if the client has sent no message.
        """
        if self._frames.framing is not None:
            self._write(encode_request("shell/detached", {}))

    def refuse_in_flight(self) -> None:
        """Answer and cancel every request in flight.

        Most of these requests get the error shutting_down.
        """
        self._refuse_in_flight(_answer_at_stop)

    def _refuse_in_flight(self, answer: Callable[[InFlight], bytes]) -> None:
        while self._members:
            # These members of batches have not started. The daemon is draining, so `_accept`
            # refuses them.
            self._accept(*self._members.popleft())
        self._requests.start_no_more()
        for entry in self._requests.all():
            try:
                entry.stop()
                self._settle(entry, answer(entry))
            except Exception as error:
                self._fail(entry, error)


def _retry(attempt: Callable[[], None]) -> None:
    """Call `attempt` when there may be memory again.

    The server never cancels the attempt. After the end of the server, an answer has no effect.
    """
    asyncio.get_running_loop().call_later(RETRY_S, attempt)


def _answer_to_dropped(entry: InFlight) -> bytes:
    """Return the answer to a request whose client is lost."""
    return encode_error(entry.raw_id, cancelled())


def _answer_at_stop(entry: InFlight) -> bytes:
    """Return the answer to a request that ends because the daemon stops."""
    result, shell = entry.context.result_at_stop, entry.context.command
    if result is None:
        # Add the id of the shell, so that the client knows that output and the exit may follow.
        bash_id = None if shell is None else shell.id
        return encode_error(entry.raw_id, shutting_down(bash_id, entry.context.subscription))
    return encode_result(entry.raw_id, result)
