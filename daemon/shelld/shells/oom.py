"""Whether the kernel has killed a process because memory was short.

wait4(2) tells of a SIGKILL, not of who sent it. The kernel counts the processes that it kills when
memory runs out: for our own memory cgroup, or else for the machine. A command that died of a
SIGKILL which nobody here sent, while that count went up, is taken to be one of them.
"""

from __future__ import annotations

import os
import re
from typing import Final

from shelld.keeper.own_cgroups import own_cgroups

_MACHINE: Final = "/proc/vmstat"
_COUNT: Final = re.compile(rb"^oom_kill (\d+)$", re.MULTILINE)


class OomKills:
    """The count, of `path` if given. Owns that file's descriptor from first use to `close`."""

    def __init__(self, path: str | None = None) -> None:
        self._path = path
        self._is_open = False
        self._descriptor: int | None = None

    @property
    def is_counting(self) -> bool:
        """Whether there was a count to be read."""
        return self._descriptor is not None

    def count(self) -> int:
        """Return the count of this moment, in a few microseconds; 0 where nothing is counted."""
        if not self._is_open:
            self._open()
        return self._read() or 0

    def _open(self) -> None:
        self._is_open = True
        for path in _own_counters() if self._path is None else [self._path]:
            try:
                self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            except OSError:
                continue
            if self._read() is not None:
                return
            self._close()

    def _read(self) -> int | None:
        if self._descriptor is None:
            return None
        try:
            content = os.pread(self._descriptor, 65536, 0)
        except OSError:
            return None
        found = _COUNT.search(content)
        return int(found[1]) if found else None

    def _close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def close(self) -> None:
        """Count no more, until the next call."""
        self._close()
        self._is_open = False


def _own_counters() -> list[str]:
    """Return the files that may hold the count, the most specific first."""
    names = {"": "memory.events", "memory": "memory.oom_control"}
    cgroups = [own for own in own_cgroups() if own.controllers in names]
    return [*(f"{own.directory}/{names[own.controllers]}" for own in cgroups), _MACHINE]
