"""Starts the process that connects to a target, such as ``ssh host shelld``.

A runner starts the process as it starts a command. When the channel is closed or the daemon is
gone, the runner kills the process with all its descendants. No shell reads the command line.
"""

from __future__ import annotations

import errno
import os
import shutil
import signal
import socket
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Final

import anyio

from shelld.keeper.channel import EXITED, FAILED, RUN
from shelld.keeper.inherited import environment
from shelld.keeper.pool import RunnerPool
from shelld_protocol.errors import RpcError, spawn_failed

# The output of a process may end before the runner reports the end of the process. This is the
# maximum time to wait for the report.
_REPORT_S: Final = 1.0


class TargetProcess:
    """Owns the process, and the daemon's ends of its standard streams, until `close`.

    `connection` is the daemon's end of the process's standard input and output. `errors` is the
    descriptor from which the daemon reads the process's standard error. The descriptors are in
    non-blocking mode. Raises OSError, or `RpcError` (spawn_failed) if the program does not exist.
    """

    def __init__(self, pool: RunnerPool, argv: Sequence[str]) -> None:
        program = shutil.which(argv[0])
        if program is None:
            raise spawn_failed(errno.ENOENT, "target")
        with ExitStack() as stack:
            self._channel = pool.acquire()
            stack.callback(self._channel.close)
            self.connection, theirs = socket.socketpair()
            stack.callback(self.connection.close)
            with theirs:
                ends: list[int] = []
                stack.callback(_close_all, ends)
                ends += os.pipe()
                self.errors, their_errors = ends
                try:
                    self.connection.setblocking(False)
                    os.set_blocking(self.errors, False)
                    words = [word.encode("utf-8", "surrogateescape") for word in argv]
                    descriptors = (theirs.fileno(), theirs.fileno(), their_errors)
                    what = (os.fsencode(program), words, environment(), b"", 3, False, None)
                    self._channel.send((RUN, *what), descriptors)
                finally:
                    os.close(ends.pop())
            self._resources = stack.pop_all()

    async def end(self) -> RpcError | str:
        """Return how the process has ended, as the end of a sentence. If the process did not start,
        return an error.
        """
        with anyio.move_on_after(_REPORT_S):
            while (messages := self._channel.receive()) is not None:
                for (kind, *details), _ in messages:
                    if kind == FAILED:
                        return spawn_failed(details[0], "target")
                    if kind == EXITED:
                        return _shown(details[0])
                await anyio.wait_readable(self._channel.fileno())
        return "its output has ended"

    def close(self) -> None:
        """End the process."""
        self._resources.close()


def _close_all(descriptors: list[int]) -> None:
    while descriptors:
        os.close(descriptors.pop())


def _shown(status: int) -> str:
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        # Most real-time signals have no names.
        known = {number.value for number in signal.Signals}
        name = signal.Signals(-code).name if -code in known else f"signal {-code}"
        return f"its program was ended by {name}"
    return f"its program has ended with exit code {code}"
