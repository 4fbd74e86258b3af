"""One subscription. It numbers its events, keeps them, and sends them in order.

Owns the journal, and the number of the last event that was sent. Never reads from a shell by
itself.

Invariants:

* Each event that a client receives has the number of the event before it, plus one. A client that
  continues the subscription names a number, and gets the events after this number again. If the
  client then does not read while 10,000 events follow, it loses the oldest events. Events that list
  many ports or processes count as several events.
* While `MAX_QUEUED_BYTES` or more bytes wait for the client to read them, no events about output,
  screens, ports and leftover processes are sent, except the last event of a shell. All other events
  are sent, whether the client reads or not. So a client that does not read costs little memory, and
  delays no command.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Final, Protocol
from weakref import WeakKeyDictionary, WeakSet

import anyio
from anyio.lowlevel import checkpoint
from msgspec import Struct

from shelld.events.entries import Entry, Header, Rows, ScreenEntry
from shelld.events.journal import Journal
from shelld.process import faults
from shelld.shells.shell import Shell
from shelld_protocol.event_methods import (
    JOURNAL_EVENTS,
    OVER_NOTIFICATION,
    Event,
    EventName,
    SubscriptionOver,
)

# If this number of bytes waits for the client, no output is sent.
MAX_QUEUED_BYTES: Final = 1024 * 1024
# How long output waits for the client to read. After this time, the output is skipped. A client
# that reads 4 MiB/s loses nothing.
PATIENCE_S: Final = 0.25
# How many events of the journal are sent before other tasks can run.
_REPLAYED_IN_A_ROW: Final = 16
# The pause after a failed attempt to send an event, if memory is short.
_SHORTAGE_PAUSE_S: Final = 0.1


class Recipient(Protocol):
    """The part of a client that a subscription uses."""

    @property
    def backlog(self) -> int:
        """The number of bytes that wait for the client to read them."""
        ...

    def send(self, method: str, params: Event | SubscriptionOver) -> None:
        """Send a notification now, or later when the client reads. Raises MemoryError."""
        ...

    async def wait_until_read(self) -> None:
        """Wait until the client has read all events, or is gone."""
        ...

    async def wait_below(self, size: int) -> None:
        """Wait until the backlog is below `size`. All calls must give the same `size`."""
        ...


class _Nobody:
    """Takes the place of the recipient while the daemon has no client."""

    backlog = 0

    def send(self, method: str, params: Event | SubscriptionOver) -> None:
        pass

    async def wait_until_read(self) -> None:
        pass

    async def wait_below(self, size: int) -> None:
        pass


NOBODY: Final = _Nobody()


class SubscriptionOptions(Struct, frozen=True):
    """The options of a subscription, which say what it covers.

    Without `bash_id` and `session`, it covers all shells.

    `bash_id` is empty if the shell has not started yet.
    """

    bash_id: str | None
    session: str | None
    events: frozenset[EventName]
    interval_ms: int
    max_bytes: int
    strip: bool

    def includes(self, shell: Shell) -> bool:
        """Return whether the subscription covers a shell that starts now."""
        if self.bash_id is not None:
            return self.bash_id == shell.id
        return self.session is None or self.session == shell.session


class Subscription:
    """One subscription. `start_task` starts a task, and restarts the task if it raises an error."""

    def __init__(
        self,
        name: str,
        options: SubscriptionOptions,
        recipient: Recipient,
        request_id: Any,
        start_task: Callable[[Callable[[], Any]], None],
    ) -> None:
        self.name = name
        # The idempotency key of the request that has begun the subscription.
        self.key: str | None = None
        # True if no more events can follow.
        self.is_over = False
        self.options = options
        self._recipient = recipient
        self._request_id = request_id
        # Whether the subscription was still going on when the current client continued it.
        self._must_tell_over = False
        self._start_task = start_task
        # The last published rows of each screen. They are kept until the shell is forgotten.
        self._screens: WeakKeyDictionary[Shell, Rows] = WeakKeyDictionary()
        # The current recipient knows the screen rows of these shells, because events have told it
        # the rows.
        self._shown: WeakSet[Shell] = WeakSet()
        self._journal: Journal[Entry] = Journal(JOURNAL_EVENTS)
        self._sent = 0
        # A task sets this event when it has sent all events of the journal. None if there is no
        # such task.
        self._replayed: anyio.Event | None = None
        self._is_slow = False
        self._is_closed = False
        self.is_hurried = False
        # The cancel scopes of tasks that hold output back until the client reads. `hurry` cancels
        # them.
        self._patient: set[anyio.CancelScope] = set()

    @property
    def seq(self) -> int:
        """The number of the last event."""
        return self._journal.newest

    @property
    def has_no_client(self) -> bool:
        """True if the client is gone, and no other client has continued the subscription."""
        return self._recipient is NOBODY

    @property
    def available(self) -> tuple[int, int]:
        """The lowest and the highest number after which a client can continue."""
        return self._journal.oldest - 1, self._journal.newest

    @property
    def weight(self) -> int:
        """The weight of the events that the journal keeps. A usual event has the weight 1."""
        return self._journal.weight

    def close(self) -> None:
        """Send no more events."""
        self._is_closed = True

    # -- room -------------------------------------------------------------------------------

    async def wait_for_slow_client(self, shell: Shell, is_enough: Callable[[], bool]) -> None:
        """Wait until the client can take more output, however long that takes.

        The wait also ends once `is_enough`, a condition on the shell, returns True.
        """
        async with anyio.create_task_group() as tasks:

            async def wait_for_client() -> None:
                # Do not poll the client, because thousands of feeds may wait.
                await self._recipient.wait_below(MAX_QUEUED_BYTES)
                tasks.cancel_scope.cancel()

            tasks.start_soon(wait_for_client)
            await shell.wait_until(is_enough)
            tasks.cancel_scope.cancel()

    async def wait_for_room(self) -> bool:
        """Wait until the client can take more output, unless the client is known to be slow. Return
        whether the client can take more output.
        """
        while True:
            has_room = await self._wait_until_read()
            if self._replayed is None:
                return has_room
            # This wait is short, because the replay does not wait for a slow client.
            await self._replayed.wait()

    async def _wait_until_read(self) -> bool:
        is_patient = not (self._is_slow or self.is_hurried)
        if self._recipient.backlog >= MAX_QUEUED_BYTES and is_patient:
            with anyio.move_on_after(PATIENCE_S) as wait:
                self._patient.add(wait)
                try:
                    await self._recipient.wait_until_read()
                finally:
                    self._patient.discard(wait)
        # Until there is room again, later output is skipped without a wait. Otherwise, the exit
        # event of a shell would be delayed.
        self._is_slow = self._recipient.backlog >= MAX_QUEUED_BYTES
        return not self._is_slow

    def hurry(self) -> None:
        """From now on, do not wait for the client."""
        self.is_hurried = True
        for wait in self._patient:
            wait.cancel()

    # -- screens ----------------------------------------------------------------------------

    def shown_rows(self, shell: Shell) -> Rows | None:
        """Return the rows of a screen that the client knows; None if it knows no rows."""
        return self._screens.get(shell) if shell in self._shown else None

    def publish_screen(
        self,
        shell: Shell,
        facts: Mapping[str, Any],
        rows: Rows,
        lines: list[str],
        changed: list[int],
    ) -> None:
        """Publish a change of a screen. `rows`: all rows after the change."""
        entry = ScreenEntry(shell, facts, self._screens)
        self.publish(entry, partial(entry.with_changes, lines=lines, changed=changed))
        # If the entry is sent again later, it uses these rows.
        self._screens[shell] = rows
        self._shown.add(shell)

    # -- sending ----------------------------------------------------------------------------

    def publish(self, entry: Entry, make: Callable[[Header], Event] | None = None) -> None:
        """Number an event, keep it and send it.

        `make` makes the same event as `entry.event`, but faster. Raises MemoryError if there is no
        memory to keep the event.
        """
        if self._is_closed:
            return
        seq = self._journal.add(entry)
        if self._replayed is None and self._sent == seq - 1:
            try:
                self._send(seq, entry, make or entry.event)
            except Exception as error:
                faults.answer_for(error, "an event")
        if self._sent < seq:
            # The event has a number now, so it must be sent before any later event.
            with suppress(MemoryError):
                self._replay_later()

    async def flush(self) -> None:
        """Wait until each event was sent, or was left out because the client is slow."""
        while self._sent < self._journal.newest and not self._is_closed:
            if self._replayed is not None:
                await self._replayed.wait()
                continue
            try:
                self._replay_later()
            except MemoryError as error:
                faults.answer_for(error, "an event")
                await faults.pause(_SHORTAGE_PAUSE_S)

    def continue_after(self, seq: int, recipient: Recipient, request_id: Any) -> None:
        """Send all events after `seq` again. `seq` must be in the `available` range."""
        self._recipient, self._request_id = recipient, request_id
        # If the subscription is over, the answer to the client says so.
        self._must_tell_over = not self.is_over
        # The new recipient may not know the screens, so the next change of each screen has all
        # rows.
        self._shown.clear()
        self._sent = seq
        if seq < self._journal.newest:
            self._replay_later()

    def send_over(self) -> None:
        """Tell a client that no more events follow, unless an event has told the client this
        already.

        A client that begins a subscription can ask for the event `exit`, which also means that no
        more events follow. A client that continues a subscription cannot ask for other kinds of
        events. Raises MemoryError.
        """
        if self._must_tell_over and "exit" not in self.options.events and not self._is_closed:
            over = SubscriptionOver(subscription=self.name, request_id=self._request_id)
            self._recipient.send(OVER_NOTIFICATION, over)

    def lose_client(self) -> None:
        """Keep the events for a client that continues the subscription."""
        self._recipient, self._is_slow = NOBODY, False

    def _send(self, seq: int, entry: Entry, make: Callable[[Header], Event]) -> None:
        header = Header(self.name, seq, entry.bash_id, entry.session, self._request_id)
        self._recipient.send(entry.method, make(header))
        self._sent = seq

    def _replay_later(self) -> None:
        """Start a task that sends the unsent events. Raises MemoryError."""
        if self._replayed is None:
            replayed = anyio.Event()
            self._start_task(self._replay)
            self._replayed = replayed

    async def _replay(self) -> None:
        """Send the unsent events of the journal."""
        count = 0
        while True:
            has_room = await self._wait_until_read()
            # The subscription may have been closed or continued during the wait.
            if self._is_closed or self._sent >= self._journal.newest:
                break
            # If a client does not read while 10,000 events follow, it loses the oldest events.
            seq = max(self._sent + 1, self._journal.oldest)
            entry = self._journal.get(seq)
            try:
                self._send(seq, entry, entry.event if has_room else entry.for_slow_client)
            except MemoryError as error:
                faults.answer_for(error, "an event")
                await faults.pause(_SHORTAGE_PAUSE_S)
            except Exception:
                # If sending an event fails, the event must not delay later events for ever.
                faults.report("an event")
                self._send(seq, entry, entry.for_slow_client)
            count += 1
            if count % _REPLAYED_IN_A_ROW == 0:
                await checkpoint()
        if self._replayed is not None:
            self._replayed.set()
            self._replayed = None
