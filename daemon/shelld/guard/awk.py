"""Finds the commands that an awk(1) program runs, and the files that it writes.

The module searches the program and does not run it. It finds calls of ``system`` and redirections.
It knows the values of strings, of variables that are set once, and of the fields of known input.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

from shelld.guard.escapes import ansi_c
from shelld.guard.fork_bomb import FORK_BOMB
from shelld.guard.interpreters import is_fork_bomb
from shelld.guard.markers import UNKNOWN, plain
from shelld.guard.options import leading_options
from shelld.guard.rules import overwrites

if TYPE_CHECKING:
    from shelld.guard.shell import Shell

# The guard searches at most `_MAX_PROGRAM` characters and `_MAX_STATEMENTS` statements of a
# program. It follows the program for at most `_MAX_LINES` lines of input.
_MAX_PROGRAM: Final = 16 * 1024
_MAX_STATEMENTS: Final = 64
_MAX_LINES: Final = 4
# The guard follows at most this many calls in one statement.
_MAX_CALLS: Final = 4
# The guard follows at most this many arguments of ``printf``.
_MAX_ARGUMENTS: Final = 16
# Searching a program costs this many times as much as copying its text.
_SEARCHING: Final = 60

# An escaped quote does not begin a string. The same is true in `calls.LITERAL`.
_STRING: Final = r'(?<!\\)"(?>(?:[^"\\]|\\.)*)"'
# A statement ends at a semicolon, a brace or a newline outside of a string.
_STATEMENT: Final = re.compile(rf"(?>(?:{_STRING}|[^;{{}}\n\"]|(?<=\\)\")+)", re.S)
_ASSIGNED: Final = re.compile(r"\s*+([A-Za-z_]\w*+)\s*+=(?![=~])\s*+(.*)", re.S)
_SETTING: Final = re.compile(r"([A-Za-z_]\w*+)=(.*)", re.S)
_SPRINTF: Final = re.compile(r"\bsprintf\s*+\(")
# A conversion in a format of ``printf``, such as ``%s``.
_CONVERSION: Final = re.compile(r"%[-+ #0]?\d{0,9}(?:\.\d{0,9})?([a-zA-Z%])")
_SYSTEM: Final = re.compile(r"\bsystem\s*+\(")
_PRINT: Final = re.compile(r"\bprintf?\b")
_GETLINE: Final = re.compile(r"\|&?\s*+getline\b")
_TOKEN: Final = re.compile(
    rf'({_STRING})|ENVIRON\s*+\[\s*+"(\w++)"\s*+\]|ARGV\s*+\[\s*+(\d++)\s*+\]|\$(\d++)'
    r"|([A-Za-z_]\w*+)|(\d++)|([(),\s])|(.)",
    re.S,
)


class _Values(NamedTuple):
    variables: dict[str, str]
    arguments: Sequence[str]
    line: str


def awk(shell: Shell, arguments: Sequence[str], stdin: str) -> str:
    options, operands = leading_options(arguments, "fFvilE", ("assign", "file", "source", "load"))
    files = [value for name, value in options if name in ("f", "file") and value]
    codes = [value or "" for name, value in options if name in ("source", "e")]
    codes += [shell.content_of(each, stdin) for each in files]
    if not codes:
        codes, operands = operands[:1], operands[1:]
    code = plain("\n".join(codes))[:_MAX_PROGRAM]
    set_before = [value or "" for name, value in options if name in ("v", "assign")]
    variables: dict[str, str] = {}
    for each in (*set_before, *operands):
        if (match := _SETTING.fullmatch(each)) is not None:
            variables[match[1]] = ansi_c(match[2])
    names = [each for each in operands if not _SETTING.fullmatch(each)]
    is_known = not names and stdin not in ("", UNKNOWN)
    lines = plain(stdin).splitlines()[:_MAX_LINES] if is_known else [UNKNOWN]
    shell.spend(len(code) * _SEARCHING * len(lines))
    if is_fork_bomb(code):
        shell.report(FORK_BOMB)
    output = ""
    for line in lines or [""]:
        output += _follow(shell, code, _Values(dict(variables), ["awk", *operands], line))
    if is_known and _ALL_PRINT.fullmatch(code):
        return output
    return shell.written_by(["awk", *arguments], stdin)


# Matches a program that consists of one print statement, and so prints something for every line.
_ALL_PRINT: Final = re.compile(r"\s*+\{\s*+printf?\b[^{};|>]*+;?+\s*+\}\s*+")


def _follow(shell: Shell, code: str, values: _Values) -> str:
    output = ""
    for count, match in enumerate(_STATEMENT.finditer(code)):
        if count >= _MAX_STATEMENTS:
            shell.unresolved("it is too complex to follow")
            break
        statement = match[0]
        if (assigned := _ASSIGNED.fullmatch(statement)) is not None:
            values.variables[assigned[1]] = _value(assigned[2], values, shell)
        for call in islice(_SYSTEM.finditer(statement), _MAX_CALLS):
            end = next(_ends_of(statement, call.end(), ")"), len(statement))
            _run(shell, _value(statement[call.end() : end], values, shell))
        if (read := _GETLINE.search(statement)) is not None:
            _run(shell, _value(statement[: read.start()].rpartition("(")[2], values, shell))
        elif (prints := _PRINT.search(statement)) is not None:
            output += _print(shell, statement[prints.start() :], values)
    return output


def _print(shell: Shell, statement: str, values: _Values) -> str:
    """Follow a print statement. Return the text that the statement writes to stdout."""
    end = next(_ends_of(statement, 0, ">|"), len(statement))
    operator = statement[end : end + 1]
    if statement.startswith("printf"):
        given = statement[len("printf") : end].strip()
        if given.startswith("(") and given.endswith(")"):
            given = given[1:-1]
        text = _formatted(given, values, shell)
    else:
        given = statement[len("print") : end].replace(",", '" "')
        text = (_value(given, values, shell) or values.line) + "\n"
    target = _value(statement[end:].lstrip(">|&"), values, shell) if operator else ""
    if operator == ">":
        shell.report(overwrites(target, shell.place()))
    elif operator == "|" and target.strip(UNKNOWN):
        shell.copy().run_script(target, text)
    return "" if operator else text


def _run(shell: Shell, script: str) -> None:
    if script.strip(UNKNOWN):
        shell.copy().run_script(script, "")


_PART: Final = re.compile(rf"{_STRING}|[(),>|]", re.S)


def _ends_of(text: str, start: int, ends: str) -> Iterator[int]:
    """Skip strings and parentheses. Elsewhere, yield each position of a character from `ends`."""
    depth = 0
    for match in _PART.finditer(text, start):
        character = match[0]
        if depth == 0 and character in ends:
            yield match.start()
        depth += (character == "(") - (character == ")")


def _value(text: str, values: _Values, shell: Shell) -> str:
    """Return the value of an expression: the joined values of its parts.

    The guard does not follow a call of ``sprintf`` inside another call of ``sprintf``.
    """
    parts: list[str] = []
    position = 0
    for call in islice(_SPRINTF.finditer(text), _MAX_CALLS):
        if call.start() < position:
            continue
        end = next(_ends_of(text, call.end(), ")"), len(text))
        parts += _parts(text[position : call.start()], values, shell)
        parts.append(_formatted(text[call.end() : end], values, shell))
        position = end + 1
    return "".join([*parts, *_parts(text[position:], values, shell)])


def _parts(text: str, values: _Values, shell: Shell) -> Iterator[str]:
    return (_part(match, values, shell) for match in _TOKEN.finditer(text))


def _formatted(text: str, values: _Values, shell: Shell) -> str:
    """Return the text that ``printf`` writes for its arguments."""
    commas = list(islice(_ends_of(text, 0, ","), _MAX_ARGUMENTS))
    limits = zip([-1, *commas], [*commas, len(text)], strict=True)
    arguments = ["".join(_parts(text[start + 1 : end], values, shell)) for start, end in limits]
    rest = iter(arguments[1:])

    def converted(match: re.Match[str]) -> str:
        return "%" if match[1] == "%" else next(rest, "")

    return _CONVERSION.sub(converted, arguments[0])


def _part(match: re.Match[str], values: _Values, shell: Shell) -> str:  # noqa: PLR0911
    string, environment, argument, field, name, number, mark, _ = match.groups()
    if string is not None:
        return ansi_c(string[1:-1])
    if environment is not None:
        is_seen = environment in shell.exported
        return shell.variables.get(environment, "") if is_seen else ""
    if argument is not None:
        given = values.arguments
        return given[int(argument)] if int(argument) < len(given) else ""
    if field is not None:
        return _field(values.line, int(field))
    if name is not None:
        return values.variables.get(name, UNKNOWN)
    if number is not None:
        return number
    return "" if mark is not None else UNKNOWN


def _field(line: str, index: int) -> str:
    if index == 0 or UNKNOWN in line:
        return line
    fields = line.split()
    return fields[index - 1] if index <= len(fields) else ""
