"""Finds the trees that programs such as tar(1) and setfacl(1) remove or change.

Pure. The functions take the arguments of a program other than rm(1), chmod(1) and chown(1). The
functions return operands without change, because `rules` finds out which paths the operands refer
to.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from shelld.guard.options import Option, all_options

Finder = Callable[[Sequence[str]], list[str]]

_TAR_LETTERS: Final = "bCfFgHIKLNTVX"
_TAR_NAMES: Final = ("directory", "file", "exclude", "exclude-from", "files-from", "transform")


def _names_of(options: Sequence[Option]) -> set[str]:
    return {name for name, _ in options}


def _tar(arguments: Sequence[str]) -> list[str]:
    """Return the paths that ``tar --remove-files`` removes, including paths in the directories that
    ``-C`` gives.
    """
    if arguments and not arguments[0].startswith("-"):
        # The traditional option style of tar has no dash.
        arguments = ["-" + arguments[0], *arguments[1:]]
    options, operands = all_options(arguments, _TAR_LETTERS, _TAR_NAMES)
    if not any(name.startswith("rem") for name in _names_of(options)):
        return []
    directory = ""
    found = list(operands)
    for value in (value for name, value in options if name in ("C", "directory") and value):
        # A relative directory is below the directory of the previous ``-C``.
        directory = value if value.startswith("/") else f"{directory}{value}"
        directory += "/"
        found += [each if each.startswith("/") else f"{directory}{each}" for each in operands]
    return found


def _zip(arguments: Sequence[str]) -> list[str]:
    """Return the paths that ``zip -rm`` moves into the archive."""
    options, operands = all_options(arguments, "bnPst", ("exclude", "include", "password"))
    names = _names_of(options)
    moves = not names.isdisjoint({"m", "move"}) and not names.isdisjoint({"r", "recurse-paths"})
    return operands[1:] if moves else []


def _seven_zip(arguments: Sequence[str]) -> list[str]:
    """Return the paths that ``7z a -sdel`` moves into the archive."""
    operands = [each for each in arguments if not each.startswith("-")]
    return operands[2:] if "-sdel" in arguments else []


def _compress(arguments: Sequence[str]) -> list[str]:
    """Return the trees whose files ``gzip -r`` replaces by compressed files."""
    options, operands = all_options(arguments, "bS", ("suffix",))
    is_recursive = not _names_of(options).isdisjoint({"r", "recursive"})
    return operands if is_recursive and not keeps_originals(arguments) else []


def keeps_originals(arguments: Sequence[str]) -> bool:
    """Return whether a program such as gzip(1) keeps the files that it reads."""
    options, _ = all_options(arguments, "bS", ("suffix",))
    return not _names_of(options).isdisjoint(_KEEPS)


_KEEPS: Final = frozenset({"c", "stdout", "to-stdout", "k", "keep", "l", "list", "t", "test"})
COMPRESSORS: Final = frozenset({"gzip", "pigz", "bzip2", "xz"})


def _trash(arguments: Sequence[str]) -> list[str]:
    return [each for each in arguments if not each.startswith("-")]


def _gio(arguments: Sequence[str]) -> list[str]:
    return _trash(arguments[1:]) if arguments[:1] == ["trash"] else []


def _rclone(arguments: Sequence[str]) -> list[str]:
    operands = [each for each in arguments if not each.startswith("-")]
    return operands[1:] if operands[:1] in (["purge"], ["delete"]) else []


def _git(arguments: Sequence[str]) -> list[str]:
    """Return the directories in which ``git clean -fd`` removes all untracked files."""
    options, operands = all_options(arguments, "Cce", ("git-dir", "work-tree", "exclude"))
    names = _names_of(options)
    if operands[:1] != ["clean"] or ("f" not in names and "force" not in names) or "d" not in names:
        return []
    if not names.isdisjoint({"n", "dry-run", "h"}):
        return []
    directories = [value for name, value in options if name in ("C", "work-tree") and value]
    return operands[1:] or directories[-1:] or ["."]


# The programs that remove trees.
REMOVERS: Final[dict[str, Finder]] = {
    "tar": _tar,
    "bsdtar": _tar,
    "zip": _zip,
    "7z": _seven_zip,
    "7za": _seven_zip,
    "7zr": _seven_zip,
    "7zz": _seven_zip,
    "gzip": _compress,
    "pigz": _compress,
    "rimraf": _trash,
    "rclone": _rclone,
    "git": _git,
    # ``cmake -E`` has the command ``remove_directory``.
    "remove_directory": _trash,
    "trash": _trash,
    "trash-put": _trash,
    "rip": _trash,
    "gio": _gio,
}


def _setfacl(arguments: Sequence[str]) -> list[str]:
    values = ("modify", "remove", "modify-file", "remove-file", "set", "set-file", "restore")
    options, operands = all_options(arguments, "mxMX", values)
    names = _names_of(options)
    changes = {*"mxMXbk", *values, "remove-all", "remove-default"}
    is_told = not names.isdisjoint({"R", "recursive"}) and "test" not in names
    return operands if is_told and not names.isdisjoint(changes) else []


def _chattr(arguments: Sequence[str]) -> list[str]:
    # A mode such as ``-i``, which removes an attribute, looks like an option.
    options, operands = all_options(arguments, "vp", ())
    is_recursive = "R" in _names_of(options)
    return [each for each in operands if each[:1] not in ("+", "=")] if is_recursive else []


def _chcon(arguments: Sequence[str]) -> list[str]:
    options, operands = all_options(
        arguments, "utrl", ("reference", "user", "role", "type", "range")
    )
    return operands if not _names_of(options).isdisjoint({"R", "recursive"}) else []


# The programs that change the permissions of trees.
PERMITTERS: Final[dict[str, Finder]] = {
    "setfacl": _setfacl,
    "chattr": _chattr,
    "chcon": _chcon,
}
