"""Run a program for which the kernel refuses some system calls, as in a container.

``python3 refuses_system_calls.py WHAT PROGRAM ...``: If WHAT is "userns", the kernel refuses new
user namespaces, as Docker does by default. If WHAT is "seccomp", the kernel refuses to install
another seccomp filter.
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys

from shelld.sandbox import seccomp

_NO_NEW_PRIVILEGES = 38
_SET_FILTER = 22
_FILTER_MODE = 2
_SECCOMP = 317
_PRCTL = 157
_EPERM = 1
_ALLOW = 0x7FFF0000
_ERRNO = 0x00050000
# These are instructions of classic BPF, and offsets in struct seccomp_data.
_LOAD = 0x20
_JUMP_EQUAL = 0x15
_RETURN = 0x06
_NUMBER = 0
_FIRST_ARGUMENT = 16


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("steps", ctypes.c_char_p))


def _without_filters() -> bytes:
    """Return a filter that refuses seccomp(2) and prctl(PR_SET_SECCOMP). The filter works only on
    x86-64.
    """
    refuse, allow = (_RETURN, 0, 0, _ERRNO | _EPERM), (_RETURN, 0, 0, _ALLOW)
    steps = (
        (_LOAD, 0, 0, _NUMBER),
        (_JUMP_EQUAL, 0, 1, _SECCOMP),
        refuse,
        (_JUMP_EQUAL, 0, 3, _PRCTL),
        (_LOAD, 0, 0, _FIRST_ARGUMENT),
        (_JUMP_EQUAL, 0, 1, _SET_FILTER),
        refuse,
        allow,
    )
    return b"".join(struct.pack("=HBBI", *step) for step in steps)


def main(what: str, *command: str) -> None:
    content = seccomp.program(has_network=True) if what == "userns" else _without_filters()
    assert content is not None
    program = _Program(len(content) // 8, content)
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    if libc.prctl(_SET_FILTER, _FILTER_MODE, ctypes.byref(program), 0, 0):
        raise OSError(ctypes.get_errno(), "no filter")
    os.execvp(command[0], command)


if __name__ == "__main__":
    main(*sys.argv[1:])
