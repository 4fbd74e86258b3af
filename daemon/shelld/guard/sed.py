"""Finds the commands that a sed(1) script runs, and the files that it writes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from shelld.guard.markers import UNKNOWN, plain
from shelld.guard.options import all_options
from shelld.guard.rules import overwrites

if TYPE_CHECKING:
    from shelld.guard.shell import Shell

# The guard reads at most `_MAX_COMMANDS` commands and `_MAX_SCRIPT` characters of a script.
_MAX_COMMANDS: Final = 256
_MAX_SCRIPT: Final = 16 * 1024
# Searching a script costs this many times as much as copying it.
_SEARCHING: Final = 20

_BLANK: Final = re.compile(r"[\s;{}]*+")
_REGEX: Final = r"/(?>(?:\\.|[^/\\\n])*)/"
_ADDRESS: Final = re.compile(
    rf"(?>\d++(?:~\d++)?|\$|{_REGEX}[IM]*+)(?>,\s*+(?>[+~]?\d++|\$|{_REGEX}[IM]*+)|)[\s!]*+|!\s*+",
    re.S,
)
_FLAGS: Final = re.compile(r"[gpiImMe0-9]*+")
_LINE: Final = re.compile(r"[^\n]*+")
_LABEL: Final = re.compile(r"[^\n;}]*+")
# If a line ends with a backslash, the text continues in the next line.
_TEXT: Final = re.compile(r"(?>(?:\\.|[^\\\n])*)", re.S)


class _Command(NamedTuple):
    """The effects of a command of sed.

    `run` is a shell script, `write` is a file that sed writes, and `replacing` is a command ``s``
    whose result runs as a script. Each of these is "" if the command has no such effect.
    """

    run: str = ""
    write: str = ""
    replacing: str = ""
    runs_input: bool = False


def sed(shell: Shell, arguments: Sequence[str], stdin: str) -> str:
    options, operands = all_options(arguments, "efl", ("expression", "file", "line-length"))
    scripts = [value or "" for name, value in options if name in ("e", "expression")]
    files = [value for name, value in options if name in ("f", "file") and value]
    scripts += [shell.content_of(each, stdin) for each in files]
    if not scripts:
        scripts, operands = operands[:1], operands[1:]
    script = plain("\n".join(scripts))[:_MAX_SCRIPT]
    known = stdin if not operands and UNKNOWN not in stdin else ""
    shell.spend(len(script) * _SEARCHING)
    for command in _commands_in(script):
        if command.write:
            shell.report(overwrites(command.write, shell.place()))
        if command.replacing and known:
            shell.copy().run_text(shell.written_by(["sed", command.replacing], known), "")
        if command.runs_input:
            shell.copy().run_script(known, "")
        if command.run:
            shell.copy().run_script(command.run, "")
    return shell.written_by(["sed", *arguments], stdin)


def _commands_in(script: str) -> Iterator[_Command]:
    position = _end(_BLANK, script, 0)
    for _ in range(_MAX_COMMANDS):
        if position >= len(script):
            break
        position = _end(_ADDRESS, script, position)
        position = _end(_BLANK, script, position)
        letter = script[position : position + 1]
        position += 1
        if letter == "s":
            command, position = _substitution(script, position)
            yield command
        elif letter == "y":
            position = _end_of_parts(script, position)[-1]
        elif letter in ("e", "w", "W", "r", "R", "#"):
            end = _end(_LINE, script, position)
            rest, position = script[position:end].strip(), end
            if letter == "e":
                yield _Command(run=rest, runs_input=not rest)
            elif letter in "wW":
                yield _Command(write=rest)
        elif letter in ("a", "i", "c"):
            position = _end(_TEXT, script, position)
        elif letter in (":", "b", "t", "T", "q", "Q", "l", "L"):
            position = _end(_LABEL, script, position)
        position = _end(_BLANK, script, position)


def _substitution(script: str, start: int) -> tuple[_Command, int]:
    middle, end = _end_of_parts(script, start)
    after = _end(_FLAGS, script, end)
    flags = script[end:after]
    replacing = run = ""
    if "e" in flags:
        run = re.sub(r"\\(.)", r"\1", script[middle : end - 1], flags=re.S)
        replacing = f"s{script[start:end]}{flags.replace('e', '')}"
    write = ""
    if script.startswith("w", after):
        position = _end(_LINE, script, after)
        write, after = script[after + 1 : position].strip(), position
    return _Command(run, write, replacing), after


def _end_of_parts(script: str, start: int) -> tuple[int, int]:
    """In ``s`` or ``y``, one delimiter ends the first part, and another delimiter ends the second
    part. Return the position after each of these two delimiters.
    """
    delimiter, position = script[start : start + 1], start + 1
    ends: list[int] = []
    while position < len(script) and len(ends) < 2:
        if script[position] == "\\":
            position += 1
        elif script[position] == delimiter:
            ends.append(position + 1)
        position += 1
    ends += [len(script)] * (2 - len(ends))
    return ends[0], ends[1]


def _end(pattern: re.Pattern[str], text: str, position: int) -> int:
    match = pattern.match(text, position)
    return position if match is None else match.end()
