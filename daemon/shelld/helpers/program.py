"""Runs in a helper process, and exchanges frames with the daemon.

The program reads and writes frames on its standard input, which is a socket. A frame is the length
of the data in four bytes, big-endian, and the data. First, the program writes an empty frame to
report that it runs. Then it answers each frame with one frame. It may be killed at any moment.

This module imports only the standard library, because every import slows down each start.
"""

from __future__ import annotations

import contextlib
import math
import resource
import socket
import sys
import time
from types import TracebackType


class Frames:
    """Reads and writes frames, and sets the limits of this process.

    After each call of `read`, the process may use `cpu_seconds` of processor time.
    """

    def __init__(self, memory_bytes: int, cpu_seconds: int) -> None:
        self._cpu_seconds = cpu_seconds
        # At the limit of processor time, the kernel sends SIGXCPU, which would otherwise leave a
        # core file.
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        _limit_time(cpu_seconds)
        with contextlib.suppress(ValueError):
            # Ignore an error, because not every system supports this limit.
            resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
        self._connection = socket.socket(fileno=0)
        self._stream = self._connection.makefile("rwb")

    def __enter__(self) -> Frames:
        self.write(b"")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stream.close()
        self._connection.close()

    def read(self) -> bytes:
        """Return the next frame. Exits if the daemon is gone."""
        size = self._stream.read(4)
        if len(size) < 4:
            sys.exit()
        data = self._stream.read(int.from_bytes(size, "big"))
        _limit_time(self._cpu_seconds)
        return data

    def write(self, data: bytes) -> None:
        self._stream.write(len(data).to_bytes(4, "big") + data)
        self._stream.flush()


def _limit_time(seconds: int) -> None:
    """Limit the processor time that this process may use from now on.

    The daemon measures the time as well, but a signal may have stopped the daemon.
    """
    _, most = resource.getrlimit(resource.RLIMIT_CPU)
    limit = math.ceil(time.process_time()) + seconds
    if most != resource.RLIM_INFINITY:
        limit = min(limit, most)
    resource.setrlimit(resource.RLIMIT_CPU, (limit, most))
