"""Starts, serves and ends the daemon in one thread, without an event loop.

The thread owns the process and the pipes. Other threads give bytes to this thread, and wait until
the daemon has ended. No KeyboardInterrupt can interrupt the thread's work, because Python raises it
only in the main thread.

No function in this module waits for a lock. A finaliser or a signal handler may call any function
of this module, even if its thread is in the middle of another such call. The new call does not wait
if it could wait for ever (see `may_wait`).
"""

from __future__ import annotations

import _thread
import math
import os
import queue
import select
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from shelld_client.child import (
    BLOCKED_S,
    EXIT_POLL_S,
    LAST_WORDS_S,
    LAST_WRITES_S,
    PIPE_BYTES,
    POST_MORTEM_S,
    READ_BYTES,
    Child,
    Haste,
    errno_of,
    exit_handle,
    size_of_next_read,
    without_sigpipe,
)
from shelld_client.errors import ProtocolError, SpawnFailed
from shelld_client.reentrant import Latch, Wakeup, may_wait, pump_threads

# Events that poll(2) always reports.
_ENDS: Final = select.POLLERR | select.POLLHUP | select.POLLNVAL


class Pump:
    """Serves one daemon in a thread, which calls all three callbacks.

    `start_child` starts the daemon. `receive` takes the data read from stdout, and may raise
    `ProtocolError`. When no more data will come, `ended` gets the `ProtocolError` that `receive`
    has raised, or None if the daemon has ended or soon will.
    """

    def __init__(
        self,
        start_child: Callable[[], Child],
        receive: Callable[[bytes], None],
        ended: Callable[[ProtocolError | None], None],
    ) -> None:
        self._start_child = start_child
        self._receive = receive
        self._ended = ended
        # Whichever comes first, the thread or `close`, acquires this lock and never releases it.
        self._owner = threading.Lock()
        self._finished = Latch()
        self._is_started = False
        # The pump's thread puts the error of the start into this queue, or None if the start
        # succeeded.
        self._started: queue.SimpleQueue[Exception | None] = queue.SimpleQueue()
        self._outbox: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        # The part of a message that was not written yet.
        self._unwritten = memoryview(b"")
        self._haste: Haste | None = None
        self._error: ProtocolError | None = None
        # The size of the next read from stdout.
        self._read_bytes = READ_BYTES
        # For each descriptor, the events to wait for, and the action to run when one of them
        # occurs.
        self._actions: dict[int, tuple[int, Callable[[], None]]] = {}
        self._sources = select.poll()
        self._wakeup: Wakeup | None = None
        self._exit: int | None = None

    # -- for other threads ------------------------------------------------------------------

    def start(self, timeout: float | None) -> None:
        """Start the daemon. Raises the exceptions of `start_child`, or `SpawnFailed`.

        Also raises `SpawnFailed` after `timeout` seconds. If the daemon starts later, `close` ends
        it.
        """
        try:
            # Do not use `threading.Thread`, because it waits, at start and end, for locks that this
            # thread may hold.
            _thread.start_new_thread(self._run, ())
        except RuntimeError as error:
            raise SpawnFailed("cannot start a thread for the daemon") from error
        try:
            # This may take long: the start waits until a pipe is closed, and if another thread
            # forks a process at this moment, that process can hold the pipe open.
            failure = self._started.get(timeout=timeout and min(timeout, threading.TIMEOUT_MAX))
        except queue.Empty:
            reason = f"the daemon did not start within {timeout:g} s (start_timeout)"
            raise SpawnFailed(reason) from None
        if failure is not None:
            raise failure

    def send(self, frame: bytes) -> None:
        """Queue a message for writing.

        If the daemon is gone, the code that reads stdout reports it.
        """
        self._outbox.put(frame)
        self._wake_thread()

    def close(self, *, patiently: bool = True) -> None:
        """End the daemon, and return once it is reaped. An interrupt kills it.

        Return at once if this thread may not wait. A daemon that is still starting is ended later.
        """
        try:
            self._hurry(Haste.PATIENTLY if patiently else Haste.AT_ONCE)
            if self._owner.acquire(blocking=False):
                self._finished.set()
            if may_wait():
                self._finished.wait(None if self._is_started else BLOCKED_S)
        except BaseException:
            self._hurry(Haste.BY_FORCE)
            self._finished.wait(BLOCKED_S)
            raise

    def _hurry(self, haste: Haste) -> None:
        if self._haste is None or self._haste < haste:
            self._haste = haste
        self._wake_thread()

    def _wake_thread(self) -> None:
        if self._wakeup is not None:
            self._wakeup.wake()

    def release(self) -> None:
        """Close our descriptors.

        Call this method in the pump's thread, or in a forked child, which has no such thread.
        """
        if self._is_started:
            self._child.close_streams()
        if self._wakeup is not None:
            self._wakeup.close()
        if self._exit is not None:
            os.close(self._exit)
            self._exit = None

    # -- the thread -------------------------------------------------------------------------

    def _run(self) -> None:
        if not self._owner.acquire(blocking=False):
            self._started.put(SpawnFailed("the client was left before its daemon started"))
            return
        pump_threads.add(threading.get_ident())
        try:
            self._own_child()
        finally:
            _forget_thread()
            self._finished.set()
            pump_threads.discard(threading.get_ident())

    def _own_child(self) -> None:
        try:
            self._child = self._start_child()
            self._is_started = True
        except Exception as error:
            self._started.put(error)
            return
        try:
            try:
                self._open()
            except Exception as error:
                self._hurry(Haste.BY_FORCE)
                self._started.put(error)
            else:
                self._started.put(None)
                self._serve()
        except OSError:
            # The kernel had no memory for poll(2).
            self._hurry(Haste.BY_FORCE)
        finally:
            try:
                # Report the end even after a failure, because no caller may wait for ever.
                self._ended(self._error)
                with suppress(OSError):
                    self._end()
            finally:
                # This call needs no memory, and does nothing if the process is already reaped.
                self._child.kill()
                self.release()

    def _open(self) -> None:
        """Watch all descriptors. Raises `SpawnFailed` if the wakeup pipe cannot be created."""
        try:
            wakeup = Wakeup()
        except OSError as error:
            raise SpawnFailed("cannot get a pipe for the daemon", data=errno_of(error)) from error
        self._watch(wakeup.descriptor, self._woken)
        self._wakeup = wakeup
        self._exit = exit_handle(self._child.process.pid)
        self._stdout, self._stderr = self._child.stdout.fileno(), self._child.stderr.fileno()
        self._watch(self._stdout, self._read_stdout)
        self._watch(self._stderr, self._read_stderr)
        self._watch(self._child.stdin.fileno(), self._input_closed, 0)
        if self._exit is not None:
            self._watch(self._exit, self._exited)

    def _serve(self) -> None:
        """Read and write until `close` is called."""
        self._turn_until(
            lambda: (
                self._error is not None or self._stdout not in self._actions or self._child.is_deaf
            )
        )
        if self._haste is None:
            if self._error is None:
                # A daemon that has only closed its input may still answer earlier requests.
                self._turn_until(self._is_reaped, POST_MORTEM_S)
                # The daemon can write no more. But if a wrapper such as ssh started it, a child
                # process of the wrapper may still hold stderr open.
                self._turn_until(lambda: self._stderr not in self._actions, LAST_WORDS_S)
            self._ended(self._error)
        self._turn_until(lambda: False)

    def _end(self) -> None:
        """End the daemon and reap it."""
        if self._haste is Haste.PATIENTLY:
            # `send` may have been called just before `close`, for example to kill a command.
            self._turn_until(self._has_written, LAST_WRITES_S, Haste.PATIENTLY)
        self._unwatch(self._child.stdin.fileno())
        self._child.stdin.close()
        for haste, seconds in self._child.end():
            if self._turn_until(self._is_reaped, seconds, haste):
                return

    def _has_written(self) -> bool:
        """Return whether all messages have been written, or the daemon takes no more messages."""
        return self._child.is_deaf or not (self._unwritten or not self._outbox.empty())

    def _is_reaped(self) -> bool:
        return self._child.has_ended()

    def _turn_until(
        self, condition: Callable[[], bool], seconds: float = math.inf, haste: Haste | None = None
    ) -> bool:
        """Run actions until `condition` is true.

        Return False if time is up, or if the daemon must now end faster than `haste` says.
        """
        end_at = time.monotonic() + seconds
        interval = EXIT_POLL_S if self._exit is None and seconds < math.inf else math.inf
        while not condition():
            left = end_at - time.monotonic()
            if left <= 0 or (self._haste is not None and (haste is None or self._haste > haste)):
                return False
            timeout = min(left, interval)
            for descriptor, occurred in self._sources.poll(
                None if timeout == math.inf else math.ceil(timeout * 1000)
            ):
                # An earlier action may have unwatched the descriptor, or changed its events.
                events, action = self._actions.get(descriptor, (0, None))
                if action is not None and occurred & (events | _ENDS):
                    action()
        return True

    def _watch(
        self, descriptor: int, action: Callable[[], None], events: int = select.POLLIN
    ) -> None:
        self._actions[descriptor] = events, action
        self._sources.register(descriptor, events)

    def _unwatch(self, descriptor: int) -> None:
        if self._actions.pop(descriptor, None) is not None:
            self._sources.unregister(descriptor)

    def _woken(self) -> None:
        assert self._wakeup is not None
        # Write before any other system call. The caller waits, and during each system call, another
        # thread may take the interpreter's lock.
        self._write()
        self._wakeup.clear()
        # Another thread may just have queued a message, and `clear` may have removed the wake-up
        # for it.
        if not self._outbox.empty():
            self._write()

    def _write(self) -> None:
        """Write the next part of the queued messages.

        If some bytes remain, write again when poll reports that stdin is writable.
        """
        if self._child.stdin.closed:
            return
        stdin = self._child.stdin.fileno()
        if not self._unwritten:
            with suppress(queue.Empty):
                self._unwritten = memoryview(self._outbox.get_nowait())
        try:
            with without_sigpipe():
                written = os.write(stdin, self._unwritten[:READ_BYTES])
            self._unwritten = self._unwritten[written:]
        except BlockingIOError:
            pass
        except OSError:
            self._unwritten = memoryview(b"")
            self._child.is_deaf = True
        if self._unwritten or not self._outbox.empty():
            self._watch(stdin, self._write, select.POLLOUT)
        elif self._child.is_deaf:
            self._unwatch(stdin)
        else:
            # Even without requested events, poll reports that the daemon has closed its end.
            self._watch(stdin, self._input_closed, 0)

    def _input_closed(self) -> None:
        self._child.is_deaf = True
        self._unwatch(self._child.stdin.fileno())

    def _read_stdout(self) -> None:
        data = _read(self._stdout, self._read_bytes)
        self._read_bytes = size_of_next_read(data or b"")
        if data == b"":
            self._unwatch(self._stdout)
        elif data and self._error is None:
            try:
                self._receive(data)
            except ProtocolError as error:
                self._error = error

    def _read_stderr(self) -> None:
        data = _read(self._stderr, READ_BYTES)
        if data == b"":
            self._unwatch(self._stderr)
        elif data:
            self._child.keep_stderr(data)

    def _exited(self) -> None:
        assert self._exit is not None
        self._child.has_ended()
        self._unwatch(self._exit)
        # Other processes may hold the pipe open, so do not wait for end of file. One read returns
        # all remaining output of the daemon.
        if self._stdout in self._actions:
            self._read_bytes = PIPE_BYTES
            self._read_stdout()
            self._unwatch(self._stdout)


def _forget_thread() -> None:
    """Remove the entry that `threading.current_thread` made for this thread.

    If a finaliser writes to a log, this creates the entry. Before Python 3.13, `threading` keeps
    the entry even after the thread has ended.
    """
    threading._active.pop(threading.get_ident(), None)  # type: ignore[attr-defined]  # pyright: ignore


def _read(descriptor: int, size: int) -> bytes | None:
    """Return the available data, b"" at end of file, or None if there is no data yet."""
    try:
        return os.read(descriptor, size)
    except BlockingIOError:
        return None
    except OSError:
        return b""
