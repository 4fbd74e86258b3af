"""Decides whether a path refers to the root, a system directory or a disk.

Pure, and reads no files. A path can contain the characters of `markers`. For a path that is only
partly known, use the functions whose names begin with `may_be`. All functions except `normalized`
take absolute paths that `normalized` has returned.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final

from shelld.guard.globs import has_glob, matches, matches_most_letters
from shelld.guard.markers import ANY, ONE, SET, UNKNOWN

# Directories that a command must not remove as a whole. The guard allows a command to remove single
# files below them.
SYSTEM_DIRECTORIES: Final = frozenset(
    f"/{name}"
    for name in (
        *("bin", "boot", "dev", "etc", "home", "lib", "lib32", "lib64", "proc", "root", "sbin"),
        *("sys", "usr", "var"),
        # On most systems, "/bin", "/lib" and so on are links to these directories.
        *("usr/bin", "usr/lib", "usr/lib32", "usr/lib64", "usr/sbin"),
    )
)
# The system directories whose owner and mode must not change.
SYSTEM_OWNED: Final = SYSTEM_DIRECTORIES - {"/home", "/root", "/var"}

# Directories in /dev that contain no disks. Other directories in /dev are volume groups, which
# contain volumes.
_NO_DISKS: Final = (
    "accel|bsg|bus|char|cpu|cpu_dma_latency|dma_heap|dri|dvb|fd|gpio|hugepages|iio|infiniband|input"
    "|loop|mqueue|net|nvidia-caps|pts|raw|serial|shm|snd|tcp|tty|udp|usb|v4l|vboxusb|vfio|xen"
)
_DISK: Final = re.compile(
    rf"/dev/(?:(?:sd|hd|vd|xvd)[a-zA-Z{ANY}{ONE}{SET}{UNKNOWN}].*"
    rf"|nvme\d.*|mmcblk\d.*|r?disk\d.*|mapper/.+|dm-\d.*|md\d.*|md/.+|nbd\d.*|pmem\d.*"
    rf"|zd\d.*|d?rbd\d.*|bcache\d.*|dasd[a-z].*|mtd(?:block)?\d.*|ubi\d.*"
    rf"|block/\d+:\d+|zvol/.+|(?!(?:{_NO_DISKS})/)[\w.+-]+/[^/]+"
    rf"|disk/.+|(?:sd|hd|vd|xvd|nvme|mmcblk)[{ANY}{ONE}{SET}{UNKNOWN}].*|[{ANY}{ONE}].*)"
)
# Matches other paths that lead to the root directory, such as ``/proc/self/root``.
_OWN_ROOT: Final = re.compile(
    rf"\A(?:/proc/(?:self|thread-self|1|{UNKNOWN})(?:/task/\d+)?/root)+(?=/|\Z)"
)
# Matches other paths that lead to the directory ``/dev/fd``.
_OWN_DESCRIPTORS: Final = re.compile(rf"\A/proc/(?:self|thread-self|{UNKNOWN})/fd/")
_BRACKETS: Final = re.compile(rf"{SET}[^\]]*\]")


def normalized(field: str, cwd: str) -> str:
    """Return an absolute path without ``//``, ``.`` and ``..``. For an empty field, return ""."""
    if not field:
        return ""
    if not field.startswith("/"):
        if field.startswith(UNKNOWN):
            return field
        field = f"{cwd}/{field}"
    steps: list[str] = []
    for step in field.split("/"):
        if step == "..":
            if steps and steps[-1] != UNKNOWN:
                steps.pop()
        elif step not in ("", "."):
            steps.append(step)
    path = "/" + "/".join(steps)
    if not path.startswith("/proc/"):
        return path
    return _OWN_ROOT.sub("", _OWN_DESCRIPTORS.sub("/dev/fd/", path)) or "/"


def is_everything(path: str) -> bool:
    """Return whether a path is the root, or a pattern that matches everything in the root."""
    if path == "/":
        return True
    if not path.startswith("/"):
        return False
    return all(_is_any_name(step) for step in path[1:].split("/"))


def _is_any_name(step: str) -> bool:
    """Return whether a pattern matches names of all kinds."""
    # Search only up to the last "]", so that each search succeeds, and the total time is linear.
    head, bracket, rest = step.rpartition("]")
    without = _BRACKETS.sub("", head + bracket) + rest
    has_brackets = without != step
    if not (has_brackets or ANY in without or ONE in without):
        return False
    # Ignore dots, because ``.*`` matches all hidden files, and ``*.*`` matches all names with a
    # dot.
    if without.strip(f"{ANY}{ONE}.!"):
        return False
    return not has_brackets or matches_most_letters(step)


def may_be_everything(path: str) -> bool:
    """Return whether a partly unknown path could be the root."""
    steps = path.strip("/").split("/")
    return all((step and not step.strip(UNKNOWN)) or _is_any_name(step) for step in steps)


def is_disk(path: str) -> bool:
    return _DISK.fullmatch(path) is not None


def may_be_disk(path: str) -> bool:
    """Return whether a partly unknown path could be the path of a disk."""
    return path.startswith((UNKNOWN, f"/dev/{UNKNOWN}", f"/{UNKNOWN}/"))


def is_directory_or_its_content(path: str, directories: Collection[str]) -> bool:
    if path in directories:
        return True
    parent, _, last = path.rpartition("/")
    if not has_glob(path):
        return False
    if _is_any_name(last) and any(matches(parent, each) for each in directories):
        return True
    return any(matches(path, each) for each in directories)
