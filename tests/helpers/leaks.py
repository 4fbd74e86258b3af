"""Detect the descriptors, threads, children, zombies and temporary files that a test leaves behind.

The test process adopts orphans, so a process that escapes from a daemon under test becomes a child
of the test process. This module then finds the process among the children.
"""

from __future__ import annotations

import contextlib
import gc
import os
import re
import stat
import tempfile
import threading
from collections import Counter
from typing import NamedTuple

from shelld.keeper.idle_runners import MAX_IDLE
from support import children, is_alive, wait_for


class Resources(NamedTuple):
    """The resources of this process. Each descriptor is recorded as its number and target."""

    descriptors: frozenset[str]
    threads: frozenset[str]
    children: frozenset[int]
    temporary_files: frozenset[str]

    @staticmethod
    def now() -> Resources:
        _reap_orphans()
        return Resources(
            _descriptors(),
            # Trio keeps idle worker threads for a while, to reuse them.
            frozenset(name for name in _threads() if not name.startswith("Trio thread")),
            frozenset(children(os.getpid())),
            frozenset(os.listdir(tempfile.gettempdir())),
        )

    def since(self, before: Resources) -> list[str]:
        """Describe each resource that did not exist in `before`."""
        pairs: zip[tuple[str, frozenset[object], frozenset[object]]]
        pairs = zip(self._fields, self, before, strict=True)
        return [f"{name}: {set(now - then)}" for name, now, then in pairs if now - then]


def _threads() -> list[str]:
    return [thread.name for thread in threading.enumerate()]


def _descriptors() -> frozenset[str]:
    found: set[str] = set()
    for name in os.listdir("/proc/self/fd"):
        # The list includes the descriptor that `os.listdir` used, which is closed by now.
        with contextlib.suppress(OSError):
            found.add(f"{name} {os.readlink(f'/proc/self/fd/{name}')}")
    return frozenset(found)


def _reap_orphans() -> None:
    for pid in children(os.getpid()):
        if not is_alive(pid):
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)


def assert_nothing_new_since(before: Resources) -> None:
    """Wait until no new resource is left, since processes may take a moment to end."""
    now = Resources.now()
    if not now.since(before):
        return
    if now._replace(children=before.children).since(before):
        # Garbage may keep resources of all kinds alive, except processes. Collecting the garbage
        # takes longer than most tests, so do it only if such a resource is left.
        gc.collect()
    left: list[str] = []

    def nothing_is_left() -> bool:
        left[:] = Resources.now().since(before)
        return not left

    try:
        wait_for(nothing_is_left)
    except AssertionError:
        raise AssertionError(f"the test leaks {'; '.join(left)}") from None


# A daemon may keep these for later commands: a socket for each idle runner, pollers, and one more
# dump file. If a spare shell fails, its command starts in another shell, and each of these shells
# needs a dump file.
_KEPT_FOR_LATER = {
    "socket:": MAX_IDLE,
    "anon_inode:[eventpoll]": 8,
    "memfd:shelld deleted": 1,
}


def targets_of(pid: int) -> list[str]:
    """Return what a process's descriptors refer to, without sockets that a sandbox hides.

    If the process has ended, the list is empty.
    """
    found: list[str] = []
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        for name in os.listdir(f"/proc/{pid}/fd"):
            path = f"/proc/{pid}/fd/{name}"
            with contextlib.suppress(OSError):
                target = os.readlink(path)
                # A sandbox hides the sockets of the machine, and keeps each hidden socket open.
                is_hidden = target.startswith("/") and stat.S_ISSOCK(os.stat(path).st_mode)
                found += [] if is_hidden else [target]
    return found


def descriptors_of(pid: int) -> Counter[str]:
    """Count the descriptors of a process by kind."""
    return Counter(
        re.sub(r"[\d()]+|\[\d+\]", "", target).split("/")[-1] for target in targets_of(pid)
    )


def descriptors_beyond(pid: int, before: Counter[str]) -> list[str]:
    """Describe the new descriptors of a daemon or keeper, except those that it may keep."""
    more = descriptors_of(pid) - before
    return [f"{kind} +{n}" for kind, n in more.items() if n > _KEPT_FOR_LATER.get(kind, 0)]
