"""Sets attributes of this process with prctl(2), if the system has them."""

from __future__ import annotations

import signal
import sys
from typing import Final

_PR_SET_PDEATHSIG: Final = 1
_PR_SET_CHILD_SUBREAPER: Final = 36
_PR_SET_NAME: Final = 15


def become_subreaper() -> bool:
    """Adopt orphaned descendants from now on; return False if the system has no subreapers."""
    return _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def continue_when_parent_ends() -> None:
    """Make the kernel send SIGCONT to this process when its parent ends.

    Then another process becomes the parent. When that process ends, the kernel sends SIGCONT again.

    If a command has stopped this process, the parent continues it. If the parent ends before that,
    the signal from the kernel continues this process. Forks do not inherit this setting. The kernel
    also sends the signal if the parent goes on, and only the thread that has forked this process
    ends. Such a signal is harmless, because SIGCONT has no effect on a process that is not stopped.
    """
    _prctl(_PR_SET_PDEATHSIG, signal.SIGCONT)


def set_process_name(name: bytes) -> None:
    """Set this process's name in process lists (at most 15 bytes), if the system allows it."""
    _prctl(_PR_SET_NAME, name)


def _prctl(option: int, argument: int | bytes) -> bool:
    if sys.platform != "linux":
        return False
    try:
        import ctypes

        return bool(ctypes.CDLL(None).prctl(option, argument, 0, 0, 0) == 0)
    except (ImportError, OSError):
        # This Python has no ctypes, or there is no memory for it.
        return False
