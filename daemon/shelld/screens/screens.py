"""The screens of all commands with a terminal.

Each terminal gets a screen when a client wants to see it, or when its program asks for the position
of the cursor. At most `MAX_PROCESSES` helper processes live at once, and at most `MAX_CAPTURES` of
them work at once.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Awaitable, Callable, Generator
from functools import partial
from typing import Final

import anyio

from shelld.keeper.pool import RunnerPool
from shelld.output.store import StreamStore
from shelld.screens.screen import Screen, directory_of_avt
from shelld.terminals.input import TerminalInput
from shelld_protocol.errors import RpcError, unavailable

# If more screens than this are in use, they take turns. In this case, nearly every capture starts a
# new process, and all the kept output must be sent again.
MAX_PROCESSES: Final = 64
MAX_CAPTURES: Final = 16
# The number of seconds after which an unused helper process is ended.
IDLE_S: Final = 60.0


class Screens:
    """All screens. `start` runs a function in a task."""

    def __init__(self, pool: RunnerPool, start: Callable[[Callable[[], Awaitable[None]]], None]):
        self._pool = pool
        self._start = start
        self._captures = anyio.Semaphore(MAX_CAPTURES)
        self._screens: dict[TerminalInput, Screen] = {}

    def watch(self, terminal: TerminalInput, output: StreamStore) -> None:
        """If pyavt is installed, answer a terminal's program when it asks for the cursor."""
        if directory_of_avt():
            tell = partial(self._tell_positions, terminal, output)
            terminal.ask_position = partial(self._start, tell)

    def of(self, terminal: TerminalInput, output: StreamStore) -> Screen:
        """Return the screen of a terminal. Raises `RpcError` (unavailable)."""
        self.check()
        screen = self._screens.get(terminal)
        if screen is None:
            screen = self._screens[terminal] = Screen(
                self._pool, output, terminal, captures=self._captures, make_room=self._make_room
            )
        return screen

    def check(self) -> None:
        """Raise `RpcError` (unavailable) if no screen can be shown."""
        if not directory_of_avt():
            raise unavailable("read_screen", "pyavt", "pip install 'shelld[screen]'")

    def forget(self, terminal: TerminalInput) -> None:
        """End the helper process of a terminal's screen for good."""
        # Questions that arrive from now on get no answer.
        terminal.ask_position = None
        screen = self._screens.pop(terminal, None)
        if screen is not None:
            screen.forget()

    def release(self, terminal: TerminalInput) -> None:
        """After a command has ended, end the helper process of its screen if it is not in use.

        A later capture starts another process.
        """
        screen = self._screens.get(terminal)
        if screen is not None and not (screen.is_in_use or screen.followers):
            screen.close()

    @contextlib.contextmanager
    def following(self, terminal: TerminalInput, output: StreamStore) -> Generator[Screen]:
        """While the `with` block runs, the helper process stays even if the command ends."""
        screen = self.of(terminal, output)
        screen.followers += 1
        try:
            yield screen
        finally:
            screen.followers -= 1
            self.release(terminal)

    def trim(self) -> None:
        """End the helper processes that no capture has used for a while."""
        for screen in self._unused():
            if time.monotonic() - screen.used_at > IDLE_S:
                screen.close()

    def close(self) -> None:
        for terminal in list(self._screens):
            self.forget(terminal)

    def _make_room(self) -> None:
        """End the least recently used helper processes, so that another process can start."""
        running = sum(screen.has_process for screen in self._screens.values())
        for screen in self._unused()[: max(0, running + 1 - MAX_PROCESSES)]:
            screen.close()

    def _unused(self) -> list[Screen]:
        """Return the screens whose processes can be ended.

        The least recently used screen comes first.
        """
        unused = [
            each for each in self._screens.values() if each.has_process and not each.is_in_use
        ]
        return sorted(unused, key=lambda screen: screen.used_at)

    async def _tell_positions(self, terminal: TerminalInput, output: StreamStore) -> None:
        while terminal.ask_position and terminal.questions:
            with contextlib.suppress(RpcError):
                await self.of(terminal, output).answer_questions()
