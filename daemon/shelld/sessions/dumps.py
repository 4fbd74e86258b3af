"""The anonymous files to which commands write their state. Bash opens them through /proc.

A process that a command left behind may write to the path of the command's file at any later time.
The path names a descriptor. So the descriptor stays open after the command has ended, and a later
command uses the same file. In this way, no other file ever gets the descriptor's number. Each
command has a *mark*, which its own bash writes after its state.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Callable
from typing import Final

from shelld.keeper.channel import anonymous_file

# True if /proc has paths to descriptors.
CAN_RECORD: Final = os.path.isdir("/proc/self/fd")


class DumpFiles:
    """Owns the files. Makes a new file only if all existing files are in use.

    `own_directory`: a path to the daemon's own directory. If it is ".", every directory counts as
    the daemon's own.
    """

    def __init__(self, own_directory: str = ".") -> None:
        self.own_directory = own_directory
        self._marks = itertools.count(1)
        self._unused: list[int] = []
        self._is_open = True

    def next_mark(self) -> bytes:
        """Return a mark that no command has had."""
        return b"%d" % next(self._marks)

    def take(self) -> int:
        """Return the descriptor of an empty file.

        The caller owns it until `give_back`. Raises OSError.
        """
        if not self._unused:
            return self._make()
        os.ftruncate(self._unused[-1], 0)
        return self._unused.pop()

    def _make(self) -> int:
        return anonymous_file(b"")

    def open_nothing(self) -> int:
        """Return a descriptor of /dev/null for a command. Raises OSError."""
        return os.open(os.devnull, os.O_RDONLY)

    def path(self, descriptor: int) -> str:
        """Return the path at which the bash of a command finds a file."""
        return f"/proc/{os.getpid()}/fd/{descriptor}"

    def give_back(self, descriptor: int) -> None:
        """Take a file back, and free its memory. A second call for the file does nothing."""
        if descriptor in self._unused:
            return
        if not self._is_open:
            os.close(descriptor)
            return
        self._unused.append(descriptor)
        with contextlib.suppress(OSError):
            os.ftruncate(descriptor, 0)

    def close(self) -> None:
        """Close the unused files now. `give_back` closes the other files."""
        self._is_open = False
        while self._unused:
            os.close(self._unused.pop())


class PrivateDumpFiles(DumpFiles):
    """Owns the files of a sandbox. Inside the sandbox, bash does not see the process of the daemon.
    `make()` makes a file, and returns its descriptor and its path in the sandbox. `has(descriptor,
    path)` returns whether commands can still write to the file at this path. `nothing()` opens the
    sandbox's /dev/null, and returns the descriptor. `make` and `nothing` raise OSError.
    """

    def __init__(
        self,
        make: Callable[[], tuple[int, str]],
        has: Callable[[int, str], bool],
        nothing: Callable[[], int],
    ) -> None:
        # No directory in a sandbox counts as the daemon's own.
        super().__init__("/nonexistent")
        self._make_file = make
        self._has_file = has
        self._open_nothing = nothing
        self._paths: dict[int, str] = {}

    def take(self) -> int:
        # A command may have deleted or changed the files.
        while self._unused and not self._has_file(self._unused[-1], self.path(self._unused[-1])):
            os.close(self._unused.pop())
        return super().take()

    def open_nothing(self) -> int:
        return self._open_nothing()

    def _make(self) -> int:
        descriptor, path = self._make_file()
        try:
            self._paths[descriptor] = path
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    def path(self, descriptor: int) -> str:
        return self._paths[descriptor]
