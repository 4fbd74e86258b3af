"""Finds out whether the program that reads typed input is a shell.

This module looks only at processes, because the text on a terminal is not reliable. If the daemon
cannot see which program a process runs, because the process belongs to another user, the name of
the process decides. If the name is hidden as well, the process counts as a shell that reads. If the
system is short of descriptors or memory, the search could miss a shell, so the functions raise
OSError.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from shelld.guard import vocabulary
from shelld.inspection.files import file_in
from shelld.inspection.kernel import Process, name_of, process, waits_for_child
from shelld.inspection.members import members
from shelld.keeper.proc import exists
from shelld.terminals.source import OWN_TERMINAL, Source
from shelld_protocol.errors import exhausted_limit

# The guard does not judge busybox as a shell, but busybox may also read lines.
SHELLS: Final = vocabulary.SHELLS | {"busybox"}

# Examining this number of processes takes about 15 ms. A process beyond this number counts as a
# shell that may read the input.
_MAX_PROCESSES: Final = 500

# Matches the signals that the kernel has not delivered yet to the thread or the process.
_PENDING: Final = re.compile(rb"^(?:SigPnd|ShdPnd):\s*([0-9a-f]+)", re.MULTILINE)
_IGNORED: Final = re.compile(rb"^SigIgn:\s*([0-9a-f]+)", re.MULTILINE)


class _Shell(NamedTuple):
    """A shell that may read the input. `waits`: whether the shell waits for one of its children.

    An item with the `pid` None stands for processes that the daemon cannot see, or has not
    examined. Such a shell may be among these processes. `source`: the source from which the shell
    reads. This is the shell's own terminal if a program such as sudo or tmux passes the input on to
    that terminal.
    """

    pid: int | None
    waits: bool
    source: Source


def directories_of_readers(top: int, source: Source) -> list[str]:
    """Return the working directories of the shells that may read the input, without duplicates.

    Examines the processes of one command. `top` is the process id of the command's bash. A shell
    may read input unless it waits for a child that has the same input. If a directory is unknown,
    the result has "/" instead.
    """
    pids: list[int] = []
    directories = dict[str, None]()
    shells = list(_shells(top, source, pids))
    children = _by_parent(pids) if any(shell.waits for shell in shells) else {}
    for pid, waits, own in shells:
        if pid is None:
            directories["/"] = None
            break
        readers = (child for child in children.get(pid, ()) if _may_read(child, own))
        if not (waits and any(readers)):
            directories[_directory(pid)] = None
    return list(directories)


def interrupt_is_ignored(top: int, source: Source) -> bool:
    """Return whether a shell that can read the input ignores SIGINT, and so keeps a typed line."""
    return any(
        shell.pid is None or _ignores_interrupt(shell.pid) for shell in _shells(top, source, [])
    )


def is_handling_interrupt(top: int, source: Source) -> bool:
    """Return whether a shell that can read the input may still have to handle a SIGINT.

    This is true if the shell is not in a system call, or if a SIGINT for it is pending.
    """
    return any(shell.pid is None or _is_busy(shell.pid) for shell in _shells(top, source, []))


def _by_parent(pids: Iterable[int]) -> dict[int, list[int]]:
    """Return the living processes among `pids`, grouped by their parents."""
    children: dict[int, list[int]] = {}
    for pid in pids:
        with contextlib.suppress(OSError, ValueError):
            about = process(pid)
            if not about.is_dead:
                children.setdefault(about.parent, []).append(pid)
    return children


def _shells(top: int, source: Source, pids: list[int]) -> Iterator[_Shell]:
    """Yield the shells that may read the input.

    Add each process to `pids`. A process whose children cannot be listed counts as childless.
    Raises OSError if the system is short of descriptors or memory.
    """
    _check_for_shortage()
    found = (pid for pid in members(top) if pid is not None)
    for number, pid in enumerate(found):
        if number == _MAX_PROCESSES:
            yield _Shell(None, False, source)
            return
        pids.append(pid)
        program = _program(pid)
        if not program and _is_hidden(pid):
            yield _Shell(None, False, source)
            return
        if program not in SHELLS:
            continue
        with contextlib.suppress(OSError, ValueError):
            # First check whether the shell waits. Then let `members` list the children of the
            # shell. While a shell waits, it starts no new child, so no child is missing in that
            # list.
            waits = waits_for_child(pid)
            about = process(pid)
            own = None if about.is_dead else _source_of(pid, about, top, source)
            if own is not None:
                yield _Shell(pid, waits, own)
    _check_for_shortage()


def _check_for_shortage() -> None:
    try:
        os.close(os.open("/proc/self/stat", os.O_RDONLY | os.O_CLOEXEC))
    except OSError as error:
        if exhausted_limit(error.errno or 0):
            raise


def _source_of(pid: int, about: Process, top: int, source: Source) -> Source | None:
    """Return the source from which a process may read the input now, or None.

    A background process of the terminal's own session cannot read from the terminal, but a process
    of another session can.
    """
    if source.group is None or about.group == source.group:
        return source
    if os.getsid(pid) != os.getsid(top) and _may_read(pid, source):
        return source
    # The process has another terminal. In a container, that terminal may have the same number as
    # our terminal.
    if about.terminal and about.is_in_foreground:
        return Source(about.group, (about.terminal,))
    return None


def _may_read(pid: int, source: Source) -> bool:
    """Return whether the input is, or may be, the standard input of a process."""
    try:
        found = file_in(f"/proc/{pid}", 0, source.mount)
    except FileNotFoundError:
        return False
    except OSError:
        # This is a program of another user, such as sudo.
        return True
    return found == source.file or (source.group is not None and found == (OWN_TERMINAL,))


def _ignores_interrupt(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/status", "rb") as file:
            found = _IGNORED.search(file.read())
    except OSError:
        return False
    return found is not None and _has_interrupt(found[1])


def _is_busy(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/syscall", "rb") as file:
            # The file begins with a number only if the process is in a system call. Otherwise, the
            # file begins with "running" or "-1".
            runs = not file.read(1).isdigit()
        with open(f"/proc/{pid}/status", "rb") as file:
            pending = _PENDING.findall(file.read())
    except OSError:
        return True
    return runs or any(map(_has_interrupt, pending))


def _has_interrupt(signals: bytes) -> bool:
    return bool(int(signals, 16) >> (signal.SIGINT - 1) & 1)


def _program(pid: int) -> str:
    try:
        # An upgrade may have deleted the file since the program started.
        return os.path.basename(os.readlink(f"/proc/{pid}/exe").removesuffix(" (deleted)"))
    except PermissionError:
        return name_of(pid)
    except OSError:
        return ""


def _is_hidden(pid: int) -> bool:
    """Return whether the system hides even the name of a process: see hidepid in proc(5)."""
    return not name_of(pid) and exists(pid)


def _directory(pid: int) -> str:
    try:
        return os.readlink(f"/proc/{pid}/cwd")
    except OSError:
        return "/"
