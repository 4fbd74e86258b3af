"""The one task that watches over a running command.

Owns the read ends of the command's pipes and its runner's channel, from the moment the command is
handed over until its tree is proved empty. Only this task reads any of them and only it ends the
shell, so a command that exits, times out and is killed in the same millisecond has one outcome.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import math
import os
import selectors
import signal
import sys
import termios
from collections.abc import Callable
from typing import Final, Literal

import anyio
from msgspec import Struct

from shelld.keeper.channel import (
    EMPTY,
    EXITED,
    FAILED,
    KILL,
    KILL_DEADLINE_MS,
    LEFTOVER,
    STARTED,
    SURVIVORS,
    Channel,
    Message,
)
from shelld.output.store import StreamStore
from shelld.shells.lifecycle import ShellEvent
from shelld.shells.process import CommandUsage, ShellProcess

logger = logging.getLogger("shelld.shells")

# What a pipe holds by default on Linux: one read takes all there is.
READ_BYTES: Final = 65_536

# After bash has ended, how long what it left behind may go on writing before the answer goes out
# without it: for `> >(tee log)`, whose tee bash does not wait for. Measured: 5 ms is nearly always
# enough, 50 ms always was.
LEFTOVER_OUTPUT_GRACE_S: Final = 0.05

# For a runner to be forked and to start bash. A machine that forks a thousand of them at once takes
# a few seconds; a runner that was stopped by its own command takes for ever.
START_TIMEOUT_S: Final = 15.0

# Beyond the runner's own deadline: a runner that has said nothing by then is itself killed.
RUNNER_MARGIN_S: Final = 0.5


class TimeoutPolicy(Struct, frozen=True):
    """What happens after `timeout_ms`: a kill with `grace_ms`, or release to the background."""

    timeout_ms: int
    action: Literal["kill", "background"]
    grace_ms: int


class Pipe:
    """The read end of a pipe and the store that it fills."""

    def __init__(self, descriptor: int, store: StreamStore) -> None:
        self.descriptor = descriptor
        self.closed = False
        self._store = store

    def pump(self, max_bytes: int = READ_BYTES) -> bool:
        """Move what is there, without blocking; False at end of file."""
        try:
            data = os.read(self.descriptor, max_bytes)
        except BlockingIOError:
            return True
        self._store.append(data)
        return bool(data)

    def drain(self) -> None:
        """Move what is in the pipe at this moment; writers that go on cannot make it endless."""
        if self.closed:
            return
        size = bytearray(4)
        fcntl.ioctl(self.descriptor, termios.FIONREAD, size)
        end = self._store.written + int.from_bytes(size, sys.byteorder)
        while self._store.written < end and self.pump(end - self._store.written):
            pass

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            os.close(self.descriptor)


class Supervision:
    """`on_end` is called when bash has ended; `release`, when its tree is empty.

    `release` gets the channel back, or None if the runner was lost.
    """

    def __init__(
        self,
        shell: ShellProcess,
        channel: Channel,
        stdout: int,
        stderr: int,
        *,
        timeout: TimeoutPolicy | None,
        on_end: Callable[[ShellProcess], None],
        release: Callable[[ShellProcess, Channel | None], None],
    ) -> None:
        self._shell = shell
        self._channel = channel
        self._pipes = (Pipe(stdout, shell.stdout.store), Pipe(stderr, shell.stderr.store))
        self._timeout = timeout
        self._on_end = on_end
        self._release = release
        self._runner_lost = False
        self._tree_empty = False
        self._wait_status: int | None = None
        self._was_signalled = False
        self._kill_event: ShellEvent | None = None
        # Deadlines, on the event loop's clock.
        self._timeout_at = math.inf
        if timeout is not None:
            self._timeout_at = anyio.current_time() + timeout.timeout_ms / 1000
        self._answer_at = math.inf
        self._stuck_at = anyio.current_time() + START_TIMEOUT_S
        self._scope: anyio.CancelScope | None = None
        # Closed by `run`, or with the last reference if the command never gets that far.
        self._selector = selectors.DefaultSelector()
        self._selector.register(channel, selectors.EVENT_READ)
        for pipe in self._pipes:
            self._selector.register(pipe.descriptor, selectors.EVENT_READ, pipe)

    def begin_kill(self, number: int, grace_ms: int, event: ShellEvent) -> None:
        """Ask the runner for a kill. The first reason stays the reason."""
        if self._kill_event is None:
            self._kill_event = event
        with contextlib.suppress(OSError):
            # If it cannot be sent the runner is gone, as `run` is about to see.
            self._channel.send((KILL, int(number), grace_ms))
        patience = (grace_ms + KILL_DEADLINE_MS) / 1000 + RUNNER_MARGIN_S
        self._stuck_at = min(self._stuck_at, anyio.current_time() + patience)
        self._deadline_changed()

    async def run(self) -> None:
        """Read the pipes and the runner until nothing is left of the command."""
        shell = self._shell
        try:
            while not shell.is_empty:
                with anyio.CancelScope(deadline=self._next_deadline()) as self._scope:
                    while not shell.is_empty:
                        # One descriptor, epoll's or kqueue's own, stands for all three.
                        await anyio.wait_readable(self._selector.fileno())
                        self._advance()
                if self._scope.cancelled_caught:
                    self._meet_deadlines()
                    self._advance()
        finally:
            self._scope = None
            self._selector.close()
            for pipe in self._pipes:
                pipe.close()
            intact = shell.is_empty and not self._runner_lost
            if not intact:
                self._channel.close()
            shell.is_empty = True
            # What is retained of a shell is what can be asked of it.
            shell.supervision = None
            shell.notify()
            self._release(shell, self._channel if intact else None)

    def _next_deadline(self) -> float:
        return min(self._timeout_at, self._answer_at, self._stuck_at)

    def _deadline_changed(self) -> None:
        if self._scope is not None:
            self._scope.deadline = self._next_deadline()

    def _advance(self) -> None:
        self._read_ready()
        self._conclude()
        self._shell.notify()

    def _meet_deadlines(self) -> None:
        now = anyio.current_time()
        if now >= self._answer_at:
            self._answer_at = math.inf
            self._end()
        if now >= self._timeout_at:
            self._timeout_at = math.inf
            self._time_out()
        if now >= self._stuck_at:
            self._stuck_at = math.inf
            if self._channel.peer_pid is None:
                self._lose_runner()
                return
            # Its end of file tells us, and the keeper kills what it had been guarding.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(self._channel.peer_pid, signal.SIGKILL)

    def _time_out(self) -> None:
        # A command whose exit is known, but not answered yet, was in time.
        if self._timeout is None or self._wait_status is not None:
            return
        if self._timeout.action == "background":
            self._shell.released = True
        else:
            self.begin_kill(signal.SIGTERM, self._timeout.grace_ms, ShellEvent.TIMED_OUT)

    def _read_ready(self) -> None:
        for key, _ in self._selector.select(0):
            pipe: Pipe | None = key.data
            if pipe is None:
                self._receive()
            elif not pipe.pump():
                self._selector.unregister(pipe.descriptor)
                pipe.close()

    def _receive(self) -> None:
        messages = self._channel.receive()
        if messages is not None:
            for message, _ in messages:
                self._handle(message)
            return
        self._lose_runner()

    def _lose_runner(self) -> None:
        self._selector.unregister(self._channel)
        self._runner_lost = self._tree_empty = True
        logger.info("%s lost its runner", self._shell.id)
        if self._shell.pid is None:
            # It never got as far as a command: the keeper could not fork.
            self._shell.failure = self._shell.failure or (errno.EAGAIN, "exec")
        elif self._wait_status is None:
            self._wait_status, self._was_signalled = signal.SIGKILL, True

    def _handle(self, message: Message) -> None:
        shell = self._shell
        kind = message[0]
        if kind == STARTED:
            if self._kill_event is None:
                self._stuck_at = math.inf
                self._deadline_changed()
            shell.started(message[1])
            logger.info("%s started", shell.id)
        elif kind == EXITED:
            _, self._wait_status, user, system, rss, self._was_signalled, leftover = message
            shell.stop_clock()
            shell.usage = CommandUsage(user, system, rss)
            shell.leftover = leftover
        elif kind == LEFTOVER:
            shell.leftover = message[1]
        elif kind == SURVIVORS:
            self._stuck_at = math.inf
            shell.survivors = shell.leftover = message[1]
        elif kind == EMPTY:
            shell.leftover = []
            self._tree_empty = True
        elif kind == FAILED:
            shell.failure = message[1:]
            self._tree_empty = True

    def _conclude(self) -> None:
        """Draw the consequences of what was read."""
        shell = self._shell
        if shell.is_running and shell.pid is not None:
            if self._wait_status is not None:
                self._after_exit()
            elif shell.survivors:
                # Bash is among them. SIGKILL was sent, and cannot be waited for for ever.
                self._wait_status, self._was_signalled = signal.SIGKILL, True
                self._end()
        if self._tree_empty:
            for pipe in self._pipes:
                pipe.drain()
            shell.is_empty = True

    def _after_exit(self) -> None:
        """Take all that bash wrote, and give a `>(...)` that it left a moment to finish."""
        for pipe in self._pipes:
            pipe.drain()
        if self._tree_empty or all(pipe.closed for pipe in self._pipes):
            self._end()
        elif self._answer_at == math.inf:
            self._answer_at = anyio.current_time() + LEFTOVER_OUTPUT_GRACE_S
            self._deadline_changed()

    def _end(self) -> None:
        if not self._shell.is_running or self._wait_status is None:
            return
        self._timeout_at = self._answer_at = math.inf
        self._deadline_changed()
        event = self._kill_event or ShellEvent.KILLED if self._was_signalled else None
        self._shell.end(self._wait_status, event)
        logger.info("%s ended: %s", self._shell.id, self._shell.status.value)
        self._on_end(self._shell)
