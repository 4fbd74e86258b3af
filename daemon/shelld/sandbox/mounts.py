"""Checks the mounts of a new sandbox before its first command runs, and watches them afterwards.

bubblewrap resolves each path again when it mounts something there. At this moment, a command in
another sandbox may have replaced a part of the path with a symbolic link. Then bubblewrap mounts
another directory, or mounts at another place. So this module compares what is mounted with what the
view has asked for. Afterwards, no command can change the mounts any more. But if a program outside
removes or replaces a path, the kernel removes the mount on it, or the mount shows the old file.
"""

from __future__ import annotations

import os
import re
import select
from collections.abc import Iterable, Mapping
from typing import Final, TypeAlias

from shelld.sandbox.policy import ResolvedPolicy, is_within
from shelld.sandbox.view import Identity, Mount, View, identity_of, writable_in

_OWN_MOUNTS: Final = "/proc/self/mountinfo"
# A sandbox has its own version of these directories, with mounts that bubblewrap has made.
_OWN: Final = ("/dev", "/proc")
# For each mount point, whether each mount there is writable. The last one is on top.
Points: TypeAlias = Mapping[str, tuple[bool, ...]]

# A space, tab, newline or backslash in a path, as the kernel writes it.
_ESCAPE: Final = re.compile(rb"\\([0-7]{3})")
_CHUNK_BYTES: Final = 1 << 16


class MountWatch:
    """Notices that a path which a sandbox shows, or a placeholder, was replaced from outside.

    `identities`: what was at the paths when the sandbox started. `mounts`: see `is_as_planned`.
    """

    def __init__(self, view: View, identities: Mapping[str, Identity], mounts: int) -> None:
        self._placeholders = {path: identities[path] for path in view.placeholders}
        self._shown = {
            mount.source: identities[mount.source] for mount in view.mounts if mount.source
        }
        self._points = [mount.path for mount in view.mounts if mount.source]
        self._mounts = mounts
        self._changes = select.poll()
        self._changes.register(mounts, select.POLLERR | select.POLLPRI)
        # The shown paths that have lost their mount. A new file can have the inode of the old one,
        # so identities do not show this.
        self._lost: list[str] = []

    @property
    def has_replaced(self) -> bool:
        """Raises OSError."""
        if self._changes.poll(0):
            os.lseek(self._mounts, 0, os.SEEK_SET)
            points = _read(self._mounts)
            self._lost = [path for path in self._points if path not in points]
        return (
            any(identity_of(path) != identity for path, identity in self._placeholders.items())
            # A new sandbox could not show a path that is gone.
            or any(identity_of(path) not in (each, None) for path, each in self._shown.items())
            or any(map(os.path.lexists, self._lost))
        )


def is_as_planned(
    policy: ResolvedPolicy,
    view: View,
    identities: Mapping[str, Identity],
    *,
    root: int,
    mounts: int,
) -> bool:
    """Return whether a sandbox has the mounts of its view, and no others that are writable.

    `identities`: what was at the paths before the sandbox started. `root` and `mounts`: descriptors
    of the root directory of the sandbox, and of an open mountinfo of the sandbox. Raises OSError.
    """
    points = _read(mounts)
    with open(_OWN_MOUNTS, "rb", buffering=0) as file:
        outside = _read(file.fileno())
    return opens_nothing_else(policy, points, outside) and has_planned_mounts(
        view.mounts, identities, points, root
    )


def mount_points(listed: bytes) -> Points:
    """Return the mount points in the content of a file mountinfo."""
    points: dict[str, tuple[bool, ...]] = {}
    for line in listed.split(b"\n")[:-1]:
        # The fifth field is the mount point. The sixth field has the options: see proc(5).
        point, options = line.split(b" ")[4:6]
        name = _ESCAPE.sub(lambda match: bytes((int(match[1], 8),)), point)
        path = name.decode("utf-8", "surrogateescape")
        points[path] = (*points.get(path, ()), b"ro" not in options.split(b","))
    return points


def has_planned_mounts(
    planned: Iterable[Mount], identities: Mapping[str, Identity], points: Points, root: int
) -> bool:
    """Return whether a sandbox has all the mounts of its view.

    `identities`: what was at the paths before the sandbox started. `points`: the mount points of
    the sandbox. `root`: a descriptor of the root directory of the sandbox.
    """
    null = os.stat(os.devnull).st_rdev
    for mount in planned:
        mounts = points.get(mount.path)
        if mounts is None or (mounts[-1] and not mount.is_writable):
            return False
        try:
            found = _stat_in(root, mount.path)
        except OSError:
            # The path has been replaced again.
            return False
        is_same = (found.st_dev, found.st_ino) == identities.get(mount.source or mount.path)
        # If an empty device is at a path that should be hidden, the mount looks the same.
        is_null = is_same and found.st_rdev == null
        if is_same is not bool(mount.source) and not is_null:
            return False
    return True


def opens_nothing_else(policy: ResolvedPolicy, points: Points, outside: Points) -> bool:
    """Return whether no mount of a sandbox makes more writable than its policy allows.

    `points`: the mount points of the sandbox. `outside`: those of the daemon. bubblewrap cannot
    make a mount read-only if the user may not enter it. Such a mount does no harm. But if a
    writable mount lies on a read-only one, bubblewrap has put it there.
    """
    allowed = (*writable_in(policy), *_OWN)
    return all(
        is_within(path, allowed) or (all(mounts) and outside.get(path, (False,))[-1])
        for path, mounts in points.items()
        if mounts[-1]
    )


def _stat_in(root: int, path: str) -> os.stat_result:
    """Follow no link, because an absolute link would lead out of the sandbox. Raises OSError."""
    descriptor = os.dup(root)
    try:
        for name in path.split("/")[1:]:
            flags = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
            below = os.open(name, flags, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = below
        return os.fstat(descriptor)
    finally:
        os.close(descriptor)


def _read(descriptor: int) -> Points:
    """Read the mount points from an open mountinfo. Raises OSError."""
    listed = b""
    while chunk := os.read(descriptor, _CHUNK_BYTES):
        listed += chunk
    return mount_points(listed)
