"""Closes the abstract unix sockets of the machine to a process, with Landlock. Nothing else of it.

Python has no functions for these system calls.
"""

from __future__ import annotations

import ctypes
import os
from typing import Final

# Landlock's system calls have the same numbers on all machines.
_CREATE_RULESET: Final = 444
_RESTRICT_SELF: Final = 446
_GET_VERSION: Final = 1
# The first version that can close the abstract sockets of other domains (Linux 6.12).
_MIN_VERSION: Final = 6
_SCOPE_ABSTRACT_SOCKETS: Final = 1


class _Ruleset(ctypes.Structure):
    """struct landlock_ruleset_attr."""

    _fields_ = (
        ("handled_access_fs", ctypes.c_uint64),
        ("handled_access_net", ctypes.c_uint64),
        ("scoped", ctypes.c_uint64),
    )


def can_close_abstract_sockets() -> bool:
    """Return whether `close_abstract_sockets` can work on this system."""
    version = ctypes.CDLL(None).syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), _GET_VERSION)
    return int(version) >= _MIN_VERSION


def close_abstract_sockets() -> None:
    """Let this process and its descendants connect to no abstract unix socket of others.

    Sockets without a path belong to the network namespace. Raises OSError.
    """
    libc = ctypes.CDLL(None)
    ruleset = _Ruleset(0, 0, _SCOPE_ABSTRACT_SOCKETS)
    size = ctypes.c_size_t(ctypes.sizeof(ruleset))
    descriptor = libc.syscall(_CREATE_RULESET, ctypes.byref(ruleset), size, 0)
    if descriptor < 0:
        raise OSError
    try:
        # bubblewrap has set no_new_privs, which this call requires.
        if libc.syscall(_RESTRICT_SELF, descriptor, 0):
            raise OSError
    finally:
        os.close(descriptor)
