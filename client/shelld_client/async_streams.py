"""Defines iterators over the events of shells, for `AsyncClient`.

`streams.py` has the same code without await, for `Client`. `make sync` makes it from this file.

If the caller leaves or drops an iterator, the iterator ends its subscription, or kills its command
and all processes of the command.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Generic, Protocol, Self, TypeVar

import anyio

from shelld_client import calls
from shelld_client.async_gaps import AsyncOutputReader, AsyncRequest
from shelld_client.async_ongoing import AsyncOngoing
from shelld_client.calls import AnyBashResult, Call
from shelld_client.errors import InvalidParams, ShellError, TargetLost
from shelld_client.mailbox import End, Item
from shelld_client.reconnects import Losses
from shelld_protocol.event_methods import (
    Event,
    EventName,
    ExitEvent,
    LeftoverEvent,
    OutputEvent,
    SubscribeResult,
)
from shelld_protocol.shell_methods import BackgroundResult, BashResult

T = TypeVar("T")


class AsyncBegin(Protocol):
    """Sends a request without waiting for the answer."""

    async def __call__(self, call: Call[Any]) -> AsyncOngoing: ...


class AsyncItems(Generic[T]):
    """The base class of all iterators. Only one task or thread at a time runs `_next`."""

    # `__del__` runs even if `__init__` has failed, so the attributes that it reads have defaults in
    # their classes.
    _ongoing: AsyncOngoing | None = None

    def __init__(self, begin: AsyncBegin) -> None:
        self._begin = begin
        # `Client` has a reentrant lock here, so that a signal handler or finaliser does not wait
        # for the code that it has interrupted.
        self._taking = anyio.Lock(fast_acquire=True)
        self._is_taking = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        self._check_taker()
        async with self._taking:
            if self._is_taking:
                # This is a signal handler or finaliser, and the code that it has interrupted may
                # already have taken the next item.
                raise RuntimeError("the iteration was interrupted while it took an item")
            self._is_taking = True
            try:
                return await self._next()
            except BaseException as error:
                self._next_has_failed(error)
                raise
            finally:
                self._is_taking = False

    def _check_taker(self) -> None:
        """Raise RuntimeError if no item can ever reach the caller.

        For example, the caller may run on another event loop.
        """
        # Read the attribute once, because in `Client`, an interrupt may change it between two uses.
        if (ongoing := self._ongoing) is not None:
            ongoing.check_taker()

    async def _answer_to(self, call: Call[Any]) -> bytes:
        """Send a call, and return its answer. `_ongoing` is the request.

        If the connection is lost and the call has a key, repeats the call.
        """
        losses = Losses()
        while True:
            ongoing = await self._begin(call)
            losses.sent()
            lost, self._ongoing = self._ongoing, ongoing
            if lost is not None:
                lost.end()
            try:
                return await ongoing.answer()
            except TargetLost as error:
                if not (ongoing.can_be_repeated(error) and losses.may_repeat()):
                    raise

    async def _next(self) -> T:
        raise NotImplementedError

    def _next_has_failed(self, error: BaseException) -> None:
        """Handle an exception that `_next` has raised: an error, a cancellation or an interrupt."""


class _Iteration(AsyncItems[T]):
    """An iteration. It ends when its `with` block ends, when `end` is called, or when Python
    deletes it.
    """

    _is_over = False

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.end()

    def end(self) -> None:
        """End the iteration and its request.

        Leaving the block also calls this method.
        """
        self._is_over = True
        if self._ongoing is not None:
            self._ongoing.end()

    def __del__(self) -> None:
        self.end()


class AsyncEventStream(_Iteration[Event]):
    """Yields the events of a subscription. Use it with ``async with``, and iterate over it.

    The iteration over the events of a single shell ends with the shell's last event. An iteration
    over several shells goes on until the block ends, or the daemon ends (`DaemonExited`).

    Inside the block, `subscription` is the name of the subscription. To continue the subscription
    later, pass this name to `events` as `subscription`. `seq` is the number of the last event.

    If the connection is lost, and more events happen meanwhile than the daemon keeps, the iteration
    raises `InvalidParams` once. Iterate again for the events that are still kept.
    """

    _subscribed: SubscribeResult | None = None

    def __init__(self, begin: AsyncBegin, options: Mapping[str, Any]) -> None:
        super().__init__(begin)
        self.subscription = ""
        self.seq = 0
        # The number of the last event that this iteration has received. Until the first event
        # arrives, `seq` may be higher, because the daemon may send older events again.
        self._reached = 0
        self._losses = Losses()
        # Which events to yield. None means all events.
        self._wanted: Sequence[EventName] | None = options.get("events")
        self._params = params = dict(options)
        if options.get("subscription") is not None:
            # A continued subscription sends the kinds of events with which it was begun, even those
            # that this caller does not want.
            params.pop("events", None)
        elif self._wanted is None:
            params["events"] = ["exit", "output"]
        elif self._wanted and options.get("bash_id") is not None:
            # The iteration ends with the shell, so it needs the event about the shell's end.
            params["events"] = [*self._wanted, "exit"]

    async def __aenter__(self) -> Self:
        if self._ongoing is not None or self._is_over:
            raise RuntimeError("events can be entered once only")
        call = calls.subscribe(self._params)
        try:
            # A repeated request finds the subscription, if there is one already.
            self._subscribed = result = call.decode(await self._answer_to(call))
        except BaseException:
            self.end()
            raise
        self.subscription, self.seq = result.subscription, result.seq
        from_seq = self._params.get("from_seq")
        if from_seq is not None:
            self._reached = from_seq
        elif self._params.get("idempotency_key") is None:
            self._reached = result.seq
        # If the call has a key, the daemon sends all kept events again. If the subscription is
        # over, the daemon sends only these events.
        self._is_over = result.is_over and self._reached == result.seq
        return self

    def end(self) -> None:
        """End the iteration. Also end the subscription, unless another reader has continued it."""
        if self._ongoing is None or self._subscribed is not None:
            super().end()
            return
        # `__aenter__` was interrupted, but the daemon may still begin the subscription.
        self._is_over = True
        self._ongoing.abandon()

    async def _next(self) -> Event:
        while not self._is_over:
            # If an iteration began before `__aenter__` has returned, it could take the answer that
            # `__aenter__` waits for.
            if self._ongoing is None or self._subscribed is None:
                raise RuntimeError("enter the events with a with block before you iterate")
            try:
                event = await self._ongoing.next_event()
            except ShellError as error:
                is_cut = self._ongoing.can_be_continued(error)
                if not (is_cut and self._losses.may_repeat()):
                    raise
                await self._continue()
                continue
            if event is None:
                break
            self._losses.received()
            self.seq = self._reached = event.seq
            if self._is_last(event):
                self._is_over = True
                self._ongoing.stop_listening()
            if self._wanted is None or calls.EVENT_NAMES[type(event)] in self._wanted:
                return event
        raise StopAsyncIteration

    async def _continue(self) -> None:
        """Continue the subscription on another connection."""
        assert self._ongoing is not None
        self._ongoing.leave_to_next()
        params = {"subscription": self.subscription, "from_seq": self._reached}
        call = calls.subscribe(params)
        ongoing = await self._begin(call)
        self._losses.sent()
        try:
            result = call.decode(await ongoing.answer())
        except BaseException as error:
            # The next call of this method tries again to continue the subscription. If the
            # iteration ends before that, the subscription ends, too.
            ongoing.withdraw()
            if isinstance(error, InvalidParams):
                self._reached = calls.kept_after(error) or self._reached
            if not ongoing.can_be_continued(error):
                raise
            return
        self._ongoing = ongoing
        if self._is_over:
            # While this task or thread waited, another one has ended the iteration.
            ongoing.end()
        elif result.is_over:
            # The last event may have come while the connection was lost.
            self._subscribed = result
            self._is_over = self._reached >= result.seq

    def _is_last(self, event: Event) -> bool:
        subscribed = self._subscribed
        if subscribed is None or subscribed.bash_id is None:
            return False
        if subscribed.is_over:
            return event.seq >= subscribed.seq
        if isinstance(event, ExitEvent):
            return "leftover" not in subscribed.events or not event.leftover
        return isinstance(event, LeftoverEvent) and not event.leftover


class AsyncOutputStream(_Iteration[OutputEvent | BashResult | BackgroundResult]):
    """Yields the output of a command as it comes, and then its result. Iterate over it.

    When the iteration ends, it kills the command, unless the command has ended or moved to the
    background.

    Yields `OutputEvent`, and the result as the last item; the attribute `result` also has the
    result. If the events skip output, the iteration reads the skipped output from the daemon. So
    output is missing only if the daemon no longer keeps it.

    Raises the same errors as `bash`. An error about a command that has run, such as
    `CommandTimedOut`, comes after the output.
    """

    _is_finished = False

    def __init__(
        self,
        begin: AsyncBegin,
        request: AsyncRequest,
        may_reconnect: Callable[[ShellError], bool],
        call: Call[AnyBashResult],
    ) -> None:
        super().__init__(begin)
        self.result: BashResult | BackgroundResult | None = None
        self._call = call
        self._failure: ShellError | None = None
        # Whether the iteration has returned its last item.
        self._is_finished = False
        # Whether the request must be repeated because its connection was lost.
        self._is_lost = False
        self._losses = Losses()
        self._exit: ExitEvent | None = None
        # The name of the subscription to which the last event belongs.
        self._subscription = ""
        strip = call.params.get("strip_ansi")
        self._output = AsyncOutputReader(request, may_reconnect, strip=strip)

    async def __aenter__(self) -> Self:
        return self

    def end(self) -> None:
        """End the iteration.

        Also end the command, unless the iteration has returned its last item.
        """
        self._is_over = True
        # Read the attributes once, because another thread or a signal handler may run this code at
        # the same time.
        ongoing = self._ongoing
        if ongoing is not None and self._is_finished:
            ongoing.end()
        elif ongoing is not None:
            ongoing.abandon()
        # Clear the attribute last. So if an interrupt stops the steps above, another call of `end`
        # repeats them.
        self._ongoing = None

    def _next_has_failed(self, error: BaseException) -> None:
        # An interrupt may have discarded an item, even the last item. So no caller may wait for
        # another item.
        self.end()

    async def _next(self) -> OutputEvent | BashResult | BackgroundResult:
        while True:
            # Another task or thread can end the iteration at any time. It clears `_ongoing` last,
            # so read `_ongoing` first.
            ongoing = self._ongoing
            if self._is_over:
                raise StopAsyncIteration
            if ongoing is None or self._is_lost:
                # A repeated request finds the same command, and gets its events.
                self._ongoing = await self._begin(self._call)
                self._losses.sent()
                self._is_lost = False
                if ongoing is not None:
                    ongoing.end()
                    if self._subscription:
                        # The repeated request has a subscription of its own.
                        self._ongoing.send_only(calls.unsubscribe(self._subscription))
                continue
            if self._output.ready:
                self._losses.received()
                return self._output.ready.popleft()
            if self._is_complete:
                self._is_over = self._is_finished = True
                if self._failure is not None:
                    raise self._failure
                assert self.result is not None
                return self.result
            item = await ongoing.next()
            error = item.error if isinstance(item, End) else item
            if ongoing.can_be_repeated(error) and self._losses.may_repeat():
                self._is_lost = True
            elif not self._is_over:
                await self._take(item)

    @property
    def _is_complete(self) -> bool:
        if self._exit is not None:
            return self._failure is not None or self.result is not None
        # If the command has run, `ExitEvent` follows after all output.
        has_not_run = self._failure is not None and not calls.has_run(self._failure)
        return has_not_run or isinstance(self.result, BackgroundResult)

    async def _take(self, item: Item) -> None:
        if isinstance(item, End):
            raise self._failure or item.why
        if isinstance(item, ShellError):
            self._failure = item
        elif isinstance(item, bytes):
            result = self._call.decode(item)
            assert isinstance(result, BashResult | BackgroundResult)
            self.result = result
        elif isinstance(item, OutputEvent):
            self._subscription = item.subscription
            await self._output.take(item)
        elif isinstance(item, ExitEvent):
            await self._output.take_end(item)
            self._exit = item
