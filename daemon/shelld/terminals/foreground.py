"""Which program reads what is typed: is it a shell?

Looks at processes only; the text on a terminal says nothing reliable. A process that cannot be
inspected, such as one of another user, counts as no shell.
"""

from __future__ import annotations

import contextlib
import os
from typing import Final

from shelld.keeper.tree import children_of, look

SHELLS: Final = frozenset(
    ["ash", "bash", "busybox", "csh", "dash", "fish", "ksh", "mksh", "sh", "tcsh", "zsh"]
)

# Enough for a pipeline in a shell in a shell. More processes are not looked at.
_MAX_PROCESSES: Final = 256


def directory_of_reader(top: int, group: int) -> str | None:
    """Return the working directory of the shell that reads the input of a process group.

    None: no shell reads it. `top` is the process from which the search starts. A shell reads input
    if it has no child in its group that could read it: a shell that waits for a program is not the
    reader. If the directory cannot be read, it is "/".
    """
    members = _members(top, group)
    parents = {look(pid).parent for pid in members}
    for pid in members:
        if pid not in parents and _program(pid) in SHELLS:
            return _directory(pid)
    return None


def _members(top: int, group: int) -> list[int]:
    """Return the living members of a group among `top` and all below it."""
    found: list[int] = []
    waiting = [top]
    for _ in range(_MAX_PROCESSES):
        if not waiting:
            break
        pid = waiting.pop()
        with contextlib.suppress(OSError, ValueError):
            if os.getpgid(pid) == group and not look(pid).is_dead:
                found.append(pid)
            waiting += children_of(pid)
    return found


def _program(pid: int) -> str:
    try:
        return os.path.basename(os.readlink(f"/proc/{pid}/exe"))
    except OSError:
        return ""


def _directory(pid: int) -> str:
    try:
        return os.readlink(f"/proc/{pid}/cwd")
    except OSError:
        return "/"
