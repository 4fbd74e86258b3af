"""Protects the devices in a sandbox that runs as root, and then gives up the capabilities that it
needs for this.

The devices in a sandbox are those of the machine, and root owns them. So a command that runs as
root could change their modes, although it has no capabilities. bubblewrap cannot make a device
read-only and keep it usable. So this module makes the devices read-only before any command runs.
Programs can still write to a device on a read-only mount.
"""

from __future__ import annotations

import ctypes
import os
import re
from typing import Final

DEVICES: Final = ("null", "zero", "full", "random", "urandom", "tty")
# `protect_devices` needs the first capability to remount the devices, and the second to drop both
# capabilities afterwards.
CAPABILITIES: Final = ("CAP_SYS_ADMIN", "CAP_SETPCAP")

_NUMBERS: Final = (21, 8)
_PR_CAPBSET_DROP: Final = 24
_PR_CAP_AMBIENT: Final = 47
_PR_CAP_AMBIENT_CLEAR_ALL: Final = 4
_VERSION: Final = 0x20080522

_MS_RDONLY: Final = 1
_MS_REMOUNT: Final = 32
_MS_BIND: Final = 4096
# The flags of a mount that a remount must repeat. Each pair has the flag of statvfs(3) and the same
# flag of mount(2).
_KEPT: Final = ((2, 2), (8, 8), (1024, 1024), (2048, 2048), (4096, 1 << 21))

_CAPABILITY_SETS: Final = re.compile(r"^Cap\w+:\s*(\w+)$", re.MULTILINE)


def protect_devices() -> None:
    """Make the devices read-only, and drop all capabilities permanently. Raises OSError."""
    libc = ctypes.CDLL(None)
    for name in DEVICES:
        path = f"/dev/{name}"
        has = os.statvfs(path).f_flag
        flags = sum(flag for bit, flag in _KEPT if has & bit)
        flags |= _MS_REMOUNT | _MS_BIND | _MS_RDONLY
        if libc.mount(None, path.encode(), None, ctypes.c_ulong(flags), None):
            raise OSError
    for number in _NUMBERS:
        if libc.prctl(_PR_CAPBSET_DROP, number, 0, 0, 0):
            raise OSError
    libc.prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
    header = (ctypes.c_uint32 * 2)(_VERSION, 0)
    if libc.capset(header, (ctypes.c_uint32 * 6)()):
        raise OSError


def check_no_capabilities() -> None:
    """Raise OSError if this process has a capability, or could get one."""
    with open("/proc/self/status") as file:
        sets = _CAPABILITY_SETS.findall(file.read())
    if not sets or any(int(each, 16) for each in sets):
        raise PermissionError
