"""Programs that run others for each of something, or text of a format of their own.

Each gets a shell, its arguments and what it reads, and returns what it writes.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from shelld.guard import rules
from shelld.guard.escapes import ansi_c
from shelld.guard.markers import UNKNOWN, plain
from shelld.guard.rules import Place

SHELLS: Final = frozenset({"sh", "bash", "dash", "zsh", "ksh", "mksh", "ash", "fish", "rbash"})

_MAX_ITEMS: Final = 32
# Programs that do to each of all files what they do recursively to the directory they are in.
_RECURSIVE: Final = frozenset({"rm", "chmod", "chown", "chgrp"})

if TYPE_CHECKING:
    from shelld.guard.programs import Programs

Handler = Callable[["Programs", Sequence[str], str], str]

# Tests of find that let everything through, with how many arguments they take.
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
    ",": 0,
}


def _is_wide(expression: Sequence[str]) -> bool:
    """Whether an expression of find has no test that leaves much out."""
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
        elif word in ("!", "-not"):
            # All but some is nearly all.
            index += 1 + _WIDE_TESTS.get("".join(expression[index + 1 : index + 2]), 1)
        elif word in _WIDE_TESTS:
            index += _WIDE_TESTS[word]
        else:
            return False
        index += 1
    return True


class _Xargs(NamedTuple):
    """What options of xargs say: what is replaced, and what parts its items."""

    command: list[str]
    replaced: str | None
    separator: str | None


def _xargs_options(arguments: Sequence[str]) -> _Xargs:
    rest = list(arguments)
    replaced: str | None = None
    separator: str | None = None
    while rest and rest[0].startswith("-") and len(rest[0]) > 1:
        option = rest.pop(0)
        if option == "--":
            break
        if option.startswith("-I"):
            replaced = option[2:] or (rest.pop(0) if rest else "{}")
        elif option.startswith(("-i", "--replace")):
            replaced = option.partition("=")[2] or "{}"
        elif option in ("-0", "--null"):
            separator = "\0"
        elif option in ("-d", "--delimiter") and rest:
            separator = ansi_c(rest.pop(0)) or None
        elif option in _XARGS_VALUES and rest:
            rest.pop(0)
    return _Xargs(rest, replaced, separator)


_XARGS_VALUES: Final = frozenset({"-n", "-P", "-L", "-s", "-a", "-E", "--max-args", "--max-procs"})


def _xargs(shell: Programs, arguments: Sequence[str], stdin: str) -> str:
    command, replaced, separator = _xargs_options(arguments)
    if not command:
        return stdin
    if separator is not None and UNKNOWN not in stdin:
        items = [item for item in stdin.split(separator) if item]
    else:
        # What find writes has line ends here, whatever it is told to write.
        items = stdin.splitlines() if replaced else stdin.split()
    items = items[:_MAX_ITEMS]
    if replaced is not None:
        commands = [[word.replace(replaced, item) for word in command] for item in items]
        return "".join([shell.copy().execute(each, "") for each in commands])
    if UNKNOWN in items and command[0] in _RECURSIVE:
        # Somebody has found all there is below the others.
        command.insert(1, "-R")
    return shell.copy().execute([*command, *items], "")


def _parallel(shell: Programs, arguments: Sequence[str], stdin: str) -> str:
    rest = list(arguments)
    while rest and rest[0].startswith("-") and rest[0] != ":::":
        if rest.pop(0) in ("-j", "-P", "-N", "-n", "--jobs", "--delay", "--timeout") and rest:
            rest.pop(0)
    items = stdin.splitlines()
    if ":::" in rest:
        index = rest.index(":::")
        rest, items = rest[:index], [each for each in rest[index + 1 :] if each != ":::"]
    template = " ".join(rest)
    for item in items[:_MAX_ITEMS]:
        word = item if UNKNOWN in item else shlex.quote(plain(item))
        script = template.replace("{}", word) if "{}" in template else f"{template} {word}"
        shell.copy().run_script(script if template else item, "")
    return UNKNOWN


def _find(shell: Programs, arguments: Sequence[str], _stdin: str) -> str:
    starts: list[str] = []
    rest = list(arguments)
    while rest and rest[0] in ("-H", "-L", "-P"):
        rest.pop(0)
    while rest and not rest[0].startswith("-") and rest[0] not in ("(", "!", ")"):
        starts.append(rest.pop(0))
    starts = starts or ["."]
    is_wide = _is_wide(rest)
    place = Place(shell.cwd, shell.home)
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
            for item in found:
                command = [word.replace("{}", item) for word in rest[index + 1 : end]]
                if is_wide and command[:1] and command[0] in _RECURSIVE:
                    # What is done to each of all files is done to all.
                    command.insert(1, "-R")
                shell.copy().execute(command, "")
            index = end
        elif action in ("-fprint", "-fprintf", "-fls") and index + 1 < len(rest):
            shell.report(rules.overwrites(rest[index + 1], place))
        index += 1
    return "".join(f"{start}\n" for start in starts) + UNKNOWN if is_wide else UNKNOWN


def _crontab(shell: Programs, _arguments: Sequence[str], stdin: str) -> str:
    for line in stdin.splitlines()[:_MAX_ITEMS]:
        match = re.match(r"\s*(?:@\w+|(?:\S+\s+){4}\S+)\s+(.*)", line)
        if match is not None and not line.lstrip().startswith("#"):
            shell.copy().run_script(match[1], "")
    return UNKNOWN


def _at(shell: Programs, _arguments: Sequence[str], stdin: str) -> str:
    return shell.copy().run_text(stdin, "")


def _sed(shell: Programs, arguments: Sequence[str], stdin: str) -> str:
    for each in arguments:
        if (match := re.match(r"(?:\d+|\$|/[^/]*/)?\s*e\s+(.+)", each)) is not None:
            shell.copy().run_script(match[1], "")
    return shell.written_by(["sed", *arguments], stdin)


def _docker(shell: Programs, arguments: Sequence[str], stdin: str) -> str:
    """A container is another world, unless the root of this one is mounted in it."""
    for index, each in enumerate(arguments):
        value = each.partition("=")[2] if "=" in each else "".join(arguments[index + 1 :][:1])
        if each.partition("=")[0] in ("-v", "--volume") and value.startswith("/:"):
            target = value.split(":")[1]
            words = [word.replace(target, "/", 1) for word in arguments[index + 2 :]]
            for at in range(len(words)):
                if words[at] in rules.CHECKS or words[at] in SHELLS:
                    return str(shell.copy().execute(words[at:], stdin))
    return UNKNOWN


def _awk(shell: Programs, arguments: Sequence[str], stdin: str) -> str:
    for each in arguments:
        for match in re.finditer(r'system\s*\(\s*"((?:[^"\\]|\\.)*)"', each):
            shell.copy().run_script(match[1], "")
    return shell.written_by(["awk", *arguments], stdin)


STARTERS: Final[dict[str, Handler]] = {
    "xargs": _xargs,
    "parallel": _parallel,
    "find": _find,
    "crontab": _crontab,
    "at": _at,
    "batch": _at,
    "sed": _sed,
    "awk": _awk,
    "gawk": _awk,
    "docker": _docker,
    "podman": _docker,
}
