"""Parses the output of `declare -p`, which has one declaration for each variable.

Pure, except for a cache. Most declarations are the same from command to command, and in all
sessions, so the cache remembers the parsed form of short lines.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from msgspec import Struct

from shelld.sessions.quoting import unquote
from shelld.sessions.state import SET_LATE
from shelld.sessions.variables import (
    EXPORT_NOT_KEPT,
    LIKE_OTHERS,
    OWN_VARIABLES,
    SET_AT_START,
)

# Attributes with which bash changes an assigned value to a number, or to upper or lower case.
_CHANGES_VALUE: Final = re.compile(rb"[cilu]")
# All attributes except those of arrays (a, A) and namerefs (n).
_NO_SHAPE: Final = re.compile(rb"[^aAn]+")

# These patterns take only one step for each escape. A value may have a million escapes, and no
# other thread runs during a match.
_STRING: Final = rb""" "[^"\\]*+(?>(?:\\.[^"\\]*+)*)" | \$'[^'\\]*+(?>(?:\\.[^'\\]*+)*)' """
_DECLARATION: Final = re.compile(
    rb"""declare\ -(?P<flags>\S++)\ (?P<name>[^-=\n]++)
    (?>=(?P<value>%s|\((?>(?:[^"'()$]++|\$(?!')|%s)*)\))|)\n"""
    % (_STRING, _STRING),
    re.VERBOSE | re.DOTALL,
)
ELEMENT: Final = re.compile(rb"\[\d++\]=(%s)" % _STRING, re.VERBOSE | re.DOTALL)

# The number of lines that the cache keeps, and their maximum length. The cache takes a few MB at
# most.
_MAX_CACHED: Final = 2_048
_MAX_CACHED_BYTES: Final = 512


class Declaration(Struct, frozen=True):
    """One variable, as `declare -p` prints it.

    `text`: the whole declaration, which ends with a newline.

    `value` is quoted as bash has printed it; None if the variable has no value. `is_own`: the
    variable describes one process of bash, or every bash sets it, see `OWN_VARIABLES`. `exported`:
    the value in the environment. It is None if the variable is not exported, if it is an array, or
    if it has no value. `line`: the line that restores the variable.
    """

    name: bytes
    flags: bytes
    value: bytes | None
    text: bytes
    is_own: bool
    exported: bytes | None
    line: bytes


def declarations_in(text: bytes) -> list[Declaration] | None:
    """Return the declarations in a text, in order. Return None if the text has anything besides
    declarations.
    """
    found: list[Declaration] = []
    position, length = 0, len(text)
    while position < length:
        end = text.find(b"\n", position) + 1
        each = None
        if 0 < end - position <= _MAX_CACHED_BYTES:
            # If a value contains a newline, the declaration is longer than this line, and `each` is
            # None.
            each = _declaration_on(text[position:end])
        if each is None:
            match = _DECLARATION.match(text, position)
            if match is None:
                return None
            each, end = _declaration(match), match.end()
        found.append(each)
        position = end
    return found


def declared(text: bytes) -> dict[bytes, bytes]:
    """Return the declarations in the output of `declare -p`, by name.

    Ignores error messages between the declarations. POSIXLY_CORRECT counts only if it is exported,
    because the option posix also sets this variable, but does not export it.
    """
    return {
        match["name"]: match[0]
        for match in _DECLARATION.finditer(text)
        if match["name"] != b"POSIXLY_CORRECT" or b"x" in match["flags"]
    }


@lru_cache(maxsize=_MAX_CACHED)
def _declaration_on(line: bytes) -> Declaration | None:
    match = _DECLARATION.fullmatch(line)
    return None if match is None else _declaration(match)


def _declaration(match: re.Match[bytes]) -> Declaration:
    flags, name, value = match["flags"], match["name"], match["value"]
    is_own = name in OWN_VARIABLES and not (name in LIKE_OTHERS and b"r" not in flags)
    exported = None
    if b"x" in flags and value is not None and value[:1] != b"(":
        exported = unquote(value)
    if not is_own:
        line = _line(match)
    elif b"x" in flags and name not in EXPORT_NOT_KEPT:
        line = b"\\builtin export %s\n" % name
    elif name == b"PWD" and b"x" not in flags:
        line = b"declare +x PWD\n"
    else:
        line = b""
    return Declaration(name, flags, value, match[0], is_own, exported, line)


def _line(match: re.Match[bytes]) -> bytes:
    """Return the line that restores a variable.

    A value may have been assigned before the variable got its attributes. If bash assigned the
    value to a variable with these attributes, bash would change the value, or evaluate it as an
    arithmetic expression. The evaluation can run commands. So the line sets the value first, and
    then the attributes.
    """
    flags, name, value = match["flags"], match["name"], match["value"]
    if value is not None and _CHANGES_VALUE.search(flags):
        shape = _NO_SHAPE.sub(b"", flags) or b"-"
        line = b"declare -%s %s=%s; declare -%s %s\n" % (shape, name, value, flags, name)
    elif flags == b"-" and value is not None:
        # Bash runs this line in half the time of a `declare`.
        line = b"%s=%s\n" % (name, value)
    else:
        line = match[0]
    if name == b"OLDPWD" and b"x" not in flags:
        # Each bash exports OLDPWD at its start, and a declaration does not end the export.
        line += b"declare +x OLDPWD\n"
    if (value is None and name in SET_AT_START) or (name == b"OPTIND" and flags == b"-"):
        # The command has unset the variable, but each bash sets it again.
        line = b"unset -v %s; %s" % (name, line)
    if name.startswith(SET_LATE):
        # Hide the error, because bash has already printed it when the command set the variable.
        return b"{ %s; } 2>/dev/null\n" % line[:-1]
    return line
