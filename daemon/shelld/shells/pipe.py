"""The read end of a command's pipe, and the store that it fills."""

from __future__ import annotations

import fcntl
import os
import sys
import termios
from typing import Final

from shelld.output.store import StreamStore

# What a pipe holds by default on Linux: one read takes all there is.
READ_BYTES: Final = 65_536


class Pipe:
    """Owns `descriptor`, which never blocks, until it is closed."""

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
