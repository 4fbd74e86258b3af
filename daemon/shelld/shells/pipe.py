"""The read end of a command's pipe, and the output that it fills."""

from __future__ import annotations

import fcntl
import os
import sys
import termios
from typing import Final

from shelld.output.retention import OutputStream, ShellOutput

# What one pump moves at most, before other pipes and requests have their turn: about half a
# millisecond's work.
PUMP_BYTES: Final = 1024 * 1024

# What all pipes are read into, one after the other.
_buffer: Final = memoryview(bytearray(PUMP_BYTES))


class Pipe:
    """Owns `descriptor`, which never blocks, until it is closed."""

    def __init__(self, descriptor: int, output: ShellOutput, stream: OutputStream) -> None:
        self.descriptor = descriptor
        self.closed = False
        self._output = output
        self._stream = stream

    def pump(self, max_bytes: int = PUMP_BYTES) -> bool:
        """Move what is there, without blocking; False at end of file."""
        try:
            count = os.readv(self.descriptor, (_buffer[:max_bytes],))
        except BlockingIOError:
            return True
        self._output.append(self._stream, _buffer[:count])
        return count > 0

    def drain(self) -> None:
        """Move what is in the pipe at this moment; writers that go on cannot make it endless."""
        if self.closed:
            return
        size = bytearray(4)
        fcntl.ioctl(self.descriptor, termios.FIONREAD, size)
        store = self._stream.store
        end = store.written + int.from_bytes(size, sys.byteorder)
        while store.written < end and self.pump(end - store.written):
            pass

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            os.close(self.descriptor)
