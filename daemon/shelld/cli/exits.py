"""Describes how a command has ended: as an exit code, and in words."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Final, Protocol

from shelld.cli.formats import printable

# The exit codes of timeout(1).
TIMED_OUT: Final = 124
FAILED: Final = 125
REFUSED: Final = 126


class Ended(Protocol):
    @property
    def exit_code(self) -> int | None: ...

    @property
    def signal(self) -> str | None: ...


def exit_code_of(ended: Ended) -> int:
    """Return the exit code, or 128 + the number of the signal, as shells do."""
    if ended.exit_code is not None:
        return ended.exit_code
    return 128 + _number_of(ended.signal or "")


def _number_of(name: str) -> int:
    """Return the number of a signal. A signal without a name is called ``SIG`` and its number."""
    named = getattr(signal, name, None)
    return int(named) if named is not None else int(name.removeprefix("SIG") or 0)


def name_of(pid: int) -> str:
    """Return a pid, followed by the name of the process's program if the process still exists."""
    try:
        name = Path(f"/proc/{pid}/comm").read_text(errors="replace").removesuffix("\n")
    except OSError:
        return str(pid)
    # A process can choose its name, and must not control the terminal with it.
    return f"{pid} {printable(name.strip())}"
