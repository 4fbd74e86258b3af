"""Uses Landlock to close three gaps that mounts and namespaces leave in a sandbox.

* Named pipes and devices: a program can open them for writing although their mount is read-only.
* File systems that are mounted outside while the sandbox runs: they appear in the sandbox, and are
  not read-only there.
* Abstract unix sockets outside the sandbox: a sandbox that shares the network can connect to them.

Python has no functions for these system calls.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable
from contextlib import suppress
from typing import Final

# Landlock's system calls have the same numbers on all architectures.
_CREATE_RULESET: Final = 444
_ADD_RULE: Final = 445
_RESTRICT_SELF: Final = 446
_GET_VERSION: Final = 1
_PATH_BENEATH: Final = 1
# The first version of Landlock that can allow moves of files to another directory (Linux 5.19).
_VERSION_FOR_FILES: Final = 2
# The first version of Landlock that can restrict truncate(2) (Linux 6.2).
_VERSION_FOR_TRUNCATION: Final = 3
# The first version of Landlock that can close the abstract sockets of other domains (Linux 6.12).
_VERSION_FOR_SOCKETS: Final = 6
_WRITE_FILE: Final = 1 << 1
# The rights to remove and to make files and directories of every kind.
_CHANGE_DIRECTORY: Final = sum(1 << bit for bit in range(4, 13))
_MOVE: Final = 1 << 13
_TRUNCATE: Final = 1 << 14
_SCOPE_ABSTRACT_SOCKETS: Final = 1


class _Ruleset(ctypes.Structure):
    """The C struct `landlock_ruleset_attr`."""

    _fields_ = (
        ("handled_access_fs", ctypes.c_uint64),
        ("handled_access_net", ctypes.c_uint64),
        ("scoped", ctypes.c_uint64),
    )


class _Rule(ctypes.Structure):
    """The C struct `landlock_path_beneath_attr`."""

    _pack_ = 1
    _fields_ = (("allowed_access", ctypes.c_uint64), ("parent_fd", ctypes.c_int32))


def can_close_abstract_sockets() -> bool:
    """Return whether `restrict` can close abstract unix sockets on this system."""
    return _version() >= _VERSION_FOR_SOCKETS


def restrict(
    writable: Iterable[str], descriptors: Iterable[int] = (), *, closes_sockets: bool
) -> None:
    """Forbid this process and its descendants to write to files, and to make and remove files,
    except in some directories.

    `writable` are the paths of these directories. A path that cannot be reached is skipped.
    `descriptors` refer to further such directories. With `closes_sockets`, this process and its
    descendants also cannot connect to abstract unix sockets of other processes.

    If the kernel is too old to restrict files, this restricts no files. Raises OSError for other
    failures.
    """
    version = _version()
    handled = _WRITE_FILE | _CHANGE_DIRECTORY | _MOVE if version >= _VERSION_FOR_FILES else 0
    if version >= _VERSION_FOR_TRUNCATION:
        handled |= _TRUNCATE
    if not handled and not closes_sockets:
        return
    ruleset = _Ruleset(handled, 0, _SCOPE_ABSTRACT_SOCKETS if closes_sockets else 0)
    # Older versions of Landlock do not know the last members of the struct.
    size = ctypes.sizeof(ruleset) if closes_sockets else _Ruleset.handled_access_net.offset
    made = _call(_CREATE_RULESET, ctypes.byref(ruleset), ctypes.c_size_t(size), 0)
    try:
        if handled:
            for path in writable:
                with suppress(FileNotFoundError, PermissionError):
                    _allow_path(made, path, handled)
            for descriptor in descriptors:
                _allow(made, descriptor, handled)
        # bubblewrap has set no_new_privs, which this call requires.
        _call(_RESTRICT_SELF, made, 0)
    finally:
        os.close(made)


def _version() -> int:
    version = ctypes.CDLL(None).syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), _GET_VERSION)
    return int(version)


def _allow_path(ruleset: int, path: str, access: int) -> None:
    descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        # A rule for a file cannot contain the rights that only directories have.
        is_directory = os.path.isdir(path)
        _allow(ruleset, descriptor, access if is_directory else access & (_WRITE_FILE | _TRUNCATE))
    finally:
        os.close(descriptor)


def _allow(ruleset: int, descriptor: int, access: int) -> None:
    rule = _Rule(access, descriptor)
    _call(_ADD_RULE, ruleset, _PATH_BENEATH, ctypes.byref(rule), 0)


def _call(number: int, *args: object) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    result = int(libc.syscall(number, *args))
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return result
