"""Log lines of a program that must not wait for their reader.

Hosts often give a pipe for stderr and never read it. So a line is written only if the log accepts
it at once; otherwise it is dropped, and the next line that can be written is preceded by a line
that says how many were dropped. Never changes a flag of stderr, because the parent shares it.
"""

from __future__ import annotations

import logging
import os
import select
import socket
import stat
from contextlib import suppress

FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


def configure_logging(level: str, path: str | None) -> None:
    """Log to the file at `path`, or to stderr. Raises OSError if the file cannot be written."""
    # A log that cannot be written must not make itself heard on stderr instead.
    logging.raiseExceptions = False
    # The file stays open until the process ends.
    handler = DescriptorHandler(2 if path is None else open_log(path, 0o666))
    logging.basicConfig(handlers=[handler], level=level.upper(), format=FORMAT)


def open_log(path: str, mode: int, flags: int = 0) -> int:
    """Open a file for appending, so that neither this nor any write to it waits for a reader.

    Raises OSError, also for a FIFO that nobody reads. `flags` are added to those of open(2).
    """
    flags |= os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
    return os.open(path, flags, mode)


class DescriptorHandler(logging.Handler):
    """Writes to a descriptor that it does not own. `dropped`: lines lost since the last written."""

    def __init__(self, descriptor: int) -> None:
        super().__init__()
        self.dropped = 0
        self._descriptor = descriptor
        # Only a part of the last line was written, without its end.
        self._is_cut = False

    def emit(self, record: logging.LogRecord) -> None:
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
    """Write what the descriptor takes at once; return how much that is. Never raises OSError."""
    view = memoryview(data)
    with suppress(OSError):
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
    """Write to a terminal, which polls writable where it has room for one byte.

    The flags of the descriptor are others' as well, so the terminal is opened once more.
    """
    flags = os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    try:
        own = os.open(f"/proc/self/fd/{descriptor}", flags)
    except PermissionError:
        # The user has changed, by su, and the terminal is still that of the one before.
        return _write_some(descriptor, data)
    try:
        return os.write(own, data)
    finally:
        os.close(own)


def _write_some(descriptor: int, data: memoryview) -> int:
    poll = select.poll()
    poll.register(descriptor, select.POLLOUT)
    # A pipe that polls writable takes PIPE_BUF bytes, whole (pipe(7)).
    return os.write(descriptor, data) if poll.poll(0) else 0
