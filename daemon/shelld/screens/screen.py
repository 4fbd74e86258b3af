"""The screens of commands with a terminal.

Owns their helper processes: one for each terminal, started when somebody wants to see it. At most
`MAX_PROCESSES` live at once. A screen without its process is shown again from the output that is
kept, so losing the process loses nothing.
"""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

import anyio

from shelld.helpers.helper import Helper
from shelld.keeper.pool import RunnerPool
from shelld.output.store import StreamStore
from shelld.terminals.input import TerminalInput
from shelld_protocol.errors import RpcError, resource_exhausted, unavailable

T = TypeVar("T")

MAX_PROCESSES: Final = 16
# A process that nobody has used for so long is ended.
IDLE_S: Final = 60.0
# For an interpreter to start while many others start, or to show one step of output.
ANSWER_TIMEOUT_S: Final = 10.0
# Enough for a thousand lines of a thousand columns, and 10,000 lines above them.
MEMORY_BYTES: Final = 1024 * 1024 * 1024

# Processor time for one step.
CPU_SECONDS: Final = 10

_STEP_BYTES: Final = 64 * 1024
# The first process may be killed, and the output may end the next two.
_ATTEMPTS: Final = 4
_MAX_SCROLLBACK: Final = 10_000
_PROGRAM: Final = Path(__file__).with_name("main.py")


class View(NamedTuple):
    """A screen, as `Emulator.view` describes it. `cursor`: row, column, and whether it is shown."""

    rows: int
    cols: int
    lines: list[str]
    cursor: tuple[int, int, bool]
    is_alternate: bool
    title: str
    version: int
    changed: list[int]


class _Lost(Exception):
    """The process is gone, or does not answer."""


class Screen:
    """The screen of one command. `output` is its only stream."""

    def __init__(self, pool: RunnerPool, output: StreamStore, terminal: TerminalInput) -> None:
        self.used_at = time.monotonic()
        self._pool = pool
        self._output = output
        self._terminal = terminal
        self._lock = anyio.Lock()
        self._helper: Helper | None = None
        # What the process has been given: the output up to an offset, and sizes.
        self._position = 0
        self._resizes = 0
        self._scrollback = 0
        self._version = 0
        # The output before this offset is not shown: it has ended two processes.
        self._start = 0
        # Where the last process was lost.
        self._lost_at = -1

    @property
    def has_process(self) -> bool:
        return self._helper is not None

    @property
    def is_in_use(self) -> bool:
        return self._lock.locked()

    def close(self) -> None:
        """End the process."""
        helper, self._helper = self._helper, None
        if helper is not None:
            helper.close()

    async def look(self, since: int | None = None, scrollback: int = 0) -> View:
        """Return the screen after all output so far.

        Raises `RpcError` (unavailable, resource_exhausted).
        """
        async with self._lock:
            self.used_at = time.monotonic()
            end = self._output.written
            for _ in range(_ATTEMPTS):
                try:
                    await self._show(end, scrollback)
                    answer = await self._ask(b"V", [since, scrollback])
                except (OSError, _Lost):
                    continue
                return View(*json.loads(answer))
        raise resource_exhausted("processes", "No process can be had for this screen")

    async def _show(self, end: int, scrollback: int) -> None:
        """Give the process the output up to an offset."""
        if self._helper is None or scrollback > self._scrollback:
            await self._begin(_MAX_SCROLLBACK if scrollback else 0)
        await self._resize()
        while self._position < end:
            kept = self._output.read(self._position, self._bytes_to_next_size())
            if kept.start != self._position:
                # Output is missing, and what a program draws depends on what it has drawn.
                await self._clear(kept.start)
            elif not kept.data:
                return
            else:
                await self._feed(kept.data)
                await self._resize()

    async def _begin(self, scrollback: int) -> None:
        """Start a process, and begin again. Raises OSError."""
        self.close()
        self._scrollback = scrollback
        limits = (str(MEMORY_BYTES), str(CPU_SECONDS))
        self._helper = Helper(self._pool, _PROGRAM, limits, (_directory_of_avt(),))
        await self._answer(self._helper.wait_until_it_runs())
        await self._clear(self._start)

    async def _clear(self, position: int) -> None:
        """Make an empty screen that shows the output from an offset on."""
        sizes = self._terminal.sizes
        past = [each for each in sizes if each.offset <= position]
        current = past[-1] if past else sizes[0]
        # Whoever has seen an earlier version has not seen this one.
        new = [current.size.rows, current.size.cols, self._scrollback, self._version + 1]
        self._version = int(await self._ask(b"N", new))
        self._position, self._resizes = position, current.number

    async def _feed(self, data: bytes) -> None:
        try:
            self._version = int(await self._ask(b"F", data))
        except _Lost:
            if self._lost_at == self._position:
                self._start = self._position + len(data)
            self._lost_at = self._position
            raise
        self._position += len(data)

    async def _resize(self) -> None:
        """Pass on the sizes that the terminal has had by now."""
        for number, offset, size in tuple(self._terminal.sizes):
            if number > self._resizes and offset <= self._position:
                self._version = int(await self._ask(b"S", [size.rows, size.cols]))
                self._resizes = number

    def _bytes_to_next_size(self) -> int:
        later = (each.offset - self._position for each in self._terminal.sizes)
        return min((count for count in later if count > 0), default=_STEP_BYTES)

    async def _ask(self, kind: bytes, content: bytes | Sequence[int | None]) -> bytes:
        """Raises `_Lost`."""
        if self._helper is None:
            raise _Lost
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        return await self._answer(self._helper.ask(kind + data))

    async def _answer(self, answer: Awaitable[T]) -> T:
        try:
            with anyio.fail_after(ANSWER_TIMEOUT_S):
                return await answer
        except (EOFError, OSError) as error:
            # TimeoutError is an OSError.
            self.close()
            raise _Lost from error
        except BaseException:
            # A frame may have been sent in part.
            self.close()
            raise


class Screens:
    """All screens. `start` runs a function in a task."""

    def __init__(self, pool: RunnerPool, start: Callable[[Callable[[], Awaitable[None]]], None]):
        self._pool = pool
        self._start = start
        self._screens: dict[TerminalInput, Screen] = {}

    def watch(self, terminal: TerminalInput, output: StreamStore) -> None:
        """Answer the terminal's program when it asks where the cursor is, if that can be known."""
        if _directory_of_avt():
            tell = partial(self._tell_position, terminal, output)
            terminal.ask_position = partial(self._start, tell)

    def of(self, terminal: TerminalInput, output: StreamStore) -> Screen:
        """Return the screen of a terminal. Raises `RpcError` (unavailable)."""
        if not _directory_of_avt():
            raise unavailable("read_screen", "pyavt", "pip install 'shelld[screen]'")
        screen = self._screens.get(terminal)
        if screen is None:
            screen = self._screens[terminal] = Screen(self._pool, output, terminal)
        if not screen.has_process:
            self._make_room()
        return screen

    def forget(self, terminal: TerminalInput) -> None:
        screen = self._screens.pop(terminal, None)
        if screen is not None:
            screen.close()

    def trim(self) -> None:
        """End the processes that nobody has used for a while."""
        for screen in self._unused():
            if time.monotonic() - screen.used_at > IDLE_S:
                screen.close()

    def close(self) -> None:
        for terminal in list(self._screens):
            self.forget(terminal)

    def _make_room(self) -> None:
        """End the processes used least recently, so that another one can start."""
        running = sum(screen.has_process for screen in self._screens.values())
        for screen in self._unused()[: max(0, running + 1 - MAX_PROCESSES)]:
            screen.close()

    def _unused(self) -> list[Screen]:
        """Return the screens whose process can be ended, the least recently used first."""
        unused = [
            each for each in self._screens.values() if each.has_process and not each.is_in_use
        ]
        return sorted(unused, key=lambda screen: screen.used_at)

    async def _tell_position(self, terminal: TerminalInput, output: StreamStore) -> None:
        position: tuple[int, int] | None = None
        try:
            position = (await self.of(terminal, output).look()).cursor[:2]
        except RpcError:
            # The program gets no answer to this question.
            pass
        finally:
            terminal.tell_position(position)


@cache
def _directory_of_avt() -> str:
    """Return the directory in which pyavt is installed; "" if it is not."""
    spec = find_spec("avt")
    return "" if spec is None or spec.origin is None else str(Path(spec.origin).parents[1])
