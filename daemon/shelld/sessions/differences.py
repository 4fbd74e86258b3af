"""Tells a bash that has restored one state how another state differs. Pure.

Bash runs these lines after the script of the first state. Then it has what the script of the second
state would have made of a new bash. Variables and the directory can be told. What has an order or
cannot be taken back cannot be told: functions, aliases, options of `shopt`, readonly variables.
"""

from __future__ import annotations

import re
from typing import Final

from shelld.sessions.quoting import quote
from shelld.sessions.state import CHECKED, ShellState, exported
from shelld.sessions.variables import LIKE_OTHERS, OWN_VARIABLES

# More lines would take longer than the start of another bash saves.
_MAX_BYTES: Final = 16 * 1024
# A change of these variables has other effects: on bash's messages, its options or its start.
_SPECIAL: Final = OWN_VARIABLES | {b"BASH_ENV", b"GLOBIGNORE", b"OPTIND", b"POSIXLY_CORRECT"}
# Words in the lines that a spare shell is told. A function or alias with one of these names would
# break the lines.
_WORDS: Final = frozenset(
    b"""! [[ ]] { } builtin case declare do done elif else esac exec fi for if in then trap
    unset""".split()
)
# A readonly variable, or one that names another.
_PERMANENT: Final = re.compile(rb"declare -\S*[nr]")

_Value = tuple[bytes | None, bytes | None]
_NOTHING: Final[_Value] = (None, None)


def takes_lines(state: ShellState) -> bool:
    """Whether a bash in this state understands the lines that a spare shell is told."""
    return _WORDS.isdisjoint(state.names)


def lines_between(before: ShellState, after: ShellState) -> bytes | None:
    """Return the lines that lead from one state to another; None if only another bash can.

    The options of `set` are left out: they are told last.
    """
    if before is after:
        return b""
    if not (takes_lines(before) and takes_lines(after) and _has_same_functions(before, after)):
        return None
    parts = [_directory(before, after), _variables(before, after)]
    for old, new in (
        (before.definitions, after.definitions),
        (before.switches, after.switches),
        (before.aliases, after.aliases),
    ):
        # The script of a bash that has started just now has none of these.
        parts.append(b"" if old == new else None if old else new)
    if before.cwd != after.cwd:
        parts.append(_previous_directory(after))
    told = [part for part in parts if part is not None]
    lines = b"".join(told)
    return lines if len(told) == len(parts) and len(lines) <= _MAX_BYTES else None


def _has_same_functions(before: ShellState, after: ShellState) -> bool:
    return (
        before.functions == after.functions
        and before.private == after.private
        and before.function_names == after.function_names
    )


def _directory(before: ShellState, after: ShellState) -> bytes | None:
    if (before.cwd, before.inherits_cwd) == (after.cwd, after.inherits_cwd):
        return b""
    # The path of the daemon's own directory may lead elsewhere by now.
    return (
        None if after.inherits_cwd or not after.cwd else b"\\builtin cd -- %s\n" % quote(after.cwd)
    )


def _previous_directory(after: ShellState) -> bytes:
    """Return the line that sets OLDPWD again, which `cd` has set."""
    name = b"OLDPWD"
    line = after.declarations.get(name)
    if line is None and name in after.env:
        line = exported(name, after.env[name])
    return line or b"\\builtin unset -v OLDPWD\n"


def _variables(before: ShellState, after: ShellState) -> bytes | None:
    lines: list[bytes] = []
    for name in _changed(before, after):
        old, new = _value(before, name), _value(after, name)
        value, declaration = new
        if name in _SPECIAL or name.startswith(CHECKED):
            if declaration is None or old != _NOTHING:
                return None
        elif old != _NOTHING and not _is_plain(old, new):
            if old[1] is not None and _PERMANENT.match(old[1]):
                return None
            lines.append(b"\\builtin unset -v %s\n" % name)
        if declaration is not None:
            lines.append(declaration)
        elif value is not None:
            lines.append(exported(name, value))
    return b"".join(lines)


def _changed(before: ShellState, after: ShellState) -> list[bytes]:
    """Return the names of variables that differ, sorted as in the second script."""
    differing = before.env.items() ^ after.env.items()
    differing |= before.declarations.items() ^ after.declarations.items()
    names = sorted({name for name, _ in differing})
    return [name for name in names if not _is_of_one_bash(name, before, after)]


def _is_of_one_bash(name: bytes, before: ShellState, after: ShellState) -> bool:
    """Whether each bash sets this variable itself, and neither state says otherwise."""
    in_scripts = name in before.declarations or name in after.declarations
    return name in OWN_VARIABLES - LIKE_OTHERS and not in_scripts


def _value(state: ShellState, name: bytes) -> _Value:
    return state.env.get(name), state.declarations.get(name)


def _is_plain(old: _Value, new: _Value) -> bool:
    """Whether both are just values of environment variables."""
    return old[1] is None and new[1] is None and new[0] is not None
