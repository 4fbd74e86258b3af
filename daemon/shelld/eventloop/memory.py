"""The daemon's own memory: when garbage is looked for, and that what is freed goes back.

Affects the whole process, so only the daemon uses it.
"""

from __future__ import annotations

import ctypes
import gc
from typing import Final

import anyio

# Objects, more than are in use by a few hundred requests in flight.
GARBAGE_THRESHOLD: Final = 20_000
# How long the memory of a large output may stay with us.
GIVE_BACK_S: Final = 15.0


def collect_rarely() -> None:
    """Freeze the objects that exist, and look for cycles only once there are many new ones.

    What was imported is here to stay. Requests leave no cycles behind; to look for them after a few
    hundred objects, as is the default, takes a twentieth of the time of a short command.
    """
    gc.freeze()
    gc.enable()
    gc.set_threshold(GARBAGE_THRESHOLD, *gc.get_threshold()[1:])


async def give_back_regularly() -> None:
    """Return freed memory to the system again and again.

    glibc takes a large allocation that is freed as a sign to keep room for more (mallopt(3),
    M_MMAP_THRESHOLD). That makes the next large output faster, but what is allocated above such
    room would hold it for long. malloc_trim(3) takes some milliseconds where much was freed, and
    next to none elsewhere.
    """
    # Other C libraries have neither that habit nor this function.
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    while trim is not None:
        await anyio.sleep(GIVE_BACK_S)
        trim(0)
