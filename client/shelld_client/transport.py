"""The daemon's streams on an event loop, and an end that takes a bounded time.

Sending never waits: what the daemon does not take at once is kept and written by a task, so a
caller that is cancelled never leaves half a message on the stream.
"""

from __future__ import annotations

import collections
import os
from collections.abc import Callable
from contextlib import suppress
from typing import IO, Final

import anyio

from shelld_client.child import (
    EXIT_POLL_S,
    POST_MORTEM_S,
    READ_BYTES,
    Child,
    Haste,
    exit_handle,
    without_sigpipe,
)

# What reading and writing end with when the stream is closed under them, by either side.
_STREAM_ENDED: Final = (OSError, ValueError, anyio.ClosedResourceError)


class Transport:
    def __init__(self, daemon: Child) -> None:
        self._child = daemon
        # Each message, and how many bytes of it single writes took.
        self._outbox: collections.deque[tuple[memoryview, list[int]]] = collections.deque()
        self._outbox_filled = anyio.Event()
        self.stderr_ended = anyio.Event()
        # Around the reading of stdout: cancelled when the process has ended.
        self._reading = anyio.CancelScope()

    def send(self, data: bytes) -> None:
        """Write all of `data`, sooner or later. A daemon that is gone shows when reading."""
        self._outbox.append((memoryview(data), []))
        # A finaliser that cancels a call may send while another message is being written.
        if len(self._outbox) == 1:
            with suppress(BlockingIOError, *_STREAM_ENDED):
                self._write()
        if self._outbox:
            self._outbox_filled.set()

    def _write(self) -> None:
        """Write what the daemon takes of the first message. An interrupt does no harm."""
        message, written = self._outbox[0]
        rest = message[sum(written) :]
        self._outbox[0] = rest, (written := list[int]())
        with without_sigpipe():
            # Signal handlers, which may raise, run between two steps of the interpreter. This is
            # one step: what was written is counted.
            written.extend(map(os.write, [self._child.stdin.fileno()], [rest]))
        if sum(written) == len(rest):
            self._outbox.popleft()

    async def write_outbox(self) -> None:
        """Write what `send` could not, until either side closes the stream."""
        stdin = self._child.stdin
        try:
            while True:
                await self._outbox_filled.wait()
                # First: a finaliser may send at any step of what follows.
                self._outbox_filled = anyio.Event()
                while self._outbox:
                    await anyio.wait_writable(stdin)
                    with suppress(BlockingIOError):
                        self._write()
        except (ValueError, anyio.ClosedResourceError):
            return
        except OSError:
            self._child.is_deaf = True
        # It may still answer what it has read.
        await anyio.sleep(POST_MORTEM_S)
        self._reading.cancel()

    async def collect_stdout(self, take: Callable[[bytes], None]) -> None:
        """Hand what stdout brings to `take`, until its end or that of the process."""
        with self._reading:
            while data := await _receive(self._child.stdout):
                take(data)
            return
        # All that it wrote is in the pipe, which others may hold open. One read takes it.
        with suppress(*_STREAM_ENDED):
            take(os.read(self._child.stdout.fileno(), READ_BYTES))

    async def watch_exit(self) -> None:
        """Let `collect_stdout` come to its end when the process does."""
        if hasattr(os, "pidfd_open"):
            await self._wait_exit()
            self._reading.cancel()

    async def collect_stderr(self) -> None:
        """Keep the end of stderr, until it is closed."""
        while data := await _receive(self._child.stderr):
            self._child.keep_stderr(data)
        self.stderr_ended.set()

    async def has_ended(self, seconds: float) -> bool:
        """Wait for the process's end; False if it is not there in time."""
        with anyio.move_on_after(seconds):
            await self._wait_exit()
        return self._child.has_ended()

    async def _wait_exit(self) -> None:
        if self._child.has_ended():
            return
        if (handle := exit_handle(self._child.process.pid)) is not None:
            try:
                await anyio.wait_readable(handle)
            finally:
                os.close(handle)
        while not self._child.has_ended():  # noqa: ASYNC110 - where there is no event to wait for
            await anyio.sleep(EXIT_POLL_S)

    async def close(self, *, patiently: bool) -> None:
        """End the daemon; returns once it is reaped. `patiently` False leaves out the first wait.

        An event loop that interrupts this in spite of the shield, as asyncio's `Task.cancel` does,
        kills the daemon.
        """
        try:
            with anyio.CancelScope(shield=True):
                anyio.notify_closing(self._child.stdin)
                for haste, seconds in self._child.end():
                    is_skipped = haste is Haste.PATIENTLY and not patiently
                    if await self.has_ended(0 if is_skipped else seconds):
                        break
        except BaseException:
            self._child.kill()
            raise
        finally:
            # Not read to their ends: what a daemon's prefix left behind may never close them.
            _close(self._child.stdout)
            _close(self._child.stderr)

    def kill(self) -> None:
        """End the daemon without the event loop that watches its pipes."""
        self._child.kill()

    def release(self) -> None:
        """Close our copies of the descriptors in a forked child."""
        self._child.close_streams()


async def _receive(stream: IO[bytes]) -> bytes:
    while True:
        try:
            await anyio.wait_readable(stream)
            return os.read(stream.fileno(), READ_BYTES)
        except BlockingIOError:
            continue
        except _STREAM_ENDED:
            return b""


def _close(stream: IO[bytes]) -> None:
    anyio.notify_closing(stream)
    stream.close()
