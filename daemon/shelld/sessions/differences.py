"""Makes the lines that change a bash from one state to another. Pure.

Bash runs these lines after the script of the first state. Bash is then in the same state as a new
bash that has run the script of the second state. The lines change variables and the directory. They
can also set aliases, options of `shopt`, the umask, the directory stack, and functions that are not
in the environment. But this is possible only if the first state has none of these parts, as in a
new session. If anything else differs, such as a readonly variable of the first state, there are no
lines.
"""

from __future__ import annotations

from typing import Final

from shelld.sessions.quoting import quote
from shelld.sessions.state import SET_LATE, ShellState, exported
from shelld.sessions.variables import LIKE_OTHERS, OWN_VARIABLES

# The maximum size of the lines. With more lines, starting a new bash is faster.
_MAX_BYTES: Final = 16 * 1024
# It takes less than a millisecond to compare this number of variables. A larger number would delay
# other requests.
_MAX_VARIABLES: Final = 2_000
_OF_ONE_BASH: Final = OWN_VARIABLES - LIKE_OTHERS
# A change of one of these variables also affects bash itself: its messages, its options or how it
# starts.
_SPECIAL: Final = OWN_VARIABLES | {b"BASH_ENV", b"GLOBIGNORE", b"OPTIND", b"POSIXLY_CORRECT"}
# Words in the lines that the daemon sends to a spare shell. A function or alias with one of these
# names would break the lines.
_WORDS: Final = frozenset(
    b"""! [[ ]] { } builtin case declare do done elif else esac exec fi for if in then trap
    unset""".split()
)
_OLDPWD: Final = b"OLDPWD"
# The declaration of OLDPWD in a bash that has never changed its directory.
_WITHOUT_VALUE: Final = b"unset -v OLDPWD; declare -x OLDPWD\n"

_Value = tuple[bytes | None, bytes | None]
_NOTHING: Final[_Value] = (None, None)


def takes_lines(state: ShellState) -> bool:
    """Return whether a bash in this state can run the lines that the daemon sends to a spare shell.

    In posix mode, bash would exit at the definition of the function `trap`.
    """
    return b"POSIXLY_CORRECT" not in state.declarations and _WORDS.isdisjoint(state.names)


def lines_between(before: ShellState, after: ShellState) -> bytes | None:
    """Return the lines that change a bash from `before` to `after`, or None if no lines can do so.

    These lines do not set the options of `set`, which come last in the lines for a spare shell.
    """
    if before is after:
        return b""
    if not (takes_lines(before) and takes_lines(after) and _has_same_functions(before, after)):
        return None
    if max(_size(before), _size(after)) > _MAX_VARIABLES:
        return None
    directory, variables = _directory(before, after), _variables(before, after)
    rest = _rest_of_script(before, after)
    if directory is None or variables is None or rest is None:
        return None
    lines = directory + variables + rest
    return lines if len(lines) <= _MAX_BYTES else None


def _size(state: ShellState) -> int:
    return len(state.env) + len(state.declarations)


def _has_same_functions(before: ShellState, after: ShellState) -> bool:
    """Return whether both states have the same functions in their environments."""
    # The functions of a new session come from the daemon's own environment. They are not in
    # `functions`, so this function cannot compare them.
    has_listed = bool(before.definitions) or len(before.function_names) == len(before.functions)
    is_same = before.functions == after.functions and before.private == after.private
    return is_same and has_listed


def goes_elsewhere(before: ShellState, after: ShellState) -> bool:
    """Return whether the lines change the directory."""
    return (before.cwd, before.inherits_cwd) != (after.cwd, after.inherits_cwd)


def _directory(before: ShellState, after: ShellState) -> bytes | None:
    """Return the line that changes the directory; b"" for no change, None if no line can do so."""
    if not goes_elsewhere(before, after):
        return b""
    if b"PWD" in before.declarations or b"PWD" in after.declarations:
        return None
    usual = exported(_OLDPWD, before.env.get(_OLDPWD, b""))
    if before.declarations.get(_OLDPWD) not in (None, usual, _WITHOUT_VALUE):
        return None
    if after.inherits_cwd or not after.cwd:
        # By now, the path of the daemon's own directory may lead to another directory.
        return None
    # If `cd` fails, exit, because the command must not run in the wrong directory.
    return b"\\builtin cd -- %s || \\builtin exit 1\n" % quote(after.cwd)


def _rest_of_script(before: ShellState, after: ShellState) -> bytes | None:
    """Return the last part of the script of `after`: the lines after the variables.

    Returns b"" if the last part is the same in the script of `before`. Returns None if the script
    of `before` has a different last part that is not empty.
    """
    old = before.definitions, before.switches, before.pushed, before.aliases
    new = after.definitions, after.switches, after.pushed, after.aliases
    if old == new:
        return b""
    return None if any(old) else b"".join(new)


def _variables(before: ShellState, after: ShellState) -> bytes | None:
    names = _changed(before, after)
    if goes_elsewhere(before, after):
        # Restore OLDPWD, because `cd` has set it.
        names.add(_OLDPWD)
    lines: list[bytes] = []
    # Sort the names, because a set has no order and equal differences must give equal scripts.
    for name in sorted(names):
        old, new = _value(before, name), _value(after, name)
        value, declaration = new
        if name in (b"BASH_COMPAT", b"GLOBIGNORE"):
            # Each of these variables sets an option of `shopt`. The session may have turned this
            # option off again. After a change of BASH_COMPAT, the value of BASHOPTS is old until
            # the next `shopt`.
            return None
        if name in _SPECIAL or name.startswith(SET_LATE):
            if declaration is None or old != _NOTHING:
                return None
        elif name in before.permanent:
            return None
        elif old != _NOTHING and not _differ_in_value_only(name, old, new):
            lines.append(b"\\builtin unset -v %s\n" % name)
        if declaration is not None:
            lines.append(declaration)
        elif value is not None:
            lines.append(exported(name, value))
    return b"".join(lines)


def _changed(before: ShellState, after: ShellState) -> set[bytes]:
    """Return the names of variables that differ."""
    differing = before.env.items() ^ after.env.items()
    differing |= before.declarations.items() ^ after.declarations.items()
    names = {name for name, _ in differing}
    return {name for name in names if not _is_of_one_bash(name, before, after)}


def _is_of_one_bash(name: bytes, before: ShellState, after: ShellState) -> bool:
    """Return whether a variable is only a matter of one bash, and not of the session.

    Two statements must be true: the variable is in `_OF_ONE_BASH`, and neither script has a line
    for the variable.
    """
    in_scripts = name in before.declarations or name in after.declarations
    return name in _OF_ONE_BASH and not in_scripts


def _value(state: ShellState, name: bytes) -> _Value:
    return state.env.get(name), state.declarations.get(name)


def _differ_in_value_only(name: bytes, old: _Value, new: _Value) -> bool:
    """Return whether both values are strings, and are exported in both states or in neither."""
    if old[1] is None or new[1] is None:
        return old[1] is new[1] and new[0] is not None
    assignment = name + b"="
    return old[1].startswith(assignment) and new[1].startswith(assignment)
