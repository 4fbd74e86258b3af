"""Reads what this process passes on to its children: the environment, the limits and the priority.

Commands inherit limits and priority from their runner, and runners inherit them from the keeper.

A command may change the limits and the priority of any process of its user, for example of its
runner with ``prlimit --pid $PPID``. After such a change, the runner takes no other command, so no
other command inherits the change. A lowered soft limit does not stop a runner or the keeper from
doing its work. But while a runner has no command, its limits and its priority are not checked. If a
command changes the limits or the priority of such a runner, the runner's next command inherits the
change. After that command, the runner takes no other command.
"""

from __future__ import annotations

import os
import resource
from contextlib import suppress
from typing import Final

_LIMITS: Final = sorted(
    {getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_")}
)


def environment() -> dict[bytes, bytes]:
    """Return the environment of this process, without entries that have no name.

    Python cannot start a program with such an entry. Bash also skips it.
    """
    return {name: value for name, value in os.environb.items() if name}


def inherited() -> tuple[object, ...]:
    """Return the limits, priority, scheduling policy and processors of this process."""
    limits = list(map(resource.getrlimit, _LIMITS))
    priority = os.getpriority(os.PRIO_PROCESS, 0)
    if not hasattr(os, "sched_getaffinity"):
        return limits, priority
    return limits, priority, os.sched_getscheduler(0), os.sched_getaffinity(0)


def _is_lower(limit: int, other: int) -> bool:
    infinity = resource.RLIM_INFINITY
    return limit != infinity and (other == infinity or limit < other)


class SavedLimits:
    """Keeps the limits of this process as they were when the object was made."""

    def __init__(self) -> None:
        self._at_start = [(number, resource.getrlimit(number)) for number in _LIMITS]

    def restore(self) -> None:
        """Raise limits that a command has lowered, as far as the system allows.

        Without descriptors or memory, this process could not find the processes that it must kill.
        """
        for number, (soft, hard) in self._at_start:
            now = resource.getrlimit(number)
            if not _is_lower(now[0], soft) and not _is_lower(now[1], hard):
                continue
            with suppress(OSError, ValueError):
                resource.setrlimit(number, (soft, hard))
                continue
            # Only root may raise a hard limit.
            with suppress(OSError, ValueError):
                resource.setrlimit(number, (now[1], now[1]))
