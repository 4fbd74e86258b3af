"""Decides whether a program may run with its arguments.

Pure. Takes the argument list that bash would pass to a program, and the `Place` where the program
would run. Returns a `Finding`. Words are already expanded, and wrappers are removed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Mapping, Sequence
from itertools import takewhile
from types import MappingProxyType
from typing import Final, NamedTuple

from shelld.guard.disks import targets_of
from shelld.guard.globs import has_glob
from shelld.guard.links import mounted_below, resolved
from shelld.guard.markers import UNKNOWN
from shelld.guard.options import all_options
from shelld.guard.paths import (
    SYSTEM_DIRECTORIES,
    SYSTEM_OWNED,
    is_directory_or_its_content,
    is_disk,
    is_everything,
    may_be_disk,
    may_be_everything,
    normalized,
)
from shelld.guard.recursive import COMPRESSORS, PERMITTERS, REMOVERS, keeps_originals
from shelld.guard.specification import specification
from shelld.guard.verdict import Finding
from shelld.guard.vocabulary import DISK_TOOLS, JUDGED, MAKERS, MKFS, OPTIONS, WRITERS


class Place(NamedTuple):
    """The place where a program would run, and the stdin of the program.

    `cwd` can contain `UNKNOWN`, and `home` is None if unknown. `links` maps the path of each link
    to the path that the link stands for, see the module `links`.
    """

    cwd: str
    home: str | None
    stdin: str = ""
    links: Mapping[str, str] = MappingProxyType({})

    def path(self, field: str, *, is_followed: bool = False) -> str:
        """Return the path that an operand refers to.

        If `is_followed` is true, the program follows an operand that is itself a link.
        """
        path = normalized(field, self.cwd)
        if not self.links:
            return path
        return resolved(path, self.links, is_followed=is_followed or field.endswith("/"))

    def trees(self, fields: Sequence[str], *, is_followed: bool = False) -> list[str]:
        """Return the paths that operands refer to.

        Also return the directories that are mounted below these paths.
        """
        paths = [self.path(each, is_followed=is_followed) for each in fields]
        if not self.links:
            return paths
        return paths + [each for path in paths for each in mounted_below(path, self.links)]


class Arguments(NamedTuple):
    """Parsed arguments. `flags` has the names of all options. `values` maps the name of each option
    with a value to this value.
    """

    flags: frozenset[str]
    operands: list[str]
    values: dict[str, str]


def parse_arguments(
    arguments: Sequence[str], with_value: str = "", long_with_value: Container[str] = ()
) -> Arguments:
    """Parse arguments as getopt_long(3) does, including options after operands."""
    options, operands = all_options(arguments, with_value, long_with_value)
    values = {name: value for name, value in options if value is not None}
    return Arguments(frozenset(name for name, _ in options), operands, values)


def _parsed(program: str, arguments: Sequence[str]) -> Arguments:
    spec = specification(OPTIONS[program])
    return parse_arguments(arguments, spec.letters, spec.names)


def _is_recursive(arguments: Sequence[str], letters: str) -> bool:
    for argument in arguments:
        if argument == "--":
            return False
        if argument.startswith("--"):
            if "recursive".startswith(argument[2:]):
                return True
        elif argument.startswith("-") and any(letter in argument for letter in letters):
            return True
    return False


# -- the programs -----------------------------------------------------------------------------


REMOVES_ROOT: Final = Finding("rm-root", "it removes the whole file system")


def _rm(arguments: Sequence[str], place: Place) -> Finding | None:
    if not _is_recursive(arguments, "rR"):
        return None
    return _removes(parse_arguments(arguments).operands, place)


def _removes(operands: Sequence[str], place: Place) -> Finding | None:
    paths = place.trees(operands)
    if any(map(is_everything, paths)):
        return REMOVES_ROOT
    directories = SYSTEM_DIRECTORIES | _homes(place)
    if any(is_directory_or_its_content(path, directories) for path in paths):
        return Finding("rm-system", "it removes a system directory or a home as a whole")
    if any(path and may_be_everything(path) for path in paths):
        return Finding("rm-root", "what it removes is not known before it runs", False)
    return None


def _homes(place: Place) -> set[str]:
    return {normalized(place.home, "/")} if place.home else set()


_MODE: Final = re.compile(r"-[rwxXst]+")


def _chmod(arguments: Sequence[str], place: Place) -> Finding | None:
    # A mode such as ``-w``, which removes a permission, looks like an option.
    options = [each for each in arguments if not _MODE.fullmatch(each)]
    if not _is_recursive(options, "R"):
        return None
    operands = parse_arguments(options).operands
    has_mode = len(options) == len(arguments) and not any(
        each.startswith("--ref") for each in options
    )
    paths = place.trees(operands[has_mode:], is_followed=True)
    return _owned(paths, "chmod-root", "it changes the mode of every file")


def _chown(arguments: Sequence[str], place: Place) -> Finding | None:
    if not _is_recursive(arguments, "R"):
        return None
    operands = _parsed("chown", arguments).operands
    has_owner = not any(each.startswith("--ref") for each in arguments)
    paths = place.trees(operands[has_owner:])
    return _owned(paths, "chown-root", "it changes who owns every file")


def _owned(paths: Sequence[str], rule: str, reason: str) -> Finding | None:
    possible: Finding | None = None
    for path in paths:
        if is_everything(path):
            return Finding(rule, reason)
        if is_directory_or_its_content(path, SYSTEM_OWNED):
            return Finding(rule.replace("root", "system"), f"{reason} of a system directory")
        if path and may_be_everything(path):
            possible = Finding(rule, "what it changes is not known before it runs", False)
    return possible


def _mv(arguments: Sequence[str], place: Place) -> Finding | None:
    parsed = _parsed("mv", arguments)
    has_target = "t" in parsed.values or "target-directory" in parsed.values
    sources = parsed.operands if has_target else parsed.operands[:-1]
    for source in sources:
        path = place.path(source)
        if is_everything(path):
            return Finding("mv-root", "it moves the whole file system")
        if is_directory_or_its_content(path, SYSTEM_DIRECTORIES | _homes(place)):
            return Finding("mv-system", "it moves a system directory or a home")
    return None


def overwrites(target: str, place: Place, rule: str = "redirect-disk") -> Finding | None:
    """Return a finding if writing to `target` overwrites a disk."""
    if is_disk(place.path(target, is_followed=True)):
        return Finding(rule, "it overwrites a disk")
    return None


_MAKES: Final = "it makes a new file system, and what was there is lost"


def _mkfs(program: str, arguments: Sequence[str], place: Place) -> Finding | None:
    operands = _front_end(arguments) if program == "mkfs" else _maker(program, arguments)
    if operands is None:
        return None
    paths = [place.path(operand, is_followed=True) for operand in operands]
    is_known = not any(UNKNOWN in each or has_glob(each) for each in arguments)
    is_on_disk = any(path.startswith("/dev/") for path in paths)
    suggests_allowing = bool(paths) and is_known and not is_on_disk
    return Finding("mkfs", _MAKES, suggests_allowing=suggests_allowing)


def _maker(program: str, arguments: Sequence[str]) -> list[str] | None:
    """Return the operands of a program such as mkfs.ext4.

    Return None if this call makes no file system.
    """
    kind = MAKERS.get(program) or program.removeprefix("mkfs.")
    spec = specification(MKFS.get(kind, MKFS[""]))
    options, operands = all_options(arguments, spec.letters, spec.names)
    idle = ("help", "version", *spec.options.get("idle", ()))
    is_idle = any(name in idle for name, _ in options) or list(arguments) == ["-h"]
    return None if is_idle else operands


def _front_end(arguments: Sequence[str]) -> list[str] | None:
    """Return the operands of mkfs(8), or None if this call makes no file system.

    If mkfs does not know an option, it passes this option and all later arguments on to another
    program.
    """
    options, operands = all_options(arguments, "t", ("type",))
    known = ("V", "verbose", "t", "type", "h", "help", "version")
    own = [name for name, _ in takewhile(lambda option: option.name in known, options)]
    if not {"h", "help", "version"}.isdisjoint(own):
        return None
    # ``mkfs -V /dev/sda`` prints its command and runs it. With a second ``-V``, mkfs does not run
    # the command.
    times = own.count("V")
    return None if times > 1 or (times == 1 and not operands) else operands


def _rsync(arguments: Sequence[str], place: Place) -> Finding | None:
    parsed = _parsed("rsync", arguments)
    flags, operands = parsed.flags, parsed.operands
    if not operands or not flags.isdisjoint({"n", "dry-run", "list-only"}):
        return None
    deletes = any(flag.startswith("delete") or flag == "del" for flag in flags)
    if deletes and is_everything(place.path(operands[-1])):
        return Finding(
            "rm-root",
            "it removes everything that its source does not contain from the whole file system",
        )
    if "remove-source-files" in flags:
        sources = [place.path(each) for each in operands[:-1]]
        return REMOVES_ROOT if any(map(is_everything, sources)) else None
    return None


# The names of all rules.
RULES: Final = frozenset(
    {
        *("rm-root", "rm-system", "chmod-root", "chmod-system", "chown-root", "chown-system"),
        *("mv-root", "mv-system", "dd-disk", "redirect-disk", "mkfs", "fork-bomb"),
    }
)

Check = Callable[[Sequence[str], Place], Finding | None]

_CHECKS: Final[dict[str, Check]] = {
    "rm": _rm,
    "chmod": _chmod,
    "chown": _chown,
    "mv": _mv,
    "rsync": _rsync,
}


def is_judged(program: str) -> bool:
    """Return whether `check` can return a finding for some arguments of a program."""
    return program in _NAMES or program.startswith(_FAMILIES)


_NAMES: Final = frozenset({*JUDGED, *WRITERS, *REMOVERS, *PERMITTERS})
# All programs whose names begin with one of these prefixes are judged.
_FAMILIES: Final = ("mkfs.", "partclone.")


def check(program: str, arguments: Sequence[str], place: Place) -> Finding | None:
    """Return a finding if a program must not run. `program` is its name without directories."""
    kind = "mkfs" if program.startswith("mkfs.") else JUDGED.get(program)
    if kind == "mkfs":
        return _mkfs(program, arguments, place)
    if kind is not None and (finding := _CHECKS[kind](arguments, place)) is not None:
        return finding
    if program in REMOVERS and (finding := _removes(REMOVERS[program](arguments), place)):
        return finding
    if program in PERMITTERS:
        paths = place.trees(PERMITTERS[program](arguments), is_followed=True)
        return _owned(paths, "chmod-root", "it changes the permissions of every file")
    possible: Finding | None = None
    for target in targets_of(program, arguments, place.stdin):
        rule = "dd-disk" if program in _COPIERS else "redirect-disk"
        if (finding := overwrites(target, place, rule)) is not None:
            return finding
        if program in DISK_TOOLS and may_be_disk(normalized(target, place.cwd)):
            possible = Finding(rule, "what it overwrites is not known before it runs", False)
    return possible


def destroyed_by(program: str, arguments: Sequence[str]) -> list[str]:
    """Return the paths that one of `vocabulary.DESTROYERS` would destroy."""
    parsed = _parsed(program, arguments) if program in OPTIONS else parse_arguments(arguments)
    operands = parsed.operands
    has_directory = not parsed.flags.isdisjoint({"t", "target-directory"})
    if program == "mv":
        return operands if has_directory else operands[:-1]
    if program == "ln" and parsed.flags.isdisjoint({"f", "force"}):
        return []
    if program in ("cp", "install", "ln"):
        return [] if has_directory else operands[-1:]
    if program in COMPRESSORS and keeps_originals(arguments):
        return []
    return targets_of(program, arguments) or operands


_COPIERS: Final = frozenset({"dd", "dcfldd", "dc3dd", "ddpt"})
