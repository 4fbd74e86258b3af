"""Parses the dump that a bash writes as it ends. The result is the state that the next bash starts
from.

Pure. Nothing raises, whatever a dump holds. The state leaves out what belongs to one bash: its pid,
its clock, its call stack.
"""

from __future__ import annotations

import re
from typing import Final

from shelld.sessions.dump import LOCAL_OPTIONS, OPTIONS_VARIABLE
from shelld.sessions.functions import (
    MAX_ENV_BYTES,
    MAX_ENV_VALUE_BYTES,
    definitions,
    without_export,
)
from shelld.sessions.quoting import quote, unquote
from shelld.sessions.state import CHECKED, ShellState, exported
from shelld.sessions.variables import (
    EXPORT_NOT_KEPT,
    LIKE_OTHERS,
    NOT_IMPORTED,
    OWN_VARIABLES,
    SET_AT_START,
)

_PARTS: Final = 9
# The part with the output of `shopt -p`, counted from the end. A dump ends with two more NULs.
_SHOPT: Final = 2 - _PARTS - 2
_FUNCTIONS_PART: Final = 4
_DOTGLOB: Final = b"shopt -s dotglob\n"
# Only the newest entries of the directory stack are kept: bash prints the whole stack for each
# entry that it adds.
MAX_DIRECTORIES: Final = 200
_END: Final = b"\0\0"
# Follows functions that bash cannot parse. Otherwise their text ends with a newline.
_UNPARSABLE: Final = b"!"

# Finds the names of options in the output of `shopt -p` and `set +o`. It skips options that bash
# sets only at its start, and options that follow the variables BASH_COMPAT and IGNOREEOF. It also
# skips extdebug: if a startup file sets that option, bash looks for a debugger, and says so.
_OPTION: Final = re.compile(
    rb" (?!login_shell|restricted_shell|extdebug|compat|ignoreeof)([^ \n]++)\n"
)

# Attributes that change an assigned value: to a number, or to upper or lower case.
_CHANGES_VALUE: Final = re.compile(rb"[cilu]")
# All attributes but three: those of arrays, and that of a variable that names another.
_NO_SHAPE: Final = re.compile(rb"[^aAn]+")

_STRING: Final = rb""" "(?:[^"\\]++|\\.)*+" | \$'(?:[^'\\]++|\\.)*+' """
_DECLARATION: Final = rb"""declare\ -(?P<flags>\S++)\ (?P<name>[^-=\n]++)
    (?:=(?P<value>%s|\((?:[^"'()$]++|\$(?!')|%s)*+\)))?+\n""" % (_STRING, _STRING)
_VARIABLE: Final = re.compile(_DECLARATION, re.VERBOSE | re.DOTALL)
_VARIABLES: Final = re.compile(
    rb"(?:%s)*+" % re.sub(rb"\?P<\w+>", b"?:", _DECLARATION), re.VERBOSE | re.DOTALL
)
_ELEMENT: Final = re.compile(rb"\[\d++\]=(%s)" % _STRING, re.VERBOSE | re.DOTALL)
_FUNCTIONS: Final = re.compile(rb"(?:declare -\S++ [^\n]++\n)*+")
_SWITCHES: Final = re.compile(rb"(?:(?:shopt|set) [-+]\S++(?: \S++)?+\n)*+")
_OPTIONS: Final = re.compile(rb'^(declare -\S+ %s=")([^"\n]*+)"$' % OPTIONS_VARIABLE, re.MULTILINE)
_UMASK: Final = re.compile(rb"[0-7]{1,5}\n")
_ALIAS: Final = re.compile(rb"alias (?:-- )?+(([^=\n]++)=(?:'[^']*+'|\\')++\n)")
_ALIASES: Final = re.compile(rb"(?:%s)*+" % _ALIAS.pattern)


def is_whole(dump: bytes) -> bool:
    """Whether bash has finished its dump."""
    return dump.endswith(_END) and dump.count(b"\0") >= _PARTS + 2


def is_readable(dump: bytes) -> bool:
    """Whether `parse_dump` will return a state. Takes about a fifth of the time of `parse_dump`."""
    parts = _parts(dump)
    if parts is None:
        return False
    variables, flags, options, listing, _functions, aliases, umask, _directories, _cwd = parts
    return (
        OPTIONS_VARIABLE + b"=" in variables
        and _VARIABLES.fullmatch(variables) is not None
        and _SWITCHES.fullmatch(flags) is not None
        and _SWITCHES.fullmatch(options) is not None
        and _FUNCTIONS.fullmatch(listing) is not None
        and _ALIASES.fullmatch(aliases) is not None
        and _UMASK.fullmatch(umask) is not None
    )


def declared(text: bytes) -> dict[bytes, bytes]:
    """Return the lines of `declare -p`, by name.

    POSIXLY_CORRECT counts only if it is exported: the option posix sets it, too.
    """
    return {
        match["name"]: match[0]
        for match in _VARIABLE.finditer(text)
        if match["name"] != b"POSIXLY_CORRECT" or b"x" in match["flags"]
    }


def declared_in(dump: bytes) -> dict[bytes, bytes]:
    """Return the lines for the variables that a readable dump describes, by name."""
    parts = _parts(dump)
    return declared(parts[0]) if parts else {}


def without_options(dump: bytes, names: frozenset[bytes]) -> bytes:
    """Return a copy of the dump in which these options of `set` and `shopt` are off."""

    def without(match: re.Match[bytes]) -> bytes:
        return match[1] + b":".join(x for x in match[2].split(b":") if x not in names) + b'"'

    parts = _OPTIONS.sub(without, dump).split(b"\0")
    if b"dotglob" in names:
        parts[_SHOPT] = parts[_SHOPT].replace(_DOTGLOB, b"shopt -u dotglob\n")
    return b"\0".join(parts)


def hides_options(dump: bytes) -> bool:
    """Whether a dump is unreadable because a function with `local -` has called `exit`."""
    return LOCAL_OPTIONS in dump


def has_lost_functions(dump: bytes) -> bool:
    """Whether bash has found that it cannot parse a function in a readable dump.

    `parse_dump` does not know which function that is. The next bash defines the others.
    """
    parts = _parts(dump)
    return parts is not None and parts[_FUNCTIONS_PART].endswith(_UNPARSABLE)


def directory_of(dump: bytes) -> tuple[bytes, bool]:
    """Return the working directory in a readable dump, and whether it is the daemon's own.

    The directory is b"" if bash did not know it.
    """
    parts = _parts(dump)
    return _directory(parts[-1] if parts else b"")


def _parts(dump: bytes) -> list[bytes] | None:
    return dump.split(b"\0")[-_PARTS - 2 : -2] if is_whole(dump) else None


def _directory(told: bytes) -> tuple[bytes, bool]:
    # A dot follows the line if the path is the daemon's directory.
    is_daemons = told.endswith(b"\n.")
    cwd = told[:-2] if is_daemons else told.removesuffix(b"\n")
    return (cwd, is_daemons) if cwd.startswith(b"/") else (b"", False)


def parse_dump(dump: bytes) -> ShellState | None:
    """Return the state that a dump describes; None if it is incomplete or has another form."""
    return parse_readable_dump(dump) if is_readable(dump) else None


def parse_readable_dump(dump: bytes) -> ShellState | None:
    """Do what `parse_dump` does, for a dump that is known to be readable."""
    parts = _parts(dump)
    if parts is None:
        return None
    variables, flags, options, listing, functions, aliases, umask, directories, cwd = parts
    names = [_attributes(line) for line in listing.split(b"\n")[:-1]]
    env: dict[bytes, bytes] = {}
    declarations: dict[bytes, bytes] = {}
    later: list[bytes] = []
    seen: set[bytes] = set()
    enabled = frozenset[bytes]()
    stack = b""
    size = 0
    for match in _VARIABLE.finditer(variables):
        kind, name, value = match["flags"], match["name"], match["value"]
        seen.add(name)
        if name in OWN_VARIABLES and not (name in LIKE_OTHERS and b"r" not in kind):
            if name == OPTIONS_VARIABLE and value is not None:
                enabled = _enabled(value, options)
            elif name == b"DIRSTACK" and value is not None:
                stack = value
            elif b"x" in kind and name not in EXPORT_NOT_KEPT:
                declarations[name] = b"\\builtin export %s\n" % name
            continue
        if name == b"POSIXLY_CORRECT" and b"x" not in kind:
            # The option posix sets this variable, and is set last.
            continue
        if b"x" in kind and value is not None and value[:1] != b"(":
            env[name] = unquote(value)
            size += len(name) + len(env[name])
            too_large = len(env[name]) > MAX_ENV_VALUE_BYTES or size > MAX_ENV_BYTES
            if too_large:
                later.append(name)
            elif kind == b"x":
                continue
        declarations[name] = _line(match)
    missing = (NOT_IMPORTED & env.keys()) - declarations.keys()
    declarations.update((name, exported(name, env[name])) for name in missing)
    unset = [name for name in SET_AT_START if name not in seen]
    declarations.update((name, b"\\builtin unset -v %s\n" % name) for name in unset)
    function_names = frozenset(name for _, name in names)
    is_parsable = not functions.endswith(_UNPARSABLE)
    defined = definitions(
        names,
        functions.removesuffix(_UNPARSABLE).removesuffix(b"\n"),
        by_environment=is_parsable and b"posix" not in enabled,
    )
    directory, is_daemons = _directory(cwd)
    return ShellState(
        directory,
        env,
        inherits_cwd=is_daemons,
        declarations=declarations,
        definitions=defined.script,
        switches=b"".join(
            (
                _switches(options, enabled),
                b"\\builtin umask %s" % umask,
                _pushed(stack, directories),
                without_export(defined.private),
            )
        ),
        # A function or another alias may be named "alias".
        aliases=_ALIAS.sub(rb"\\builtin alias -- \1", aliases),
        options=_set_options(flags, enabled),
        later=frozenset(later),
        names=function_names.union(found[2] for found in _ALIAS.finditer(aliases)),
        function_names=function_names,
        functions=defined.entries,
        private=defined.private,
        sets_traps=b"trap" in functions or b"trap" in aliases,
    )


def _enabled(value: bytes, listing: bytes) -> frozenset[bytes]:
    """Return the options that are on, from the values of BASHOPTS and SHELLOPTS.

    These variables are not always right. Posix mode turns inherit_errexit on, and that option stays
    on afterwards. And GLOBIGNORE turns dotglob on and off, so `listing`, the output of `shopt -p`,
    tells whether dotglob is on.
    """
    names = frozenset(unquote(value).split(b":")) - {b"dotglob"}
    if b"posix" in names:
        names |= {b"inherit_errexit"}
    return names | {b"dotglob"} if _DOTGLOB in listing else names


def _line(declaration: re.Match[bytes]) -> bytes:
    """Return the line that restores a variable.

    A value may be older than the attributes. If bash assigned the value to a variable that already
    has them, bash would change the value, or evaluate it as an arithmetic expression, which can run
    commands. So the line sets the value first, and then the attributes.
    """
    kind, name, value = declaration["flags"], declaration["name"], declaration["value"]
    if value is not None and _CHANGES_VALUE.search(kind):
        shape = _NO_SHAPE.sub(b"", kind) or b"-"
        line = b"declare -%s %s=%s; declare -%s %s\n" % (shape, name, value, kind, name)
    else:
        line = declaration[0]
    if name == b"OLDPWD" and b"x" not in kind:
        # Each bash exports it at its start, and a declaration does not change that.
        line += b"declare +x OLDPWD\n"
    if (value is None and name in SET_AT_START) or (name == b"OPTIND" and kind == b"-"):
        # The command has unset the variable, but each bash sets it again.
        line = b"unset -v %s; %s" % (name, line)
    if name.startswith(CHECKED):
        # Bash has already printed its error, in the command that set the variable.
        return b"{ %s; } 2>/dev/null\n" % line[:-1]
    return line


def _attributes(line: bytes) -> tuple[bytes, bytes]:
    _, flags, name = line.split(b" ", 2)
    return flags, name


def _pushed(variable: bytes, listing: bytes) -> bytes:
    """Return the lines that make the directory stack, from DIRSTACK and the output of `dirs`.

    In that output, a name that contains a newline looks like two names. And DIRSTACK has another
    meaning once the command has unset it.
    """
    stack = [unquote(element) for element in _ELEMENT.findall(variable)]
    if b"".join(name + b"\n" for name in stack) != listing:
        stack = listing.removesuffix(b"\n").split(b"\n")
    lines = [
        b"\\builtin pushd -n -- %s\n" % quote(name)
        for name in reversed(stack[1 : MAX_DIRECTORIES + 1])
    ]
    return b"{\n%s} >/dev/null\n" % b"".join(lines) if lines else b""


def _switches(lines: bytes, enabled: frozenset[bytes]) -> bytes:
    on, off = _sorted_options(lines, enabled)
    return b"".join(
        b"\\builtin shopt -%s %s\n" % (letter, b" ".join(names))
        for letter, names in ((b"s", on), (b"u", off))
        if names
    )


def _set_options(lines: bytes, enabled: frozenset[bytes]) -> bytes:
    on, off = _sorted_options(lines, enabled)
    # Posix mode comes first: it sets a variable, which allexport would export.
    on.sort(key=lambda name: name != b"posix")
    words = [b"-o " + name for name in on] + [b"+o " + name for name in off]
    return b"\\builtin set %s\n" % b" ".join(words)


def _sorted_options(lines: bytes, enabled: frozenset[bytes]) -> tuple[list[bytes], list[bytes]]:
    """Return the options in `lines` that are on, and those that are off."""
    names = frozenset(_OPTION.findall(lines))
    return sorted(names & enabled), sorted(names - enabled)
