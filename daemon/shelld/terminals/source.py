"""Where the input of a command goes: a terminal or a pipe."""

from __future__ import annotations

import os
import stat
from typing import Final, NamedTuple

# The device of /dev/tty: the terminal of the process that opens it.
OWN_TERMINAL: Final = os.makedev(5, 0)


class Source(NamedTuple):
    """Where input goes. `group`: only this process group can read it.

    `group` is None for a pipe. It may be None for a terminal that the daemon did not open: each
    process then tells which group is in the foreground of its terminal.

    `file`: the device number of a terminal, or device and inode of a pipe.
    """

    group: int | None
    file: tuple[int, ...]


def file_of(descriptor: int | str) -> tuple[int, ...]:
    """Return the value of `Source.file` for a descriptor or a path. Raises OSError."""
    found = os.stat(descriptor)
    return (found.st_rdev,) if stat.S_ISCHR(found.st_mode) else (found.st_dev, found.st_ino)
