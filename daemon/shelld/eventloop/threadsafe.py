"""The way from any thread to an event loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from anyio.lowlevel import EventLoopToken


def call_threadsafe(token: EventLoopToken, function: Callable[..., object], *args: object) -> None:
    """Have something done on another event loop: asyncio's or trio's."""
    loop: Any = token.native_token
    enqueue = getattr(loop, "call_soon_threadsafe", None) or loop.run_sync_soon
    enqueue(function, *args)
