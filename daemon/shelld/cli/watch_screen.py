"""Draws a picture of a watched daemon on a terminal. Only this file imports rich.

Owns the terminal's alternate screen while the picture is shown. In the output of commands and in
the answers of targets, replaces all characters that could control the terminal.
"""

from __future__ import annotations

import math
import os
import select
import signal
import time
from collections.abc import Collection, Generator, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

from rich.cells import cell_len
from rich.console import Console, Group
from rich.control import Control
from rich.screen import Screen
from rich.text import Text

from shelld.cli.display import write_all
from shelld.cli.formats import USUAL_COLS, USUAL_ROWS, duration, printable
from shelld.cli.show import refuse
from shelld.cli.watch_lines import client_of, how_it_ended, one_line
from shelld.lasting.views import View, ViewRequest, WatchedShell

# If the daemon has sent nothing for this time, the picture says that the daemon is silent.
_SILENT_S = 5.0
# After a signal, how long to wait for a terminal that takes no output, as after Ctrl-S.
_PATIENCE_S = 5.0
# How often to check whether a signal has arrived meanwhile.
_POLL_MS = 100


@contextmanager
def on_screen(name: str, lines: int, ending: Collection[signal.Signals]) -> Generator[ScreenSight]:
    """Show views on the terminal's alternate screen while the block runs.

    `ending`: the signals whose handlers end the block by KeyboardInterrupt or SystemExit.
    """
    sight = ScreenSight(name, lines, ending)

    def pause(_number: int, _frame: FrameType | None) -> None:
        # After Ctrl-Z, the user's shell gets its screen back.
        with _held_back(signal.SIGTSTP):
            sight.leave()
            _stop()
            sight.enter()
            sight.draw()

    before = signal.getsignal(signal.SIGTSTP)
    if before is not signal.SIG_IGN:
        signal.signal(signal.SIGTSTP, pause)
    patience_s = math.inf
    try:
        with _held_back(signal.SIGTSTP):
            sight.enter()
        yield sight
    except (KeyboardInterrupt, SystemExit):
        patience_s = _PATIENCE_S
        raise
    finally:
        with _held_back(signal.SIGTSTP):
            sight.leave(patience_s)
            signal.signal(signal.SIGTSTP, before)


@contextmanager
def _held_back(*signals: signal.Signals) -> Generator[None]:
    """Delay signals until the `with` block ends.

    The handler of SIGTSTP also writes to the terminal, so it waits until a picture is complete. The
    handlers of the signals that end the program raise exceptions. Such an exception could keep the
    screen from being restored, so these handlers wait until the screen is restored.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _stop() -> None:
    """Stop this process by SIGTSTP, which the caller blocks.

    SIGSTOP would also stop a process that no shell can continue, such as one that ssh has started.
    """
    handler = signal.signal(signal.SIGTSTP, signal.SIG_DFL)
    blocked = signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTSTP})
    try:
        os.kill(os.getpid(), signal.SIGTSTP)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        signal.signal(signal.SIGTSTP, handler)


class ScreenSight:
    """Writes to the terminal, and uses rich only to make the text. So if a signal ends the program
    in the middle of a picture, rich has no state that could keep the screen from being restored.
    """

    def __init__(self, name: str, lines: int, ending: Collection[signal.Signals]) -> None:
        self._name = name
        self._lines = lines
        self._ending = ending
        self._drawn = b""
        self._is_entered = False

    def enter(self) -> None:
        self._is_entered = True
        _write_if_possible(f"{Control.alt_screen(True)}{Control.show_cursor(False)}".encode())

    def leave(self, patience_s: float = math.inf) -> None:
        """Restore the screen. Give up if the terminal takes no output for `patience_s` seconds, or
        if a signal must end the program.
        """
        with _held_back(*self._ending):
            # On the user's screen, the sequence that ends the alternate screen would move the
            # cursor.
            if self._is_entered and _takes_output(patience_s, self._ending):
                end = f"{Control.show_cursor(True)}{Control.alt_screen(False)}"
                _write_if_possible(end.encode())
                self._is_entered = False

    def draw(self) -> None:
        """Draw the last picture again."""
        _write_if_possible(self._drawn)

    def wanted(self) -> ViewRequest:
        # Each shell takes at least one line, so further shells would not fit.
        return ViewRequest(shells=_size().lines, lines=self._lines)

    def show(self, view: View, silent_s: float) -> bool:
        try:
            size = _size()
            with _held_back(signal.SIGTSTP):
                self._drawn = self._picture(view, silent_s, size)
                write_all(1, self._drawn)
        except OSError as error:
            # Leave the alternate screen first, so that the user can see the sentence.
            self.leave()
            refuse(f"cannot write to stdout: {error.strerror}")
            return False
        return True

    def _picture(self, view: View, silent_s: float, size: os.terminal_size) -> bytes:
        console = Console(
            width=size.columns,
            height=size.lines,
            force_terminal=True,
            force_jupyter=False,
            highlight=False,
            markup=False,
        )
        lines = picture(self._name, view, silent_s, size.lines)
        with console.capture() as captured:
            console.print(Control.home(), Screen(Group(*lines)), end="")
        return encoded(captured.get(), console.encoding)


def encoded(text: str, encoding: str) -> bytes:
    """Encode text, and replace each character that the encoding lacks by question marks of the same
    width, because the lines must keep their width.
    """
    try:
        return text.encode(encoding)
    except UnicodeEncodeError:
        return b"".join(each.encode(encoding, "ignore") or b"?" * cell_len(each) for each in text)


def _size() -> os.terminal_size:
    # A terminal may not know its size. If it is gone, the next write shows this.
    columns = lines = 0
    with suppress(OSError):
        columns, lines = os.get_terminal_size(1)
    return os.terminal_size((columns or USUAL_COLS, lines or USUAL_ROWS))


def _takes_output(patience_s: float, ending: Collection[signal.Signals]) -> bool:
    """Wait until the terminal takes output. Return False after `patience_s` seconds, or if one of
    the signals `ending` has arrived.
    """
    deadline = time.monotonic() + patience_s
    poll = select.poll()
    poll.register(1, select.POLLOUT)
    while not poll.poll(_POLL_MS):
        if time.monotonic() > deadline or not signal.sigpending().isdisjoint(ending):
            return False
    return True


def _write_if_possible(data: bytes) -> None:
    # If the terminal is gone, the next picture cannot be shown either.
    with suppress(OSError):
        write_all(1, data)


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
        (printable(shell.id), "bold"),
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
