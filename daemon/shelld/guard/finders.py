"""Handles find(1) and fd(1), which can run a command for each file that they find.

Each handler takes the shell, the arguments and stdin, and returns what the program writes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from shelld.guard import rules
from shelld.guard.markers import UNKNOWN, plain
from shelld.guard.options import leading_options

if TYPE_CHECKING:
    from shelld.guard.shell import Shell

# The guard follows at most this many start directories.
_MAX_ITEMS: Final = 32
# The words of a find(1) expression that rule out no files, or only a few. The values say how many
# arguments each word has.
_WIDE_TESTS: Final = {
    "-depth": 0,
    "-d": 0,
    "-xdev": 0,
    "-mount": 0,
    "-print": 0,
    "-print0": 0,
    "-ls": 0,
    "-maxdepth": 1,
    "-mindepth": 1,
    "-type": 1,
    "-daystart": 0,
    "-follow": 0,
    "-true": 0,
    "-noleaf": 0,
    "-ignore_readdir_race": 0,
    "-warn": 0,
    "-nowarn": 0,
    "(": 0,
    ")": 0,
    "-o": 0,
    "-a": 0,
    "-or": 0,
    "-and": 0,
    "-prune": 0,
    "-delete": 0,
    "-quit": 0,
    "-readable": 0,
    "-writable": 0,
    "-xtype": 1,
    "-regextype": 1,
    "-printf": 1,
    ",": 0,
}


def _is_wide(expression: Sequence[str]) -> bool:
    """Return whether each test of a find(1) expression rules out only a few files."""
    index = 0
    while index < len(expression):
        word = expression[index]
        if word in ("-exec", "-execdir", "-ok", "-okdir"):
            while index < len(expression) and expression[index] not in (";", "+"):
                index += 1
        elif word in ("-name", "-path", "-iname", "-ipath", "-wholename"):
            pattern = plain("".join(expression[index + 1 : index + 2]))
            if pattern.strip("*?/."):
                return False
            index += 1
        elif word in ("-regex", "-iregex", "-user", "-uid"):
            # Root owns nearly all files, so a test for files of root excludes only a few files.
            value = plain("".join(expression[index + 1 : index + 2]))
            if value.strip(".*/") and value not in ("root", "0"):
                return False
            index += 1
        elif word in ("!", "-not"):
            # A negated test usually rules out few files.
            index += 1 + _WIDE_TESTS.get("".join(expression[index + 1 : index + 2]), 1)
        elif word in _WIDE_TESTS:
            index += _WIDE_TESTS[word]
        else:
            return False
        index += 1
    return True


def find(shell: Shell, arguments: Sequence[str], _stdin: str) -> str:
    starts: list[str] = []
    rest = list(arguments)
    while rest and (rest[0] in ("-H", "-L", "-P", "-D", "--") or rest[0].startswith("-O")):
        if rest.pop(0) == "-D":
            del rest[:1]
    while rest and not rest[0].startswith("-") and rest[0] not in ("(", "!", ")"):
        starts.append(rest.pop(0))
    starts = starts or ["."]
    is_wide = _is_wide(rest)
    place = shell.place()
    found = starts if is_wide else [f"{start}/{UNKNOWN}" for start in starts]
    index = 0
    while index < len(rest):
        action = rest[index]
        if action == "-delete" and is_wide:
            shell.report(rules.check("rm", ["-r", *starts], place))
        elif action in ("-exec", "-execdir", "-ok", "-okdir"):
            end = next(
                (at for at in range(index + 1, len(rest)) if rest[at] in (";", "+")), len(rest)
            )
            _run_for_each(shell, rest[index + 1 : end], found, is_wide=is_wide)
            index = end
        elif action in ("-fprint", "-fprintf", "-fls") and index + 1 < len(rest):
            shell.report(rules.overwrites(rest[index + 1], place))
        index += 1
    return "".join(f"{start}\n" for start in starts) + UNKNOWN if is_wide else UNKNOWN


def _run_for_each(
    shell: Shell, command: Sequence[str], found: Sequence[str], *, is_wide: bool
) -> None:
    """Follow a command for each path in `found`.

    If `is_wide` is true, the command also runs for all files below each path.
    """
    for item in found[:_MAX_ITEMS]:
        child = shell.copy()
        child.is_for_each = is_wide
        child.execute([word.replace("{}", item) for word in command], "")


# Options of fd that do not restrict which names match.
_FD_WIDE: Final = frozenset({"H", "I", "u", "hidden", "no-ignore", "unrestricted", "a", "L", "0"})


def fd(shell: Shell, arguments: Sequence[str], _stdin: str) -> str:
    words = list(arguments)
    at = next((i for i, w in enumerate(words) if w in ("-x", "-X", "--exec", "--exec-batch")), -1)
    if at < 0:
        return UNKNOWN
    command = words[at + 1 :]
    operands = [each for each in words[:at] if not each.startswith("-")]
    options, _ = leading_options(words[:at], "edEtTSoj")
    is_wide = all(name in _FD_WIDE for name, _ in options) and plain("".join(operands[:1])) in (
        *("", ".", ".*"),
    )
    starts = operands[1:] or ["."]
    found = starts if is_wide else [f"{start}/{UNKNOWN}" for start in starts]
    if not any("{}" in word for word in command):
        command.append("{}")
    _run_for_each(shell, command, found, is_wide=is_wide)
    return UNKNOWN
