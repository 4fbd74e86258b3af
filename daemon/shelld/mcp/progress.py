"""Sends notifications about a long call (``notifications/progress``).

Hosts give up on a call that is silent for a minute, and people get impatient sooner. So a client
that sent a progress token gets the call's duration and the last line of its output about twice a
second.

A timer sends the reports. If each call had a task for its reports, a short command would take much
longer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from shelld.methods.context import RequestContext
from shelld.output.excerpt import last_line
from shelld.output.store import StreamStore
from shelld.process import faults
from shelld_protocol.errors import invalid_params
from shelld_protocol.mcp import PROGRESS_TOKEN_KEY

# The documentation promises one report a second. The interval is shorter, so that the promise holds
# on a busy machine, too.
INTERVAL_S: Final = 0.5

MAX_MESSAGE_CHARACTERS: Final = 200

Token = str | int | float


@contextmanager
def progress_of(context: RequestContext, meta: Mapping[str, Any] | None) -> Generator[None]:
    """Report progress while the block runs, if `meta` has a token. Raises `RpcError`
    (invalid_params).
    """
    token = None if meta is None else meta.get(PROGRESS_TOKEN_KEY)
    if token is None:
        yield
        return
    if isinstance(token, bool) or not isinstance(token, str | int | float):
        name = f"_meta.{PROGRESS_TOKEN_KEY}"
        raise invalid_params(f"Invalid type for {name}: expected string", name)
    reports = _Reports(context, token)
    try:
        yield
    finally:
        reports.stop()


class _Reports:
    def __init__(self, context: RequestContext, token: Token) -> None:
        self._context = context
        self._token = token
        self._loop = asyncio.get_running_loop()
        self._began = self._loop.time()
        self._line = ""
        # The number of bytes that each stream had at the last report.
        self._seen: dict[StreamStore, int] = {}
        self._timer = self._loop.call_later(INTERVAL_S, self._report)

    def stop(self) -> None:
        self._timer.cancel()

    def _report(self) -> None:
        if self._context.is_over:
            return
        self._timer = self._loop.call_later(INTERVAL_S, self._report)
        try:
            elapsed = self._loop.time() - self._began
            notification = {
                "progressToken": self._token,
                "progress": round(elapsed, 3),
                "message": self._last_line() or f"Running for {elapsed:.0f} s",
            }
            self._context.notify("notifications/progress", notification)
        except Exception:
            faults.report("a progress report")

    def _last_line(self) -> str:
        """Return the last line of a stream that has grown since the last report.

        If no stream has grown, return the same line as last time.
        """
        shell = self._context.shell
        if shell is None:
            return ""
        for stream in (shell.stdout, shell.stderr):
            store = stream.store
            if store.written > self._seen.get(store, 0):
                self._seen[store] = store.written
                self._line = last_line(store, MAX_MESSAGE_CHARACTERS) or self._line
        return self._line
