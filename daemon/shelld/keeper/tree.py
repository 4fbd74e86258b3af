"""The processes below this one: subreaper, descendants, signals that cannot hit a stranger.

Everything here is about the calling process's own tree. A pid is only signalled while something
keeps it from being reused: direct children are reaped by nobody but us, and deeper descendants
are held by a pidfd and looked at again before the signal.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Final

_PR_SET_CHILD_SUBREAPER: Final = 36
_PR_SET_NAME: Final = 15


def become_subreaper(name: bytes) -> bool:
    """Adopt orphaned descendants from now on, and take `name` (15 bytes) as the process's.

    Returns False where the system has no subreapers.
    """
    if sys.platform != "linux":
        return False
    import ctypes

    libc = ctypes.CDLL(None)
    libc.prctl(_PR_SET_NAME, name, 0, 0, 0)
    return bool(libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0)


def descendants() -> dict[int, int]:
    """Return pid -> parent pid of everything below this process, zombies included.

    A snapshot: what forks meanwhile may be missed, so callers repeat until ECHILD.
    """
    us = os.getpid()
    # Kernels without CONFIG_PROC_CHILDREN leave a look at every process.
    by_parent = None if os.path.exists(f"/proc/{us}/task/{us}/children") else _all_by_parent()
    found: dict[int, int] = {}
    waiting = [us]
    while waiting:
        parent = waiting.pop()
        children = _children(parent) if by_parent is None else by_parent.get(parent, [])
        for child in children:
            if child not in found:
                found[child] = parent
                waiting.append(child)
    return found


def _all_by_parent() -> dict[int, list[int]]:
    by_parent: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            _, parent = _state_and_parent(int(name))
            by_parent.setdefault(parent, []).append(int(name))
    return by_parent


def _children(pid: int) -> list[int]:
    children: list[int] = []
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/children", "rb") as file:
                children.extend(map(int, file.read().split()))
    except (FileNotFoundError, ProcessLookupError):
        pass
    return children


def _state_and_parent(pid: int) -> tuple[bytes, int]:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The name, in parentheses, may contain anything; the last one ends it.
            fields = file.read().rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return b"X", 0
    return fields[0], int(fields[1])


def living_descendants() -> list[int]:
    """Return the pids below this process that still run, in order."""
    return sorted(pid for pid in descendants() if _state_and_parent(pid)[0] not in (b"Z", b"X"))


def signal_descendants(number: int, *, except_group: int | None = None) -> None:
    """Send a signal to everything below this process, but not to the group `except_group`."""
    us = os.getpid()
    for pid, parent in descendants().items():
        try:
            if except_group is not None and os.getpgid(pid) == except_group:
                continue
            if parent == us or not hasattr(os, "pidfd_open"):
                os.kill(pid, number)
                continue
            handle = os.pidfd_open(pid)
            try:
                # Had the pid been reused before pidfd_open, its parent would be another one.
                if _state_and_parent(pid)[1] in (parent, us):
                    signal.pidfd_send_signal(handle, number)
            finally:
                os.close(handle)
        except (ProcessLookupError, PermissionError):
            # Gone, or of another uid: the latter shows up as a survivor.
            continue
        except OSError:
            # No descriptor left for the pidfd. It is tried again; SIGKILL must not depend on it.
            continue
