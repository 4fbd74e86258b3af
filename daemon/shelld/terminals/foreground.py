"""Which program reads what is typed: is it a shell?

Looks at processes only; the text on a terminal says nothing reliable. A process that cannot be
inspected, such as one of another user, counts as no shell.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Final, NamedTuple

SHELLS: Final = frozenset(
    {"ash", "bash", "busybox", "csh", "dash", "fish", "ksh", "mksh", "sh"}
) | {
    "tcsh",
    "zsh",
}

# Enough for a pipeline in a shell in a shell. More processes are not looked at.
_MAX_PROCESSES: Final = 256

_PARENT, _GROUP = 1, 2


class ReadingShell(NamedTuple):
    """`directory`: its working directory, as text; "/" if it cannot be read."""

    pid: int
    directory: str


def reading_shell(top: int, group: int) -> ReadingShell | None:
    """Return the shell that reads the input of a process group, if one does.

    `top` is the process from which the search starts. A shell reads input if it has no child in its
    group that could read it: a shell that waits for a program is not the reader.
    """
    members = _members(top, group)
    parents = set(members.values())
    for pid in members:
        if pid not in parents and _program(pid) in SHELLS:
            return ReadingShell(pid, _directory(pid))
    return None


def _members(top: int, group: int) -> dict[int, int]:
    """Return the parents of the members of a group, by pid, among `top` and all below it."""
    found: dict[int, int] = {}
    waiting = [top]
    for _ in range(_MAX_PROCESSES):
        if not waiting:
            break
        pid = waiting.pop()
        with contextlib.suppress(OSError, ValueError, IndexError):
            stat = Path(f"/proc/{pid}/stat").read_bytes()
            fields = stat.rpartition(b")")[2].split()
            if int(fields[_GROUP]) == group and fields[0] != b"Z":
                found[pid] = int(fields[_PARENT])
            for thread in os.listdir(f"/proc/{pid}/task"):
                children = Path(f"/proc/{pid}/task/{thread}/children").read_bytes()
                waiting += map(int, children.split())
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
