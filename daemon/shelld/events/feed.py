"""Follows one shell for one subscription: the shell's output, its end, and its leftover processes.

Owns the offset up to which each stream was sent. Also owns a pin, which retains the shell until its
events were sent. Never moves the read position that ``bash`` and ``bash_output`` share.

Invariants: the exit event is sent exactly once. After that event, only events about leftover
processes come. An event about a prompt, a port or a screen is sent after all earlier output.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import ExitStack
from functools import partial
from typing import Any, Final

import anyio
from anyio.lowlevel import checkpoint

from shelld.events.entries import FactEntry, OutputEntry, Rows
from shelld.events.subscription import Subscription
from shelld.output.escapes import MAX_SEQUENCE_BYTES, whole_units
from shelld.output.retention import OutputStream, StreamName
from shelld.output.store import StreamStore
from shelld.output.text import Piece, read_text, whole_lines
from shelld.process import faults
from shelld.shells.manager import Manager
from shelld.shells.shell import Shell
from shelld_protocol.event_methods import (
    Event,
    ExitEvent,
    LeftoverEvent,
)

# How long followers may run after a command has ended, for example to see its last screen.
LAST_CHECKS_S: Final = 1.0
# How many bytes of output are sent before other tasks can run. This is two milliseconds of work. If
# a command writes at full speed, the event loop must not only send the output, but also read it.
_TURN_BYTES: Final = 512 * 1024


class Feed:
    """Sends the events of one shell to one subscription.

    The feed itself follows the output. `add_follower` adds other followers, which run at the same
    time.
    """

    def __init__(self, shell: Shell, subscription: Subscription, manager: Manager) -> None:
        self.shell = shell
        self.subscription = subscription
        self._options = subscription.options
        self._pin = ExitStack()
        self._pin.enter_context(manager.reading(shell))
        self._streams: dict[StreamName, OutputStream] = {
            "stdout": shell.stdout,
            "stderr": shell.stderr,
        }
        self._positions = {name: each.read_position for name, each in self._streams.items()}
        # For each stream, the number of bytes skipped since its last event. `_skipped_in_all` is
        # the total number of skipped bytes of both streams.
        self._skipped: dict[StreamName, int] = dict.fromkeys(self._streams, 0)
        self._skipped_in_all = 0
        # The number of bytes that had been written when the output was last sent.
        self._seen = sum(self._positions.values())
        self._sending = anyio.Lock()
        # The leftover processes in the last event about leftover processes. This is None if only
        # the exit event has named leftover processes so far.
        self._told_leftover: list[int] | None = []
        # This is set when the exit event was sent, or can no longer be sent.
        self.end_told = anyio.Event()
        self._is_closed = False
        self._scope: anyio.CancelScope | None = None
        # The cancel scope in which the followers check the shell for a last time after the command
        # has ended.
        self._last_checks: anyio.CancelScope | None = None
        self._followers: list[Callable[[], Awaitable[None]]] = []
        # Whether the command has left processes behind, which no event has named yet. These
        # processes may end before `_send_end` runs.
        self._has_untold_leftover = False
        if "leftover" in self._options.events and "exit" not in self._options.events:
            self.add_follower(self._note_leftover)

    def add_follower(self, run: Callable[[], Awaitable[None]]) -> None:
        """Add a follower, which returns when the shell has ended.

        If the follower raises an exception, it runs again.
        """
        self._followers.append(run)

    async def run(self) -> None:
        """Send events until no more events can follow, or until `close` is called.

        After a failure, another call continues where this call has stopped.
        """
        if self._is_closed:
            return
        with anyio.CancelScope() as self._scope:
            if not self.end_told.is_set():
                async with anyio.create_task_group() as tasks:
                    for run in self._followers:
                        # A failing follower must not delay the output.
                        tasks.start_soon(faults.keep_running, run, "a follower of a shell")
                    await self._follow_output()
                    # The followers also notice that the shell has ended, and one of them may have a
                    # last event to send.
                    checks_s = 0 if self.subscription.is_hurried else LAST_CHECKS_S
                    tasks.cancel_scope.deadline = anyio.current_time() + checks_s
                    self._last_checks = tasks.cancel_scope
                self._send_end()
            if not self._may_tell_leftover:
                self._note_last_event()
            await self.subscription.flush()
            await self._follow_leftover()
            self._note_last_event()
            await self.subscription.flush()
            if self._options.bash_id is not None:
                self.subscription.send_over()
        self.close()

    def hurry(self) -> None:
        """Send the exit event as soon as possible. See `Subscription.hurry`."""
        if self._last_checks is not None:
            self._last_checks.cancel()

    def close(self) -> None:
        """Send no more events."""
        self._is_closed = True
        if self._scope is not None:
            self._scope.cancel()
        self._pin.close()
        self.end_told.set()

    # -- output -----------------------------------------------------------------------------

    @property
    def interval_s(self) -> float:
        """The minimum time between two events of the same kind."""
        return self._options.interval_ms / 1000

    @property
    def _has_ended(self) -> bool:
        # Test `is_empty` as well, because a shell that could not start is empty, and never ends.
        return self.shell.has_ended or self.shell.is_empty

    @property
    def _unsent(self) -> int:
        return sum(each.store.written - self._positions[n] for n, each in self._streams.items())

    async def _follow_output(self) -> None:
        shell = self.shell
        if "output" not in self._options.events:
            await shell.wait_until(lambda: self._has_ended)
            return
        while True:
            await self._wait_for_output()
            has_ended, before = self._has_ended, dict(self._positions)
            await self.send_output(is_last=has_ended)
            if has_ended:
                return
            if self._positions == before:
                # Only a part of a character or a sequence has arrived. Do not wait for the
                # interval, so that the complete character or sequence is sent without delay.
                continue
            with anyio.move_on_after(self.interval_s):
                await shell.wait_until(
                    lambda: self._has_ended or self._unsent >= self._options.max_bytes
                )
            await checkpoint()

    async def _wait_for_output(self) -> None:
        """Wait for new output, for the end of the shell, or until a slow client reads again.

        A client that reads again can learn how much output was skipped.
        """
        shell = self.shell

        def has_news() -> bool:
            return self._has_ended or shell.output.written != self._seen

        if not any(self._skipped.values()) or self.subscription.is_hurried:
            await shell.wait_until(has_news)
            return
        await self.subscription.wait_for_slow_client(shell, has_news)

    async def send_output(self, *, is_last: bool = False) -> None:
        """Send all output that was written so far. If the client is slow, skip this output.

        While a process may still write the rest of an incomplete unit (see `escapes`), this method
        leaves the unit for later. `is_last` says that this is the last call. If the client is slow,
        the last call skips all output, and every other call leaves the newest line for later.
        """
        if "output" not in self._options.events:
            return
        async with self._sending:
            shell = self.shell
            final = shell.output_is_complete
            self._seen = shell.output.written
            for name in self._streams:
                await self._send_stream(name, final=final, is_last=is_last)

    async def _send_stream(self, name: StreamName, *, final: bool, is_last: bool) -> None:
        # Output that arrives during this call is for the next call.
        stop = self._streams[name].store.written
        turn_ends = self._positions[name] + _TURN_BYTES
        # The exit event tells the total amount of skipped output.
        while self._positions[name] < stop or (self._skipped[name] and not is_last):
            if not await self._may_send(stop - self._positions[name]):
                self._skip(name, stop, is_last=is_last)
                return
            if not self._send_from(name, stop, final=final):
                if self._skipped[name] and not is_last:
                    # No complete character or sequence is left, so this event has no text.
                    self._publish_output(
                        name, Piece("", self._positions[name], 0), stop, final=final
                    )
                return
            if self._positions[name] >= turn_ends:
                turn_ends = self._positions[name] + _TURN_BYTES
                await checkpoint()

    async def _may_send(self, size: int) -> bool:
        """Return True if the next `size` bytes of a stream may be sent, and False if they are
        skipped.
        """
        has_room = await self.subscription.wait_for_room()
        return has_room and not (self.subscription.is_hurried and size > self._options.max_bytes)

    def _skip(self, name: StreamName, stop: int, *, is_last: bool) -> None:
        """Skip the output of a stream up to `stop`. If `is_last` is False, keep the newest line."""
        start = self._positions[name]
        end = stop if is_last else _newest_line(self._streams[name].store, start, stop)
        self._positions[name] = end
        self._skipped[name] += end - start
        self._skipped_in_all += end - start

    def _send_from(self, name: StreamName, stop: int, *, final: bool) -> bool:
        """Send the next part of a stream up to `stop`. Return False if this part has no complete
        character or sequence.
        """
        store, start, strip = self._streams[name].store, self._positions[name], self._options.strip
        piece = read_text(store, start, stop, self._options.max_bytes, strip=strip, final=final)
        if piece.end == start:
            return False
        self._publish_output(name, piece, stop, final=final)
        return True

    def _publish_output(self, name: StreamName, piece: Piece, stop: int, *, final: bool) -> None:
        entry = OutputEntry(
            self.shell.id,
            self.shell.session,
            name,
            self._streams[name].store,
            self._positions[name],
            piece.end,
            self._skipped[name],
            self._options.strip,
            stop,
            self._options.max_bytes,
            final,
        )
        make = partial(entry.with_text, text=piece.text, dropped=piece.dropped)
        self.subscription.publish(entry, make)
        self._positions[name], self._skipped[name] = piece.end, 0

    # -- everything else --------------------------------------------------------------------

    async def send_fact(self, method: str, event_type: type[Event], **facts: object) -> None:
        """Send an event, after the output that came before it.

        Do nothing after the exit event.
        """
        await self.send_output()
        if not self.end_told.is_set():
            self._publish(method, event_type, **facts)

    async def send_screen(
        self, facts: Mapping[str, Any], lines: list[str], changed: list[int], since: Rows | None
    ) -> bool:
        """Send the earlier output, and then the rows that have changed.

        Do nothing after the exit event.

        `lines`: the rows that have changed. If the client does not know the screen, `lines` has all
        rows. `changed`: the numbers of the rows in `lines`. `since`: the result of `shown_rows`
        before the screen was captured. If `shown_rows` now returns another result, send no event
        and return False.
        """
        await self.send_output()
        if self.end_told.is_set():
            return True
        # Do not await from here on, because the result of `shown_rows` must not change before the
        # event is published.
        if self.subscription.shown_rows(self.shell) is not since:
            return False
        count = facts["rows"]
        rows = ((since.lines if since is not None else []) + [""] * count)[:count]
        for row, line in zip(changed, lines, strict=True):
            rows[row] = line
        self.subscription.publish_screen(
            self.shell, facts, Rows(facts["version"], rows), lines, changed
        )
        return True

    def _publish(self, method: str, event_type: type[Event], **facts: object) -> None:
        shell = self.shell
        self.subscription.publish(FactEntry(shell.id, shell.session, method, event_type, facts))

    def _send_end(self) -> None:
        shell = self.shell
        leftover = [] if shell.is_empty else list(shell.leftover)
        if "exit" in self._options.events and shell.has_ended:
            sizes = {name: each.store.written for name, each in self._streams.items()}
            if "output" in self._options.events:
                # Leftover processes may have written more output since the last call of
                # `send_output`. Count only output that was sent or skipped.
                sizes = self._positions
            self._publish(
                "shell/exited",
                ExitEvent,
                status=shell.status.value,
                is_running=False,
                exit_code=shell.exit_code,
                signal=shell.signal,
                duration_ms=shell.elapsed_ms,
                leftover=leftover,
                usage=shell.usage.in_milliseconds(),
                stdout_bytes=sizes["stdout"],
                stderr_bytes=sizes["stderr"],
                unread_bytes=shell.stdout.unread_bytes + shell.stderr.unread_bytes,
                skipped=self._skipped_in_all,
                reason=shell.reason,
                spool_error=shell.output.error,
            )
            if not leftover:
                # To a client, this is the last event, even if the shell is not empty yet.
                self._note_last_event()
        if leftover or self._has_untold_leftover:
            # A later event must report which of these processes still run, even if none of them
            # does.
            self._told_leftover = None
        self.end_told.set()

    def _note_last_event(self) -> None:
        """If the subscription covers only this shell, record that no more events can follow.

        If a client continues the subscription, the answer says that the subscription is over, even
        if some events are not sent yet.
        """
        if self._options.bash_id is not None:
            self.subscription.is_over = True

    @property
    def _may_tell_leftover(self) -> bool:
        wants = "leftover" in self._options.events and self.shell.has_ended
        may_change = self._told_leftover != [] or not self.shell.is_empty
        return wants and may_change and not self.subscription.is_over

    async def _note_leftover(self) -> None:
        """Record whether the command has left processes behind, because the answer to its request
        names them.
        """
        shell = self.shell
        await shell.wait_until(lambda: self._has_ended)
        self._has_untold_leftover = bool(shell.leftover) and not shell.is_empty

    async def _follow_leftover(self) -> None:
        shell = self.shell
        while self._may_tell_leftover:
            pids = [] if shell.is_empty else list(shell.leftover)
            # If an event lists no leftover processes, the client takes it as the last event. So do
            # not send such an event before the shell is empty.
            if pids != self._told_leftover and (pids or shell.is_empty):
                if pids and not await self.subscription.wait_for_room():
                    # The list may be long, so wait for the client. The next event includes all
                    # changes that happen during this wait.
                    await self.subscription.wait_for_slow_client(shell, lambda: shell.is_empty)
                    continue
                self._publish("shell/leftover", LeftoverEvent, leftover=pids)
                self._told_leftover = pids

            def has_changed(told: list[int] = pids) -> bool:
                return shell.is_empty or shell.leftover != told

            await shell.wait_until(has_changed)


def _newest_line(store: StreamStore, start: int, stop: int) -> int:
    """Return the offset at which the last line before `stop` begins. If no line end is found,
    return the offset after the last complete character or control sequence.
    """
    # A line end may be inside a control string. Read from far enough back to see where the string
    # begins.
    begin = max(start, stop - 2 * MAX_SEQUENCE_BYTES)
    kept = store.read(begin, stop - begin)
    data = kept.data[: max(0, stop - kept.start)]
    lines = whole_lines(data)
    if begin > start and lines < MAX_SEQUENCE_BYTES:
        lines = 0
    return min(stop, kept.start + (lines or whole_units(data)))
