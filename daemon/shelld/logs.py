"""Log lines on stderr, from a program that must not wait for whoever reads them.

Hosts often give a pipe for stderr and never read it. So a line is written only if stderr takes it
at once; otherwise it is dropped, and the next line that can be written is preceded by a line that
says how many were dropped. Never changes a flag of the descriptor, as the parent shares it.
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
    handler = StderrHandler(2) if path is None else logging.FileHandler(path, encoding="utf-8")
    logging.basicConfig(handlers=[handler], level=level.upper(), format=FORMAT)


class StderrHandler(logging.Handler):
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
            lines.insert(0, f"{self.dropped} log lines were dropped, as nobody read them")
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
        is_socket = stat.S_ISSOCK(os.fstat(descriptor).st_mode)
        write = _send_some if is_socket else _write_some
        while view and (count := write(descriptor, view[: select.PIPE_BUF])):
            view = view[count:]
    return len(data) - len(view)


def _send_some(descriptor: int, data: memoryview) -> int:
    with socket.socket(fileno=os.dup(descriptor)) as sock:
        return sock.send(data, socket.MSG_DONTWAIT)


def _write_some(descriptor: int, data: memoryview) -> int:
    poll = select.poll()
    poll.register(descriptor, select.POLLOUT)
    # A pipe that polls writable takes PIPE_BUF bytes, whole (pipe(7)).
    return os.write(descriptor, data) if poll.poll(0) else 0
