"""Serves the daemon's streams on an event loop, and stops the daemon within a bounded time.

Sending never waits. If the daemon does not take a message at once, a task writes the rest. So a
cancelled caller never leaves half a message on the stream.
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
    LAST_WRITES_S,
    PIPE_BYTES,
    POST_MORTEM_S,
    READ_BYTES,
    Child,
    Haste,
    exit_handle,
    size_of_next_read,
    without_sigpipe,
)

# The errors that reading and writing raise when either side has closed the stream.
_STREAM_ENDED: Final = (OSError, ValueError, anyio.ClosedResourceError)


class Transport:
    def __init__(self, daemon: Child) -> None:
        self._child = daemon
        # The messages that are not completely written. For each message, the first item has the
        # bytes that were unwritten when the last write began. The second item is a list, to which
        # the last write appends the number of bytes that it has written.
        self._outbox: collections.deque[tuple[memoryview, list[int]]] = collections.deque()
        self._outbox_filled = anyio.Event()
        self.stderr_ended = anyio.Event()
        # Whether `close` was called.
        self.is_closed = False
        # The scope in which stdout is read. It is cancelled when the process has ended.
        self._reading = anyio.CancelScope()

    def send(self, data: bytes) -> None:
        """Queue `data`, and write as much of it as the daemon accepts without a wait.

        If the daemon has died, the task that reads stdout reports the daemon's end.
        """
        self._outbox.append((memoryview(data), []))
        # Write only if the outbox was empty: a finaliser that cancels a call may run this method
        # while another message is being written.
        if len(self._outbox) == 1:
            with suppress(BlockingIOError, *_STREAM_ENDED):
                self._write()
        if self._outbox:
            self._outbox_filled.set()

    def _write(self) -> None:
        """Write as much of the first message as the daemon accepts without a wait.

        An interrupt cannot corrupt the stream.
        """
        message, written = self._outbox[0]
        rest = message[sum(written) :]
        self._outbox[0] = rest, (written := list[int]())
        with without_sigpipe():
            # Signal handlers, which may raise, run only between two steps of the interpreter. The
            # next statement is one step, so no handler can run after the write and before its bytes
            # are counted.
            written.extend(map(os.write, [self._child.stdin.fileno()], [rest]))
        if sum(written) == len(rest):
            self._outbox.popleft()

    async def write_outbox(self) -> None:
        """Write what `send` left in the outbox, until either side closes the stream."""
        stdin = self._child.stdin
        try:
            while True:
                await self._outbox_filled.wait()
                # Replace the event first, because a finaliser may send during any of the next
                # steps.
                self._outbox_filled = anyio.Event()
                while self._outbox:
                    await anyio.wait_writable(stdin)
                    with suppress(BlockingIOError):
                        self._write()
        except (ValueError, anyio.ClosedResourceError):
            return
        except OSError:
            self._child.is_deaf = True
        # The daemon may still answer the requests that it has read.
        await anyio.sleep(POST_MORTEM_S)
        self._reading.cancel()

    async def collect_stdout(self, take: Callable[[bytes], None]) -> None:
        """Pass data from stdout to `take` until stdout or the process ends."""
        size = READ_BYTES
        with self._reading:
            while data := await _receive(self._child.stdout, size):
                take(data)
                size = size_of_next_read(data)
            return
        # Other processes may hold the pipe open, so do not wait for end of file. One read returns
        # all remaining output of the daemon.
        with suppress(*_STREAM_ENDED):
            take(os.read(self._child.stdout.fileno(), PIPE_BYTES))

    async def watch_exit(self) -> None:
        """End `collect_stdout` when the process ends."""
        if hasattr(os, "pidfd_open"):
            await self._wait_exit()
            self._reading.cancel()

    async def collect_stderr(self) -> None:
        """Remember the newest text on the process's stderr. Return when stderr is closed."""
        while data := await _receive(self._child.stderr, READ_BYTES):
            self._child.keep_stderr(data)
        self.stderr_ended.set()

    async def has_ended(self, seconds: float) -> bool:
        """Wait up to `seconds` for the process to end. Return whether it has ended."""
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
        """End the daemon, and return once it is reaped.

        If `patiently` is False, skip the first wait. asyncio's `Task.cancel` can interrupt this
        method despite the shield; the daemon is then killed.
        """
        self.is_closed = True
        try:
            with anyio.CancelScope(shield=True):
                if patiently:
                    await self._write_last()
                anyio.notify_closing(self._child.stdin)
                for haste, seconds in self._child.end():
                    is_skipped = haste is Haste.PATIENTLY and not patiently
                    if await self.has_ended(0 if is_skipped else seconds):
                        break
        except BaseException:
            self._child.kill()
            raise
        finally:
            # Do not read to end of file: a wrapper, such as ssh, may leave processes that never
            # close the pipes.
            _close(self._child.stdout)
            _close(self._child.stderr)

    async def _write_last(self) -> None:
        """Wait until `write_outbox` has written all messages, such as the last cancellations."""
        with anyio.move_on_after(LAST_WRITES_S):
            while self._outbox and not self._is_gone:  # noqa: ASYNC110 - there is no event
                await anyio.sleep(EXIT_POLL_S)

    @property
    def _is_gone(self) -> bool:
        return self._child.is_deaf or self._child.has_ended()

    def kill(self) -> None:
        """Kill the daemon from outside the event loop that watches its pipes."""
        self._child.kill()

    def release(self) -> None:
        """Close this process's copies of the descriptors. A forked child calls this method."""
        self._child.close_streams()


async def _receive(stream: IO[bytes], size: int) -> bytes:
    while True:
        try:
            await anyio.wait_readable(stream)
            return os.read(stream.fileno(), size)
        except BlockingIOError:
            continue
        except _STREAM_ENDED:
            return b""


def _close(stream: IO[bytes]) -> None:
    anyio.notify_closing(stream)
    stream.close()
