"""Rewrites the strings in code as plain literals, so that `interpreters` finds them. Pure.

The module knows the triple quotes of Python, ``q(...)`` of Perl and Ruby, and ``[[...]]`` of Lua.
It also replaces some expressions with literals: the arguments of a program, variables that are set
once, and the lines that ``perl -n`` reads.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from itertools import islice
from typing import Final

_TRIPLE: Final = re.compile(
    r'(?<!\\)"""((?>(?:[^"\\]|\\.|"(?!""))*))"""'
    r"|(?<!\\)'''((?>(?:[^'\\]|\\.|'(?!''))*))'''",
    re.S,
)
_QUOTED: Final = re.compile(
    r"(?:\bqq?|%[qQ])\s{0,8}(?:\(([^()]*+)\)|\{([^{}]*+)\}|\[([^\[\]]*+)\]|<([^<>]*+)>"
    r"|/((?>(?:[^/\\]|\\.)*))/|\|([^|]*+)\||!([^!]*+)!)",
    re.S,
)
_BRACKETED: Final = re.compile(r"\[\[([^\[\]]*+)\]\]")
_LONG: Final = {
    "python": _TRIPLE,
    "pypy": _TRIPLE,
    "perl": _QUOTED,
    "ruby": _QUOTED,
    "lua": _BRACKETED,
    "luajit": _BRACKETED,
}
# An expression for all arguments of a program. `_ARGUMENT` matches an expression for one argument.
_ALL_ARGUMENTS: Final = re.compile(r"\bsys\.argv\[1:\]|(?<!\\)@ARGV\b|\*ARGV\b")
_ARGUMENT: Final = re.compile(
    r"\b(?:sys|process)\.argv\[(\d{1,4})\]|\$argv\[(\d{1,4})\]|(?:\$|\b)ARGV\[(\d{1,4})\]"
)
_INTERPOLATED: Final = re.compile(
    r"[$#]?\{(?:(?:sys|process)\.argv\[(\d{1,4})\]|(ARGV)\[(\d{1,4})\])\}"
)

# An escaped quote does not begin a literal.
_STRING: Final = r"""(?<!\\)'(?>(?:[^'\\]|\\.)*)'|(?<!\\)"(?>(?:[^"\\]|\\.)*)"|`[^`]*+`"""
_SET: Final = re.compile(
    rf"(?<![\w.'\"])[$]?([A-Za-z_]\w*+)[^\S\n]*+=[^\S\n]*+({_STRING})[^\S\n]*+(?=[;,\n)]|\Z)"
)
_ASSIGNED: Final = re.compile(r"(?<![\w.'\"])[$]?([A-Za-z_]\w*+)\s*+[-+*/.|%]?=(?![=~])")
# `_IN_STRING` matches a variable in a string. `_JOINED` matches a variable beside an operator that
# joins strings, or after a string in a list.
_IN_STRING: Final = re.compile(r"[$#]?\{([A-Za-z_]\w*+)\}|\$([A-Za-z_]\w*+)")
_JOINED: Final = re.compile(
    rf"({_STRING})|(?:(?<=[+.])|(?<=['\"],))(\s{{0,8}})[$]?([A-Za-z_]\w*+)(?![\w(\[.])"
    r"|(?<![\w.'\"])[$]?([A-Za-z_]\w*+)(?=\s{0,8}[+.]\s{0,8}f?['\"])"
)
# A string that is formatted with one value, as in ``"%s" % value``.
_FORMATTED: Final = re.compile(
    rf"({_STRING})(?:\s{{0,8}}%\s{{0,8}}\(?\s{{0,8}}|\.format\(\s{{0,8}})(?:({_STRING})|([A-Za-z_]\w*+)(?![\w(\[.]))"
)
_PLACE: Final = re.compile(r"%s|%r|\{0?\}")
# The guard puts values of at most this many characters into strings.
_MAX_VALUE: Final = 64
# The maximum length of code, in characters, after values have replaced names.
_MAX_GROWN: Final = 32 * 1024
_UNSAFE: Final = re.compile(r"['\"`\\\n]")
# The expressions for the next argument in Perl and Ruby. `_FUNCTION` is the word that begins a
# function in Perl.
_SHIFT: Final = re.compile(
    rf"({_STRING})|\bARGV\.shift\b|(?<![\w$@%.])shift\b(?:\s{{0,8}}\(?\s{{0,8}}@ARGV\b\s{{0,8}}\)?|\(\))?"
)
_FUNCTION: Final = re.compile(r"\bsub\b")
# The functions that start programs or remove files. `_RENAMED` matches code that gives such a
# function another name.
_TELLING: Final = re.compile(
    r"\b(?:rmtree|remove_tree|rmSync|rm_rf|system|popen|Popen|run|call|check_call|check_output"
    r"|execSync|exec|spawn|spawnSync|execFileSync|getoutput)\b"
)
_RENAMED: Final = re.compile(
    rf"({_TELLING.pattern})(?:\s{{1,8}}as\s{{1,8}}|\s{{0,8}}:\s{{0,8}})([A-Za-z_]\w*)"
    r"|(?<![\w.])([A-Za-z_]\w{0,60})[^\S\n]{0,8}=[^\S\n]{0,8}"
    r"(?:(?:\w{1,40}|require\([^()\n]{1,40}\))\.){0,4}"
    rf"({_TELLING.pattern})(?![^\S\n]{{0,8}}[\w(.])"
)
_MAX_RENAMED: Final = 8
# The variable for the current line in Perl and Ruby, alone or in a string.
_LINE: Final = re.compile(rf"({_STRING})|\$_(?![\w\[{{])")


def with_plain_literals(language: str, code: str) -> str:
    pattern = _LONG.get(language)
    return code if pattern is None else pattern.sub(_plain, code)


def _plain(match: re.Match[str]) -> str:
    return literal(next(each for each in match.groups() if each is not None))


def literal(text: str) -> str:
    escaped = re.sub(r"([\\'])", r"\\\1", text)
    return f"'{escaped}'"


def with_arguments(code: str, arguments: Sequence[str]) -> str:
    """In `code`, replace expressions such as ``sys.argv[1]`` with the command-line arguments."""
    if "argv" not in code and "ARGV" not in code:
        return code

    def one(match: re.Match[str]) -> str:
        # In Python, PHP and Node.js, index 0 is the name of the program.
        named = match[1] or match[2]
        index = int(match[3]) if named is None else int(named) - 1
        return literal(arguments[index]) if 0 <= index < len(arguments) else match[0]

    def inside(match: re.Match[str]) -> str:
        index = int(match[3]) if match[1] is None else int(match[1]) - 1
        is_plain = 0 <= index < len(arguments) and not _UNSAFE.search(arguments[index])
        return arguments[index] if is_plain else match[0]

    code = _INTERPOLATED.sub(inside, code)
    given = ", ".join(map(literal, arguments))
    return _ARGUMENT.sub(one, _ALL_ARGUMENTS.sub(lambda _match: given, code))


def with_shifted(code: str, arguments: Sequence[str]) -> str:
    """In Perl or Ruby code, replace each ``shift`` with the next command-line argument.

    If the code defines a function in Perl, return the code unchanged, because ``shift`` in a
    function takes an argument of the function.
    """
    if "shift" not in code or _FUNCTION.search(code):
        return code
    rest = iter(arguments)

    def one(match: re.Match[str]) -> str:
        if match[1] is not None:
            return match[0]
        value = next(rest, None)
        return match[0] if value is None else literal(value)

    return _SHIFT.sub(one, code)


def with_names(code: str) -> str:
    """If code gives a new name to a function in `_TELLING`, restore the original name in its calls.

    New names come from code such as ``from shutil import rmtree as r``, ``r = shutil.rmtree`` and
    ``{ rmSync: r } = require("fs")``.
    """
    if _TELLING.search(code) is None:
        return code
    names: dict[str, str] = {}
    for match in islice(_RENAMED.finditer(code), _MAX_RENAMED):
        names[match[2] or match[3]] = match[1] or match[4]
    if not names:
        return code
    called = re.compile(rf"{_STRING}|(?<![\w.])({'|'.join(map(re.escape, names))})(?=\s{{0,8}}\()")

    def one(match: re.Match[str]) -> str:
        return match[0] if match[1] is None else names[match[1]]

    return called.sub(one, code)


def with_line(code: str, line: str) -> str:
    """In Perl or Ruby code, replace ``$_``, the variable for the current line, with `line`."""

    def one(match: re.Match[str]) -> str:
        if match[1] is None:
            return literal(line)
        is_plain = match[1][0] in '"`' and not _UNSAFE.search(line)
        return match[1].replace("$_", line) if is_plain else match[1]

    return _LINE.sub(one, code)


def with_values(code: str) -> str:
    """If `code` sets a variable only once, replace the variable with its value."""
    found = {match[1]: match[2][1:-1] for match in _SET.finditer(code)}
    times = Counter(match[1] for match in _ASSIGNED.finditer(code))
    values = {
        name: value
        for name, value in found.items()
        if times[name] == 1 and len(value) <= _MAX_VALUE and not _UNSAFE.search(value)
    }

    def inside(match: re.Match[str]) -> str:
        return values.get(match[1] or match[2], match[0])

    def joined(match: re.Match[str]) -> str:
        if match[1] is not None:
            return _IN_STRING.sub(inside, match[1])
        name = match[3] or match[4]
        return (match[2] or "") + literal(values[name]) if name in values else match[0]

    def formatted(match: re.Match[str]) -> str:
        value = values.get(match[3]) if match[2] is None else match[2][1:-1]
        if value is None or _UNSAFE.search(value):
            return match[0]
        text = _PLACE.sub(lambda _match: value, match[1], count=1)
        return text if text != match[1] else match[0]

    return _FORMATTED.sub(formatted, _JOINED.sub(joined, code)[:_MAX_GROWN])
