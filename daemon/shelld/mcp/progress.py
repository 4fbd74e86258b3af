"""``notifications/progress``: what a client hears while a call takes long.

Hosts give up on a call that is silent for a minute, and people wonder sooner. So whoever has sent
a token is told about twice a second for how long the call has run, and the last line that its
command has written.

One task reports for all calls, and only while there are some: a task for each would be a good part
of what a short command takes.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import anyio

from shelld.methods.context import RequestContext
from shelld.output.excerpt import last_line
from shelld.output.store import StreamStore
from shelld_protocol.errors import invalid_params
from shelld_protocol.mcp import PROGRESS_TOKEN_KEY

# One report a second is promised. Each is due half a second after the one before, and comes at the
# first look after that, which leaves room for a machine that is busy.
INTERVAL_S: Final = 0.5
LOOK_S: Final = 0.2

MAX_MESSAGE_CHARACTERS: Final = 200

Token = str | int | float


class ProgressReports:
    """Of all calls of a client that want them. `run` makes them, until cancelled."""

    def __init__(self) -> None:
        self._calls: set[_Call] = set()
        self._wanted = anyio.Event()

    async def run(self) -> None:
        while True:
            await self._wanted.wait()
            while self._calls:
                await anyio.sleep(LOOK_S)
                for call in tuple(self._calls):
                    call.report_if_due()
            self._wanted = anyio.Event()

    @contextmanager
    def of(self, context: RequestContext, meta: Mapping[str, Any] | None) -> Generator[None]:
        """Report while the block runs, if `meta` has a token. Raises `RpcError`."""
        token = None if meta is None else meta.get(PROGRESS_TOKEN_KEY)
        if token is None:
            yield
            return
        if isinstance(token, bool) or not isinstance(token, str | int | float):
            name = f"_meta.{PROGRESS_TOKEN_KEY}"
            raise invalid_params(f"Invalid type for {name}: expected string", name)
        call = _Call(context, token)
        self._calls.add(call)
        self._wanted.set()
        try:
            yield
        finally:
            self._calls.discard(call)


class _Call:
    def __init__(self, context: RequestContext, token: Token) -> None:
        self._context = context
        self._token = token
        self._began = self._last = anyio.current_time()
        self._line = ""
        # Of each stream, how much was written when it was looked at last.
        self._seen: dict[StreamStore, int] = {}

    def report_if_due(self) -> None:
        now = anyio.current_time()
        if self._context.is_over or now < self._last + INTERVAL_S:
            return
        self._last = now
        elapsed = now - self._began
        notification = {
            "progressToken": self._token,
            "progress": round(elapsed, 3),
            "message": self._last_line() or f"Running for {elapsed:.0f} s",
        }
        self._context.notify("notifications/progress", notification)

    def _last_line(self) -> str:
        """Return the last line of the stream that has grown since, else what it was before."""
        shell = self._context.shell
        if shell is None:
            return ""
        for stream in (shell.stdout, shell.stderr):
            store = stream.store
            if store.written > self._seen.get(store, 0):
                self._seen[store] = store.written
                self._line = last_line(store, MAX_MESSAGE_CHARACTERS) or self._line
        return self._line
