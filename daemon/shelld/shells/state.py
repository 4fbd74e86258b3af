"""What a bash can be asked to remember, and what makes another one remember it.

Pure. Owns what a bash says of its state, the *dump*, and what is made of that: an environment to
start the next one with, and a script for it to run. Nothing here starts or reads anything.

Kept are exported and other variables with their attributes, functions, aliases, options of `shopt`
and `set`, the umask, the working directory and the directory stack; as if all commands were typed
into one bash. Left out is what belongs to one bash alone: its pid, its clock, its call stack.
"""

from __future__ import annotations

import re
from typing import Final

from msgspec import Struct

from shelld.shells.harmless import BUILTINS

# One after the other, with this line between them.
_SEPARATOR: Final = b"\n\1\n"

# Builtins by their names even where functions of these names are; nothing is traced, no error is
# shown and no process is started. The last word tells that nothing is missing.
DUMP: Final = (
    b"builtin trap '' XFSZ; builtin declare -p; builtin printf '\\n\\1\\n'; "
    b"builtin declare -F; builtin printf '\\n\\1\\n'; "
    b"builtin declare -f; builtin printf '\\n\\1\\n'; "
    b"builtin alias -p; builtin printf '\\n\\1\\n'; "
    b"builtin shopt -p; builtin printf '\\n\\1\\n'; "
    b"builtin set +o; builtin printf '\\n\\1\\n'; "
    b"builtin umask; builtin printf '\\n\\1\\n'; "
    b"builtin dirs -l -p; builtin printf '\\n\\1\\n'; "
    b"builtin pwd; builtin printf '\\n\\1\\n'"
)
_PARTS: Final = 9

# Of one bash and no other, or set by it.
_OWN_VARIABLES: Final = frozenset(
    b"""BASH BASHOPTS BASHPID BASH_ALIASES BASH_ARGC BASH_ARGV BASH_ARGV0 BASH_CMDS BASH_COMMAND
    BASH_EXECUTION_STRING BASH_LINENO BASH_LOADABLES_PATH BASH_MONOSECONDS BASH_SOURCE BASH_SUBSHELL
    BASH_TRAPSIG BASH_VERSINFO BASH_VERSION BASH_XTRACEFD COMP_WORDBREAKS DIRSTACK EPOCHREALTIME
    EPOCHSECONDS EUID FUNCNAME GROUPS HISTCMD LINENO PIPESTATUS PPID PWD RANDOM SECONDS SHELLOPTS
    SHLVL SRANDOM UID _""".split()
)
# Set once, when bash starts, or, those that begin with "compat", by the variable BASH_COMPAT.
_FIXED_OPTIONS: Final = (b"login_shell", b"restricted_shell", b"compat")

# execve(2) takes no string of 128 KiB, and a quarter of the stack's size in all: usually 2 MiB.
_MAX_ENV_VALUE_BYTES: Final = 64 * 1024
_MAX_ENV_BYTES: Final = 1024 * 1024

_STRING: Final = rb""" "(?:[^"\\]|\\.)*" | \$'(?:[^'\\]|\\.)*' """
_VARIABLE: Final = re.compile(
    rb"""declare\ -(?P<flags>\S+)\ (?P<name>[^=\n]+)
    (?:=(?P<value>%s|\((?:[^"'()$]|\$(?!')|%s)*\)))?\n"""
    % (_STRING, _STRING),
    re.VERBOSE | re.DOTALL,
)
_IMPORTED: Final = re.compile(rb"BASH_FUNC_(.*)%%", re.DOTALL)
_ALIAS: Final = re.compile(rb"^alias (?:-- )?([^=\n]+)=", re.MULTILINE)
_ESCAPED: Final = re.compile(rb"\\(.)", re.DOTALL)
_ANSI_C: Final = re.compile(rb"\\([0-7]{1,3}|x[0-9A-Fa-f]{1,2}|.)", re.DOTALL)
_ANSI_C_LETTERS: Final = {
    b"a": b"\a",
    b"b": b"\b",
    b"e": b"\x1b",
    b"E": b"\x1b",
    b"f": b"\f",
    b"n": b"\n",
    b"r": b"\r",
    b"t": b"\t",
    b"v": b"\v",
}


class ShellState(Struct, frozen=True):
    """`env`: the exported variables. `script` and `options` make the rest in a bash that has those.

    But for `later`, which no process can be started with; the script has them as well. Its parts
    are in the order in which bash has to run them.
    """

    cwd: bytes
    env: dict[bytes, bytes]
    variables: bytes = b""
    # Of shopt, without which some functions cannot be read; and the umask.
    switches: bytes = b""
    # Functions, aliases, and the stack of directories.
    definitions: bytes = b""
    # Those of `set`, in one line. With tracing on, what follows it would show.
    options: bytes = b""
    later: frozenset[bytes] = frozenset()
    # Of functions and aliases.
    names: frozenset[bytes] = frozenset()
    # What functions are as environment entries, if those are in no script.
    functions: dict[bytes, bytes] = {}

    @property
    def script(self) -> bytes:
        return self.variables + self.switches + self.definitions

    @property
    def meanings(self) -> bytes:
        """The part of the script that tells what the words of a command stand for."""
        return self.variables + self.definitions


def first_state(cwd: bytes, env: dict[bytes, bytes]) -> ShellState:
    """Return the state of a bash that is started in `cwd` with `env`, and has run nothing."""
    names = frozenset(match[1] for match in map(_IMPORTED.fullmatch, env) if match)
    return ShellState(cwd, env, names=names)


def parse_dump(dump: bytes) -> ShellState | None:
    """Return the state that a dump describes; None if it is not whole."""
    parts = dump.split(_SEPARATOR)
    if len(parts) != _PARTS + 1 or parts[-1]:
        return None
    # Each ends with a line end of its own, if there is anything.
    texts = [part.removesuffix(b"\n") for part in parts[:-1]]
    variables, listing, functions, aliases, options, flags, umask, directories, cwd = texts
    # As ("-f", name), with more letters for attributes.
    names = [(line.split(b" ", 2)[1], line.split(b" ", 2)[2]) for line in listing.splitlines()]
    env: dict[bytes, bytes] = {}
    declarations: list[bytes] = []
    later: list[bytes] = []
    position = size = 0
    for match in _VARIABLE.finditer(variables + b"\n"):
        if match.start() != position:
            return None
        position = match.end()
        kind, name, value = match["flags"], match["name"], match["value"]
        if name in _OWN_VARIABLES:
            continue
        if b"x" in kind and value is not None and value[:1] != b"(":
            env[name] = unquote(value)
            size += len(name) + len(env[name])
            too_large = len(env[name]) > _MAX_ENV_VALUE_BYTES or size > _MAX_ENV_BYTES
            if too_large:
                later.append(name)
            elif kind == b"x":
                continue
        if kind == b"-" and value is not None:
            # Takes bash half the time.
            declarations.append(b"%s=%s\n" % (name, value))
        else:
            declarations.append(match[0])
    if position < len(variables):
        return None
    shopt = _shopt_options(options)
    imported: dict[bytes, bytes] = {}
    if (b"extglob", False) in shopt and b"set -o posix" not in flags:
        imported = _importable(names, functions)
    switches = _switches(b"shopt -%s", b"s", b"u", shopt) + b"builtin umask %s\n" % umask
    definitions = b"".join(
        (
            *_definitions(names, functions, imported),
            aliases + b"\n" if aliases else b"",
            *(
                b"builtin pushd -n -- %s >/dev/null\n" % quote(directory)
                for directory in reversed(directories.split(b"\n")[1:])
            ),
        )
    )
    known = frozenset((*(name for _, name in names), *_ALIAS.findall(aliases)))
    return ShellState(
        cwd,
        env,
        variables=b"".join(declarations),
        switches=switches,
        definitions=definitions,
        options=_set_options(flags),
        later=frozenset(later),
        names=known,
        functions=imported,
    )


def _importable(names: list[tuple[bytes, bytes]], functions: bytes) -> dict[bytes, bytes]:
    """Return environment entries that define the functions; none if they cannot do so for all.

    Bash then knows them as it knows those of its command, and says so in error messages. Some
    definitions are no environment entry, and where one ends is not always clear.
    """
    entries: dict[bytes, bytes] = {}
    end = 0
    for index, (flags, name) in enumerate(names):
        head = name + b" () \n"
        # One that is named as a builtin would be in the way of the script.
        if not functions.startswith(head + b"{ ", end) or name.decode("latin-1") in BUILTINS:
            return {}
        start = end + len(head)
        end = len(functions) + 1
        if index + 1 < len(names):
            following = b"\n" + names[index + 1][1] + b" () \n"
            if functions.count(following) != 1:
                return {}
            end = functions.index(following) + 1
        body = functions[start : end - 1]
        if flags != b"-f":
            body = body.removesuffix(b"\ndeclare %s %s" % (flags, name))
        if flags not in {b"-f", b"-fx"} or len(body) > _MAX_ENV_VALUE_BYTES:
            return {}
        entries[b"BASH_FUNC_%s%%%%" % name] = b"() " + body
    return entries if sum(map(len, entries.values())) <= _MAX_ENV_BYTES else {}


def _definitions(
    names: list[tuple[bytes, bytes]], functions: bytes, imported: dict[bytes, bytes]
) -> list[bytes]:
    if not imported:
        return [functions + b"\n"] if functions else []
    private = [name for flags, name in names if flags == b"-f"]
    # What is imported is exported, too.
    return [b"builtin export -nf -- %s\n" % b" ".join(private)] if private else []


def unquote(word: bytes) -> bytes:
    """Return what a word stands for that bash has quoted: "..." or $'...'."""
    if word[:1] == b'"':
        return _ESCAPED.sub(rb"\1", word[1:-1])
    return _ANSI_C.sub(_ansi_c, word[2:-1])


def _ansi_c(match: re.Match[bytes]) -> bytes:
    code = match[1]
    if code[:1].isdigit():
        return bytes([int(code, 8) & 0xFF])
    if len(code) > 1:
        return bytes([int(code[1:], 16)])
    return _ANSI_C_LETTERS.get(code, code)


def quote(value: bytes) -> bytes:
    """Return `value` as one word of bash."""
    return b"'" + value.replace(b"'", rb"'\''") + b"'"


def _shopt_options(lines: bytes) -> list[tuple[bytes, bool]]:
    words = [line.split() for line in lines.splitlines()]
    return [(word[2], word[1] == b"-s") for word in words if not word[2].startswith(_FIXED_OPTIONS)]


def _switches(command: bytes, on: bytes, off: bytes, options: list[tuple[bytes, bool]]) -> bytes:
    text = b""
    for letter, wanted in ((on, True), (off, False)):
        names = [name for name, is_on in options if is_on is wanted]
        if names:
            text += b"builtin " + command % letter + b" " + b" ".join(names) + b"\n"
    return text


def _set_options(lines: bytes) -> bytes:
    options = b" ".join(b" ".join(line.split()[1:]) for line in lines.splitlines())
    return b"builtin set %s\n" % options
