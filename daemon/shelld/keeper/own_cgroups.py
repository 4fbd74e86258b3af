"""Where the cgroups that this process is in are mounted (cgroups(7)). Reads only."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple


class OwnCgroup(NamedTuple):
    """`controllers` is empty for cgroup v2, and otherwise as in /proc/PID/cgroup."""

    controllers: str
    directory: str


def own_cgroups() -> list[OwnCgroup]:
    """Return the cgroups of this process that are mounted; none if they cannot be read."""
    try:
        # Other file systems may have been mounted under names that are no text.
        with open("/proc/self/cgroup", errors="surrogateescape", newline="\n") as file:
            memberships = file.read()
        with open("/proc/self/mountinfo", errors="surrogateescape", newline="\n") as file:
            mounts = file.read()
    except OSError:
        return []
    return list(find(memberships, mounts))


def find(memberships: str, mounts: str) -> Iterator[OwnCgroup]:
    """Yield the cgroups of /proc/PID/cgroup that /proc/PID/mountinfo (proc(5)) has a mount of."""
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
            # Where only a part of the hierarchy is mounted, we may be outside of that.
            if is_kind and has_all and (path == root or path.startswith(f"{root}/")):
                yield OwnCgroup(controllers, point + path[len(root) :])
