"""The screen of one command with a terminal.

Owns the helper process that shows the screen, and brings the screen up to date for each capture. If
a process is lost, the next process gets the kept output again, which restores the screen.
"""

from __future__ import annotations

import contextlib
import json
import math
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

import anyio
import msgspec

from shelld.helpers.helper import Helper
from shelld.keeper.pool import RunnerPool
from shelld.output.store import StreamStore
from shelld.process.faults import shortage
from shelld.terminals.input import TerminalInput
from shelld_protocol.errors import RpcError, resource_exhausted, shutting_down

T = TypeVar("T")

# This is enough time to start an interpreter while many others start, or to show one step of
# output.
ANSWER_TIMEOUT_S: Final = 10.0
# This is enough memory for a thousand lines of a thousand columns, and 10,000 lines above them.
MEMORY_BYTES: Final = 1024 * 1024 * 1024

# The maximum processor time for one step. A step usually takes a few milliseconds.
CPU_SECONDS: Final = 2

# The maximum time of one capture. If output is left after this time, the next capture continues
# with this output.
CAPTURE_TIMEOUT_S: Final = 20.0
# Answers to questions about the cursor may delay a capture by at most this time.
_TURN_S: Final = 0.2

_STEP_BYTES: Final = 64 * 1024
# After a gap in the output, at most this number of bytes is shown. With a higher limit, a program
# that writes at full speed would cause the next gap before the emulator has caught up. The limit
# has room for a thousand large screens.
_MAX_AFTER_GAP: Final = 4 * 1024 * 1024
# The maximum number of attempts to show the same output. For example, somebody kills the first
# process, and the output of one step makes the next two processes end. Then the fourth process
# skips this output.
_ATTEMPTS: Final = 4
_MAX_SCROLLBACK: Final = 10_000
_PROGRAM: Final = Path(__file__).with_name("main.py")


class View(NamedTuple):
    """A screen, as `Emulator.view` describes it.

    `cursor`: row, column, and whether the cursor is visible.
    """

    rows: int
    cols: int
    lines: list[str]
    cursor: tuple[int, int, bool]
    is_alternate: bool
    title: str
    version: int
    changed: list[int]


class _Wanted(NamedTuple):
    """The output that a capture must show.

    A capture shows the output up to the offset `end`. After the time `cut_at`, it may stop once it
    has shown the output up to the offset `least`.
    """

    end: int
    least: int
    cut_at: float


class _Lost(Exception):
    """Raised if the helper process is gone or does not answer."""


class Screen:
    """The screen of one command. `output` is the command's only output stream."""

    def __init__(
        self,
        pool: RunnerPool,
        output: StreamStore,
        terminal: TerminalInput,
        *,
        captures: anyio.Semaphore,
        make_room: Callable[[], None],
    ) -> None:
        self.used_at = time.monotonic()
        # True while a capture uses the process, but not while a capture still waits for its turn.
        self.is_in_use = False
        # The number of followers that report the changes of the screen to a client.
        self.followers = 0
        # This semaphore limits how many captures can run at the same time.
        self._captures = captures
        self._make_room = make_room
        self._pool = pool
        self._output = output
        self._terminal = terminal
        self._lock = anyio.Lock()
        self._helper: Helper | None = None
        self._is_forgotten = False
        # The offset up to which the process has received the output.
        self._position = 0
        # The number of the last resize that was sent to the process.
        self._resizes = 0
        self._scrollback = 0
        # The version of the screen at the last capture.
        self._version = 0
        # Output before this offset is skipped. Two processes have ended while they showed the last
        # step of this output.
        self._start = 0
        # The step at which the last process was lost: the offset and the kind of this step.
        self._lost_at = -1, b""

    @property
    def has_process(self) -> bool:
        return self._helper is not None

    def forget(self) -> None:
        """End the helper process for good. A capture that is under way ends with an error."""
        self._is_forgotten = True
        if self.is_in_use and self._helper is not None:
            self._helper.hang_up()
        else:
            self.close()

    def close(self) -> None:
        """End the process."""
        helper, self._helper = self._helper, None
        if helper is not None:
            helper.close()

    async def capture(
        self,
        since: int | None = None,
        scrollback: int = 0,
        *,
        least: int | None = None,
        cut_at: float = math.inf,
    ) -> View:
        """Return the screen after all output so far.

        After the time `cut_at` (anyio.current_time()), the capture stops once it has shown the
        output up to the offset `least`. In that case, the result is an earlier state of the screen.

        Raises `RpcError` (unavailable, resource_exhausted).
        """
        end = self._output.written
        wanted = _Wanted(end, end if least is None else least, cut_at)
        async with self._use():
            view = _view(await self._reach(wanted, scrollback, b"V", _json([since, scrollback])))
            self._version = view.version
            return view

    async def answer_questions(self) -> None:
        """Answer some or all of the program's questions about the position of the cursor.

        If this raises `RpcError`, these questions get no answer.
        """
        done = end = self._terminal.questions[-1]
        try:
            async with self._use():
                await self._reach(_Wanted(end, 0, anyio.current_time() + _TURN_S))
                done = self._position
        finally:
            self._terminal.tell_position(done, None)

    @contextlib.asynccontextmanager
    async def _use(self) -> AsyncGenerator[None]:
        """Reserve the helper process while the `with` block runs."""
        # Acquire the lock first. Otherwise, captures that only wait for this screen would count as
        # running.
        async with self._lock, self._captures:
            self.is_in_use = True
            self.used_at = time.monotonic()
            try:
                yield
            except RpcError:
                # After an RpcError, the process still shows the right screen.
                raise
            except BaseException:
                # The state of the process is unknown now, so end the process.
                self.close()
                raise
            finally:
                self.is_in_use = False
                if self._is_forgotten:
                    self.close()

    async def _reach(
        self, wanted: _Wanted, scrollback: int = 0, kind: bytes = b"", content: bytes = b""
    ) -> bytes:
        """Make the process show the output that `wanted` asks for.

        Then, if `kind` is given, send the process a request of this kind with `content`, and return
        the answer.
        """
        give_up_at = self.used_at + CAPTURE_TIMEOUT_S
        attempts = _ATTEMPTS
        failure: RpcError | None = None
        while attempts:
            start = self._start
            try:
                await self._show(wanted, scrollback, give_up_at)
                return await self._ask(kind, content) if kind else b""
            except (OSError, _Lost) as error:
                failure = shortage(error)
                # If `_start` has changed, the next attempt skips the output that made two processes
                # end. Later output may do the same, so allow all attempts again.
                attempts = _ATTEMPTS if self._start > start else attempts - 1
        raise failure or resource_exhausted(
            "processes", "No helper process can start for this screen"
        )

    async def _show(self, wanted: _Wanted, scrollback: int, give_up_at: float) -> None:
        """Send output to the process, until the process has shown what `wanted` asks for."""
        if self._helper is None or scrollback > self._scrollback:
            await self._begin(_MAX_SCROLLBACK if scrollback else 0)
        await self._resize()
        end, least, cut_at = wanted
        while self._position < end:
            if time.monotonic() > give_up_at:
                raise resource_exhausted("screen", "This output takes too long to show")
            start = self._output.whole_from(self._position)
            if start != self._position:
                # Output is missing, and the effect of output depends on earlier output. So start
                # again with an empty screen. Also move the end to the newest output. Otherwise, if
                # all output before the old end is missing, the result would be the empty screen.
                end, least = self._output.written, 0
                await self._clear(max(start, end - _MAX_AFTER_GAP))
                continue
            kept = self._output.read(start, self._bytes_to_next_size())
            # If `kept` begins later than `start`, some output was lost before the read, and there
            # is a new gap.
            if kept.start == start:
                await self._feed(kept.data)
                await self._resize()
                if anyio.current_time() > cut_at and self._position >= least:
                    return

    async def _begin(self, scrollback: int) -> None:
        """Start a process with an empty screen. Raises OSError."""
        if self._is_forgotten:
            raise shutting_down()
        self.close()
        self._make_room()
        self._scrollback = scrollback
        limits = (str(MEMORY_BYTES), str(CPU_SECONDS))
        self._helper = Helper(self._pool, _PROGRAM, limits, (directory_of_avt(),))
        await self._answer(self._helper.wait_until_it_runs())
        await self._clear(self._start)

    async def _clear(self, position: int) -> None:
        """Begin again with an empty screen, which will show the output from `position` on."""
        sizes = self._terminal.sizes
        past = [each for each in sizes if each.offset <= position]
        current = past[-1] if past else sizes[0]
        # Begin with a new version, because a client that has seen an earlier version has not seen
        # this screen.
        new = [current.size.rows, current.size.cols, self._scrollback, self._version + 1]
        await self._ask(b"N", _json(new))
        self._version += 1
        self._position, self._resizes = position, current.number

    async def _feed(self, data: bytes) -> None:
        """Show output, and answer the questions about the cursor that this output contains."""
        start, end = self._position, self._position + len(data)
        questions = [each for each in self._terminal.questions if start < each <= end]
        stops = _json([each - start for each in questions])
        answer = await self._step(b"F", b"%s\n%s" % (stops, data), len(data))
        self._position = end
        positions = msgspec.json.decode(answer, type=list[tuple[int, int]])
        for offset, position in zip(questions, positions, strict=True):
            self._terminal.tell_position(offset, position)

    async def _resize(self) -> None:
        """Send the process the sizes that the terminal has had up to the current offset."""
        for number, offset, size in tuple(self._terminal.sizes):
            if number > self._resizes and offset <= self._position:
                await self._step(b"S", _json([size.rows, size.cols]), 0)
                self._resizes = number

    async def _step(self, kind: bytes, content: bytes, length: int) -> bytes:
        """Make the process show the next `length` bytes of the output. For a new size, `length` is
        0. If two processes have ended in the same step, later processes skip the output of this
        step and all output before it.
        """
        try:
            return await self._ask(kind, content)
        except _Lost:
            here = self._position, kind
            if self._lost_at == here:
                self._start = self._position + length
            self._lost_at = here
            raise

    def _bytes_to_next_size(self) -> int:
        """Return how many bytes can be shown in one step, up to the next change of the size."""
        later = (each.offset - self._position for each in self._terminal.sizes)
        return min([_STEP_BYTES, *(count for count in later if count > 0)])

    async def _ask(self, kind: bytes, content: bytes) -> bytes:
        """Send a request to the process, and return its answer. Raises `_Lost`."""
        if self._helper is None:
            raise _Lost
        return await self._answer(self._helper.ask(kind + content))

    async def _answer(self, answer: Awaitable[T]) -> T:
        try:
            with anyio.fail_after(ANSWER_TIMEOUT_S):
                return await answer
        except (EOFError, OSError) as error:
            # TimeoutError is an OSError.
            self.close()
            raise _Lost from error
        except BaseException:
            # A frame may have been sent only in part, so end the process.
            self.close()
            raise


def _json(value: Sequence[int | None]) -> bytes:
    return json.dumps(value).encode()


def _view(answer: bytes) -> View:
    return msgspec.json.decode(answer, type=View)


@cache
def directory_of_avt() -> str:
    """Return the directory in which pyavt is installed; "" if pyavt is not installed."""
    spec = find_spec("avt")
    return "" if spec is None or spec.origin is None else str(Path(spec.origin).parents[1])
