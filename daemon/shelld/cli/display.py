"""Shows a command's output, and shelld's own messages about the command.

Owns descriptors 1 and 2. If a descriptor is a terminal, `Display` remembers whether the cursor is
in the middle of a line. Output is written byte for byte. Progress appears only on a terminal, only
at the beginning of a line, and is erased before anything else is written. Any thread may write.
"""

from __future__ import annotations

import errno
import os
import select
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final, Literal

from shelld.cli.formats import duration, size

StreamName = Literal["stdout", "stderr"]

# How long a command must be silent before its progress is shown, and how often the progress is
# updated.
_SILENT_S: Final = 10.0
_RENEWAL_MS: Final = 1_000
# The longest wait that the daemon accepts.
_LONGEST_WAIT_MS: Final = 600_000

_DESCRIPTORS: Final[Mapping[StreamName, int]] = {"stdout": 1, "stderr": 2}
_ERASE: Final = b"\r\x1b[K"
_COLOURS: Final = {"plain": "2", "good": "32", "bad": "31"}
Tone = Literal["plain", "good", "bad"]


class OutputLost(Exception):
    """Output cannot be written. If `is_unread`, the reader has closed the output."""

    def __init__(self, error: OSError) -> None:
        super().__init__(f"cannot write to the output: {error.strerror}")
        self.is_unread = error.errno == errno.EPIPE


class Display:
    """Writes to stdout and stderr. `clock` returns the time in seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._terminals = frozenset(fd for fd in (1, 2) if os.isatty(fd))
        can_move = 2 in self._terminals and os.environ.get("TERM", "dumb") != "dumb"
        self._has_progress = can_move
        self._has_colours = can_move and not os.environ.get("NO_COLOR")
        self._begun_at = self._written_at = clock()
        self._is_mid_line = False
        self._is_progress_shown = False

    def begin(self) -> None:
        """Start measuring how long the command runs. Call this when the command has started."""
        self._begun_at = self._written_at = self._clock()

    @property
    def is_one_stream(self) -> bool:
        """Tells whether stdout and stderr are the same file.

        If so, the command must write both streams to one pipe. Otherwise, the order of the output
        in the file could differ from the order in which the command wrote it.
        """
        return _is_open(1) and _is_open(2) and os.path.samestat(os.fstat(1), os.fstat(2))

    @property
    def patience_ms(self) -> int:
        """Returns how long to wait for output before the next call of `tick`."""
        return _RENEWAL_MS if self._has_progress else _LONGEST_WAIT_MS

    def write(self, stream: StreamName, data: bytes) -> None:
        """Write output of the command. Raises `OutputLost`."""
        with self._lock:
            self._erase_progress()
            self._written_at = self._clock()
            fd = _DESCRIPTORS[stream]
            try:
                write_all(fd, data)
            except OSError as error:
                # If stderr cannot be written, only the command's messages are lost, so go on.
                if stream == "stdout":
                    raise OutputLost(error) from None
            if data and fd in self._terminals:
                self._is_mid_line = not data.endswith(b"\n")

    def tick(self) -> None:
        """Show or update the progress of a silent command."""
        with self._lock:
            now = self._clock()
            if not self._has_progress or self._is_mid_line or now < self._written_at + _SILENT_S:
                return
            # In the background, progress would erase what the user types at the shell's prompt. If
            # stderr is another terminal, this does not matter.
            with suppress(OSError):
                if is_in_background(2):
                    return
            silent, running = (
                duration(int(now - since)) for since in (self._written_at, self._begun_at)
            )
            self._erase_progress()
            self._note(
                self._painted(f"shelld: running for {running}, silent for {silent}", "plain")
            )
            self._is_progress_shown = True

    def say(self, text: str, tone: Tone = "plain", *, end: str = "\n") -> None:
        """Write a message of shelld to stderr, if stderr can be written."""
        with self._lock:
            self._erase_progress()
            begin = end if self._is_mid_line and 2 in self._terminals else ""
            self._is_mid_line = False
            self._note(f"{begin}{self._painted(text, tone)}{end}")

    def say_lost(self, count: int) -> None:
        """Say that the daemon dropped `count` bytes of output before this program read them."""
        why = "the command was faster, and --retain-bytes was reached or the disk was full"
        self.say(f"shelld: {size(count)} of output are missing: {why}", "bad")

    def clear(self) -> None:
        """Erase the progress."""
        with self._lock:
            self._erase_progress()

    def _painted(self, text: str, tone: Tone) -> str:
        return f"\x1b[{_COLOURS[tone]}m{text}\x1b[0m" if self._has_colours else text

    def _erase_progress(self) -> None:
        if self._is_progress_shown:
            self._is_progress_shown = False
            self._note(_ERASE.decode())

    @staticmethod
    def _note(text: str) -> None:
        try:
            write_all(2, text.encode("utf-8", "backslashreplace"))
        except OSError:
            # The message is lost, because there is no other stream for it.
            return


def is_in_background(descriptor: int) -> bool:
    """Return whether another job is in the foreground of our terminal. Raises OSError if the
    descriptor is not our terminal.
    """
    return os.tcgetpgrp(descriptor) != os.getpgrp()


def _is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


def write_all(fd: int, data: bytes) -> None:
    """Write all of `data`. The descriptor may be non-blocking, because other processes share it."""
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(fd, view) :]
        except BlockingIOError:
            poll = select.poll()
            poll.register(fd, select.POLLOUT)
            poll.poll()
