"""Checks the mounts of a new sandbox before its first command runs.

bubblewrap resolves each path again when it mounts something there. At this moment, a command in
another sandbox may have replaced a part of the path with a symbolic link. Then bubblewrap mounts
another directory, or mounts at another place. So this module compares what is mounted with what the
view has asked for. Afterwards, no command can change the mounts any more.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from typing import Final

from shelld.sandbox.policy import ResolvedPolicy, is_within
from shelld.sandbox.view import PRIVATE, Identity, Mount, View, writable_in

_OWN_MOUNTS: Final = "/proc/self/mountinfo"
# A sandbox has its own version of these directories, with mounts that bubblewrap has made.
_OWN: Final = ("/dev", "/proc", PRIVATE)
# A space, tab, newline or backslash in a path, as the kernel writes it.
_ESCAPE: Final = re.compile(rb"\\([0-7]{3})")
_CHUNK_BYTES: Final = 1 << 16


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
    of the root directory of the sandbox, and of a file mountinfo from the sandbox. Raises OSError.
    """
    points = _read(mounts)
    with open(_OWN_MOUNTS, "rb", buffering=0) as file:
        outside = _read(file.fileno())
    return is_closed(policy, points, outside) and has_mounts(view.mounts, identities, points, root)


def mount_points(listed: bytes) -> dict[str, bool]:
    """Return the mount points in the content of a file mountinfo, and whether each is writable. If
    several mounts are at one point, the last one counts.
    """
    points: dict[str, bool] = {}
    for line in listed.split(b"\n")[:-1]:
        # The fifth field is the mount point. The sixth field has the options: see proc(5).
        point, options = line.split(b" ")[4:6]
        path = _ESCAPE.sub(lambda match: bytes((int(match[1], 8),)), point)
        points[path.decode("utf-8", "surrogateescape")] = b"ro" not in options.split(b",")
    return points


def has_mounts(
    planned: Iterable[Mount],
    identities: Mapping[str, Identity],
    points: Mapping[str, bool],
    root: int,
) -> bool:
    """Return whether a sandbox has all the mounts of its view.

    `identities`: what was at the paths before the sandbox started. `points`: the mount points of
    the sandbox. `root`: a descriptor of the root directory of the sandbox.
    """
    null = os.stat(os.devnull).st_rdev
    for mount in planned:
        is_writable = points.get(mount.path)
        if is_writable is None or is_writable > mount.is_writable:
            return False
        try:
            found = os.stat(mount.path.lstrip("/"), dir_fd=root, follow_symlinks=False)
        except OSError:
            # The path has been replaced again.
            return False
        is_same = (found.st_dev, found.st_ino) == identities.get(mount.path)
        # If an empty device is at a path that should be hidden, the mount looks the same.
        is_null = is_same and found.st_rdev == null
        if is_same is not mount.shows_path and not is_null:
            return False
    return True


def is_closed(
    policy: ResolvedPolicy, points: Mapping[str, bool], outside: Mapping[str, bool]
) -> bool:
    """Return whether a sandbox has no mount that makes more writable than its policy.

    `points`: the mount points of the sandbox. `outside`: those of the daemon. bubblewrap cannot
    make a mount read-only if the user may not enter it.
    """
    allowed = (*writable_in(policy), *_OWN)
    writable = (path for path, is_writable in points.items() if is_writable)
    return all(is_within(path, allowed) or outside.get(path, False) for path in writable)


def _read(descriptor: int) -> dict[str, bool]:
    """Read the mount points from an open file mountinfo. Raises OSError."""
    listed = b""
    while chunk := os.read(descriptor, _CHUNK_BYTES):
        listed += chunk
    return mount_points(listed)
