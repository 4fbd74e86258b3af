"""Represents a command in the background as an object, for `AsyncClient`.

`jobs.py` has the same code without await, for `Client`. `make sync` makes it from this file.

Owns the command from its start until the ``async with`` block ends. For each reader of the job,
also owns the offsets up to which this reader has received the output. Never moves the position of
reads without offsets, so a job takes no output from other readers of the shell. Invariant: a call
that raises or is cancelled consumes no output.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Final, Self, Unpack, overload

from shelld_client import calls
from shelld_client.async_gaps import AsyncOutputReader, AsyncRequest
from shelld_client.async_mailbox import AsyncMailbox
from shelld_client.async_ongoing import AsyncOngoing
from shelld_client.async_streams import AsyncBegin, AsyncItems
from shelld_client.call_options import KillOptions, ReadOptions, ScreenOptions, TypingOptions
from shelld_client.calls import AnyBashResult, Call
from shelld_client.errors import (
    JobEnded,
    ProtocolError,
    ShellError,
    WaitTimedOut,
    how_it_ended,
)
from shelld_client.mailbox import End
from shelld_client.reconnects import Losses
from shelld_protocol.event_methods import Event, EventName, ExitEvent, OutputEvent
from shelld_protocol.input_methods import ResizeShellResult
from shelld_protocol.screen_methods import ReadScreenResult
from shelld_protocol.shell_methods import BackgroundResult, BashOutputResult, KillShellResult
from shelld_protocol.structs import MAX_WAIT_MS, Listener, Matched

_EVENTS: Final[tuple[EventName, ...]] = ("output", "prompt", "exit")

# The maximum number of bytes of each stream in the answer to a call that waits. If the condition is
# not met, the exception contains this output.
_SHOWN_BYTES: Final = 64 * 1024


def _background_result(call: Call[AnyBashResult], answer: bytes) -> BackgroundResult:
    result = call.decode(answer)
    if not isinstance(result, BackgroundResult):
        raise ProtocolError("the peer's result is not a valid BackgroundResult")
    return result


class AsyncJob(AsyncItems[Event]):
    """A command in the background.

    When the block ends, the command and all its processes are killed.

    Use it with ``async with``. Iterating over the job yields its events: all its output from the
    beginning, its prompts, and finally `ExitEvent`. The iteration, `output` and `wait_for` each
    have a position of their own. So each of these three gets all output, whatever the other two and
    `bash_output` have read.

    Long after the command has ended, the daemon forgets it; the methods then raise `ShellNotFound`.
    """

    # `_ongoing` is the request that has started the command. `_listening` is the request that has
    # subscribed to its events, for the iteration.
    _listening: AsyncOngoing | None = None
    _is_killed = False

    def __init__(
        self,
        begin: AsyncBegin,
        request: AsyncRequest,
        finish: AsyncRequest,
        may_reconnect: Callable[[ShellError], bool],
        call: Call[AnyBashResult],
    ) -> None:
        """Create a job that has not started.

        `finish` sends a request, and no cancellation interrupts it. It may raise TimeoutError.
        """
        super().__init__(begin)
        self._request = request
        self._finish = finish
        self._call = call
        self._started: BackgroundResult | None = None
        self._is_over = False
        strip = call.params.get("strip_ansi")
        self._output = AsyncOutputReader(request, may_reconnect, strip=strip)
        # An event that was received but not yet returned. Some output before it was skipped, and
        # must be read first.
        self._event: Event | None = None
        # While the iteration still reads output that is older than the subscription, this is an
        # event that stands for the beginning of the subscription. Otherwise None.
        self._beginning: Event | None = None
        # The params of the subscription, or None before it begins. `from_seq` is the number of the
        # last event that was received, so the same call continues the subscription after a lost
        # connection.
        self._subscribed: dict[str, Any] | None = None
        # Whether events may be missing for some of the output: for output from before the
        # subscription, or for output whose events the daemon has not kept.
        self._must_catch_up = True
        self._losses = Losses()
        # The offsets in stdout and stderr from which `output` reads and `wait_for` searches.
        self._unread = (0, 0)
        self._unsearched = (0, 0)
        # Maps each stream to the offset at which its last match ended.
        self._matched_to: dict[str, int] = {}

    @property
    def started(self) -> BackgroundResult:
        """The result of the request that started the job. Raises RuntimeError if the block has not
        been entered.
        """
        if self._started is None:
            raise RuntimeError("the job has not started: use it with a with block")
        return self._started

    @property
    def id(self) -> str:
        """The `bash_id` of the job's shell."""
        return self.started.bash_id

    @property
    def pid(self) -> int | None:
        """The pid of the job's bash.

        None if the daemon does not know the pid (see `BackgroundResult`).
        """
        return self.started.pid

    async def __aenter__(self) -> Self:
        if self._ongoing is not None:
            raise RuntimeError("a job can be started once only")
        try:
            self._started = _background_result(self._call, await self._answer_to(self._call))
        except BaseException:
            self._end()
            raise
        return self

    def _end(self) -> None:
        """End the job without waiting, even if it has not started."""
        if self._listening is not None:
            self._listening.end()
        if self._ongoing is not None and self._is_killed:
            self._ongoing.end()
        elif self._ongoing is not None:
            self._ongoing.abandon()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._is_over = True
        try:
            await self._finish(calls.kill_shell(self.id, {}))
            self._is_killed = True
        except (ShellError, TimeoutError):
            # If the daemon has ended, the command has ended as well. After a timeout, the request
            # is already sent, and the daemon executes it although nobody waits for the answer. But
            # if the connection was lost, no request was sent. In this case, `_end` arranges that
            # the client kills the command once it has reconnected.
            self._is_killed = not self._is_cut
        finally:
            self._end()

    @property
    def _is_cut(self) -> bool:
        """Tells whether the connection was lost and the client may reconnect."""
        return self._ongoing is not None and self._ongoing.is_cut

    def __del__(self) -> None:
        self._end()

    # -- reading and waiting ----------------------------------------------------------------

    async def output(self, **options: Unpack[ReadOptions]) -> BashOutputResult:
        """Return the output since the last call of `output`, as `bash_output` does.

        Two calls at the same time may return the same output.
        """
        result = await self._request(self._read(self._unread, options))
        self._unread = _later(self._unread, _ends_of(result))
        return result

    async def wait(self, timeout: float | None = None) -> BashOutputResult:
        """Wait until the command has ended, and return how it has ended.

        Also return the output that `output` would return. The next call of `output` returns the
        same output. Raises `WaitTimedOut` after `timeout` seconds (None: never); the command goes
        on.
        """

        def call(wait: int) -> Call[BashOutputResult]:
            return self._read(self._unread, {"until": "exit", "wait": wait})

        result = await self._wait(call, _give_up_at(timeout))
        if result.is_running:
            raise WaitTimedOut(f"the command did not end within {timeout:g} s", result)
        return result

    @overload
    async def wait_for(self, *, port: int, timeout: float | None = None) -> Listener: ...

    @overload
    async def wait_for(
        self, text: str | None = None, *, pattern: str | None = None, timeout: float | None = None
    ) -> Matched: ...

    async def wait_for(
        self,
        text: str | None = None,
        *,
        pattern: str | None = None,
        port: int | None = None,
        timeout: float | None = None,
    ) -> Matched | Listener:
        """Wait until a line contains `text` or matches `pattern`, or the command listens on `port`.

        Give exactly one of `text`, `pattern` and `port`. `pattern` is an RE2 pattern; port 0 stands
        for any TCP port. Each call searches the output after the last match; the first call
        searches from the beginning. An unfinished line can match as well. Returns the line as
        `Matched`, or the port as `Listener`.

        Raises `WaitTimedOut` after `timeout` seconds (None: never), and `JobEnded` if the command
        ends first. Both exceptions contain the output since the last match.
        """
        if (text, pattern, port).count(None) != 2:
            raise TypeError("wait_for needs a text, a pattern or a port, and only one of them")
        condition: dict[str, Any]
        if port is not None:
            condition = {"until": "listening", "port": port or None}
            deed = f"listen on port {port}" if port else "listen on a port"
        else:
            if text is not None:
                pattern = calls.literal(text)
            condition = {"until": "match", "pattern": pattern}
            deed = f"write {text or pattern!r}"

        def call(wait: int) -> Call[BashOutputResult]:
            limits = {"wait": wait, "max_bytes": _SHOWN_BYTES}
            return self._read(self._unsearched, {**condition, **limits})

        give_up_at = _give_up_at(timeout)
        while True:
            result = await self._wait(call, give_up_at)
            if (found := result.matched) is None:
                break
            end = found.end
            is_rest = found.start == end == self._matched_to.get(found.stream)
            if is_rest:
                # The match is empty, and is at the end of the line that contained the previous
                # match. Search again after the end of this line.
                text = result.stdout if found.stream == "stdout" else result.stderr
                end += 2 if text.startswith("\r\n") else 1
            ends = (end, 0) if found.stream == "stdout" else (0, end)
            self._unsearched = _later(self._unsearched, ends)
            self._matched_to[found.stream] = found.end
            if not is_rest:
                return found
        if result.listening:
            return result.listening[0]
        if not result.is_running:
            how = how_it_ended(result)
            raise JobEnded(f"the command ended with {how} and did not {deed}", result)
        raise WaitTimedOut(f"the command did not {deed} within {timeout:g} s", result)

    def _read(self, start: tuple[int, int], options: Any) -> Call[BashOutputResult]:
        strip = self._call.params.get("strip_ansi")
        offsets = {"stdout_offset": start[0], "stderr_offset": start[1]}
        return calls.bash_output(self.id, {"strip_ansi": strip, **options, **offsets})

    async def _wait(
        self, call: Callable[[int], Call[BashOutputResult]], give_up_at: float
    ) -> BashOutputResult:
        """Repeat a call until its condition is met or the time is up. During each call, the daemon
        waits.
        """
        while True:
            left_ms = max(0.0, give_up_at - time.monotonic()) * 1000
            wait = math.ceil(min(left_ms, MAX_WAIT_MS))
            result = await self._request(call(wait))
            if result.reached is not None or not result.is_running or left_ms <= wait:
                return result

    # -- acting -----------------------------------------------------------------------------

    async def write(self, text: str | None = None, **options: Unpack[TypingOptions]) -> None:
        """Write to the terminal or the open stdin of the command, as `write_stdin` does.

        Reads nothing. Raises `StdinClosed` if the command has ended or takes no input.
        """
        stdout, stderr = self._unread
        nowhere = {"stdout_offset": stdout, "stderr_offset": stderr, "max_bytes": 1}
        await self._request(calls.write_stdin(self.id, text, {**options, **nowhere}))

    async def resize(self, rows: int, cols: int) -> ResizeShellResult:
        """Change the size of the job's terminal. Raises `NotPossible` if it has no terminal."""
        return await self._request(calls.resize_shell(self.id, rows, cols))

    async def screen(self, **options: Unpack[ScreenOptions]) -> ReadScreenResult:
        """Return the screen of the job's terminal, as a person would see it.

        Raises the errors of `read_screen`.
        """
        return await self._request(calls.read_screen(self.id, options))

    async def kill(self, **options: Unpack[KillOptions]) -> KillShellResult:
        """Kill the command and every process it started. Does nothing if it has ended."""
        return await self._request(calls.kill_shell(self.id, options))

    # -- events -----------------------------------------------------------------------------

    async def _next(self) -> Event:
        while not self._is_over:
            if self._output.ready:
                return self._output.ready.popleft()
            if self._listening is None:
                # Subscribe only when the iteration begins. Otherwise, events would pile up for a
                # job over which nobody iterates.
                self._listening = await self._listen()
            if self._beginning is not None:
                # A subscription leaves out output that a read without offsets has returned. So
                # first read all older output by offset.
                if await self._output.catch_up(self._beginning):
                    self._beginning = None
                continue
            if self._event is None:
                self._event = await self._receive(self._listening)
            if (event := self._event) is None:
                continue
            if isinstance(event, OutputEvent):
                await self._output.take(event)
                self._event = None
                continue
            if isinstance(event, ExitEvent):
                await self._output.take_end(event)
                if self._output.ready:
                    continue
                self._is_over = True
                self._listening.stop_listening()
            self._event = None
            return event
        raise StopAsyncIteration

    async def _listen(self) -> AsyncOngoing:
        """Subscribe to the events of the job, or continue the subscription.

        Another subscription would send the current prompt again.
        """
        if self._subscribed is None:
            strip = self._call.params.get("strip_ansi")
            options = {"bash_id": self.id, "events": _EVENTS, "strip_ansi": strip}
            self._subscribed = dict(calls.repeatable(options))
        listening = await self._begin(calls.subscribe(self._subscribed))
        self._losses.sent()
        return listening

    async def _receive(self, ongoing: AsyncOngoing) -> Event | None:
        """Return the next event, or None if there is none yet."""
        item = await ongoing.next()
        error = item.error if isinstance(item, End) else item
        if ongoing.can_be_continued(error):
            ongoing.leave_to_next()
            self._listening = None
            if not self._losses.may_repeat():
                assert isinstance(error, ShellError)
                raise error
            return None
        assert self._subscribed is not None
        if isinstance(item, ShellError):
            # The job has no subscription now, so `_next` subscribes again.
            self._listening = None
            kept_after = calls.kept_after(item)
            if kept_after in (None, self._subscribed["from_seq"]):
                # If the number is the same as before, every further attempt fails with the same
                # error.
                raise item
            # The daemon no longer keeps some of the events after the last received one. But the
            # output in these events can be read.
            self._subscribed["from_seq"] = kept_after
            self._must_catch_up = True
            return None
        if isinstance(item, End):
            if not self._is_over:
                raise item.why
            return None
        if not isinstance(item, Event):
            if self._must_catch_up:
                self._beginning = calls.beginning(self._call, item)
            return None
        self._losses.received()
        self._must_catch_up = False
        self._subscribed["from_seq"] = item.seq
        return item

    def _next_has_failed(self, error: BaseException) -> None:
        listening = self._listening
        if not AsyncMailbox.MAY_LOSE_ITEMS or self._is_over:
            return
        if listening is None and isinstance(error, ShellError):
            # Nobody was listening, so no event is lost.
            return
        # An interrupt may have discarded an event. A new subscription of this job gets this event
        # again.
        self._listening = self._event = self._beginning = self._subscribed = None
        self._must_catch_up = True
        if listening is not None:
            listening.end()


def _give_up_at(timeout: float | None) -> float:
    """Return the time (of time.monotonic()) at which to give up.

    Raises TypeError or ValueError if `timeout` is not a number.
    """
    if timeout is not None and math.isnan(timeout):
        raise ValueError("timeout must be a number of seconds, not NaN")
    return time.monotonic() + (math.inf if timeout is None else timeout)


def _ends_of(result: BashOutputResult) -> tuple[int, int]:
    return result.stdout_range.end, result.stderr_range.end


def _later(one: tuple[int, int], other: tuple[int, int]) -> tuple[int, int]:
    return max(one[0], other[0]), max(one[1], other[1])
