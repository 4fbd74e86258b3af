"""The requests in flight. Some run, and the others wait until a running request has ended.

Owns the table of these requests. Never runs or answers a request, which is the task of `Server`.

Invariants: a request is in the table from its acceptance to its settlement. A waiting request takes
memory only for its params, and the size of all these params is bounded.
"""

from __future__ import annotations

import asyncio
import enum
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Final

import anyio

from shelld.eventloop.workers import Worker
from shelld.methods.context import RequestContext
from shelld.server.batch_reply import Deliver
from shelld_protocol.jsonrpc import NULL_ID, IdKey, Request, id_key

# If `--max-in-flight` requests run, further requests wait. These are the maximum number of waiting
# requests, and the maximum total size of their params.
MAX_WAITING: Final = 20_000
MAX_WAITING_BYTES: Final = 16 * 1024 * 1024


class Cancellation(enum.Enum):
    """Says whether a cancelled request gets an answer."""

    ANSWERED = enum.auto()
    SILENT = enum.auto()


# Maps each method that cancels a request in LSP, ACP or MCP to two values: the param that names the
# request, and a `Cancellation`.
CANCEL_METHODS: Final[Mapping[str, tuple[str, Cancellation]]] = {
    "$/cancelRequest": ("id", Cancellation.ANSWERED),
    "$/cancel_request": ("requestId", Cancellation.ANSWERED),
    "notifications/cancelled": ("requestId", Cancellation.SILENT),
}


class InFlight:
    """A request that was accepted and is not settled yet. It is settled once."""

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
        # A timer that the cancellation starts. The timer settles the request if the request's task
        # does not end.
        self.overdue: asyncio.TimerHandle | None = None
        self.settled = False

    def stop(self) -> None:
        """Cancel the request's task. This settles the request if it is not settled yet."""
        if self.worker is not None:
            self.worker.cancel()


class RequestTable:
    """The table of requests in flight. `limit`: how many requests can run at a time."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._entries: set[InFlight] = set()
        # The requests by id, for cancellations. A client may use an id several times.
        self._by_id: dict[IdKey, set[InFlight]] = {}
        # The requests that wait, with the size of their params.
        self._waiting: OrderedDict[InFlight, int] = OrderedDict()
        self._waiting_bytes = 0
        self._fewer = anyio.Event()

    def __len__(self) -> int:
        return len(self._entries)

    def all(self) -> Sequence[InFlight]:
        """Return the requests, in any order."""
        return tuple(self._entries)

    def with_id(self, key: IdKey) -> Sequence[InFlight]:
        return tuple(self._by_id.get(key, ()))

    def enter(self, entry: InFlight) -> None:
        self._entries.add(entry)
        if entry.key is not None:
            self._by_id.setdefault(entry.key, set()).add(entry)

    def leave(self, entry: InFlight) -> None:
        """Remove a request, if it is there."""
        self._entries.discard(entry)
        if entry.key is not None and (namesakes := self._by_id.get(entry.key)) is not None:
            namesakes.discard(entry)
            if not namesakes:
                del self._by_id[entry.key]
        self._fewer.set()
        if self._waiting:
            self._waiting_bytes -= self._waiting.pop(entry, 0)

    def forget_id(self, key: IdKey) -> None:
        """Forget the id `key`, so that `with_id` no longer finds its requests.

        The requests stay in the table.
        """
        self._by_id.pop(key, None)

    async def wait_until_empty(self) -> None:
        while self._entries:
            self._fewer = anyio.Event()
            await self._fewer.wait()

    # -- waiting ----------------------------------------------------------------------------

    @property
    def is_full(self) -> bool:
        """True if a new request must wait."""
        return len(self._entries) >= self._limit

    @property
    def has_waiting(self) -> bool:
        return bool(self._waiting)

    def is_waiting(self, entry: InFlight) -> bool:
        return entry in self._waiting

    def put_off(self, entry: InFlight) -> bool:
        """Add a request to the table. This request must wait. Return False if too many requests
        wait already.
        """
        size = len(entry.request.params)
        if len(self._waiting) >= MAX_WAITING or self._waiting_bytes + size > MAX_WAITING_BYTES:
            return False
        self.enter(entry)
        self._waiting[entry] = size
        self._waiting_bytes += size
        return True

    def next_to_start(self) -> InFlight | None:
        """Return the oldest waiting request if it may run now, and None otherwise.

        The request then counts as running.
        """
        if not self._waiting or len(self._entries) - len(self._waiting) >= self._limit:
            return None
        entry, size = self._waiting.popitem(last=False)
        self._waiting_bytes -= size
        return entry

    def take_out_of_turn(self, entry: InFlight) -> None:
        """Let a waiting request run now, even if too many others run."""
        self._waiting_bytes -= self._waiting.pop(entry)

    def start_no_more(self) -> None:
        """Do not start the waiting requests any more. They stay in the table."""
        self._waiting.clear()
        self._waiting_bytes = 0
