"""Handles the bash builtins that change the state of a shell or run text.

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
from shelld.guard.names import function_entry
from shelld.guard.options import leading_options
from shelld.guard.paths import normalized
from shelld.guard.reading import mapfile, read
from shelld.guard.traps import trap
from shelld.guard.units import ExpansionError
from shelld.guard.words import calculated, expand_text

if TYPE_CHECKING:
    from shelld.guard.shell import Shell

Handler = Callable[["Shell", Sequence[str], str], str]


def _operands(arguments: Sequence[str]) -> Sequence[str]:
    """Return the operands of a builtin whose only option is ``--``."""
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
    text = stdin if path == "/dev/stdin" else shell.content(path)
    if UNKNOWN in text:
        shell.unresolved("the content of a script is not known before it runs")
        return UNKNOWN
    return shell.run_script(text, stdin)


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
    """Return True if ``set`` turns `nounset` on, False if ``set`` turns it off, otherwise None."""
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
    # This function never turns `nounset` on. `Evaluation` does that, because only `Evaluation`
    # knows whether this ``set`` certainly runs.
    if any(UNKNOWN in each for each in arguments):
        shell.nounset = None
    elif nounset_after(arguments) is False and shell.nounset:
        shell.nounset = False
    rest = list(arguments)
    while rest and rest[0][:1] in "-+" and len(rest[0]) > 1:
        option = rest.pop(0)
        if option == "--":
            shell.positional = rest
            return ""
        named = [rest.pop(0)] if option[-1] == "o" and rest else []
        if "a" in option or named == ["allexport"]:
            shell.switch("allexport", is_on=option[0] == "-")
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
    # If the number is too large, ``shift`` changes nothing.
    if count <= len(shell.positional):
        shell.positional = shell.positional[count:]
    return ""


def _printf(shell: Shell, arguments: Sequence[str], stdin: str) -> str:
    if len(arguments) > 2 and arguments[0] == "-v":
        shell.assign(arguments[1], shell.written_by(["printf", *arguments[2:]], stdin))
        return ""
    return shell.written_by(["printf", *arguments], stdin)


def _export(shell: Shell, arguments: Sequence[str], _stdin: str) -> str:
    if any(each.startswith("-") and "f" in each for each in arguments):
        arguments = [function_entry(each) for each in arguments]
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


def _shopt(shell: Shell, arguments: Sequence[str], _stdin: str) -> str:
    options, names = leading_options(arguments, "")
    for option, _ in options:
        if option in ("s", "u"):
            for name in names:
                shell.switch(name, is_on=option == "s")
    return ""


def _compgen(shell: Shell, arguments: Sequence[str], _stdin: str) -> str:
    """Follow the commands that ``compgen`` runs for completions. Return known completions."""
    options, operands = leading_options(arguments, "oAGWFCXPSV")
    prefix = "".join(operands[:1])
    words: list[str] = []
    # With ``-X '!pattern'``, bash keeps only the completions that match the pattern.
    kept = [value[1:] for name, value in options if name == "X" and value and value[0] == "!"]
    for name, value in options:
        if name == "C" and value:
            shell.copy().run_script(value, "")
        elif name == "F" and value in shell.functions:
            shell.copy().execute([value, "", prefix, ""], "")
        elif name == "W" and value:
            with suppress(ExpansionError):
                words += expand_text(value, shell.copy()).split()
        elif name == "c" or (name, value) == ("A", "command"):
            # The guard treats the operand itself as a completion, because there may be a program of
            # this name.
            words += operands[:1] or kept
    found = [each for each in words if each.startswith(prefix)]
    return "".join(f"{each}\n" for each in found) or UNKNOWN


def _wait(shell: Shell, arguments: Sequence[str], _stdin: str) -> str:
    options, _ = leading_options(arguments, "p")
    for _, value in options:
        shell.substituted(value or "")
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
    "trap": trap,
    "alias": _alias,
    "hash": _hash,
    "set": _set,
    "shift": _shift,
    "read": read,
    "mapfile": mapfile,
    "readarray": mapfile,
    "printf": _printf,
    "export": _export,
    "declare": _declare,
    "typeset": _declare,
    "local": _declare,
    "readonly": _declare,
    "let": _let,
    "shopt": _shopt,
    "compgen": _compgen,
    "test": _test,
    "[": _test,
    "wait": _wait,
    **dict.fromkeys(("exit", "return"), _nothing),
}
