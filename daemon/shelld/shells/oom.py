"""Reads how many processes the kernel has killed because memory was short.

wait4(2) reports a SIGKILL, but not its sender. The kernel counts the processes that it kills when
memory runs out. This module reads the count of the daemon's own memory cgroup, or else the count of
the machine. `outcome` assumes that the kernel has sent a SIGKILL if shelld has not sent it and the
count has increased.
"""

from __future__ import annotations

import os
import re
from typing import Final

from shelld.keeper.own_cgroups import own_cgroups

_MACHINE: Final = "/proc/vmstat"
_COUNT: Final = re.compile(rb"^oom_kill (\d+)$", re.MULTILINE)


class OomKills:
    """Reads how many processes the kernel has killed for lack of memory. If `path` is given, reads
    only this file.

    Owns the descriptor from first use to `close`.
    """

    def __init__(self, path: str | None = None) -> None:
        self._path = path
        self._is_open = False
        self._descriptor: int | None = None

    def count(self) -> int:
        """Return the count, or 0 if the system has no such count. This takes a few microseconds."""
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
        """Close the file. The next call of `count` opens it again."""
        self._close()
        self._is_open = False


def _own_counters() -> list[str]:
    """Return the files that may hold the count, the most specific first."""
    names = {"": "memory.events", "memory": "memory.oom_control"}
    cgroups = [own for own in own_cgroups() if own.controllers in names]
    return [*(f"{own.directory}/{names[own.controllers]}" for own in cgroups), _MACHINE]
