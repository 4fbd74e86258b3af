"""Manages the daemon's own memory: collects garbage rarely, and returns freed memory to the system.

This module affects the whole process, so only the daemon uses it.
"""

from __future__ import annotations

import ctypes
import gc
from typing import Final

import anyio

# Python looks for cycles when there are this many new objects. A few hundred concurrent requests
# create fewer objects.
GARBAGE_THRESHOLD: Final = 20_000
# The daemon returns freed memory to the system at this interval. So after a large output, it may
# keep the memory for this long.
GIVE_BACK_S: Final = 15.0


def collect_rarely() -> None:
    """Freeze the existing objects, and look for cycles only once there are many new objects.

    Imported objects exist until the process ends. Requests leave no cycles behind. By default,
    Python looks for cycles after every few hundred objects. That would take 5 % of the time of a
    short command.
    """
    gc.freeze()
    gc.enable()
    gc.set_threshold(GARBAGE_THRESHOLD, *gc.get_threshold()[1:])


async def give_back_regularly() -> None:
    """Return freed memory to the system every `GIVE_BACK_S`.

    When a program frees a large allocation, glibc keeps the memory for later allocations
    (mallopt(3), M_MMAP_THRESHOLD). This speeds up the next large output. But allocations at higher
    addresses can keep glibc from returning the memory to the system for a long time. malloc_trim(3)
    takes some milliseconds if the daemon has freed much memory, and almost no time otherwise.
    """
    # C libraries other than glibc do not keep freed memory, and do not have malloc_trim.
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    while trim is not None:
        await anyio.sleep(GIVE_BACK_S)
        trim(0)
