"""Runs one daemon in an actor, and passes on what the daemon reads and writes.

Owns the daemon from `start` until `close` is called or the actor's process ends. If this process
ends, the daemon's input ends, so the daemon notices. Never decodes the messages. Does not use Ray.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from contextlib import suppress

import anyio

from shelld_client.background import Background, run_together
from shelld_client.child import (
    LAST_WORDS_S,
    POST_MORTEM_S,
    READ_BYTES,
    Child,
)
from shelld_client.command_lines import daemon_command
from shelld_client.errors import ShellError
from shelld_client.transport import Transport

# The maximum number of bytes that a call of `take` returns. A larger answer comes in several parts.
MAX_TAKEN_BYTES = 4 * 1024 * 1024


class DaemonActor:
    """Runs one daemon. Only one call of `take` and one call of `feed` may run at a time."""

    async def start(self, args: Sequence[str]) -> ShellError | None:
        """Start the daemon. If the start fails, return the error."""
        try:
            self._child = Child(daemon_command(None, args), env=None, cwd=None)
        except ShellError as error:
            return error
        self._transport = Transport(self._child)
        self._has_ended = False
        self._background = Background(self._serve, lambda: None)
        return None

    async def _serve(self) -> None:
        await run_together(
            self._transport.write_outbox, self._transport.collect_stderr, self._watch
        )

    async def _watch(self) -> None:
        await self._transport.has_ended(math.inf)
        # Other processes may hold the pipe open, so do not wait for end of file.
        self._has_ended = True
        anyio.notify_closing(self._child.stdout)

    async def feed(self, data: bytes) -> None:
        """Write to the daemon."""
        self._transport.send(data)

    async def take(self) -> bytes | ShellError:
        """Wait for the daemon's output. Return it, or the error that says how the daemon has ended.

        The daemon's output stays in the pipe until this method is called.
        """
        while not self._has_ended:
            with suppress(anyio.ClosedResourceError):
                await anyio.wait_readable(self._child.stdout)
            if data := self._read():
                return data
            if data is not None:
                break
        if data := self._read():
            return data
        await self._transport.has_ended(POST_MORTEM_S)
        with anyio.move_on_after(LAST_WORDS_S):
            await self._transport.stderr_ended.wait()
        return self._child.post_mortem("")

    def _read(self) -> bytes | None:
        """Return the data in the pipe. Return None if the pipe is empty, and b"" at its end."""
        parts = list[bytes]()
        size = 0
        try:
            while size < MAX_TAKEN_BYTES:
                part = os.read(self._child.stdout.fileno(), READ_BYTES)
                if not part:
                    break
                parts.append(part)
                size += len(part)
        except BlockingIOError:
            if not parts:
                return None
        return b"".join(parts)

    async def close(self) -> None:
        """End the daemon and all its commands within seconds."""
        await self._transport.close(patiently=True)
        await self._background.stop()
