"""What is written to a command's standard input while it runs.

Owns the bytes that wait for the program to read. Writes to one command happen whole and in order,
and never block. The descriptor of a pipe is ours too; that of a terminal belongs to its output.
"""

from __future__ import annotations

import collections
import os
from collections.abc import Callable
from typing import Final, Literal, NamedTuple, TypeAlias

import anyio

from shelld.keeper.transient import TRANSIENT
from shelld.terminals.dialogue import MAX_ANSWERS, Dialogue, position_report
from shelld.terminals.pty import Modes, Size, modes, resize

# The most that may wait for one program.
MAX_QUEUED_BYTES: Final = 1024 * 1024
# No answers while more than this waits for a program.
_MAX_ANSWER_BYTES: Final = 4_096
# The sizes that a terminal remembers.
_MAX_SIZES: Final = 1_000

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


class Resize(NamedTuple):
    """A size, and the offset in the output from which it holds. `number` counts from 1."""

    number: int
    offset: int
    size: Size


class TerminalInput(Input):
    """The master side of a terminal. `dialogue` follows what the program writes.

    `sizes`: the last sizes, never empty. `ask_position` is called when the program asks where the
    cursor is; then `tell_position` is.
    """

    def __init__(self, descriptor: int, size: Size) -> None:
        super().__init__(descriptor)
        self.sizes = collections.deque((Resize(1, 0, size),), _MAX_SIZES)
        self.dialogue = Dialogue()
        self.ask_position: Callable[[], None] | None = None
        # What the program has asked, from the first question about the cursor on.
        self._answers: list[bytes | None] = []

    def see(self, output: memoryview) -> None:
        """Answer what the program asks of its terminal."""
        ask = self.ask_position
        for answer in self.dialogue.feed(output):
            if len(self._answers) == MAX_ANSWERS or self.pending_bytes > _MAX_ANSWER_BYTES:
                return
            if answer is not None and not self._answers:
                self.write(answer)
            elif answer is not None:
                self._answers.append(answer)
            elif ask is not None:
                self._answers.append(None)
                if len(self._answers) == 1:
                    ask()

    def tell_position(self, position: tuple[int, int] | None) -> None:
        """Give the answers that wait for the cursor's position. None: it is not known."""
        report = b"" if position is None else position_report(*position)
        answers, self._answers = self._answers, []
        if self.closed is None:
            self.write(b"".join(report if answer is None else answer for answer in answers))

    def modes(self) -> Modes:
        """Return the modes that the program has set. Raises OSError once the terminal is gone."""
        return modes(self.descriptor)

    def resize(self, size: Size, offset: int) -> None:
        """Change the size, at an offset in the output. The program gets SIGWINCH.

        Raises OSError once the terminal is gone.
        """
        resize(self.descriptor, size)
        self.sizes.append(Resize(self.sizes[-1].number + 1, offset, size))


def _nothing(_is_full: bool) -> None:
    pass
