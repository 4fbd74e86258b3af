"""``notifications/progress``: what a client hears while a call takes long.

Hosts give up on a call that is silent for a minute, and people wonder sooner. So whoever has sent
a token is told about once a second for how long the call has run, and the last line that its
command has written.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

import anyio

from shelld.methods.context import Context
from shelld.output.excerpt import last_line
from shelld.output.store import StreamStore
from shelld_protocol.errors import invalid_params
from shelld_protocol.mcp import PROGRESS_TOKEN_KEY

# The protocol of this daemon promises one a second; this leaves room for a busy machine.
INTERVAL_S: Final = 0.75

MAX_MESSAGE_CHARACTERS: Final = 200

Token = str | int | float


@asynccontextmanager
async def progress(context: Context, meta: Mapping[str, Any] | None) -> AsyncGenerator[None]:
    """Report while the block runs, if `meta` has a token. Raises `RpcError` (invalid_params)."""
    token = None if meta is None else meta.get(PROGRESS_TOKEN_KEY)
    if token is None:
        yield
        return
    if isinstance(token, bool) or not isinstance(token, str | int | float):
        name = f"_meta.{PROGRESS_TOKEN_KEY}"
        raise invalid_params(f"Invalid type for {name}: expected string", name)
    async with anyio.create_task_group() as reports:
        reports.start_soon(_Reporter(context, token).report)
        try:
            yield
        finally:
            reports.cancel_scope.cancel()


class _Reporter:
    """Of one call, under the token that its client has given it."""

    def __init__(self, context: Context, token: Token) -> None:
        self._context = context
        self._token = token
        self._line = ""
        # Of each stream, how much was written when it was looked at last.
        self._seen: dict[StreamStore, int] = {}

    async def report(self) -> None:
        """Notify the client again and again, until cancelled."""
        began = anyio.current_time()
        while True:
            await anyio.sleep(INTERVAL_S)
            elapsed = anyio.current_time() - began
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
