"""Give every runner its own cgroup where possible (cgroup v2, Linux).

``cgroup.kill`` kills all processes in a cgroup at once. This includes processes that fork faster
than a scan can find them, and processes that have changed their user. But a privileged command can
leave its cgroup, so a process may be left. Only one fact proves that none is left: the runner has
no child.

A runner enters its cgroup, and its commands start there. To kill them, the runner first leaves the
cgroup.

This module makes cgroups only in a directory that no other program manages and that has no limits.
Under systemd, the directory must be delegated. If the directory had limits, they would also apply
to the commands in the new cgroups. But a program looks for limits only in its own cgroup, so it
would not find them.
"""

from __future__ import annotations

import contextlib
import os
import re
from typing import Final

from shelld.keeper.own_cgroups import own_cgroups
from shelld.keeper.proc import info_of

# The name of each cgroup that shelld makes begins with this prefix and the `owner_tag` of the
# process that has made the cgroup.
PREFIX: Final = "shelld-"
_OWNER: Final = re.compile(rf"{PREFIX}(\d{{1,9}})-(\d{{1,20}})-")
_LIMITS: Final = ("memory.max", "memory.high", "cpu.max")


def usable_directory() -> str | None:
    """Return the directory of this process's own cgroup if this process can make cgroups there."""
    directory = next((own.directory for own in own_cgroups() if not own.controllers), None)
    under_systemd = os.path.exists("/run/systemd/system")
    if directory is None or not is_usable(directory, under_systemd=under_systemd):
        return None
    return directory


def is_usable(directory: str, *, under_systemd: bool) -> bool:
    """Return whether this process may make cgroups in `directory`: it can write there, no other
    program manages the directory, and the directory has no limits.
    """
    needed = (directory, f"{directory}/cgroup.procs")
    if not all(os.access(path, os.W_OK) for path in needed):
        return False
    if under_systemd and not is_delegated(directory):
        return False
    return not any(_is_limited(f"{directory}/{name}") for name in _LIMITS)


def is_delegated(directory: str) -> bool:
    """Return whether systemd has delegated a cgroup to this user."""
    for attribute in ("user.delegate", "trusted.delegate"):
        with contextlib.suppress(OSError):
            if os.getxattr(directory, attribute) == b"1":
                return True
    return False


def _is_limited(path: str) -> bool:
    try:
        with open(path) as file:
            return not file.read().startswith("max")
    except FileNotFoundError:
        # If the controller is not enabled, the file is missing, and there is no limit.
        return False
    except OSError:
        return True


def owner_tag() -> str:
    """Return the pid of this process and the number of its PID namespace."""
    return f"{os.getpid()}-{_pid_namespace()}"


def _pid_namespace() -> int:
    """Return the number of our PID namespace; 0 if the system does not show it."""
    try:
        return os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        return 0


def remove_stale(parent: str) -> None:
    """Remove the cgroups in `parent` that belong to dead processes of our PID namespace.

    Containers may share the hierarchy of cgroups. This process cannot tell whether a process in
    another PID namespace is dead.
    """
    if not os.path.exists(f"{parent}/cgroup.procs"):
        # If the root of the hierarchy is directly in `parent`, then `parent` is not a cgroup.
        return
    with contextlib.suppress(OSError):
        for name in os.listdir(parent):
            owner = _OWNER.match(name)
            if owner is None or int(owner[2]) != _pid_namespace():
                continue
            if info_of(int(owner[1])).is_dead:
                remove(f"{parent}/{name}")


class Cgroup:
    """A directory that the keeper creates for one runner. No method raises OSError."""

    def __init__(self, parent: str, path: str) -> None:
        self._parent = parent
        self._path = path

    @classmethod
    def create(cls, parent: str, number: int) -> Cgroup | None:
        """Create a directory with a unique name; return None on failure."""
        path = f"{parent}/{PREFIX}{owner_tag()}-{number}"
        try:
            os.mkdir(path)
        except OSError:
            return None
        cgroup = cls(parent, path)
        if not os.path.exists(f"{path}/cgroup.kill"):
            # Linux before 5.14 has no cgroup.kill, so the cgroup would be useless.
            cgroup.remove()
            return None
        return cgroup

    def enter(self) -> bool:
        """Move the calling process into the cgroup. Its later children start in the cgroup."""
        return write(f"{self._path}/cgroup.procs", b"0")

    def leave(self) -> bool:
        """Move the calling process out of the cgroup.

        The processes that it started stay in the cgroup.
        """
        return write(f"{self._parent}/cgroup.procs", b"0")

    def kill(self) -> None:
        """SIGKILL all processes in the cgroup."""
        write(f"{self._path}/cgroup.kill", b"1")

    def remove(self) -> bool:
        """Remove the directory; return False while a process is in it."""
        return remove(self._path)


def remove(path: str) -> bool:
    """Remove a cgroup together with the cgroups inside it.

    Returns False if a process is still in one of these cgroups.
    """
    try:
        # The kernel removes the files of a cgroup with its directory.
        for directory, _, _ in os.walk(path, topdown=False):
            os.rmdir(directory)
    except OSError:
        pass
    return not os.path.exists(path)


def write(path: str | bytes, content: bytes) -> bool:
    """Write to a file of a cgroup; return False on failure."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        os.write(descriptor, content)
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True
