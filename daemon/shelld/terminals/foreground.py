"""Finds out whether the program that reads typed input is a shell.

Looks only at processes, because the text on a terminal is not reliable. A process that cannot be
inspected, such as a process of another user, does not count as a shell.
"""

from __future__ import annotations

import contextlib
import os
import platform
import re
import signal
import stat
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from shelld.guard import vocabulary
from shelld.keeper.tree import lister, look

# Includes programs that the guard does not judge as shells, because they may read lines too.
SHELLS: Final = vocabulary.SHELLS | {"busybox", "csh", "tcsh"}

# Enough for a pipeline in a shell in a shell. More processes are not looked at.
_MAX_PROCESSES: Final = 256

# The system calls in which a shell waits for a child: wait4, waitid and rt_sigsuspend.
_WAITS: Final = {
    "x86_64": frozenset(["61", "247", "130"]),
    "aarch64": frozenset(["260", "95", "133"]),
}.get(platform.machine())
# The device of /dev/tty: the terminal of the process that opens it.
OWN_TERMINAL: Final = os.makedev(5, 0)
_IGNORED: Final = re.compile(rb"^SigIgn:\s*([0-9a-f]+)", re.MULTILINE)


class Source(NamedTuple):
    """Where input goes. `group`: only this process group can read it; None on a pipe.

    `file`: the device number of a terminal, or device and inode of a pipe.
    """

    group: int | None
    file: tuple[int, ...]


def file_of(descriptor: int | str) -> tuple[int, ...]:
    """Return the value of `Source.file` for a descriptor or a path. Raises OSError."""
    found = os.stat(descriptor)
    return (found.st_rdev,) if stat.S_ISCHR(found.st_mode) else (found.st_dev, found.st_ino)


class _Shell(NamedTuple):
    """A shell that may read the input. `waits`: whether it waits for one of its children."""

    pid: int
    waits: bool
    children: list[int]


def directory_of_reader(top: int, source: Source) -> str | None:
    """Return the working directory of a shell that reads the input; None if no shell reads it.

    The search starts from the process `top`. A shell reads input unless it waits for a child that
    has the same input. Returns "/" if the directory cannot be read.
    """
    for shell in _shells(top, source):
        readers = (child for child in _alive(shell.children) if _may_read(child, source))
        if not (shell.waits and any(readers)):
            return _directory(shell.pid)
    return None


def interrupt_is_ignored(top: int, source: Source) -> bool:
    """Whether a shell that can read the input ignores SIGINT, and so keeps its line."""
    return any(_ignores_interrupt(shell.pid) for shell in _shells(top, source))


def _shells(top: int, source: Source) -> Iterator[_Shell]:
    """Yield the shells that may read the input, among `top` and its descendants.

    A process whose children cannot be listed counts as childless.
    """
    list_children = lister() or _no_children
    waiting = [top]
    for _ in range(_MAX_PROCESSES):
        if not waiting:
            return
        pid = waiting.pop()
        with contextlib.suppress(OSError, ValueError):
            is_shell = _program(pid) in SHELLS
            # Check this before listing the children: a waiting shell starts no new child, so the
            # list is then complete.
            waits = is_shell and _waits(pid)
            children = list[int]()
            with contextlib.suppress(OSError, ValueError):
                children = list_children(pid)
            waiting += children
            if is_shell and not look(pid).is_dead and _is_near(pid, top, source):
                yield _Shell(pid, waits, children)


def _no_children(_pid: int) -> list[int]:
    return []


def _is_near(pid: int, top: int, source: Source) -> bool:
    """Whether a process may read the input now. A terminal stops reads by the background groups of
    its own session, but not by other sessions.
    """
    if source.group is None or os.getpgid(pid) == source.group:
        return True
    return os.getsid(pid) != os.getsid(top) and _may_read(pid, source)


def _alive(pids: Iterable[int]) -> Iterator[int]:
    for pid in pids:
        with contextlib.suppress(OSError, ValueError):
            if not look(pid).is_dead:
                yield pid


def _may_read(pid: int, source: Source) -> bool:
    """Whether a process has the input as its standard input, as far as can be seen."""
    try:
        found = file_of(f"/proc/{pid}/fd/0")
    except FileNotFoundError:
        return False
    except OSError:
        # A program of another user, such as sudo.
        return True
    return found == source.file or (source.group is not None and found == (OWN_TERMINAL,))


def _waits(pid: int) -> bool:
    """Whether a shell waits for a child, as far as can be seen."""
    try:
        with open(f"/proc/{pid}/syscall", "rb") as file:
            number = file.read().split(b" ", 1)[0].decode()
    except OSError:
        return True
    return _WAITS is None or number in _WAITS


def _ignores_interrupt(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/status", "rb") as file:
            found = _IGNORED.search(file.read())
    except OSError:
        return False
    return found is not None and bool(int(found[1], 16) >> (signal.SIGINT - 1) & 1)


def _program(pid: int) -> str:
    try:
        # A package may have been upgraded since the start.
        return os.path.basename(os.readlink(f"/proc/{pid}/exe").removesuffix(" (deleted)"))
    except OSError:
        return ""


def _directory(pid: int) -> str:
    try:
        return os.readlink(f"/proc/{pid}/cwd")
    except OSError:
        return "/"
