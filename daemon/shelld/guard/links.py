"""Finds links, mounts and device nodes that programs make.

Each of these gives another name to a file.

Pure. In this module, a link is any path that stands for another path. A rule must judge both paths.
The guard knows only the links that the command itself makes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from shelld.guard.markers import UNKNOWN
from shelld.guard.options import all_options
from shelld.guard.paths import is_disk, normalized

# The guard records at most `MAX_LINKS` links of a command, and follows at most `_MAX_HOPS` links in
# one path.
MAX_LINKS: Final = 64
_MAX_HOPS: Final = 8

_TARGETS: Final = ("target-directory", "suffix")
# The major numbers of RAM disks, loop devices and CD-ROMs, which do not count as disks.
_NO_DISKS: Final = frozenset({"1", "7", "11"})


class Mount(str):
    """A directory that is also mounted at another path.

    A program that changes everything below a path also changes the directories that are mounted
    there. It does not change the targets of symbolic links there.
    """

    __slots__ = ()


def mounted_below(path: str, links: Mapping[str, str]) -> list[str]:
    """Return the directories that are mounted somewhere below a path."""
    start = f"{path.rstrip('/')}/"
    mounts = (each for each in links.items() if isinstance(each[1], Mount))
    return [target for name, target in mounts if name.startswith(start)]


def resolved(path: str, links: Mapping[str, str], *, is_followed: bool) -> str:
    """Follow the links in a path, and return the path to which they lead.

    If `is_followed` is true, also follow a symbolic link that is the path itself.
    """
    for _ in range(_MAX_HOPS):
        for name, target in links.items():
            is_named = path == name and (is_followed or isinstance(target, Mount))
            if is_named or path.startswith(f"{name}/"):
                path = normalized(f"{target}/{path[len(name) :]}", "/")
                break
        else:
            return path
    return path


def links_by(program: str, arguments: Sequence[str], cwd: str) -> dict[str, str]:
    """Return the links that a program makes. The keys are the paths of the links."""
    if program == "ln":
        return _linked(arguments, cwd)
    if program == "cp":
        return _copied(arguments, cwd)
    if program == "mount":
        return _mounted(arguments, cwd)
    if program == "losetup":
        _, operands = all_options(arguments, "bjoO", ("offset", "sizelimit", "associated"))
        paths = [normalized(each, cwd) for each in operands]
        return {paths[0]: paths[1]} if len(paths) == 2 and is_disk(paths[1]) else {}
    return _made(arguments, cwd) if program == "mknod" else {}


def pipes_by(program: str, arguments: Sequence[str], cwd: str) -> list[str]:
    """Return the named pipes that a program makes."""
    if program == "mkfifo":
        _, operands = all_options(arguments, "m", ("mode",))
        return [normalized(each, cwd) for each in operands]
    if program == "mknod":
        _, operands = all_options(arguments, "m", ("mode",))
        return [normalized(operands[0], cwd)] if operands[1:] == ["p"] else []
    return []


def _linked(arguments: Sequence[str], cwd: str) -> dict[str, str]:
    options, operands = all_options(arguments, "tS", _TARGETS)
    names = {name for name, _ in options}
    # A relative target of a symbolic link is relative to the directory that contains the link.
    is_relative = not names.isdisjoint({"s", "symbolic"}) and names.isdisjoint({"r", "relative"})
    return _pairs(options, operands, cwd, is_relative=is_relative)


def _copied(arguments: Sequence[str], cwd: str) -> dict[str, str]:
    """Return the links and the copies of device nodes that ``cp`` makes."""
    options, operands = all_options(arguments, "tS", _TARGETS)
    names = {name for name, _ in options}
    pairs = _pairs(options, operands, cwd, is_relative=False)
    if not names.isdisjoint({"s", "symbolic-link", "l", "link"}):
        return pairs
    copies_nodes = not names.isdisjoint({"a", "archive", "R", "r", "recursive"})
    nodes = {name: target for name, target in pairs.items() if is_disk(target)}
    return nodes if copies_nodes else {}


def _pairs(
    options: Sequence[tuple[str, str | None]],
    operands: Sequence[str],
    cwd: str,
    *,
    is_relative: bool,
) -> dict[str, str]:
    """Return a link to each source.

    The last operand is the path of the link, or the directory in which the program makes the links.
    """
    given = next((value for name, value in options if name in ("t", "target-directory")), None)
    if len(operands) < 2 or given is not None:
        # The program makes the links in the directory that an option names, or in the working
        # directory.
        sources, place, is_link = list(operands), normalized(given or ".", cwd), False
    else:
        sources, place = list(operands[:-1]), normalized(operands[-1], cwd)
        is_link = len(sources) == 1
    pairs: dict[str, str] = {}
    for source in sources:
        base = source.rstrip("/").rpartition("/")[2]
        names = [f"{place}/{base}"] if base else []
        for name in [*names, *([place] if is_link else [])]:
            parent = name.rpartition("/")[0] or "/"
            pairs[name] = normalized(source, parent if is_relative else cwd)
    return {name: target for name, target in pairs.items() if target and name != target}


def _mounted(arguments: Sequence[str], cwd: str) -> dict[str, str]:
    options, operands = all_options(arguments, "oOtLUT", ("options", "types"))
    is_bind = any(
        name in ("B", "R", "bind", "rbind")
        or (name in ("o", "options") and not {"bind", "rbind"}.isdisjoint((value or "").split(",")))
        for name, value in options
    )
    if not is_bind or len(operands) != 2:
        return {}
    source, target = (normalized(each, cwd) for each in operands)
    return {target: Mount(source)} if source != target else {}


def _made(arguments: Sequence[str], cwd: str) -> dict[str, str]:
    """Return the device node that ``mknod`` makes, if its two numbers are those of a disk."""
    _, operands = all_options(arguments, "m", ("mode",))
    if len(operands) != 4 or operands[1] != "b" or operands[2] in _NO_DISKS:
        return {}
    major, minor = operands[2:]
    is_known = UNKNOWN not in major + minor and major.isdecimal() and minor.isdecimal()
    return {normalized(operands[0], cwd): f"/dev/block/{major}:{minor}"} if is_known else {}
