"""What is written to a command's standard input while it runs.

Owns the bytes that wait for the program to read. Writes to one command happen whole and in order,
and never block. The descriptor of a pipe is ours too; that of a terminal belongs to its output.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Final, Literal, TypeAlias

import anyio

from shelld.keeper.transient import TRANSIENT
from shelld.terminals.dialogue import MAX_ANSWER_BYTES, Dialogue
from shelld.terminals.pty import Modes, Size, modes, resize

# The most that may wait for one program.
MAX_QUEUED_BYTES: Final = 1024 * 1024

# Why nothing can be written any more. "closed": it was given its end of file, or the program has
# closed it. "ended": the program has ended.
ClosedReason: TypeAlias = Literal["closed", "ended"]


class Input:
    """`descriptor` never blocks. Calls `watch(True)` while it waits for room in it."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.watch: Callable[[bool], None] = _nothing
        self.closed: ClosedReason | None = None
        # Whoever writes holds it: the guard may take a while to judge a line, and a later write
        # must not overtake this one.
        self.lock = anyio.Lock(fast_acquire=True)
        # The line that is being typed, and the complete lines before it that nobody has judged.
        self.line = b""
        # Lines typed into a shell whose command is not complete.
        self.script = ""
        self._queue = bytearray()
        self._is_watched = False

    @property
    def pending_bytes(self) -> int:
        """The bytes that the program's pipe or terminal has not taken yet."""
        return len(self._queue)

    @property
    def room(self) -> int:
        """How many bytes can be written now."""
        return MAX_QUEUED_BYTES - len(self._queue)

    def write(self, data: bytes) -> None:
        """Write, or queue. The caller has checked `closed` and `room`."""
        self._queue += data
        self.flush()

    def flush(self) -> None:
        """Pass on what there is room for."""
        if self.closed is not None:
            return
        try:
            while self._queue and (count := os.write(self.descriptor, self._queue)):
                del self._queue[:count]
        except OSError as error:
            if error.errno not in TRANSIENT:
                # Nobody can read it any more.
                self.close("closed")
                return
        self._flushed()

    def _flushed(self) -> None:
        if bool(self._queue) is not self._is_watched:
            self._is_watched = not self._is_watched
            self.watch(self._is_watched)

    def close(self, reason: ClosedReason) -> None:
        """Drop what is queued. A later call changes nothing."""
        if self.closed is None:
            self.closed = reason
            self._queue.clear()
            self._flushed()


class PipeInput(Input):
    """A pipe that stays open. Owns its descriptor."""

    def __init__(self, descriptor: int) -> None:
        super().__init__(descriptor)
        self._is_ending = False

    def end(self) -> None:
        """Close the pipe after what is queued. Nothing can be written from now on."""
        self._is_ending = True
        self.flush()

    @property
    def is_ending(self) -> bool:
        """Whether it was given its end of file."""
        return self._is_ending

    def _flushed(self) -> None:
        super()._flushed()
        if self._is_ending and not self._queue:
            self.close("closed")

    def close(self, reason: ClosedReason) -> None:
        if self.closed is None:
            try:
                super().close(reason)
            finally:
                os.close(self.descriptor)


class TerminalInput(Input):
    """The master side of a terminal. `dialogue` follows what the program writes."""

    def __init__(self, descriptor: int) -> None:
        super().__init__(descriptor)
        self.dialogue = Dialogue()

    def see(self, output: memoryview) -> None:
        """Answer what the program asks of its terminal."""
        answer = self.dialogue.feed(output)
        if answer and self.pending_bytes < MAX_ANSWER_BYTES:
            self.write(answer)

    def modes(self) -> Modes:
        """Return the modes that the program has set. Raises OSError once the terminal is gone."""
        return modes(self.descriptor)

    def resize(self, size: Size) -> None:
        """Change the size. The program gets SIGWINCH. Raises OSError once the terminal is gone."""
        resize(self.descriptor, size)


def _nothing(_is_full: bool) -> None:
    pass
