"""Computes how many bytes of a command and of a session's state fit into the arguments and the
environment of the next bash.

execve(2) takes only strings shorter than 128 KiB. All strings and their pointers together may take
a quarter of the limit on the stack (RLIMIT_STACK), at least 128 KiB and at most 6 MiB. The script
of the state sets the variables and functions that do not fit.
"""

from __future__ import annotations

import resource
from typing import Final

_KIB: Final = 1024
_AT_LEAST: Final = 128 * _KIB
_AT_MOST: Final = 6 * _KIB * _KIB
_LONGEST: Final = 128 * _KIB - 1
# Room for the other arguments of bash, and for additions of shelld.
_RESERVED: Final = 32 * _KIB
# Besides name and value, an entry of the environment has an equals sign, a NUL byte and a pointer.
_PER_ENTRY: Final = 10

MAX_ENTRY_BYTES: Final = 64 * _KIB


def space_for(stack_limit: int) -> int:
    """Return how many bytes all strings and pointers together may take.

    `stack_limit`: RLIMIT_STACK of the process that starts bash, in bytes.
    """
    quarter = _AT_MOST if stack_limit == resource.RLIM_INFINITY else stack_limit // 4
    return min(max(quarter, _AT_LEAST), _AT_MOST)


def share_of_command(space: int) -> int:
    """Return how many bytes of `space` the command may have."""
    return min(_LONGEST, space // 4)


def share_of_variables(space: int) -> int:
    """Return how many bytes the variables of a state may take.

    The functions of the state may take another share of the same size.
    """
    return (space - share_of_command(space) - _RESERVED) // 2


# Runners inherit the daemon's limit on the stack.
_SPACE: Final = space_for(resource.getrlimit(resource.RLIMIT_STACK)[0])
MAX_ENV_BYTES: Final = share_of_variables(_SPACE)
# A longer command cannot be an argument of bash.
MAX_ARGUMENT_BYTES: Final = share_of_command(_SPACE)


def entry_bytes(name: bytes, value: bytes) -> int:
    """Return how many bytes an entry takes in the environment."""
    return len(name) + len(value) + _PER_ENTRY
