"""Makes the user's terminal raw while a command has a terminal, so that the command gets every key.

Owns the settings of the terminal, and restores them. Gives the command's terminal the size of the
user's terminal.
"""

from __future__ import annotations

import os
import termios
import tty
from contextlib import suppress
from typing import Any, Final, Self

from shelld.cli.formats import USUAL_COLS, USUAL_ROWS
from shelld_client import BashOptions, Client, ShellError

# The largest terminal that the daemon makes.
_MAX_SIDE: Final = 1_000


class RawTerminal:
    """Makes the terminal raw while a `with` block runs. Stdin and stdout must be terminals."""

    def __init__(self) -> None:
        self._client: Client | None = None
        self._bash_id = ""
        self._settings: list[Any] | None = None

    @staticmethod
    def is_possible() -> bool:
        return os.isatty(0) and os.isatty(1)

    @property
    def options(self) -> BashOptions:
        """Returns the options that give the command a terminal like the user's terminal."""
        rows, cols = _size()
        options = BashOptions(tty=True, rows=rows, cols=cols)
        if "TERM" in os.environ:
            options["env"] = {"TERM": os.environ["TERM"]}
        return options

    def attach(self, client: Client, bash_id: str) -> None:
        """From now on, `resize` changes the terminal of this command."""
        self._client, self._bash_id = client, bash_id

    def resize(self) -> None:
        """Give the command's terminal the size of the user's terminal. Any thread may call this."""
        # Ignore errors, because the command may have ended, and the user's terminal may be gone.
        with suppress(ShellError, OSError):
            if self._client is not None:
                self._client.resize_shell(self._bash_id, *_size())

    def __enter__(self) -> Self:
        self._settings = termios.tcgetattr(0)
        # Keys that the user has typed already are for the command, so do not discard them.
        tty.setraw(0, termios.TCSANOW)
        return self

    def __exit__(self, *_error: object) -> None:
        self.restore()

    def restore(self) -> None:
        """Restore the settings, if they have been changed. Any thread may call this."""
        settings = self._settings
        if settings is not None:
            # The user's terminal may be gone. Do not wait for its output, because a terminal that
            # takes none must not delay the exit.
            with suppress(termios.error):
                termios.tcsetattr(0, termios.TCSANOW, settings)
            self._settings = None


def _size() -> tuple[int, int]:
    """Return rows and columns."""
    cols, rows = os.get_terminal_size(1)
    # A terminal that does not know its size, such as a serial console, reports 0.
    return min(rows or USUAL_ROWS, _MAX_SIDE), min(cols or USUAL_COLS, _MAX_SIDE)
