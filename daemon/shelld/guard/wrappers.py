"""Finds the program that a wrapper such as ``sudo`` starts.

Pure. The program is one of the wrapper's arguments. `unwrapped` removes one wrapper. The program
may itself be a wrapper. If a wrapper passes its command to a shell as one string, `Inner.script` is
that string.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import pairwise
from types import MappingProxyType
from typing import Final, NamedTuple

from shelld.guard.options import Option, options_of
from shelld.guard.specification import ALL_OPERANDS, Specification, specification
from shelld.guard.vocabulary import EVERYDAY_WRAPPERS, WRAPPERS


class Inner(NamedTuple):
    """The program or script that a wrapper starts.

    If `script` is None, `argv` is the program and its arguments. Else a shell runs `script`. If the
    wrapper sets the working directory, `cwd` is that directory. `away` means that the program runs
    on another machine or in a container.
    """

    argv: list[str]
    assignments: Mapping[str, str] = MappingProxyType({})
    script: str | None = None
    cwd: str | None = None
    away: bool = False


def unwrapped(program: str, arguments: Sequence[str]) -> Inner | None:
    """Return the program or script that a wrapper starts, or None if `program` starts nothing.

    If a wrapper starts a shell because its arguments name no program, the result is the program
    "bash".
    """
    for spec in _specifications(program) if program in _ALL else ():
        inner = _Unwrapping(program, spec, arguments).inner()
        if inner is not None:
            return inner
    return None


# Matches a group of short options of a shell that contains -c. The script is the next word.
_C_OPTION: Final = re.compile(r"-[A-Za-z]*c[A-Za-z]*")
# These programs treat "-" as an option.
_TAKE_DASH: Final = ("env", "su", "runuser", "newgrp", "sg")
_ALL: Final = {**EVERYDAY_WRAPPERS, **WRAPPERS}


@cache
def _specifications(program: str) -> list[Specification]:
    return [specification(line) for line in _ALL[program].split(";")]


class _Unwrapping:
    def __init__(self, program: str, spec: Specification, arguments: Sequence[str]) -> None:
        self._program = program
        self._spec = spec
        self._rest = list(arguments)
        self._assignments: dict[str, str] = {}
        self._first: str | None = None
        self._script: str | None = None
        self._cwd: str | None = None
        self._starts_shell = "shell" in spec.marks
        self._has_dashes = False

    def inner(self) -> Inner | None:
        marks = self._spec.marks
        if not self._read():
            return None
        if self._script is not None:
            # ``env -S`` appends the remaining arguments to its script.
            more = self._rest if self._program == "env" else []
            return self._found([], " ".join([self._script, *more]))
        if self._first is not None:
            argv = [self._first, *self._rest]
            return self._found([], " ".join(argv)) if "joins" in marks else self._found(argv)
        rest = self._rest
        if self._starts_shell and self._spec.operands == ALL_OPERANDS:
            # The first operand is a user (``su``) or a file (``script``). A command may follow
            # ``--``, as with newer versions of ``script``.
            if "bash" in marks:
                rest = rest[1:]
            elif not self._has_dashes:
                rest = rest[rest.index("--") + 1 :] if "--" in rest else []
        if not rest:
            return self._found(["bash"]) if self._starts_shell else None
        if "joins" in marks:
            return self._found([], " ".join(rest))
        return self._found(["bash", *rest] if "bash" in marks else rest)

    def _found(self, argv: list[str], script: str | None = None) -> Inner:
        away = "away" in self._spec.marks
        return Inner(argv, self._assignments, script, self._cwd, away)

    def _read(self) -> bool:
        """Read the arguments before the program. Return False if the wrapper starts no program."""
        spec, rest = self._spec, self._rest
        subcommands = list(spec.options.get("sub", ()))
        leads = "leads" in spec.marks and rest[:1] and rest[0].startswith("-")
        operands = 0 if leads else spec.operands
        while rest:
            argument = rest[0]
            if argument == "--":
                rest.pop(0)
                self._has_dashes = True
                self._end_options(operands)
                self._take_assignments()
                break
            if argument.startswith("-") and (len(argument) > 1 or self._program in _TAKE_DASH):
                rest.pop(0)
                for option in self._options(argument):
                    if spec.has("idle", option.name):
                        return False
                    if spec.has("argv", option.name):
                        self._first = option.value
                        return True
                    self._take(option)
                    self._starts_shell = self._starts_shell or spec.has("shell", option.name)
                if self._script is not None and self._program == "env":
                    return True
            elif "assigns" in spec.marks and _is_assignment(argument):
                self._take_assignments()
            elif subcommands:
                if rest.pop(0) != subcommands.pop(0):
                    return False
            elif operands and not (operands == ALL_OPERANDS and not self._may_have_script()):
                operands -= operands != ALL_OPERANDS
                rest.pop(0)
            else:
                break
        return not subcommands

    def _options(self, argument: str) -> list[Option]:
        if self._program == "gdb" and not argument.startswith("--"):
            # The long options of gdb may have one dash.
            argument = f"-{argument}"
        return options_of(argument, self._rest, self._spec.letters, self._spec.names)

    def _end_options(self, operands: int) -> None:
        """Skip the operands after ``--``, as in ``timeout -- 5 ls`` and ``su -- me``."""
        if operands != ALL_OPERANDS:
            del self._rest[:operands]
            return
        # In ``su -- me -c SCRIPT``, su passes -c on to a shell. The option can also be ``-ec``.
        scripts = (value for option, value in pairwise(self._rest) if _C_OPTION.fullmatch(option))
        self._script = self._script or next(scripts, None)

    def _take_assignments(self) -> None:
        while "assigns" in self._spec.marks and self._rest and _is_assignment(self._rest[0]):
            name, _, value = self._rest.pop(0).partition("=")
            self._assignments[name] = value

    def _take(self, option: Option) -> None:
        spec, (name, value) = self._spec, option
        if value is None:
            return
        if spec.has("script", name):
            self._script = value
        elif spec.has("cd", name):
            self._cwd = value
        elif spec.has("first", name):
            self._first = value

    def _may_have_script(self) -> bool:
        """Return whether an option names the program, so that no operand is the program."""
        if self._script is not None:
            return True
        options = self._spec.options
        scripts = (*options.get("script", ()), *options.get("argv", ()))
        return any(
            each[2:].partition("=")[0] in scripts or any(name in each[1:3] for name in scripts)
            for each in self._rest
            if each.startswith("-")
        )


def _is_assignment(argument: str) -> bool:
    return "=" in argument.partition("/")[0]
