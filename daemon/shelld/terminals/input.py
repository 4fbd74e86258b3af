"""Writes to the standard input of a command while the command runs.

If the program's pipe or terminal has no room for bytes, they wait in a queue, which this module
owns. Each write to a command happens as a whole and in order, and never blocks. This module also
owns the descriptor of a pipe. The descriptor of a terminal belongs to the object for the terminal's
output.
"""

from __future__ import annotations

import collections
import errno
import math
import os
import select
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple, TypeAlias

import anyio

from shelld.eventloop.pipe_locks import close_pipe, unlocked
from shelld.keeper.transient import TRANSIENT
from shelld.process.faults import answer_for
from shelld.terminals.dialogue import MAX_ANSWERS, Dialogue, position_report
from shelld.terminals.line_editor import edit, received
from shelld.terminals.pty import (
    Modes,
    Size,
    foreground_group,
    left_bytes,
    modes,
    readable_bytes,
    resize,
    unread_bytes,
)
from shelld.terminals.source import Source, file_of
from shelld.terminals.typed import NOTHING_TYPED

# The maximum number of bytes that may be queued for one program.
MAX_QUEUED_BYTES: Final = 1024 * 1024
# A terminal gives no answers while more than this number of bytes wait for its program.
_MAX_ANSWER_BYTES: Final = 4_096
# In line mode, a terminal drops an answer that would make the line longer than this. The remaining
# bytes of the line are reserved for typed text.
_MAX_ANSWERED_LINE: Final = 1_024
# The maximum number of sizes that a terminal remembers.
_MAX_SIZES: Final = 1_000

# The reason why nothing can be written any more. "closed": the input was ended, or the program has
# closed it. "ended": the program has ended.
ClosedReason: TypeAlias = Literal["closed", "ended"]


class Input:
    """`descriptor` never blocks. Input that does not fit is queued: see `watch_with`.

    Once `closed` is set, do not use the descriptor, because its number may belong to another file.
    """

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self._watch: Callable[[bool], None] = _nothing
        self.closed: ClosedReason | None = None
        # The time.monotonic() at which input was last written.
        self.written_at = -math.inf
        # A request that writes holds this lock. Before the write, the request prepares the wait
        # that follows the write, and the guard judges the lines. This may take a while. During this
        # time, no later request may write.
        self.lock = anyio.Lock(fast_acquire=True)
        self.typed = NOTHING_TYPED
        self._queue = bytearray()
        self._is_watched = False

    @property
    def is_open(self) -> bool:
        """Whether more input can be written, either now or when there is room again."""
        return self.closed is None

    @property
    def pending_bytes(self) -> int:
        """The number of bytes that still wait until the program's pipe or terminal has room for
        them.
        """
        return len(self._queue)

    @property
    def room(self) -> int:
        """The number of bytes that can be written now."""
        # The first input of a command may be longer than the maximum.
        return max(0, MAX_QUEUED_BYTES - len(self._queue))

    @property
    def is_unwatched(self) -> bool:
        """Whether bytes are queued, but nobody watches for room, because `watch` has failed.
        `flush` calls `watch` again.
        """
        return self.closed is None and bool(self._queue) and not self._is_watched

    def write(self, data: bytes) -> None:
        """Write the data. Queue the bytes that do not fit now. The caller has checked `closed` and
        `room`.
        """
        self.written_at = time.monotonic()
        self._queue += data
        self.flush()

    def watch_with(self, watch: Callable[[bool], None]) -> None:
        """Call `watch(True)` when input begins to wait for room, and `watch(False)` when no input
        waits any more.

        If input waits already, call `watch(True)` now. If `watch` raises OSError or MemoryError,
        the next `flush` calls `watch` again.
        """
        self._watch = watch
        self._is_watched = False
        self._flushed()

    def flush(self) -> None:
        """Write as many queued bytes as there is room for."""
        if self.closed is not None:
            return
        try:
            while self._queue and (count := self._write()):
                del self._queue[:count]
        except OSError as error:
            if error.errno not in TRANSIENT:
                # Nobody can read the input any more.
                self.close("closed")
                return
        self._flushed()

    def _write(self) -> int:
        """Write as many bytes of the queue as fit; return their number. Raises OSError."""
        return os.write(self.descriptor, self._queue)

    def _open_descriptor(self) -> int:
        """Return the descriptor. Raises OSError (EBADF) if the input is closed."""
        if self.closed is not None:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        return self.descriptor

    def _flushed(self) -> None:
        is_waiting = bool(self._queue)
        if is_waiting is self._is_watched:
            return
        try:
            self._watch(is_waiting)
        except (OSError, MemoryError) as error:
            # Do not fail the write, because the input itself has been written or queued.
            answer_for(error, "the watch for room for input")
        else:
            self._is_watched = is_waiting

    def close(self, reason: ClosedReason) -> None:
        """Drop the queued input. A later call changes nothing."""
        if self.closed is None:
            self.closed = reason
            self._queue.clear()
            self._flushed()


class PipeInput(Input):
    """A pipe that stays open. Owns its descriptor."""

    def __init__(self, descriptor: int) -> None:
        super().__init__(descriptor)
        self._is_ending = False
        self._is_held = True

    def end(self) -> None:
        """Close the pipe once the queue is written. Nothing more can be written from now on."""
        self._is_ending = True
        self.flush()

    def close_if_unreadable(self) -> None:
        """Close the input if no process can read it any more."""
        poll = select.poll()
        # poll(2) always reports POLLERR: no process has the read end open.
        poll.register(self._open_descriptor(), 0)
        if poll.poll(0):
            self.close("closed")

    def source(self) -> Source:
        """Return the pipe to which this input goes. Raises OSError."""
        return Source(None, file_of(self._open_descriptor()))

    def unread_bytes(self) -> int:
        """Return the number of unread bytes, including the queued ones. Raises OSError."""
        with unlocked(self._open_descriptor()):
            return readable_bytes(self.descriptor) + self.pending_bytes

    def _write(self) -> int:
        with unlocked(self.descriptor):
            return super()._write()

    @property
    def is_open(self) -> bool:
        return super().is_open and not self._is_ending

    def _flushed(self) -> None:
        super()._flushed()
        if self._is_ending and not self._queue:
            self.close("closed")

    def close(self, reason: ClosedReason) -> None:
        try:
            super().close(reason)
        finally:
            if self._is_held:
                # If `close_pipe` fails, `_is_held` is still set, so another call can close the
                # pipe.
                close_pipe(self.descriptor)
                self._is_held = False


class Resize(NamedTuple):
    """A size, and the offset in the output at which the terminal got it. `number` counts from 1."""

    number: int
    offset: int
    size: Size


@dataclass(slots=True)
class _Answer:
    """`report` is None until the cursor's position at `offset` in the output is known."""

    offset: int
    report: bytes | None


class TerminalInput(Input):
    """The master side of a terminal. `dialogue` follows the output of the program.

    `sizes`: the latest sizes, each with the offset in the output at which the terminal got it.
    There is at least one size, and at most one for each offset. `ask_position` is called when the
    program asks where the cursor is, unless an earlier question still waits for its answer. After
    such a call, the code that has set `ask_position` must call `tell_position` until every question
    is answered.
    """

    def __init__(
        self,
        descriptor: int,
        size: Size,
        device: int = 0,
        mount: int | None = None,
        instance: int | None = None,
    ) -> None:
        super().__init__(descriptor)
        # The device number of the slave side, its mount, and its instance, as in `Source`.
        self.device = device
        self._mount = mount
        self._instance = instance
        self.sizes = collections.deque((Resize(1, 0, size),), _MAX_SIZES)
        self.dialogue = Dialogue()
        self.ask_position: Callable[[], None] | None = None
        # The answers that are not written yet. The first answer waits until the position of the
        # cursor is known. The other answers wait for the first.
        self._answers: list[_Answer] = []
        # The offset in the output at which the next argument of `see` begins.
        self._seen = 0
        # An upper bound on the number of written bytes that the program has not taken yet.
        self._untaken = 0

    @property
    def questions(self) -> list[int]:
        """The sorted offsets in the output at which the program asked for the cursor's position.

        This includes only the questions that have no answer yet.
        """
        return [each.offset for each in self._answers if each.report is None]

    def see(self, output: memoryview) -> None:
        """Answer the questions that the program asks its terminal. Never raises."""
        try:
            self._answer_questions(output)
        except Exception as error:
            answer_for(error, "the answer of a terminal")

    def _answer_questions(self, output: memoryview) -> None:
        ask, start = self.ask_position, self._seen
        self._seen += len(output)
        for report, end in self.dialogue.feed(output):
            if len(self._answers) == MAX_ANSWERS or self.pending_bytes > _MAX_ANSWER_BYTES:
                return
            if report is not None and not self._answers:
                self._answer(report)
            elif report is not None:
                self._answers.append(_Answer(start + end, report))
            elif ask is not None:
                if not self._answers:
                    # Call `ask` before the question is added. Otherwise, if `ask` failed, the
                    # question would hold up all later answers.
                    ask()
                self._answers.append(_Answer(start + end, None))

    def tell_position(self, offset: int, position: tuple[int, int] | None) -> None:
        """Answer the question about the cursor that was asked at `offset`.

        If the position is not known (None), this question gets no answer. Earlier questions that
        still wait for an answer never get one.
        """
        for each in self._answers:
            if each.report is None and each.offset <= offset:
                each.report = b""
                if position is not None and each.offset == offset:
                    each.report = position_report(*position)
        while self._answers and (report := self._answers[0].report) is not None:
            del self._answers[0]
            if self.closed is None:
                self._answer(report)

    def _answer(self, report: bytes) -> None:
        """Write an answer. The answer becomes a part of the line that is being typed. If it would
        make this line too long, drop it.
        """
        try:
            now = self.modes()
        except OSError:
            return
        content = received(report, now)
        line = self.typed.kernel_line_under(now)
        if now.line_mode:
            line = edit(line, content, now).line
            if len(line.text) > _MAX_ANSWERED_LINE:
                return
        self.typed = self.typed.followed_by(content)._replace(
            kernel_line=line, was_in_line_mode=now.line_mode
        )
        self.write(report)

    def write(self, data: bytes) -> None:
        self._untaken += len(data)
        super().write(data)

    def untaken_bytes(self, now: Modes, enough: int = 0) -> int:
        """Return an upper bound on the number of written bytes that the program has not taken yet.

        `now`: the current modes. The kernel does not report this number while there is something
        for the program to read. In that case, the result is the last known number, plus all bytes
        written since. If the result cannot exceed `enough`, this does not ask the kernel.
        """
        if self._untaken <= enough or self.pending_bytes:
            return self._untaken
        try:
            left = left_bytes(self._open_descriptor())
        except OSError:
            left = None
        if left is not None:
            line = self.typed.kernel_line_under(now).text if now.line_mode else b""
            self._untaken = left + len(line)
        return self._untaken

    def source(self) -> Source:
        """Return the terminal to which this input goes. Raises OSError."""
        group = foreground_group(self._open_descriptor()) or 0
        return Source(group, (self.device,), self._mount, self._instance)

    def unread_bytes(self) -> int:
        """Return the number of unread bytes, including the queued ones. Raises OSError."""
        return unread_bytes(self._open_descriptor()) + self.pending_bytes

    def modes(self) -> Modes:
        """Return the modes that the program has set. Raises OSError once the terminal is gone."""
        return modes(self._open_descriptor())

    def resize(self, size: Size, offset: int) -> None:
        """Change the size. `offset` is the offset in the output at which the size changes. The
        program gets SIGWINCH.

        Raises OSError once the terminal is gone.
        """
        resize(self._open_descriptor(), size)
        new = Resize(self.sizes[-1].number + 1, offset, size)
        if self.sizes[-1].offset == offset:
            # No output was written while the terminal had the last size, so replace that size. When
            # a user moves the edge of a window, the terminal gets many sizes. If all sizes were
            # kept, the queue would drop the sizes that belong to earlier output, and a screen would
            # have to be resized for each size.
            self.sizes[-1] = new
        else:
            self.sizes.append(new)


def _nothing(_is_full: bool) -> None:
    pass
