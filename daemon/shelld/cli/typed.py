"""Passes on standard input to a command, as it comes.

Owns descriptor 0. Never reads more than the command's queue in the daemon has room for, and never
stops the process: from the background of a terminal, nothing is read.
"""

from __future__ import annotations

import os
import select
import signal
import threading
import time
from collections.abc import Callable
from typing import Final

from shelld_client import (
    Client,
    CommandBlocked,
    InvalidParams,
    NotPossible,
    ResourceExhausted,
    ShellError,
)

_READ_BYTES: Final = 64 * 1024
# Pauses while the daemon's queue is full, in seconds. The queue holds 1 MiB.
_FIRST_PAUSE_S: Final = 0.01
_LONGEST_PAUSE_S: Final = 0.25


class Typed:
    """`refused` is called, in our thread, if the guard or the terminal refuses input."""

    def __init__(self, client: Client, bash_id: str, refused: Callable[[ShellError], None]) -> None:
        self._client = client
        self._bash_id = bash_id
        self._refused = refused

    def start(self) -> None:
        """Begin. Nobody waits for the thread: it ends with the process."""
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        # In the background of a terminal, a read then fails, instead of stopping the process.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTTIN})
        try:
            while data := _next_bytes():
                self._pass_on(data)
            self._client.write_stdin(self._bash_id, eof=True)
        except (ShellError, OSError):
            # The command takes no more input, or has ended; or none can be read.
            return

    def _pass_on(self, data: bytes) -> None:
        pause = _FIRST_PAUSE_S
        while True:
            try:
                self._client.write_stdin(self._bash_id, data=data)
            except ResourceExhausted as error:
                if error.limit != "stdin":
                    raise
            except (CommandBlocked, InvalidParams, NotPossible) as error:
                self._refused(error)
                return
            else:
                return
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_S)


def _next_bytes() -> bytes:
    """Return what comes next, or b"" at the end. The descriptor may be non-blocking."""
    while True:
        try:
            return os.read(0, _READ_BYTES)
        except BlockingIOError:
            poll = select.poll()
            poll.register(0, select.POLLIN)
            poll.poll()
