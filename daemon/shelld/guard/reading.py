"""Follows the builtins that read input: ``read`` and ``mapfile``.

A handler takes the shell, the arguments and stdin. Commands that share an input read it one after
the other. `Names.unread` returns the text that no command has read yet.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from shelld.guard.markers import UNKNOWN, plain
from shelld.guard.options import all_options
from shelld.guard.units import ExpansionError
from shelld.guard.words import calculated

if TYPE_CHECKING:
    from shelld.guard.shell import Shell

_NAME: Final = re.compile(r"[A-Za-z_]\w*")
_SUBSCRIPT: Final = re.compile(r"[A-Za-z_]\w*\[(.*)\]", re.S)
# The maximum index at which ``mapfile -O`` may start. The guard ignores a larger index.
_MAX_ORIGIN: Final = 1024


def read(shell: Shell, arguments: Sequence[str], stdin: str) -> str:
    options, operands = all_options(arguments, "adiNnptu", ())
    values = {name: value or "" for name, value in options}
    for name in operands:
        if (match := _SUBSCRIPT.fullmatch(name)) is not None:
            with suppress(ExpansionError):
                calculated(match[1], shell)
    names = [each for each in operands if _NAME.fullmatch(each)] or ["REPLY"]
    line = _line(shell, values, _input(shell, values, stdin))
    if line is None:
        if "a" in values:
            shell.arrays[values["a"]] = [UNKNOWN]
        else:
            for name in names:
                shell.assign(name, UNKNOWN)
        return ""
    count = -1 if "a" in values else len(names) - 1
    fields = [line] if "N" in values else _fields(line, shell.value_of("IFS") or "", count)
    if "r" not in values:
        fields = [re.sub(r"\\(.)", r"\1", each, flags=re.S) for each in fields]
    if "a" in values:
        shell.arrays[values["a"]] = fields
        return ""
    for index, name in enumerate(names):
        shell.assign(name, fields[index] if index < len(fields) else "")
    return ""


def _fields(line: str, separators: str, count: int) -> list[str]:
    """Split a line at most `count` times, or at every separator if `count` is -1."""
    if not separators.strip():
        # Several whitespace characters in a row count as one separator.
        return line.split(None, count)
    if count == 0:
        return [line.strip()]
    return re.split(f"[{re.escape(separators)}]", line, maxsplit=max(count, 0))


def _input(shell: Shell, values: dict[str, str], stdin: str) -> str:
    """Return the input from the descriptor that the option ``-u`` gives, or else stdin."""
    descriptor = values.get("u", "0")
    return stdin if descriptor == "0" else shell.content(f"/dev/fd/{descriptor}")


def _line(shell: Shell, values: dict[str, str], text: str) -> str | None:
    """Return the text that ``read`` reads, or None if it is unknown."""
    if text in ("", UNKNOWN):
        return None
    unread = shell.unread(text)
    if not unread:
        # The input has ended, so ``read`` fails.
        return ""
    end = unread.find(_delimiter(values, unread))
    end, behind = (len(unread), len(unread)) if end < 0 else (end, end + 1)
    for option in ("n", "N"):
        limit = values.get(option, "")
        if limit.isdecimal() and (option == "N" or int(limit) <= end):
            end = behind = int(limit)
    shell.consume(text, len(text) - len(unread) + behind)
    return unread[:end]


def _delimiter(values: dict[str, str], text: str) -> str:
    delimiter = values["d"][:1] or "\0" if "d" in values else "\n"
    # The output that the guard computes for ``find -print0`` consists of lines.
    return "\n" if delimiter == "\0" and delimiter not in text and UNKNOWN in text else delimiter


def mapfile(shell: Shell, arguments: Sequence[str], stdin: str) -> str:
    options, operands = all_options(arguments, "CcdnOsu", ())
    values = {name: value or "" for name, value in options}
    names = [each for each in operands if _NAME.fullmatch(each)]
    text = _input(shell, values, stdin)
    records = _records(values, shell.unread(text))
    if "C" in values:
        # Bash runs the callback of ``-C`` with an index and a record as arguments.
        for record in records[:1] or [UNKNOWN]:
            shell.copy().run_script(f"{values['C']} 0 {shlex.quote(plain(record))}", "")
    name = names[-1] if names else "MAPFILE"
    before: list[str] = []
    if "O" in values:
        with suppress(ExpansionError):
            origin = calculated(values["O"], shell)
            if origin.isdecimal() and int(origin) <= _MAX_ORIGIN:
                before = shell.list_of(name)[: int(origin)]
                before += [""] * (int(origin) - len(before))
    shell.arrays[name] = [*before, *records]
    return ""


def _records(values: dict[str, str], text: str) -> list[str]:
    delimiter = _delimiter(values, text)
    records = text.split(delimiter)
    if not records[-1]:
        records.pop()
    if "t" not in values and delimiter not in "\0\n":
        records = [each + delimiter for each in records]
    first, count = values.get("s", ""), values.get("n", "")
    records = records[int(first) if first.isdecimal() else 0 :]
    return records[: int(count)] if count.isdecimal() and int(count) else records
