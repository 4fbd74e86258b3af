"""The bash builtins that change the state of a shell or run text.

Each handler takes the shell, the arguments and stdin, and returns what the builtin writes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from shelld.guard import directories
from shelld.guard.arithmetic import arithmetic
from shelld.guard.markers import UNKNOWN
from shelld.guard.options import all_options, leading_options
from shelld.guard.rules import normalized
from shelld.guard.units import ExpansionError
from shelld.guard.words import calculated

if TYPE_CHECKING:
    from shelld.guard.shell import Shell

Handler = Callable[["Shell", Sequence[str], str], str]


def _operands(arguments: Sequence[str]) -> Sequence[str]:
    """Return the arguments of a builtin that takes no option but ``--``."""
    return arguments[1:] if arguments[:1] == ["--"] else arguments


def _eval(shell: Shell, arguments: Sequence[str], stdin: str) -> str:
    script = " ".join(_operands(arguments))
    if UNKNOWN in script:
        shell.unresolved("what eval runs is not known before it runs")
    return shell.run_script(script, stdin)


def _source(shell: Shell, arguments: Sequence[str], stdin: str) -> str:
    operands = _operands(arguments)
    if not operands:
        return ""
    path = normalized(operands[0], shell.cwd)
    text = stdin if path == "/dev/stdin" else shell.files.get(path, UNKNOWN)
    if UNKNOWN in text:
        shell.unresolved("the content of a script is not known before it runs")
        return UNKNOWN
    return shell.run_script(text, stdin)


def _trap(shell: Shell, arguments: Sequence[str], _stdin: str) -> str:
    arguments = _operands(arguments)
    if arguments and not arguments[0].startswith("-"):
        shell.copy().run_script(arguments[0], "")
        if arguments[1:] != ["EXIT"]:
            # The trap can run at any time and change shell options.
            shell.nounset = None
    return ""


def _alias(shell: Shell, arguments: Sequence[str], _stdin: str) -> str:
    for each in arguments:
        name, equals, value = each.partition("=")
        if equals:
            shell.aliases[name] = value
    return ""


def _hash(shell: Shell, arguments: Sequence[str], _stdin: str) -> str:
    options, names = leading_options(arguments, "p")
    for path in [value for name, value in options if name == "p" and value]:
        shell.hashed.update(dict.fromkeys(names, path))
    return ""


# The one-letter options of ``set``.
_OPTIONS: Final = frozenset("abefhkmnptuvxBCEHPTo")


def nounset_after(arguments: Sequence[str]) -> bool | None:
    """Return whether ``set`` turns `nounset` on or off, None if it does neither."""
    result: bool | None = None
    rest = list(arguments)
    while rest and rest[0][:1] in ("-", "+") and len(rest[0]) > 1 and rest[0] != "--":
        sign, letters = rest[0][0], rest.pop(0)[1:]
        names = [rest.pop(0) for letter in letters if letter == "o" and rest]
        if sign == "+" and ("u" in letters or "nounset" in names):
            return False
        if not _OPTIONS.issuperset(letters):
            return None
        if "u" in letters or "nounset" in names:
            result = True
    return result


def _set(shell: Shell, arguments: Sequence[str], _stdin: str) -> str:
    # Only `Evaluation` turns `nounset` on: it knows whether this command certainly runs.
    if any(UNKNOWN in each for each in arguments):
        shell.nounset = None
    elif nounset_after(arguments) is False and shell.nounset:
        shell.nounset = False
    rest = list(arguments)
    while rest and rest[0][:1] in "-+" and len(rest[0]) > 1:
        if rest.pop(0) == "--":
            shell.positional = rest
            return ""
    if rest:
        shell.positional = rest
    return ""


def _shift(shell: Shell, arguments: Sequence[str], _stdin: str) -> str:
    operands = _operands(arguments)
    if not operands or UNKNOWN in operands[0]:
        count = 1
    else:
        number = re.fullmatch(r"\s*\+?(\d+)\s*", operands[0])
        count = int(number[1]) if number is not None else 0
    # A number that is too large changes nothing.
    if count <= len(shell.positional):
        shell.positional = shell.positional[count:]
    return ""


def _read(shell: Shell, arguments: Sequence[str], stdin: str) -> str:
    options, names = all_options(arguments, "adiNnptu", ())
    array = next((value for name, value in options if name == "a" and value), None)
    for name in names:
        if (match := _SUBSCRIPT.fullmatch(name)) is not None:
            _evaluate(match[1], shell)
    names = [each for each in names if re.fullmatch(r"[A-Za-z_]\w*", each)] or ["REPLY"]
    known = stdin != UNKNOWN and stdin
    line = stdin.split("\n", maxsplit=1)[0] if known else ""
    separators = shell.value_of("IFS") or ""
    # Several whitespace characters in a row count as one separator.
    separator = None if not separators.strip() else re.compile(f"[{re.escape(separators)}]")
    if array is not None:
        members = line.split() if separator is None else separator.split(line)
        shell.arrays[array] = members if known else [UNKNOWN]
        return ""
    count = len(names) - 1
    if separator is None or not count:
        fields = line.split(None, count)
    else:
        fields = separator.split(line, count)
    for index, name in enumerate(names):
        value = fields[index] if index < len(fields) else ("" if known else UNKNOWN)
        shell.assign(name, value)
    return ""


def _mapfile(shell: Shell, arguments: Sequence[str], stdin: str) -> str:
    names = [each for each in arguments if re.fullmatch(r"[A-Za-z_]\w*", each)]
    shell.arrays[names[-1] if names else "MAPFILE"] = stdin.splitlines()
    return ""


def _printf(shell: Shell, arguments: Sequence[str], stdin: str) -> str:
    if len(arguments) > 2 and arguments[0] == "-v":
        shell.assign(arguments[1], shell.written_by(["printf", *arguments[2:]], stdin))
        return ""
    return shell.written_by(["printf", *arguments], stdin)


def _export(shell: Shell, arguments: Sequence[str], _stdin: str) -> str:
    for each in arguments:
        name, equals, value = each.partition("=")
        if equals:
            shell.assign(name, value)
        shell.exported = shell.exported | {name}
    return ""


def _declare(shell: Shell, arguments: Sequence[str], stdin: str) -> str:
    if any(each.startswith("-") and "x" in each for each in arguments):
        return _export(shell, arguments, stdin)
    for each in arguments:
        name, equals, value = each.partition("=")
        if equals:
            shell.assign(name, value)
    return ""


def _let(shell: Shell, arguments: Sequence[str], _stdin: str) -> str:
    for each in arguments:
        arithmetic(each, shell)
    return ""


_SUBSCRIPT: Final = re.compile(r"[A-Za-z_]\w*\[(.*)\]", re.S)


def _evaluate(subscript: str, shell: Shell) -> None:
    """Evaluate a subscript as bash does, including the substitutions in it."""
    with suppress(ExpansionError):
        calculated(subscript, shell)


def _test(shell: Shell, arguments: Sequence[str], _stdin: str) -> str:
    for operator, operand in pairwise(arguments):
        if operator == "-v" and (match := _SUBSCRIPT.fullmatch(operand)) is not None:
            _evaluate(match[1], shell)
    return ""


def _nothing(_shell: Shell, _arguments: Sequence[str], _stdin: str) -> str:
    return ""


BUILTINS: Final[dict[str, Handler]] = {
    "cd": directories.cd,
    "pushd": directories.pushd,
    "popd": directories.popd,
    "dirs": directories.dirs,
    "eval": _eval,
    "source": _source,
    ".": _source,
    "trap": _trap,
    "alias": _alias,
    "hash": _hash,
    "set": _set,
    "shift": _shift,
    "read": _read,
    "mapfile": _mapfile,
    "readarray": _mapfile,
    "printf": _printf,
    "export": _export,
    "declare": _declare,
    "typeset": _declare,
    "local": _declare,
    "readonly": _declare,
    "let": _let,
    "test": _test,
    "[": _test,
    **dict.fromkeys(("exit", "return", "wait", "shopt"), _nothing),
}
