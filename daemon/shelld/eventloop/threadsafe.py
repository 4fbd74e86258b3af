"""Makes calls from any thread into an event loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from anyio.lowlevel import EventLoopToken


def call_threadsafe(token: EventLoopToken, function: Callable[..., object], *args: object) -> None:
    """Schedule a call of `function` on another event loop: asyncio's or trio's."""
    loop: Any = token.native_token
    enqueue = getattr(loop, "call_soon_threadsafe", None) or loop.run_sync_soon
    enqueue(function, *args)
