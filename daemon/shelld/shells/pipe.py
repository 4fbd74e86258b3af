"""Moves output from the pipe or the terminal of a command to the store of its output."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import sys
import termios
import time
from collections.abc import Callable
from typing import Final

from shelld.eventloop.pipe_locks import close_pipe, unlocked
from shelld.keeper.transient import TRANSIENT
from shelld.output.retention import OutputStream, ShellOutput

# One pump moves at most this many bytes, so that other pipes and requests get their turn. Moving
# them takes half a millisecond.
PUMP_BYTES: Final = 1024 * 1024

# A command that fills its pipe gets a larger pipe. A larger pipe needs fewer switches between the
# command and the daemon, so large output takes a third less time. Other commands keep the usual
# size: once a user has many large pipes, Linux gives that user only tiny pipes
# (pipe-user-pages-soft in pipe(7): 64 MiB in all).
_USUAL_PIPE_BYTES: Final = 64 * 1024
_LARGE_PIPE_BYTES: Final = 1024 * 1024
_MAX_LARGE_PIPES: Final = 16

# The number of empty reads in a row after which `drain` stops.
MAX_ATTEMPTS: Final = 3

# One read of a terminal returns at most 4 KiB. One pump reads at most 128 KiB, so that other pipes
# and requests get their turn. A terminal never holds 128 KiB at once, but its command may go on
# writing during the pump.
_TERMINAL_BYTES: Final = 128 * 1024

# If there is no memory to store the bytes that a pump has read, the pump tries up to
# `MAX_SHORTAGES` times. It pauses for `SHORTAGE_PAUSE_S` after each attempt.
MAX_SHORTAGES: Final = 40
SHORTAGE_PAUSE_S: Final = 0.05

# All pipes read into this buffer, one after the other.
_buffer: Final = memoryview(bytearray(PUMP_BYTES))


class Pipe:
    """The read end of a command's pipe.

    Owns `descriptor` until `close`. The descriptor never blocks.
    """

    _large_pipes = 0

    def __init__(self, descriptor: int, output: ShellOutput, stream: OutputStream) -> None:
        self.descriptor = descriptor
        self._output = output
        self._stream = stream
        self._is_large = False

    def pump(self, max_bytes: int = PUMP_BYTES) -> bool:
        """Move the bytes that have arrived to the store. Return False at end of file or after an
        error.
        """
        try:
            with unlocked(self.descriptor):
                count = os.readv(self.descriptor, (_buffer[:max_bytes],))
        except OSError as error:
            if error.errno in TRANSIENT:
                return True
            # The rest of the output in the pipe is lost. The result of the command reports this
            # loss.
            self._stream.store.error = errno.errorcode.get(error.errno or 0, "EIO")
            return False
        self._keep(count)
        if count >= _USUAL_PIPE_BYTES and not self._is_large:
            self._enlarge()
        return count > 0

    def _keep(self, size: int) -> None:
        """Store the first `size` bytes of the buffer.

        No other copy of these bytes exists, and the next call of `pump` overwrites the buffer. So
        if there is no memory to store the bytes, this function blocks the event loop and tries
        again, for up to two seconds. Then it raises MemoryError.
        """
        store = self._stream.store
        start = store.written
        for _ in range(MAX_SHORTAGES):
            try:
                self._output.append(self._stream, _buffer[store.written - start : size])
            except MemoryError:
                time.sleep(SHORTAGE_PAUSE_S)
            else:
                return
        raise MemoryError

    def _enlarge(self) -> None:
        if Pipe._large_pipes < _MAX_LARGE_PIPES and hasattr(fcntl, "F_SETPIPE_SZ"):
            # Ask the system only once for a larger pipe. If the system refuses, the pipe keeps its
            # usual size.
            self._is_large = True
            Pipe._large_pipes += 1
            with contextlib.suppress(OSError), unlocked(self.descriptor):
                fcntl.fcntl(self.descriptor, fcntl.F_SETPIPE_SZ, _LARGE_PIPE_BYTES)

    def drain(self) -> None:
        """Move the bytes that are now in the pipe to the store. Bytes that arrive during the call
        may stay in the pipe.
        """
        size = bytearray(4)
        try:
            with unlocked(self.descriptor):
                fcntl.ioctl(self.descriptor, termios.FIONREAD, size)
            held = int.from_bytes(size, sys.byteorder)
        except OSError:
            # The number of bytes in the pipe is unknown. No pipe of the daemon holds more bytes
            # than `_LARGE_PIPE_BYTES`.
            held = _LARGE_PIPE_BYTES
        store = self._stream.store
        end, attempts = store.written + held, MAX_ATTEMPTS
        while attempts and store.written < end:
            before = store.written
            if not self.pump(end - before):
                break
            # There may be fewer bytes than `held`, because a command can read its own pipe through
            # /proc.
            attempts = MAX_ATTEMPTS if store.written > before else attempts - 1

    def close(self) -> None:
        Pipe._large_pipes -= self._is_large
        self._is_large = False
        close_pipe(self.descriptor)


class Terminal(Pipe):
    """The master side of a command's terminal. Calls `listen` with all output."""

    def __init__(self, descriptor: int, output: ShellOutput, stream: OutputStream) -> None:
        super().__init__(descriptor, output, stream)
        self.listen: Callable[[memoryview], None] = _nobody

    def pump(self, max_bytes: int = _TERMINAL_BYTES) -> bool:
        """Move the bytes that have arrived to the store. Return False if no process has the
        terminal open any more.
        """
        end, limit, is_open = 0, min(max_bytes, _TERMINAL_BYTES), True
        try:
            while end < limit:
                end += os.readv(self.descriptor, (_buffer[end:limit],))
        except OSError as error:
            is_open = error.errno in TRANSIENT
            if not is_open and error.errno != errno.EIO:
                self._stream.store.error = errno.errorcode.get(error.errno or 0, "EIO")
        if end:
            self._keep(end)
            self.listen(_buffer[:end])
        return is_open

    def drain(self) -> None:
        self.pump()


def _nobody(_output: memoryview) -> None:
    pass
