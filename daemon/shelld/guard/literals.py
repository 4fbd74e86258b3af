"""Rewrites code so that its strings are plain literals, which `interpreters` finds. Pure.

The rewriting goes by language: triple quotes of Python, ``q(...)`` of Perl and Ruby, and
``[[...]]`` of Lua. The arguments of a program become literals, too.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
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
# All arguments of a program, and one of them.
_ALL_ARGUMENTS: Final = re.compile(r"\bsys\.argv\[1:\]|(?<!\\)@ARGV\b|\*ARGV\b")
_ARGUMENT: Final = re.compile(r"\bsys\.argv\[(\d{1,4})\]|(?:\$|\b)ARGV\[(\d{1,4})\]")


def with_plain_literals(language: str, code: str) -> str:
    pattern = _LONG.get(language)
    return code if pattern is None else pattern.sub(_plain, code)


def _plain(match: re.Match[str]) -> str:
    return literal(next(each for each in match.groups() if each is not None))


def literal(text: str) -> str:
    escaped = re.sub(r"([\\'])", r"\\\1", text)
    return f"'{escaped}'"


def with_arguments(code: str, arguments: Sequence[str]) -> str:
    """Return code in which the arguments of its program are literals."""
    if "argv" not in code and "ARGV" not in code:
        return code

    def one(match: re.Match[str]) -> str:
        # In Python, the first is the name of the program.
        index = int(match[2]) if match[1] is None else int(match[1]) - 1
        return literal(arguments[index]) if 0 <= index < len(arguments) else match[0]

    given = ", ".join(map(literal, arguments))
    return _ARGUMENT.sub(one, _ALL_ARGUMENTS.sub(lambda _match: given, code))
