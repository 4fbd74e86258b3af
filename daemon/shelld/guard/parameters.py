"""Expands parameters, such as ``$x`` and ``${x:-y}``, as far as the result can be known.

Pure, except that it asks its `Scope` for the values of names. `Words` expands the words that an
expansion contains, such as ``y`` in ``${x:-y}``.

Reference: bash(1), Parameter Expansion.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, Protocol

from shelld.guard.arithmetic import arithmetic
from shelld.guard.ends import Ends
from shelld.guard.escapes import ansi_c, prompted
from shelld.guard.extended_globs import FOLLOWED
from shelld.guard.markers import BREAK, UNKNOWN, plain
from shelld.guard.patterns import replaced, trimmed
from shelld.guard.scope import Scope
from shelld.guard.units import ExpansionError


class Words(Protocol):
    """Expands words in a scope. The methods raise `ExpansionError`."""

    scope: Scope

    def text(self, word: str) -> str:
        """Expand a word to one field."""
        ...

    def joined(self, word: str) -> str:
        """Return the fields of a word, joined with blanks."""
        ...

    def heredoc(self, body: str) -> str:
        """Return an expanded here-document."""
        ...


# Trying all matches of a pattern costs this many times as much as copying the value.
_TRYING: Final = 500


_PARAMETER: Final = re.compile(
    r"(?P<prefix>[!#]?)(?P<name>[A-Za-z_]\w*|\d+|[@*#?$!_-])(?:\[(?P<index>.*?)\])?(?P<rest>.*)",
    re.DOTALL,
)


def expand_parameter(parameter: str, words: Words, *, quoted: bool) -> str:
    """Return the expansion of ``${parameter}``. Raises `ExpansionError`."""
    if parameter in ("#", "#@", "#*"):
        return str(len(words.scope.list_of("@")))
    match = _PARAMETER.fullmatch(parameter)
    if match is None:
        raise ExpansionError
    prefix, name, index, rest = match["prefix"], match["name"], match["index"], match["rest"]
    if index is not None and ("$" in index or "`" in index):
        # Bash always runs the substitutions in an index.
        index = words.text(index)
    if (name in "@*" or index in ("@", "*")) and re.match(r":(?![-=+?])", rest):
        return _sliced(name, index, rest[1:], words, quoted=quoted)
    value = _value(name, index, words, quoted=quoted)
    if prefix and index in ("@", "*"):
        count = len(words.scope.list_of(name))
        between = BREAK if quoted and index == "@" else " "
        return str(count) if prefix == "#" else between.join(map(str, range(count)))
    if prefix == "#":
        return UNKNOWN if value is not None and UNKNOWN in value else str(len(value or ""))
    if prefix == "!":
        if rest in ("*", "@") or value is None:
            return UNKNOWN
        value = UNKNOWN if UNKNOWN in value else _indirect(value, words, quoted=quoted)
    if value is None and not _HAS_DEFAULT.match(rest):
        words.scope.miss("@" if index in ("@", "*") else name)
    return _operated(name, value, rest, words, quoted=quoted) if rest else value or ""


_HAS_DEFAULT: Final = re.compile(r":?[-=+?]")


def _indirect(target: str, words: Words, *, quoted: bool) -> str | None:
    """Return the value of ``${!name}``. `target` is the value of ``name``, which is the name of a
    variable or of an array member.
    """
    name, bracket, index = target.partition("[")
    if not bracket:
        return _value(target, None, words, quoted=quoted)
    words.scope.substituted(index)
    return _value(name, index.removesuffix("]"), words, quoted=quoted)


def _value(name: str, index: str | None, words: Words, *, quoted: bool) -> str | None:
    if name in "@*" or index in ("@", "*"):
        members = words.scope.list_of("@" if name in "@*" else name)
        separate = quoted and (name == "@" or index == "@")
        between = BREAK if separate else _between(words.scope) if quoted else " "
        return between.join(members) if members else None
    if index is not None:
        member = words.scope.value_of(f"{name}[{index}]")
        if member is not None:
            return member
        number = _number(index, words)
        if number is not None:
            return words.scope.member_of(name, number)
        return UNKNOWN if words.scope.list_of(name) else words.scope.value_of(name)
    return words.scope.value_of(name)


def _between(scope: Scope) -> str:
    """Return the first character of IFS, which separates the fields in ``"$*"``."""
    characters = scope.value_of("IFS")
    return " " if characters is None or UNKNOWN in characters else characters[:1]


def _operated(  # noqa: PLR0911 - a table of cases
    name: str, value: str | None, rest: str, words: Words, *, quoted: bool
) -> str:
    colon = rest.startswith(":") and len(rest) > 1 and rest[1] in "-=+?"
    operator = rest[1:2] if colon else rest[:1]
    word = rest[2:] if colon else rest[1:]
    is_missing = value is None or (colon and not value)
    if operator in "-=+?" and (colon or rest[0] in "-=+?"):
        return _defaulted(name, value, operator, word, words, is_missing=is_missing)
    value = value or ""
    if UNKNOWN in value:
        # Expand the word only to follow its substitutions.
        words.text(word)
        return UNKNOWN
    if rest[0] == ":":
        return _substring(value, rest[1:], words)
    if rest[0] in "#%":
        greedy = rest[:2] in ("##", "%%")
        pattern = words.text(rest[2:] if greedy else rest[1:])
        # `trimmed` tries every prefix or suffix.
        words.scope.spend(len(value) * _TRYING)
        return trimmed(value, pattern, at_start=rest[0] == "#", greedy=greedy)
    if rest[0] == "/":
        return _replaced(value, rest[1:], words)
    if rest[0] in "^,":
        change = str.upper if rest[0] == "^" else str.lower
        return change(value) if rest[:2] in ("^^", ",,") else change(value[:1]) + value[1:]
    if rest == "@P":
        return plain(words.heredoc(prompted(value)))
    if rest in ("@U", "@L", "@Q", "@E", "@u"):
        changes: dict[str, Callable[[str], str]] = {
            "@U": str.upper,
            "@L": str.lower,
            "@E": ansi_c,
            "@u": lambda text: text[:1].upper() + text[1:],
        }
        return changes[rest](value) if rest in changes else value
    return UNKNOWN


def _defaulted(
    name: str,
    value: str | None,
    operator: str,
    word: str,
    words: Words,
    *,
    is_missing: bool,
) -> str:
    if operator == "+":
        value = "" if is_missing and name != FOLLOWED else words.joined(word)
        return "" if is_missing else value
    if not is_missing:
        return value or ""
    if operator == "?":
        raise ExpansionError
    default = words.joined(word)
    if operator == "=":
        words.scope.assign(name, default)
    return default


def _substring(value: str, rest: str, words: Words) -> str:
    offset, _, length = words.text(rest).partition(":")
    start = _number(offset or "0", words)
    if start is None:
        return UNKNOWN
    value = value[start:]
    if not length:
        return value
    count = _number(length, words)
    return UNKNOWN if count is None else value[:count]


def _sliced(name: str, index: str | None, rest: str, words: Words, *, quoted: bool) -> str:
    """Return a slice of the positional parameters or of the members of an array."""
    members = words.scope.list_of("@" if name in "@*" else name)
    if name in "@*":
        members = [words.scope.value_of("0") or "", *members]
    offset, _, length = words.text(rest).partition(":")
    start, count = _number(offset or "0", words), _number(length or str(len(members)), words)
    if start is None or count is None or count < 0:
        return UNKNOWN
    separate = quoted and "@" in (name, index)
    return (BREAK if separate else " ").join(members[start:][:count])


def _number(text: str, words: Words) -> int | None:
    result = arithmetic(words.text(text), words.scope)
    return int(result) if re.fullmatch(r"-?\d+", result) else None


def _replaced(value: str, rest: str, words: Words) -> str:
    every = rest.startswith("/")
    rest = rest[every:]
    ends = Ends(rest)
    position = 0
    while position < len(rest) and rest[position] != "/":
        position = ends.of_unit(position)
    pattern, new = words.text(rest[:position]), words.text(rest[position + 1 :])
    return replaced(value, pattern, new, every=every)
