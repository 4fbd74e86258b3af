"""Finds where the cgroups of this process are mounted (cgroups(7)). Reads only."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import NamedTuple


class OwnCgroup(NamedTuple):
    """`controllers` are the controllers as /proc/PID/cgroup lists them; empty for cgroup v2."""

    controllers: str
    directory: str

    @property
    def parent(self) -> str:
        """The directory above `directory`.

        If `directory` is the root of the hierarchy, its parent directory is not a cgroup.
        """
        return os.path.dirname(self.directory)


def own_cgroups() -> list[OwnCgroup]:
    """Return the mounted cgroups of this process; an empty list if they cannot be read."""
    try:
        # Mount points of other file systems may have names that are not valid text.
        with open("/proc/self/cgroup", errors="surrogateescape", newline="\n") as file:
            memberships = file.read()
        with open("/proc/self/mountinfo", errors="surrogateescape", newline="\n") as file:
            mounts = file.read()
    except OSError:
        return []
    return list(find(memberships, mounts))


def find(memberships: str, mounts: str) -> Iterator[OwnCgroup]:
    """Yield the cgroups of /proc/PID/cgroup that /proc/PID/mountinfo (proc(5)) shows as mounted."""
    for line in memberships.split("\n"):
        _, _, rest = line.partition(":")
        controllers, separator, path = rest.partition(":")
        path = path.rstrip("/")
        for mount in (line.split(" ") for line in mounts.split("\n")):
            if not separator or "-" not in mount[5:-1]:
                continue
            kind, options = mount[mount.index("-", 5) + 1], mount[-1].split(",")
            root, point = mount[3].rstrip("/"), mount[4]
            is_kind = kind == ("cgroup" if controllers else "cgroup2")
            has_all = not controllers or set(controllers.split(",")) <= set(options)
            # If only a part of the hierarchy is mounted, this process may be outside that part.
            if is_kind and has_all and (path == root or path.startswith(f"{root}/")):
                yield OwnCgroup(controllers, point + path[len(root) :])
