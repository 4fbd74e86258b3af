"""Describes the terminal or pipe to which the input of a command goes."""

from __future__ import annotations

import os
import re
import stat
from typing import Final, NamedTuple

from shelld.keeper.proc import read_short_file

# The device number of /dev/tty, which is the terminal of the process that opens it.
OWN_TERMINAL: Final = os.makedev(5, 0)

_MOUNT: Final = re.compile(rb"^mnt_id:\s*(\d+)", re.MULTILINE)


class Source(NamedTuple):
    """The terminal or pipe to which input goes. `group`: only this process group can read the
    input.

    `group` is None for a pipe. It may be None for a terminal that the daemon did not open. In that
    case, the state of each process shows which group is in the foreground of its terminal.

    `file`: the device number of a terminal, or device and inode of a pipe. `mount`: the mount
    through which the daemon has opened the terminal (see mnt_id in proc_pid_fdinfo(5)), if known.

    `instance`: the device number of the file system (devpts) of a terminal, if known. A terminal of
    another instance, as in a sandbox, may have the same number as our terminal.
    """

    group: int | None
    file: tuple[int, ...]
    mount: int | None = None
    instance: int | None = None

    def may_be(self, path: str) -> bool:
        """Return whether a file with the device number of this terminal may be this terminal.
        Raises OSError.
        """
        if self.instance is None:
            return True
        about = os.stat(path)
        return about.st_rdev == OWN_TERMINAL or about.st_dev == self.instance


def file_of(descriptor: int | str) -> tuple[int, ...]:
    """Return the value of `Source.file` for a descriptor or a path. Raises OSError."""
    found = os.stat(descriptor)
    return (found.st_rdev,) if stat.S_ISCHR(found.st_mode) else (found.st_dev, found.st_ino)


def mount_of(proc_dir: str, descriptor: int | str) -> int | None:
    """Return the mount of an open file; None if the kernel does not show it. Raises OSError.

    `proc_dir`: the directory of a process or thread in /proc.
    """
    found = _MOUNT.search(read_short_file(f"{proc_dir}/fdinfo/{descriptor}"))
    return None if found is None else int(found[1])
