"""The daemon's streams without an event loop: one thread that starts, reads, writes, and ends it.

The thread owns the process and the pipes; others hand it bytes and wait for its end. So no
KeyboardInterrupt can break off what is done here: Python raises it in the main thread only.

There are no locks. A finaliser or a signal handler may call anything here while its thread is in
the midst of a call. Where it could wait for ever, it does not wait: see `may_wait`.
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
    POST_MORTEM_S,
    READ_BYTES,
    Child,
    Haste,
    errno_of,
    exit_handle,
    without_sigpipe,
)
from shelld_client.errors import ProtocolError, SpawnFailed
from shelld_client.reentrant import Latch, Wakeup, may_wait, pump_threads

# What poll(2) reports whether it was asked for or not.
_ENDS: Final = select.POLLERR | select.POLLHUP | select.POLLNVAL


class Pump:
    """In the thread, `start_child` starts the daemon; `receive` takes what is read from stdout.

    It may raise `ProtocolError`. When nothing more comes, `ended` is told why: that error, or None
    as the daemon has ended, or is about to be ended.
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
        # Held, for good, by the thread; or by `close`, if that was earlier.
        self._owner = threading.Lock()
        self._finished = Latch()
        self._is_started = False
        # Why the daemon could not be started, or None.
        self._started: queue.SimpleQueue[Exception | None] = queue.SimpleQueue()
        self._outbox: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        # The rest of a message whose beginning is written.
        self._unwritten = memoryview(b"")
        self._haste: Haste | None = None
        self._error: ProtocolError | None = None
        # By descriptor: the events to wait for, and what to do then.
        self._actions: dict[int, tuple[int, Callable[[], None]]] = {}
        self._sources = select.poll()
        self._wakeup: Wakeup | None = None
        self._exit: int | None = None

    # -- for other threads ------------------------------------------------------------------

    def start(self, timeout: float | None) -> None:
        """Start the daemon. Raises what `start_child` raises, or `SpawnFailed`.

        It raises `SpawnFailed` after `timeout` seconds, too. A daemon that starts later is ended
        once `close` is called.
        """
        try:
            # A `threading.Thread` waits, at its start and end, for locks that this thread may hold.
            _thread.start_new_thread(self._run, ())
        except RuntimeError as error:
            raise SpawnFailed("cannot start a thread for the daemon") from error
        try:
            # Another process, forked at this moment, can hold a pipe that starting waits for.
            failure = self._started.get(timeout=timeout and min(timeout, threading.TIMEOUT_MAX))
        except queue.Empty:
            reason = f"the daemon did not start within {timeout:g} s (start_timeout)"
            raise SpawnFailed(reason) from None
        if failure is not None:
            raise failure

    def send(self, frame: bytes) -> None:
        """Write a message sooner or later. A daemon that is gone shows when reading."""
        self._outbox.put(frame)
        self._wake_thread()

    def close(self, *, patiently: bool = True) -> None:
        """End the daemon, and return once it is reaped. An interrupt kills it.

        Where nothing may wait, return at once. A daemon that is being started is ended later.
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
        """Close our descriptors. For the thread, or where there is none, as in a forked child."""
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
            # There is no memory to wait for anything with.
            self._hurry(Haste.BY_FORCE)
        finally:
            try:
                # Whatever went wrong here, nobody waits in vain.
                self._ended(self._error)
                with suppress(OSError):
                    self._end()
            finally:
                # This needs no memory, and does nothing to a process that is reaped.
                self._child.kill()
                self.release()

    def _open(self) -> None:
        """Watch all there is to watch. Raises `SpawnFailed` if no descriptors can be had."""
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
                # If it has only closed its input, it may still answer what it has read.
                self._turn_until(self._is_reaped, POST_MORTEM_S)
                # It can write no more, but a child of its prefix may hold the pipe open.
                self._turn_until(lambda: self._stderr not in self._actions, LAST_WORDS_S)
            self._ended(self._error)
        self._turn_until(lambda: False)

    def _end(self) -> None:
        """End the daemon, until it is reaped."""
        self._unwatch(self._child.stdin.fileno())
        self._child.stdin.close()
        for haste, seconds in self._child.end():
            if self._turn_until(self._is_reaped, seconds, haste):
                return

    def _is_reaped(self) -> bool:
        return self._child.has_ended()

    def _turn_until(
        self, condition: Callable[[], bool], seconds: float = math.inf, haste: Haste | None = None
    ) -> bool:
        """Do what there is to do until `condition` holds, time is up, or there is more haste."""
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
                # Another's action may have closed it, or now waits for something else there.
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
        self._wakeup.clear()
        if not self._child.stdin.closed:
            self._write()

    def _write(self) -> None:
        """Write the next part of what is to be written, and come back if there is more."""
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
            # With no events to ask for, poll still reports that the daemon has closed its end.
            self._watch(stdin, self._input_closed, 0)

    def _input_closed(self) -> None:
        self._child.is_deaf = True
        self._unwatch(self._child.stdin.fileno())

    def _read_stdout(self) -> None:
        data = _read(self._stdout)
        if data == b"":
            self._unwatch(self._stdout)
        elif data and self._error is None:
            try:
                self._receive(data)
            except ProtocolError as error:
                self._error = error

    def _read_stderr(self) -> None:
        data = _read(self._stderr)
        if data == b"":
            self._unwatch(self._stderr)
        elif data:
            self._child.keep_stderr(data)

    def _exited(self) -> None:
        assert self._exit is not None
        self._child.has_ended()
        self._unwatch(self._exit)
        # All that it wrote is in the pipes, which others may hold open. One read takes it.
        if self._stdout in self._actions:
            self._read_stdout()
            self._unwatch(self._stdout)


def _forget_thread() -> None:
    """Remove the entry that `threading.current_thread` has made for this thread.

    A finaliser that logs makes it. Before Python 3.13, `threading` keeps it after the thread's end.
    """
    threading._active.pop(threading.get_ident(), None)  # type: ignore[attr-defined]  # pyright: ignore


def _read(descriptor: int) -> bytes | None:
    """Return what there is, b"" at the end, None if there is nothing yet."""
    try:
        return os.read(descriptor, READ_BYTES)
    except BlockingIOError:
        return None
    except OSError:
        return b""
