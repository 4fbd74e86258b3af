"""For `AsyncClient`, reads output that no event contains: output that the events of a command have
skipped, and output from before the subscription.

`gaps.py` has the same code without await, for `Client`. `make sync` makes it from this file.

For each command, owns two offsets, which say how far the reader has received stdout and stderr.
Never moves the position of reads without offsets (`bash_output`). Invariant: in each stream, the
output of an event begins where the output of the previous event ended.
"""

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import Final, Literal, Protocol, TypeAlias, TypeVar

from shelld_client import calls
from shelld_client.calls import Call
from shelld_client.errors import DaemonExited, ShellError, ShellNotFound, ShuttingDown
from shelld_protocol.event_methods import Event, ExitEvent, OutputEvent

T = TypeVar("T")
StreamName: TypeAlias = Literal["stdout", "stderr"]

# The maximum number of bytes of output that one request reads.
_GAP_BYTES: Final = 1024 * 1024
# These errors mean that the output cannot be read any more: the daemon no longer keeps it, or is
# ending, or has ended.
_LOST: Final = (ShellNotFound, ShuttingDown, DaemonExited)


class AsyncRequest(Protocol):
    """Sends a request and returns the result."""

    async def __call__(self, call: Call[T]) -> T: ...


class AsyncOutputReader:
    """Takes the events of one command, and fills `ready` with events that skip no output.

    Together, the events in `ready` have all output of the command, in order. If a call is cancelled
    or raises an exception, repeat the call with the same event. The new call does the remaining
    steps.

    `may_reconnect` says whether the client may reach the daemon again after an error.
    """

    def __init__(
        self,
        request: AsyncRequest,
        may_reconnect: Callable[[ShellError], bool],
        *,
        strip: bool | None,
    ) -> None:
        self.ready: collections.deque[OutputEvent] = collections.deque()
        self._request = request
        self._may_reconnect = may_reconnect
        self._strip = strip
        self._ends: dict[StreamName, int] = {"stdout": 0, "stderr": 0}

    async def take(self, event: OutputEvent) -> None:
        await self._fill(event, event.stream, event.start)
        if event.start < self._ends[event.stream]:
            # The reader already has a part of the event's output, from `catch_up` or from an
            # earlier subscription.
            await self._fill(event, event.stream, event.end)
            return
        self._ends[event.stream] = event.end
        if event.text or event.dropped:
            self.ready.append(event)

    async def catch_up(self, event: Event) -> bool:
        """Read output that was written before this call. Make events with the same ids as `event`.

        Return False if there is more output to read.
        """
        offsets = {f"{name}_offset": end for name, end in self._ends.items()}
        options = {**offsets, "max_bytes": _GAP_BYTES, "strip_ansi": self._strip}
        try:
            read = await self._request(calls.bash_output(event.bash_id, options))
        except _LOST as error:
            if self._may_reconnect(error):
                raise
            return True
        for name, end in self._ends.items():
            part = calls.output_event(event, name, read)
            if part.end > end:
                self._ends[name] = part.end
                self.ready.append(part)
        return not read.more

    async def take_end(self, event: ExitEvent) -> None:
        await self._fill(event, "stdout", event.stdout_bytes)
        await self._fill(event, "stderr", event.stderr_bytes)

    async def _fill(self, event: Event, stream: StreamName, end: int) -> None:
        """Read the skipped output before an event, up to the offset `end`."""
        while (start := self._ends[stream]) < end:
            size = min(_GAP_BYTES, end - start)
            call = calls.output_at(event.bash_id, stream, start, size, strip=self._strip)
            try:
                part = calls.output_event(event, stream, await self._request(call))
            except _LOST as error:
                if self._may_reconnect(error):
                    raise
                part = calls.lost_output(event, stream, start, end)
            kept_from = part.start + part.dropped
            if part.dropped and part.end > end:
                # The read has skipped the lost output, and has returned only output after `end`.
                part = calls.lost_output(event, stream, start, min(kept_from, end))
            if part.end == start:
                # The output ends with an incomplete character. Leftover processes may still write
                # the rest of the character, so no read returns its first bytes yet.
                part = calls.lost_output(event, stream, start, end)
            self._ends[stream] = part.end
            self.ready.append(part)
