"""The two protocol streams. Reads and writes never block.

Owns the protocol's descriptors. Never changes their flags, because the parent shares them. If the
parent has set O_NONBLOCK, EAGAIN means "later", not end of file or a broken stream.

`Output.write` never waits. It queues the bytes that the client does not take at once, and a thread
waits for the client. The server looks at `backlog`, and reads no requests while `backlog` is large.
The thread starts with the stream, so that a later shortage of threads cannot delay an answer. It is
a daemon thread, so that a write that never returns cannot keep the process alive.
"""

from __future__ import annotations

import collections
import errno
import fcntl
import os
import select
import selectors
import socket
import stat
import termios
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import partial
from typing import Final

import anyio
import anyio.lowlevel

from shelld.eventloop.readiness import Watch
from shelld.eventloop.threads import Thread
from shelld.eventloop.threadsafe import call_threadsafe
from shelld.keeper.transient import TRANSIENT
from shelld.process import faults
from shelld.server.startup import StartupError

# How many bytes to read at once: the capacity of a pipe. With a larger number, each read would
# allocate a large buffer.
READ_BYTES: Final = 64 * 1024

# The size of a read if there is no memory for a larger read. In this way, the client still gets
# answers.
LITTLE_BYTES: Final = 4 * 1024

# The errors that a write raises after the reader has closed its end.
_CLIENT_IS_GONE: Final = (errno.EPIPE, errno.ECONNRESET, errno.ENOTCONN)

# The thread joins small answers into one write of at most this size.
_WRITE_BYTES: Final = 1024 * 1024

# If the thread cannot wait for the client, it tries again after this pause. poll(2) fails if it is
# given more descriptors than the limit on open files, which may be 0.
_RETRY_S: Final = 0.01

# Time for the thread to start.
_START_S: Final = 5.0


class Input:
    """The stream of requests, which may be a pipe, socket, terminal, file or null device."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        # epoll(7) refuses regular files and the null device, which are always readable.
        self._can_wait = True
        with selectors.DefaultSelector() as selector:
            try:
                selector.register(descriptor, selectors.EVENT_READ)
            except PermissionError:
                self._can_wait = False

    async def watch(self, on_readable: Callable[[], bool]) -> None:
        """Call `on_readable` whenever the stream is readable, until `on_readable` returns True."""
        if self._can_wait:
            watch = Watch(self._descriptor)
            with ExitStack() as resources:
                # Register `watch.close` twice: if the first call fails, the second call closes the
                # watch. If the watch stayed open, the event loop would not watch the stream of the
                # next client that gets this descriptor.
                resources.callback(watch.close)
                resources.callback(watch.close)
                await watch.wait(on_readable)
            return
        await anyio.lowlevel.checkpoint()
        while not on_readable():
            await anyio.lowlevel.checkpoint()

    def is_hung_up(self) -> bool:
        """Return whether the client has closed its end of a pipe or socket.

        There may be unread bytes.
        """
        poll = select.poll()
        # poll(2) always reports POLLHUP.
        poll.register(self._descriptor, select.POLLRDHUP)
        return bool(self._can_wait and poll.poll(0))

    def read(self) -> bytes | None:
        """Return the next bytes, or None if the caller must try again later.

        Return b"" at the end of file, or if the stream is broken.

        Does not block, even on a blocking stream, because this process is the only reader and reads
        only when the stream is readable. If this method raises MemoryError, it has read nothing.
        """
        try:
            try:
                return os.read(self._descriptor, READ_BYTES)
            except MemoryError:
                return os.read(self._descriptor, LITTLE_BYTES)
        except OSError as error:
            return None if error.errno in TRANSIENT else b""


def _room_of_empty_pipe(descriptor: int) -> int:
    """Return the capacity of an empty pipe. Return 0 if the pipe is not empty, or is not a pipe.

    Asks the kernel each time, because the client shares the pipe and may change its size.
    """
    if not hasattr(fcntl, "F_GETPIPE_SZ"):
        return 0
    unread = bytearray(4)
    try:
        fcntl.ioctl(descriptor, termios.FIONREAD, unread)
        return 0 if any(unread) else fcntl.fcntl(descriptor, fcntl.F_GETPIPE_SZ)
    except OSError:
        return 0


def _joined(pieces: list[memoryview]) -> memoryview:
    """Return the joined `pieces`. A single piece, which may be large, is not copied."""
    return pieces[0] if len(pieces) == 1 else memoryview(b"".join(pieces))


class Output:
    """The stream of answers.

    `backlog` is the number of bytes that the kernel has not taken yet. `is_broken` is set if no
    more answers can be written. `failure` then says why, unless the client is gone. Raises
    StartupError if the thread cannot start.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._mode = os.fstat(descriptor).st_mode
        self._socket: socket.socket | None = None
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLOUT)
        self._lock = threading.Lock()
        self._queue: collections.deque[memoryview] = collections.deque()
        self._queued = threading.Condition(self._lock)
        self.backlog = 0
        self.is_broken = False
        self.failure: str | None = None
        # `_closed`: `close` or `release` was called. `_is_released`: `release` was called.
        # `_has_finished`: after one of these calls, the thread has no more work and ends.
        self._closed = self._is_released = self._has_finished = False
        self._progress = anyio.Event()
        # A task waits until `backlog` is below this size; 0 if no task has ever waited.
        self._awaited = 0
        self._token = anyio.lowlevel.current_token()
        begun = threading.Event()
        try:
            Thread(partial(self._run, begun)).start()
        except RuntimeError:
            # Python hides the errno of pthread_create. This errno is always EAGAIN.
            raise StartupError(f"cannot start a thread: {os.strerror(errno.EAGAIN)}") from None
        if not begun.wait(_START_S):
            raise StartupError(f"cannot start a thread: {os.strerror(errno.ENOMEM)}")

    def write(self, data: bytes) -> None:
        """Write `data` in one piece. If the client does not read now, a thread writes the data
        later.

        Never raises.
        """
        if self.is_broken or self._closed:
            return
        written = 0
        try:
            if not self.backlog:
                written = self._try_to_write(data)
            if written < len(data) and not self.is_broken:
                self._enqueue(memoryview(data)[written:])
        except Exception:
            # A part of a message may have been written, so no other message can follow.
            faults.report("the writer of answers")
            self._break()

    def _enqueue(self, data: memoryview) -> None:
        with self._lock:
            self._queue.append(data)
            self.backlog += len(data)
            self._queued.notify()

    def _try_to_write(self, data: bytes) -> int:
        try:
            return self._write_at_once(data)
        except Exception:
            # No bytes were written. The thread tries again.
            faults.report("the writer of answers")
            return 0

    def _write_at_once(self, data: bytes) -> int:
        """Write the bytes that fit without blocking; return their number.

        If all bytes fit, the thread need not wake up.
        """
        try:
            if stat.S_ISSOCK(self._mode):
                if self._socket is None:
                    # `__init__` does not make this object. If `__init__` made the object and then
                    # failed, Python would delete the object. This would close a descriptor that the
                    # caller still owns.
                    self._socket = socket.socket(fileno=self._descriptor)
                return self._socket.send(data, socket.MSG_DONTWAIT)
            if stat.S_ISFIFO(self._mode) and self._takes_some():
                # If poll(2) reports a pipe as writable, the pipe takes PIPE_BUF bytes at once
                # (pipe(7)).
                if len(data) <= select.PIPE_BUF:
                    return os.write(self._descriptor, data)
                if room := _room_of_empty_pipe(self._descriptor):
                    return os.write(self._descriptor, memoryview(data)[:room])
        except OSError as error:
            if error.errno not in TRANSIENT:
                self._break(error)
        return 0

    def _takes_some(self) -> bool:
        """Return whether a write can proceed now without blocking."""
        try:
            return bool(self._poll.poll(0))
        except OSError:
            return False

    def _break(self, error: OSError | None = None) -> None:
        """Mark the stream as broken. If `error` is None, our own code has failed."""
        self._note_failure(error)
        with self._lock:
            self.is_broken = True
            self._queued.notify()
        self._signal_progress()

    def _run(self, begun: threading.Event) -> None:
        begun.set()
        while not self._has_finished:
            # Hold no data in this frame, because the data would stay in memory during the wait.
            try:
                if self._wait_for_queue():
                    self._write_queued()
            except Exception:
                faults.report("the writer of answers")
                self._note_failure(None)
                self._wake_loop()
                time.sleep(_RETRY_S)
        if self._is_released:
            os.close(self._descriptor)

    def _wait_for_queue(self) -> bool:
        """Wait until the queue has data to write. Return False if no more data can come."""
        with self._lock:
            while not self._closed and (self.is_broken or not self._queue):
                self._queued.wait()
            self._has_finished = self.is_broken or not self._queue
            return not self._has_finished

    def _write_queued(self) -> None:
        """Write the queue or a part of it. Wait for the client as long as it takes."""
        with self._lock:
            pieces = [self._queue.popleft()]
            size = len(pieces[0])
            while self._queue and size + len(self._queue[0]) <= _WRITE_BYTES:
                pieces.append(self._queue.popleft())
                size += len(pieces[-1])
        with suppress(MemoryError):
            # Use one system call for many small answers.
            pieces = [_joined(pieces)]
        try:
            for piece in pieces:
                view = piece
                while view:
                    view = view[self._write_some(view) :]
        except OSError as error:
            self._note_failure(error)
        with self._lock:
            was_above = self.backlog >= self._awaited
            self.backlog -= size
            wake = self.is_broken or not self._queue or (was_above and self.backlog < self._awaited)
        if wake:
            self._wake_loop()

    def _write_some(self, data: memoryview) -> int:
        """Write a part of `data`, waiting as long as it takes. Raises OSError."""
        try:
            return os.write(self._descriptor, data)
        except OSError as error:
            if error.errno not in TRANSIENT:
                raise
            writable = select.poll()
            writable.register(self._descriptor, select.POLLOUT)
            try:
                writable.poll()
            except OSError:
                time.sleep(_RETRY_S)
            return 0

    def _wake_loop(self) -> None:
        # If the event loop has ended, no task waits any more.
        with suppress(RuntimeError):
            try:
                call_threadsafe(self._token, self._signal_progress)
            except Exception:
                # The answers are written, but the event loop does not know this yet.
                faults.report("the news of written answers")
                call_threadsafe(self._token, self._signal_progress)

    def _says_client_is_gone(self, error: OSError) -> bool:
        # A write to a closed terminal fails with EIO.
        is_closed_terminal = error.errno == errno.EIO and stat.S_ISCHR(self._mode)
        return error.errno in _CLIENT_IS_GONE or is_closed_terminal

    def _note_failure(self, error: OSError | None) -> None:
        if error is None:
            self.failure = "an unexpected error"
        elif not self._says_client_is_gone(error):
            self.failure = error.strerror
        self.is_broken = True

    def close(self) -> None:
        """Accept no more data. The thread ends when the queue is empty, or with the process.

        Leaves the descriptor open.
        """
        with self._lock:
            self._closed = True
            self._queued.notify()
        self._detach_socket()

    def _detach_socket(self) -> None:
        """Take the descriptor from the socket object, which would close the descriptor when Python
        deletes the object.
        """
        if self._socket is not None:
            self._socket.detach()
            self._socket = None

    def release(self) -> None:
        """Drop all data that the client has not read, and let the thread close the descriptor.

        If the thread is writing to a client that does not read, the thread closes the descriptor
        when the client reads or is gone. If this method fails, call it again. Never call it after
        `close`, because the thread may have ended.
        """
        with self._lock:
            self._closed = self.is_broken = self._is_released = True
            self._queue.clear()
            self._queued.notify()
        self._detach_socket()
        self._signal_progress()

    def _signal_progress(self) -> None:
        self._progress.set()
        self._progress = anyio.Event()

    async def wait_empty(self) -> None:
        """Wait until the queue is empty or the stream is broken."""
        # Check again after each wake-up. More data may have entered the queue after the thread
        # reported that it was empty.
        while self.backlog and not self.is_broken:
            await self._progress.wait()

    async def wait_below(self, size: int) -> None:
        """Wait until `backlog` is below `size` or the stream is broken.

        All calls must give the same `size`.
        """
        with self._lock:
            self._awaited = size
        while self.backlog >= size and not self.is_broken:
            await self._progress.wait()

    async def wait_broken(self) -> None:
        """Wait until a write finds that the client is gone."""
        while not self.is_broken:
            await self._progress.wait()
