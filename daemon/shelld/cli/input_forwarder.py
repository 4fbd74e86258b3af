"""Copies standard input to a command as the input arrives.

Owns descriptor 0. Sends each block of input to the daemon before it reads more input. So it reads
no more while the daemon's queue of input for the command is full. While this process is in the
background of its terminal, it reads nothing, because the terminal would stop it. It continues to
read once it is in the foreground again.
"""

from __future__ import annotations

import errno
import os
import select
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from shelld.cli.display import is_in_background
from shelld_client import (
    Client,
    CommandBlocked,
    InvalidParams,
    NotPossible,
    ResourceExhausted,
    ShellError,
)

_READ_BYTES: Final = 64 * 1024
# While the daemon's queue is full, a write is tried again after a pause. The pauses grow from the
# first value to the second. The queue holds 1 MiB.
_FIRST_PAUSE_S: Final = 0.01
_LONGEST_PAUSE_S: Final = 0.25
# The pause between two attempts to read while the process is in the background of the terminal. No
# event reports that the process has come back to the foreground.
_BACKGROUND_PAUSE_S: Final = 0.25


class InputForwarder:
    """Copies the input in a thread of its own.

    It calls `refused` in that thread if the guard or the terminal refuses input.
    """

    def __init__(self, client: Client, bash_id: str, refused: Callable[[ShellError], None]) -> None:
        self._client = client
        self._bash_id = bash_id
        self._refused = refused

    def start(self) -> None:
        """Start the thread. When the process ends, it does not wait for the thread."""
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        # With SIGTTIN blocked, a read from the terminal fails while this process is in the
        # background. Otherwise, the read would stop the process.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTTIN})
        try:
            # If stdin cannot be read, no more input comes, so the command must not wait for it.
            with suppress(OSError):
                while data := _next_bytes():
                    self._pass_on(data)
            self._client.write_stdin(self._bash_id, eof=True)
        except ShellError:
            # The command takes no more input.
            return

    def _pass_on(self, data: bytes) -> None:
        pause = _FIRST_PAUSE_S
        while True:
            try:
                # The result has new output of the command. Nobody needs it here, so read as little
                # as possible.
                self._client.write_stdin(self._bash_id, data=data, max_bytes=1)
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
    """Return the next input, or b"" at the end. The descriptor may be non-blocking."""
    while True:
        try:
            return os.read(0, _READ_BYTES)
        except BlockingIOError:
            poll = select.poll()
            poll.register(0, select.POLLIN)
            poll.poll()
        except OSError as error:
            if error.errno != errno.EIO or not is_in_background(0):
                raise
            time.sleep(_BACKGROUND_PAUSE_S)
