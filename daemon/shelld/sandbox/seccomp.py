"""Makes the program for seccomp(2) that refuses system calls in a sandbox. Pure.

Namespaces and mounts do not cover all dangers. They do not cover socket families without a
namespace (AF_VSOCK), the user's keys, and a terminal's input queue (TIOCSTI). If the network is
none, internet sockets are refused as well. Other ways to make a socket (io_uring, other system call
tables) are refused as a whole, and so are new user namespaces.
"""

from __future__ import annotations

import errno
import platform
import struct
from typing import Final, NamedTuple

# Instructions of classic BPF, and the offsets in struct seccomp_data.
_LOAD: Final = 0x20
_JUMP_EQUAL: Final = 0x15
_JUMP_GREATER_EQUAL: Final = 0x35
_JUMP_ANY: Final = 0x45
_RETURN: Final = 0x06
_NUMBER: Final = 0
_ARCHITECTURE: Final = 4
_ARGUMENTS: Final = 16

_ALLOW: Final = 0x7FFF0000
_ERRNO: Final = 0x00050000

_AF_UNIX: Final = 1
_AF_INET: Final = 2
_AF_INET6: Final = 10
_AF_NETLINK: Final = 16
_CLONE_NEWUSER: Final = 0x10000000
_TIOCSTI: Final = 0x5412
_TIOCLINUX: Final = 0x541C
# If a system call's number has this bit, the call belongs to the x32 table, which numbers its calls
# differently.
_X32: Final = 0x40000000


class _Machine(NamedTuple):
    """The numbers of the system calls on one type of machine."""

    architecture: int
    socket: int
    socketpair: int
    ioctl: int
    clone: int
    unshare: int
    keys: tuple[int, int, int]


_MACHINES: Final = {
    "x86_64": _Machine(0xC000003E, 41, 53, 16, 56, 272, (248, 249, 250)),
    "aarch64": _Machine(0xC00000B7, 198, 199, 29, 220, 97, (217, 218, 219)),
}
# Newer system calls have the same numbers on all machines.
_CLONE3: Final = 435
_IO_URING: Final = (425, 426, 427)
_SETNS: Final = {"x86_64": 308, "aarch64": 268}


def program(*, has_network: bool, machine: str | None = None) -> bytes | None:
    """Return the filter as bytes; None for a machine whose system calls are not known."""
    machine = machine or platform.machine()
    if machine not in _MACHINES:
        return None
    table = _MACHINES[machine]
    families = [_AF_UNIX, _AF_NETLINK, *((_AF_INET, _AF_INET6) if has_network else ())]
    steps = [
        _step(_LOAD, _ARCHITECTURE),
        _step(_JUMP_EQUAL, table.architecture, 1, 0),
        _refuse(errno.ENOSYS),
        _step(_LOAD, _NUMBER),
        _step(_JUMP_GREATER_EQUAL, _X32, 0, 1),
        _refuse(errno.ENOSYS),
    ]
    # Without clone3, programs use clone, whose flags this filter can see.
    for number in (*_IO_URING, _CLONE3):
        steps += _when(number, [_refuse(errno.ENOSYS)])
    for number in (*table.keys, _SETNS[machine]):
        steps += _when(number, [_refuse(errno.EPERM)])
    for number in (table.socket, table.socketpair):
        steps += _when(number, _unless_one_of(families, errno.EAFNOSUPPORT))
    for number in (table.clone, table.unshare):
        steps += _when(
            number,
            [
                _step(_LOAD, _ARGUMENTS),
                _step(_JUMP_ANY, _CLONE_NEWUSER, 0, 1),
                _refuse(errno.EPERM),
                _step(_RETURN, _ALLOW),
            ],
        )
    steps += _when(
        table.ioctl,
        [
            # The kernel ignores the upper half of this argument.
            _step(_LOAD, _ARGUMENTS + 8),
            _step(_JUMP_EQUAL, _TIOCSTI, 1, 0),
            _step(_JUMP_EQUAL, _TIOCLINUX, 0, 1),
            _refuse(errno.EPERM),
            _step(_RETURN, _ALLOW),
        ],
    )
    return b"".join([*steps, _step(_RETURN, _ALLOW)])


def _step(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, value)


def _refuse(number: int) -> bytes:
    return _step(_RETURN, _ERRNO | number)


def _when(number: int, steps: list[bytes]) -> list[bytes]:
    """Return a program that runs `steps` for one system call, and skips `steps` for all others.
    `steps` must end with a decision about the call.
    """
    return [_step(_JUMP_EQUAL, number, 0, len(steps)), *steps]


def _unless_one_of(values: list[int], error: int) -> list[bytes]:
    """Refuse a call whose first argument is none of `values`."""
    jumps = [
        _step(_JUMP_EQUAL, value, len(values) - index, 0) for index, value in enumerate(values)
    ]
    return [_step(_LOAD, _ARGUMENTS), *jumps, _refuse(error), _step(_RETURN, _ALLOW)]
