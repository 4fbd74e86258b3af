"""How much of a state can be in the environment with which the next bash starts.

execve(2) takes only strings shorter than 128 KiB. All strings and their pointers together may take
a quarter of the stack's limit, at least 128 KiB and at most 6 MiB. Variables and functions that do
not fit are set by the script of the state.
"""

from __future__ import annotations

import resource
from typing import Final

_KIB: Final = 1024
_AT_LEAST: Final = 128 * _KIB
_AT_MOST: Final = 6 * _KIB * _KIB
# Room for the command, which is an argument, and for what shelld adds.
_RESERVED: Final = (128 + 32) * _KIB
# An entry also has an equals sign, a NUL byte and a pointer.
_PER_ENTRY: Final = 10

MAX_ENTRY_BYTES: Final = 64 * _KIB


def share_of(stack_limit: int) -> int:
    """Return how many bytes the variables of a state may take; its functions may take as many.

    `stack_limit`: RLIMIT_STACK of the process that starts bash, in bytes.
    """
    quarter = _AT_MOST if stack_limit == resource.RLIM_INFINITY else stack_limit // 4
    space = min(max(quarter, _AT_LEAST), _AT_MOST)
    return max(0, space - _RESERVED) // 2


# Runners inherit the daemon's limit.
MAX_ENV_BYTES: Final = share_of(resource.getrlimit(resource.RLIMIT_STACK)[0])


def entry_bytes(name: bytes, value: bytes) -> int:
    """Return how many bytes an entry takes in the environment."""
    return len(name) + len(value) + _PER_ENTRY
