"""Draws a picture of a watched daemon on a terminal. Only this file imports rich.

Owns the terminal's alternate screen while the picture is shown. Never writes a character of a
command's output that could control the terminal.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from types import FrameType

from rich.console import Console, ConsoleDimensions, Group
from rich.live import Live
from rich.text import Text

from shelld.cli.formats import duration
from shelld.cli.watch_lines import client_of, how_it_ended, one_line, printable
from shelld.lasting.views import View, ViewRequest, WatchedShell

# If the daemon has sent nothing for this time, the picture says that the daemon is silent.
_SILENT_S = 5.0
# The signals that end the program: their handlers raise an exception.
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def on_screen(name: str, lines: int) -> Generator[ScreenSight]:
    """Show views on the terminal's alternate screen while the block runs."""
    console = Console(force_terminal=True, force_jupyter=False, highlight=False, markup=False)
    live = Live(console=console, screen=True, auto_refresh=False, redirect_stderr=False)

    def start() -> None:
        with _held_back(*_ENDING), _if_possible():
            live.start()

    def stop() -> None:
        with _held_back(*_ENDING), _if_possible():
            live.stop()

    def pause(_number: int, _frame: FrameType | None) -> None:
        # After Ctrl-Z, the user's shell gets its screen back.
        with _held_back(signal.SIGTSTP):
            stop()
            os.kill(os.getpid(), signal.SIGSTOP)
            start()
            with _if_possible():
                live.refresh()

    before = signal.signal(signal.SIGTSTP, pause)
    try:
        with _held_back(signal.SIGTSTP):
            start()
        yield ScreenSight(name, lines, live)
    finally:
        with _held_back(signal.SIGTSTP):
            stop()
            signal.signal(signal.SIGTSTP, before)


@contextmanager
def _if_possible() -> Generator[None]:
    """Ignore that the block cannot write to the terminal. It is gone, so the next picture cannot be
    shown either.
    """
    try:
        yield
    except OSError:
        # With the old `sys.stdout`, the interpreter would try again to write when it ends.
        sys.stdout = None


@contextmanager
def _held_back(*signals: signal.Signals) -> Generator[None]:
    """Delay signals until the `with` block ends, because the block writes to the terminal.

    The handler of SIGTSTP also writes to the terminal, and Python refuses to begin a write during
    another write. The handlers in `_ENDING` raise exceptions, which would leave a change of the
    screen half done.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class ScreenSight:
    def __init__(self, name: str, lines: int, live: Live) -> None:
        self._name = name
        self._lines = lines
        self._live = live

    def wanted(self) -> ViewRequest:
        # Each shell takes at least one line, so further shells would not fit.
        return ViewRequest(shells=self._live.console.size.height, lines=self._lines)

    def show(self, view: View, silent_s: float) -> bool:
        try:
            size = os.get_terminal_size(1)
            self._live.console.size = ConsoleDimensions(size.columns, size.lines)
            shown = Group(*picture(self._name, view, silent_s, size.lines))
            with _held_back(signal.SIGTSTP):
                self._live.update(shown, refresh=True)
        except OSError:
            return False
        return True


def picture(name: str, view: View, silent_s: float, height: int) -> list[Text]:
    """Return the lines of a picture, `height` at most."""
    info = view.info
    title = _line((name, "bold"), (f"  pid {info.pid}, {client_of(info)}", ""))
    title.append(f", {info.shells_running} running, {info.shells_retained} ended", "dim")
    if silent_s > _SILENT_S:
        title.append(f"  has not answered for {duration(int(silent_s))}", "bold red")
    lines = [title]
    shown = 0
    for shell in view.shells:
        rows = [*_rows(shell)]
        # Reserve the last line, which shows the number of shells that do not fit.
        if len(lines) + len(rows) > height - 1:
            break
        lines += rows
        shown += 1
    omitted = view.omitted + len(view.shells) - shown
    if omitted:
        lines.append(_line((f"and {omitted} more", "dim")))
    return lines[:height]


def _rows(shell: WatchedShell) -> Iterator[Text]:
    state = "running" if shell.is_running else how_it_ended(shell)
    is_good = shell.is_running or (shell.status, shell.exit_code) == ("completed", 0)
    session = "" if shell.session is None else f"  {printable(shell.session)}"
    yield _line(
        (shell.id, "bold"),
        (session, "cyan"),
        (f"  {state}", "green" if is_good else "red"),
        (f"  {duration(shell.elapsed_ms // 1000)}", "dim"),
        (f"  {one_line(shell.command)}", ""),
    )
    for line in shell.lines:
        yield _line((f"    {printable(line)}", "dim" if not shell.is_running else ""))


def _line(*parts: tuple[str, str]) -> Text:
    """Return a line that is cut at the right edge of the terminal."""
    return Text.assemble(*parts, no_wrap=True, overflow="ellipsis")
