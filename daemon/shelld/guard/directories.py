"""Follows the builtins ``cd``, ``pushd``, ``popd`` and ``dirs``.

They change or print the working directory and the stack of directories. As in bash, the working
directory is the first entry of the stack.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from shelld.guard.markers import UNKNOWN
from shelld.guard.paths import SYSTEM_DIRECTORIES, normalized
from shelld.guard.words import index_in_stack

if TYPE_CHECKING:
    from shelld.guard.shell import Shell

# Bash does not search CDPATH for paths that match this pattern.
_PATH: Final = re.compile(r"\.{0,2}(?:/|$)")


def cd(shell: Shell, arguments: Sequence[str], _stdin: str) -> str:
    operands = [each for each in arguments if not each.startswith("-") or each == "-"]
    shell.enter(_found(shell, operands[0]) if operands else _home(shell))
    return ""


def pushd(shell: Shell, arguments: Sequence[str], _stdin: str) -> str:
    stack = [shell.cwd, *shell.pushed]
    operand, stays = _parsed(arguments)
    if operand is None and shell.has_unset:
        # The operand may be an unset variable, as in ``cd $X``. See `_home`.
        stack.insert(0, UNKNOWN)
    elif operand is None or (operand[:1] in ("+", "-") and operand != "-"):
        index = index_in_stack(operand or "1", len(stack))
        if index is None:
            # Bash prints an error.
            return ""
        stack = [*stack[index:], *stack[:index]] if operand else [stack[1], stack[0], *stack[2:]]
    elif stays:
        stack.insert(1, operand)
    else:
        stack.insert(0, _found(shell, operand))
    _change(shell, stack, stays=stays)
    return ""


def popd(shell: Shell, arguments: Sequence[str], _stdin: str) -> str:
    stack = [shell.cwd, *shell.pushed]
    operand, stays = _parsed(arguments)
    index = index_in_stack(operand or ("+1" if stays else "+0"), len(stack))
    if index is None or len(stack) == 1:
        # Bash prints an error.
        return ""
    del stack[index]
    _change(shell, stack, stays=stays or index > 0)
    return ""


def dirs(shell: Shell, arguments: Sequence[str], _stdin: str) -> str:
    if "-c" in arguments:
        shell.pushed = ()
        return ""
    return UNKNOWN


def _change(shell: Shell, stack: Sequence[str], *, stays: bool) -> None:
    shell.pushed = tuple(stack[1:])
    if not stays:
        shell.enter(normalized(stack[0], shell.cwd))


def _parsed(arguments: Sequence[str]) -> tuple[str | None, bool]:
    """Return the operand of ``pushd`` or ``popd``, and whether it has the option ``-n``.

    With ``-n``, the working directory does not change.
    """
    operands = [each for each in arguments if each not in ("-n", "--")]
    return (operands[0] if operands else None), "-n" in arguments


def _home(shell: Shell) -> str:
    """Return the directory that ``cd`` enters if it has no operand.

    If the guard knows no value of X, ``cd $X`` seems to have no operand. But X may have a value
    where the command runs, so the result is `UNKNOWN` in this case.
    """
    return UNKNOWN if shell.has_unset else shell.value_of("HOME") or UNKNOWN


def _found(shell: Shell, operand: str) -> str:
    """Return the directory that ``cd`` enters.

    The guard does not check whether a directory exists. It follows CDPATH only to directories that
    every system has, and to the home directory.
    """
    if operand == "-":
        return normalized(shell.value_of("OLDPWD") or UNKNOWN, shell.cwd)
    if not _PATH.match(operand):
        for entry in (shell.value_of("CDPATH") or "").split(":"):
            path = normalized(f"{entry or '.'}/{operand}", shell.cwd)
            if path in SYSTEM_DIRECTORIES or path == shell.home:
                return path
        if "cdable_vars" in shell.options and (value := shell.value_of(operand)):
            # With ``cdable_vars``, the operand is most likely the name of a variable, not of a
            # directory.
            return normalized(value, shell.cwd)
    return normalized(operand, shell.cwd) or shell.cwd
