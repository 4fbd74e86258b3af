"""Detect what a test leaves behind: descriptors, threads, children, zombies, temporary files.

The test process adopts orphans, so a process that escapes from a daemon under test ends up as its
child and is seen here, wherever it hid.
"""

from __future__ import annotations

import contextlib
import gc
import os
import tempfile
import threading
from typing import NamedTuple

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
    if not Resources.now().since(before):
        return
    gc.collect()
    left: list[str] = []

    def nothing_is_left() -> bool:
        left[:] = Resources.now().since(before)
        return not left

    try:
        wait_for(nothing_is_left)
    except AssertionError:
        raise AssertionError(f"the test leaks {'; '.join(left)}") from None
