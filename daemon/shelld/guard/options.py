"""Parses command-line options as getopt_long(3) does. Pure."""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import NamedTuple


class Option(NamedTuple):
    """An option of a program. `value` is None if the option has no value."""

    name: str
    value: str | None


def options_of(
    argument: str, following: list[str], letters: str, names: Container[str], attached: str = ""
) -> list[Option]:
    """Return the options in one argument.

    If the value of an option is the next argument, remove that argument from `following`. `letters`
    and `names` are the options that take a value. `attached` are the letters of options whose value
    must be in the same argument.
    """
    if argument.startswith("--"):
        name, equals, value = argument[2:].partition("=")
        if equals:
            return [Option(name, value)]
        return [Option(name, following.pop(0) if name in names and following else None)]
    found: list[Option] = []
    for index, letter in enumerate(argument[1:], 1):
        rest = argument[index + 1 :]
        if letter in letters:
            found.append(Option(letter, rest or (following.pop(0) if following else "")))
            return found
        if letter in attached:
            found.append(Option(letter, rest))
            return found
        found.append(Option(letter, None))
    return found


def leading_options(
    arguments: Sequence[str], letters: str, names: Container[str] = (), attached: str = ""
) -> tuple[list[Option], list[str]]:
    """Return the options before the first operand, and the remaining arguments."""
    rest = list(arguments)
    found: list[Option] = []
    while rest and rest[0].startswith("-") and len(rest[0]) > 1:
        argument = rest.pop(0)
        if argument == "--":
            break
        found += options_of(argument, rest, letters, names, attached)
    return found, rest


def all_options(
    arguments: Sequence[str], letters: str, names: Container[str]
) -> tuple[list[Option], list[str]]:
    """Return all options and all operands. Options may come after operands."""
    rest = list(arguments)
    found: list[Option] = []
    operands: list[str] = []
    while rest:
        argument = rest.pop(0)
        if argument == "--":
            operands += rest
            break
        if not argument.startswith("-") or not argument[1:2].strip():
            # "-" is an operand. Text that begins with a dash and a space, such as a message, is
            # also an operand.
            operands.append(argument)
        elif len(argument) > 2 and argument[1:] in names and rest:
            # In ``gdb -ex COMMAND``, a long option has only one dash.
            found.append(Option(argument[1:], rest.pop(0)))
        else:
            found += options_of(argument, rest, letters, names)
    return found, operands
