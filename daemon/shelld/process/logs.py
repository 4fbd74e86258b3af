"""Writes log lines without ever waiting for a reader, and without ever raising an error.

Hosts often pass a pipe as stderr and never read it. So this module writes a line only if the log
accepts the line immediately. Otherwise it drops the line. Before the next line that fits, it writes
how many lines were dropped. The module never changes the flags of stderr, because the parent shares
these flags.

If a line reports a shortage of memory, there may also be no memory for the line. A lost line must
not make other work fail, so modules log through a `Log`.
"""

from __future__ import annotations

import logging
import os
import select
import socket
import stat
from contextlib import suppress
from typing import Any

FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


def configure_logging(level: str, path: str | None) -> None:
    """Log to the file at `path`, or to stderr. Raises OSError if the file cannot be written."""
    # After a failed write, `logging` must not print a traceback to stderr.
    logging.raiseExceptions = False
    # The file stays open until the process ends.
    handler = DescriptorHandler(2 if path is None else open_log(path, 0o666))
    logging.basicConfig(handlers=[handler], level=level.upper(), format=FORMAT)


def open_log(path: str, mode: int, flags: int = 0) -> int:
    """Open a file for appending. The open and all writes never wait for a reader.

    Raises OSError, also for a FIFO without a reader. `flags` are additional flags of open(2).
    """
    flags |= os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
    return os.open(path, flags, mode)


class Log(logging.LoggerAdapter[logging.Logger]):
    """A logger that drops a line instead of raising an error.

    `name` has the same meaning as in `getLogger`.
    """

    def __init__(self, name: str) -> None:
        super().__init__(logging.getLogger(name))

    def log(self, level: int, msg: object, *args: Any, **options: Any) -> None:
        try:
            if self.logger.isEnabledFor(level):
                self.logger.log(level, msg, *args, **options)
        except Exception:
            pass


class DescriptorHandler(logging.Handler):
    """Writes to a descriptor that it does not own.

    `dropped` is the number of lines that were lost since the last written line.
    """

    def __init__(self, descriptor: int) -> None:
        super().__init__()
        self.dropped = 0
        self._descriptor = descriptor
        # Whether the last line was written only in part, without its end.
        self._is_cut = False

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._write(record)
        except Exception:
            # The line cannot be formatted, because there is no memory for it, or because its
            # arguments do not match its format.
            self.dropped += 1

    def _write(self, record: logging.LogRecord) -> None:
        lines = [self.format(record)]
        if self.dropped:
            lines.insert(0, f"{self.dropped} log lines were dropped: the log did not accept them")
        if self._is_cut:
            lines.insert(0, "")
        data = "".join(f"{line}\n" for line in lines).encode("utf-8", "backslashreplace")
        written = write_without_waiting(self._descriptor, data)
        if written == len(data):
            self.dropped = 0
            self._is_cut = False
        else:
            self.dropped += 1
            self._is_cut = self._is_cut or written > 0


def write_without_waiting(descriptor: int, data: bytes) -> int:
    """Write the bytes that the descriptor accepts immediately; return their number.

    Once it has written a byte, this function raises no error.
    """
    view = memoryview(data)
    with suppress(OSError, MemoryError):
        mode = os.fstat(descriptor).st_mode
        write = _write_some
        if stat.S_ISSOCK(mode):
            write = _send_some
        elif stat.S_ISCHR(mode):
            write = _write_anew
        while view and (count := write(descriptor, view[: select.PIPE_BUF])):
            view = view[count:]
    return len(data) - len(view)


def _send_some(descriptor: int, data: memoryview) -> int:
    with socket.socket(fileno=os.dup(descriptor)) as sock:
        return sock.send(data, socket.MSG_DONTWAIT)


def _write_anew(descriptor: int, data: memoryview) -> int:
    """Write to a terminal. poll(2) reports a terminal as writable even if it has room for only one
    byte, so a blocking write could wait.

    Other processes share the flags of the descriptor, so this function opens the terminal again
    with O_NONBLOCK.
    """
    flags = os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    try:
        own = os.open(f"/proc/self/fd/{descriptor}", flags)
    except PermissionError:
        # The open may fail, because the terminal still belongs to the previous user after su.
        return _write_some(descriptor, data)
    try:
        return os.write(own, data)
    finally:
        os.close(own)


def _write_some(descriptor: int, data: memoryview) -> int:
    poll = select.poll()
    poll.register(descriptor, select.POLLOUT)
    # If poll(2) reports a pipe as writable, the pipe accepts PIPE_BUF bytes (pipe(7)).
    return os.write(descriptor, data) if poll.poll(0) else 0
