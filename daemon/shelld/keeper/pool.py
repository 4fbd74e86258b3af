"""The daemon's end of the keeper: runners to be had, and given back, without waiting.

Owns the keeper process and the channels of idle runners; a channel that was acquired belongs to
the shell it was acquired for. Every call is synchronous, so that nothing can come between taking
a runner and owning what it starts.
"""

from __future__ import annotations

import contextlib
import os
import resource
import select
import signal
import sys
from pathlib import Path
from typing import Final

from shelld.keeper.channel import SPAWN_RUNNER, Channel

# Enough for a burst of short commands; an idle runner costs about 1.3 MiB.
MAX_IDLE: Final = 8

# With nothing left to kill, the family ends in a few milliseconds.
CLOSE_TIMEOUT_MS: Final = 200

_BOOT: Final = (
    "import sys; sys.path.append(sys.argv[1]); from shelld.keeper.supervisor import main; main(3)"
)
_ROOT: Final = str(Path(__file__).parents[2])


class KeeperBusyError(Exception):
    """The keeper has as many requests as it can hold; wait for the pool to be writable."""


class RunnerPool:
    """`file_limit`: the soft RLIMIT_NOFILE of commands, if this process raises its own."""

    def __init__(self, *, file_limit: int | None = None) -> None:
        self._file_limit = file_limit
        self._keeper: Channel | None = None
        self._keeper_pid: int | None = None
        self._idle: list[Channel] = []

    def prepare(self) -> None:
        """Start the keeper and one runner ahead of need; raises OSError if that is impossible."""
        self._idle.append(self._new_runner())

    def fileno(self) -> int:
        """The descriptor that becomes writable when the keeper takes requests again."""
        return -1 if self._keeper is None else self._keeper.fileno()

    def acquire(self) -> Channel:
        """Return a runner that has no command.

        Raises `KeeperBusyError`, and OSError if no runner can be had.
        """
        while self._idle:
            channel = self._idle.pop()
            if channel.receive() is not None:
                return channel
            channel.close()
        return self._new_runner()

    def release(self, channel: Channel) -> None:
        """Take back a runner whose tree is empty, unless its channel is closed."""
        if channel.is_open and len(self._idle) < MAX_IDLE and self._keeper is not None:
            self._idle.append(channel)
        else:
            channel.close()

    def close(self) -> None:
        """End the idle runners and, once the last runner has ended, the keeper.

        Waits for that at most `CLOSE_TIMEOUT_MS`: a runner that is still killing goes on alone.
        """
        for channel in self._idle:
            channel.close()
        self._idle.clear()
        self._forget_keeper()

    def _wait_for_keeper(self) -> None:
        if self._keeper_pid is None or not hasattr(os, "pidfd_open"):
            return
        try:
            handle = os.pidfd_open(self._keeper_pid)
        except OSError:
            return
        ended = select.poll()
        ended.register(handle, select.POLLIN)
        ended.poll(CLOSE_TIMEOUT_MS)
        os.close(handle)

    def _new_runner(self) -> Channel:
        channel, theirs = Channel.pair()
        with theirs:
            try:
                if self._keeper is None:
                    self._keeper = self._start_keeper()
                try:
                    self._keeper.send((SPAWN_RUNNER,), (theirs.fileno(),))
                except BlockingIOError:
                    raise KeeperBusyError from None
                except ConnectionError:
                    # The keeper was killed. Its runners live on with their commands.
                    self._forget_keeper()
                    self._keeper = self._start_keeper()
                    self._keeper.send((SPAWN_RUNNER,), (theirs.fileno(),))
            except BaseException:
                channel.close()
                raise
        return channel

    def _start_keeper(self) -> Channel:
        channel, theirs = Channel.pair()
        with theirs:
            try:
                self._keeper_pid = os.posix_spawn(
                    sys.executable,
                    # Isolated and without site: start-up in a few ms, and nothing to import from.
                    [sys.executable, "-I", "-S", "-c", _BOOT, _ROOT],
                    os.environ,
                    file_actions=[
                        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                        (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
                        (os.POSIX_SPAWN_DUP2, theirs.fileno(), 3),
                    ],
                    setsid=True,
                    setsigmask=(),
                    setsigdef=(signal.SIGCHLD,),
                )
                self._restore_file_limit(self._keeper_pid)
            except BaseException:
                channel.close()
                raise
        return channel

    def _restore_file_limit(self, keeper_pid: int) -> None:
        # Before the keeper is asked for anything, so that all it forks inherits the limit.
        if self._file_limit is not None and hasattr(resource, "prlimit"):
            _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
            with contextlib.suppress(ProcessLookupError):
                limits = (self._file_limit, hard)
                resource.prlimit(keeper_pid, resource.RLIMIT_NOFILE, limits)

    def _forget_keeper(self) -> None:
        """Close a keeper that has ended or is to end, and reap it."""
        if self._keeper is not None:
            self._keeper.close()
            self._keeper = None
        if self._keeper_pid is not None:
            self._wait_for_keeper()
            with contextlib.suppress(ChildProcessError):
                os.waitpid(self._keeper_pid, os.WNOHANG)
            self._keeper_pid = None
