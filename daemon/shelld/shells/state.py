"""What a bash can be asked to remember, and what makes another one remember it.

Pure. Owns what a bash says of its state, the *dump*, and what is made of that: an environment to
start the next one with, and a script for it to run. Nothing here starts or reads anything, and
nothing raises, whatever a dump holds.

Kept are exported and other variables with their attributes, functions, aliases, options of `shopt`
and `set`, the umask, the working directory and the directory stack; as if all commands were typed
into one bash. Left out is what belongs to one bash alone: its pid, its clock, its call stack.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from shelld.shells.functions import (
    MAX_ENV_BYTES,
    MAX_ENV_VALUE_BYTES,
    definitions,
    function_of,
    quote,
    without_export,
)

# Bash leaves these variables to the dump: the options as they were before the dump changed them,
# and the traps that the command has set.
OPTIONS_VARIABLE: Final = b"__shelld_options"
TRAPS_VARIABLE: Final = b"__shelld_traps"
_POSIX_VARIABLE: Final = b"__shelld_posix"

# `exit` runs the trap inside the function that calls it, where `declare -p` shows local variables.
# A subshell runs this text there, and prints what `declare -p` would print outside. A nameref to
# its own name is circular, and bash then takes the global variable. A global variable that is
# readonly cannot have such a nameref, and no local namesake either. As in `_line`, a value
# comes before the attributes that would change it. Bash parses each line when it has run the ones
# before it, so aliases have no effect. A readonly IFS cannot be a local one, so the names are then
# split in another way, which may need a temporary file.
GLOBALS: Final = rb"""\builtin shopt -u expand_aliases localvar_inherit nocasematch
\builtin set +aekuvx -f
\builtin unset -f local
__shelld_listed=$(\builtin declare -p)
\builtin declare -p - POSIXLY_CORRECT
\builtin set +o posix
__shelld_find() {
  \builtin local -n "$1=$1" && \builtin eval "__shelld_found=\${$1[@]@A}
  [[ \$__shelld_found ]] || __shelld_found=\${$1@A}"
}
__shelld_print() {
  \builtin local +x "$1"
  if [[ $__shelld_found == "declare -"*([!\ ])[cilu]*([!\ ])\ *=* ]]; then
    \builtin local __shelld_flags=${__shelld_found#declare }
    __shelld_flags=${__shelld_flags%% *}
    if [[ $__shelld_flags == *A* ]]; then \builtin local -A "$1"; fi
    \builtin eval "local ${__shelld_found#declare -* }"
    \builtin local "$__shelld_flags" "$1"
  else \builtin eval "local ${__shelld_found#declare }"; fi && \builtin declare -p "$1"
}
__shelld_print_all() {
  \builtin local __shelld_name __shelld_found
  if \builtin local IFS=$'\n'; then __shelld_lines=($__shelld_listed)
  else \builtin mapfile -t __shelld_lines <<<"$__shelld_listed"; fi
  for __shelld_name in "${__shelld_lines[@]}"; do
    [[ $__shelld_name == "declare -"* ]] || continue
    __shelld_name=${__shelld_name#declare -* }
    __shelld_name=${__shelld_name%%=*}
    [[ $__shelld_name == *[!A-Za-z0-9_]* ]] && continue
    __shelld_found=
    if ! __shelld_find "$__shelld_name"; then \builtin declare -p "$__shelld_name"
    elif [[ $__shelld_found ]]; then __shelld_print "$__shelld_name"; fi
  done
}
__shelld_print_all"""
# What `declare -p -` prints where a function has used `local -`. Bash does not tell which options
# of `set` there are outside.
_LOCAL_OPTIONS: Final = b"declare -- -\n"

# What follows depends on nothing that the command may have changed, as far as bash allows. In posix
# mode, `unset` is the builtin even where a function has that name. A backslash keeps aliases away,
# so there are no reserved words, which cannot have one. No trap of the command runs, and no option
# takes effect that changes what is written. Each line that is traced may run a command in PS4, so
# there are few. A part ends with NUL, which no value in bash can hold.
# What comes before the first NUL was written by a DEBUG trap before it was removed.
END_OF_PART: Final = rb'\builtin printf "\0"; '
DUMP: Final = (
    END_OF_PART.join(
        (
            # To name DIRSTACK makes `declare -p` show it. POSIXLY_CORRECT is unset if it was not
            # set before.
            OPTIONS_VARIABLE + b"=$BASHOPTS:$SHELLOPTS${DIRSTACK+}; "
            rb"__shelld_posix=${POSIXLY_CORRECT+__shelld_posix}; _=${POSIXLY_CORRECT=}; "
            rb"\unset -f builtin; \builtin set +x; "
            rb'\unset -v "${__shelld_posix:-POSIXLY_CORRECT}"; '
            rb"\builtin enable alias builtin declare dirs eval local printf pwd set shopt trap "
            rb"ulimit umask unset; "
            rb'\builtin trap - CHLD DEBUG ERR RETURN; \builtin trap "" XFSZ; '
            rb"\builtin ulimit -S -f hard; ",
            # `local` fails outside functions.
            rb"\builtin local __shelld_posix || \builtin declare -p; "
            rb"\builtin local __shelld_posix && (\builtin eval " + quote(GLOBALS) + b"); ",
            rb"\builtin set +o; ",
            rb"\builtin shopt -p; ",
            rb"\builtin set +o posix; \builtin declare -F; ",
            rb"\builtin declare -f; ",
            rb"\builtin alias -p; ",
            rb"\builtin umask; ",
            rb"\builtin dirs -l -p; ",
            rb'\builtin pwd; \builtin printf "\0"',
        )
    )
    + rb'; \builtin printf "\0"'
)
_PARTS: Final = 9
# The part with the output of `shopt -p`, counted from the end. Two more NULs are the end of a dump.
_SHOPT: Final = 2 - _PARTS - 2
_DOTGLOB: Final = b"shopt -s dotglob\n"
# Of the directory stack, the newest entries. Bash prints the whole stack at each that is added.
MAX_DIRECTORIES: Final = 200
_END: Final = b"\0\0"

# Variables that belong to one bash, or that every bash sets itself.
_OWN_VARIABLES: Final = frozenset(
    b"""BASH BASHOPTS BASHPID BASH_ALIASES BASH_ARGC BASH_ARGV BASH_ARGV0 BASH_CMDS BASH_COMMAND
    BASH_EXECUTION_STRING BASH_LINENO BASH_LOADABLES_PATH BASH_MONOSECONDS BASH_SOURCE BASH_SUBSHELL
    BASH_TRAPSIG BASH_VERSINFO BASH_VERSION BASH_XTRACEFD COMP_WORDBREAKS DIRSTACK EPOCHREALTIME
    EPOCHSECONDS EUID FUNCNAME GROUPS HISTCMD LINENO PIPESTATUS PPID PWD RANDOM SECONDS SHELLOPTS
    SHLVL SRANDOM UID _""".split()
) | {OPTIONS_VARIABLE, TRAPS_VARIABLE, _POSIX_VARIABLE}
# Those of them that bash takes from its environment, and then they are variables like others.
_LIKE_OTHERS: Final = frozenset((b"UID", b"EUID"))
# Those of them that every bash exports, and our own. If another one is exported, that is kept.
_EXPORT_NOT_KEPT: Final = frozenset(
    (b"PWD", b"SHLVL", b"_", OPTIONS_VARIABLE, TRAPS_VARIABLE, _POSIX_VARIABLE)
)
# Bash does not take these from its environment: some never, PS4 not as root, OLDPWD only if it is a
# directory. So the script sets them too.
_NOT_IMPORTED: Final = frozenset(b"IFS IGNOREEOF OLDPWD OPTERR PS1 PS2 PS4".split())
# Each bash has these from its start. Where one is missing, the command has unset it.
_SET_AT_START: Final = tuple(
    b"""BASH_ARGV0 BASH_CMDS BASH_COMMAND BASH_LOADABLES_PATH BASH_SUBSHELL BASHPID
    COMP_WORDBREAKS EPOCHREALTIME EPOCHSECONDS HISTCMD HOSTNAME HOSTTYPE IFS LINENO MACHTYPE OLDPWD
    OPTERR OPTIND OSTYPE PATH PS4 PWD RANDOM SECONDS SHELL SHLVL SRANDOM TERM""".split()
)
# They list options that are kept apart. Only their export is kept.
OPTION_VARIABLES: Final = (b"SHELLOPTS", b"BASHOPTS")
# Finds the names of options in the output of `shopt -p` and `set +o`. It skips options that bash
# sets only at its start, and options that follow the variables BASH_COMPAT and IGNOREEOF. A bash
# whose startup file sets extdebug looks for a debugger, and says so.
_OPTION: Final = re.compile(
    rb" (?!login_shell|restricted_shell|extdebug|compat|ignoreeof)([^ \n]++)\n"
)

# Bash complains about a value of these that it does not know.
CHECKED: Final = (b"LC_", b"LANG", b"BASH_COMPAT")

# Attributes that change what is assigned: to a number, or to upper or lower case.
_CHANGES_VALUE: Final = re.compile(rb"[cilu]")
# A value that they leave as it is. Each bash has OPTIND with one, and the shorter line is quicker.
_NUMBER: Final = re.compile(rb'"(?:0|-?[1-9][0-9]{0,17})"')
# Attributes that do not tell what kind of value there is: an array or the name of a variable.
_NO_SHAPE: Final = re.compile(rb"[^aAn]+")

_NAME: Final = re.compile(rb"[A-Za-z_][A-Za-z0-9_]*")
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
    """The state of a bash: `env` has the exported variables, `script` and `options` make the rest.

    Variables whose names are in `later` cannot have their values in the environment of a process
    that is started, so the script sets them. The parts of the script are in the order in which bash
    has to run them. `cwd` is empty if bash did not know its directory.
    """

    cwd: bytes
    env: dict[bytes, bytes]
    # By the name of the variable, the line that makes it, or unsets one that each bash has.
    declarations: dict[bytes, bytes] = {}
    # Options of shopt, without which bash cannot parse some functions; the umask and the directory
    # stack.
    switches: bytes = b""
    # Functions and aliases.
    definitions: bytes = b""
    # Options of `set`, in one line, which runs last: a trace would show all lines after it.
    options: bytes = b""
    later: frozenset[bytes] = frozenset()
    # The names of functions and aliases.
    names: frozenset[bytes] = frozenset()
    function_names: frozenset[bytes] = frozenset()
    # Functions that are passed as environment entries, and so are not in the script.
    functions: dict[bytes, bytes] = {}
    # Those of them that are not exported.
    private: tuple[bytes, ...] = ()
    # Whether a function or an alias has the word `trap` in it.
    sets_traps: bool = False

    @property
    def variables(self) -> bytes:
        return b"".join(self.declarations.values())

    @property
    def script(self) -> bytes:
        return self.variables + self.switches + self.definitions

    @property
    def meanings(self) -> bytes:
        """The part of the script that tells what the words of a command stand for."""
        return self.variables + self.definitions

    def without(self, names: frozenset[bytes]) -> ShellState:
        """Return this state with nothing in its script about the variables of these names."""
        kept = {name: line for name, line in self.declarations.items() if name not in names}
        return replace(self, declarations=kept)

    def with_entries_of(self, other: ShellState, names: Iterable[bytes]) -> ShellState:
        """Return this state with the variables of these names as they are in another one."""
        env, declarations, later = {**self.env}, {**self.declarations}, set(self.later)
        for name in names:
            for entries, others in ((env, other.env), (declarations, other.declarations)):
                entries.pop(name, None)
                if name in others:
                    entries[name] = others[name]
            later.discard(name)
            later.update({name} & other.later)
        return replace(self, env=env, declarations=declarations, later=frozenset(later))


def exported(name: bytes, value: bytes) -> bytes:
    """Return the line that makes an exported variable."""
    return b"\\builtin export %s=%s\n" % (name, quote(value))


def first_state(cwd: bytes, env: dict[bytes, bytes]) -> ShellState:
    """Return the state of a bash that is started in `cwd` with `env`, and has run nothing."""
    functions = {entry: name for entry in env if (name := function_of(entry)) is not None}
    sets_traps = any(b"trap" in env[entry] for entry in functions)
    names = frozenset(functions.values())
    return ShellState(cwd, env, names=names, function_names=names, sets_traps=sets_traps)


def is_whole(dump: bytes) -> bool:
    """Whether bash came to the end of its dump."""
    return dump.endswith(_END) and dump.count(b"\0") >= _PARTS + 2


def is_readable(dump: bytes) -> bool:
    """Whether `parse_dump` will return a state. Takes about a fifth of its time."""
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
    """Return a dump that is the same, but with these options of `set` and `shopt` off."""

    def without(match: re.Match[bytes]) -> bytes:
        return match[1] + b":".join(x for x in match[2].split(b":") if x not in names) + b'"'

    parts = _OPTIONS.sub(without, dump).split(b"\0")
    if b"dotglob" in names:
        parts[_SHOPT] = parts[_SHOPT].replace(_DOTGLOB, b"shopt -u dotglob\n")
    return b"\0".join(parts)


def hides_options(dump: bytes) -> bool:
    """Whether a dump is not readable because of `local -` in a function that called `exit`."""
    return _LOCAL_OPTIONS in dump


def directory_of(dump: bytes) -> bytes:
    """Return the working directory that a readable dump describes, b"" if bash did not know it."""
    parts = _parts(dump)
    return _absolute(parts[-1]) if parts else b""


def _parts(dump: bytes) -> list[bytes] | None:
    return dump.split(b"\0")[-_PARTS - 2 : -2] if is_whole(dump) else None


def _absolute(line: bytes) -> bytes:
    cwd = line.removesuffix(b"\n")
    return cwd if cwd.startswith(b"/") else b""


def parse_dump(dump: bytes) -> ShellState | None:
    """Return the state that a dump describes; None if it is incomplete or has another form."""
    return parse_readable_dump(dump) if is_readable(dump) else None


def parse_readable_dump(dump: bytes) -> ShellState | None:
    """Do the same, without a check, for a dump of which `is_readable` is already known."""
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
        if name in _OWN_VARIABLES and not (name in _LIKE_OTHERS and b"r" not in kind):
            if name == OPTIONS_VARIABLE and value is not None:
                enabled = _enabled(value, options)
            elif name == b"DIRSTACK" and value is not None:
                stack = value
            elif b"x" in kind and name not in _EXPORT_NOT_KEPT:
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
    missing = (_NOT_IMPORTED & env.keys()) - declarations.keys()
    declarations.update((name, exported(name, env[name])) for name in missing)
    unset = [name for name in _SET_AT_START if name not in seen]
    declarations.update((name, b"\\builtin unset -v %s\n" % name) for name in unset)
    is_usual = b"extglob" not in enabled and b"posix" not in enabled
    function_names = frozenset(name for _, name in names)
    defined = definitions(names, functions.removesuffix(b"\n"), by_environment=is_usual)
    return ShellState(
        _absolute(cwd),
        env,
        declarations=declarations,
        switches=b"".join(
            (
                _switches(options, enabled),
                b"\\builtin umask %s" % umask,
                _pushed(stack, directories),
                without_export(defined.private),
            )
        ),
        # A function or another alias may be named "alias".
        definitions=defined.script + _ALIAS.sub(rb"\\builtin alias -- \1", aliases),
        options=_set_options(flags, enabled),
        later=frozenset(later),
        names=function_names.union(found[2] for found in _ALIAS.finditer(aliases)),
        function_names=function_names,
        functions=defined.entries,
        private=defined.private,
        sets_traps=b"trap" in functions or b"trap" in aliases,
    )


def passed_on(env: dict[bytes, bytes]) -> dict[bytes, bytes]:
    """Return the entries of an environment that bash has no variable for.

    Their names are no identifiers. Bash gives them to what it starts, and no command can change
    them, but no dump has them.
    """
    return {
        name: value
        for name, value in env.items()
        if _NAME.fullmatch(name) is None and function_of(name) is None
    }


def with_late_checked(state: ShellState, base: dict[bytes, bytes]) -> ShellState:
    """Return the state with changed variables of `CHECKED` set by the script, not the environment.

    Bash complains at its start about a locale that it does not know, and about a BASH_COMPAT. It
    has done so once, in the command that set the variable.
    """
    names = [
        name
        for name, value in state.env.items()
        if name.startswith(CHECKED) and value != base.get(name) and name not in state.later
    ]
    if not names:
        return state
    lines = {
        name: b"{ \\builtin export %s=%s; } 2>/dev/null\n" % (name, quote(state.env[name]))
        for name in names
    }
    # One with more attributes has a line already.
    return replace(
        state,
        declarations={**lines, **state.declarations},
        later=state.later.union(names),
    )


def _enabled(value: bytes, listing: bytes) -> frozenset[bytes]:
    """Return the options that are on, of those that bash has listed in BASHOPTS and SHELLOPTS.

    These are not always right. Posix mode turns inherit_errexit on, and it stays on afterwards. And
    GLOBIGNORE turns dotglob on and off: `shopt -p`, the listing, tells whether it is on.
    """
    names = frozenset(unquote(value).split(b":")) - {b"dotglob"}
    if b"posix" in names:
        names |= {b"inherit_errexit"}
    return names | {b"dotglob"} if _DOTGLOB in listing else names


def _line(declaration: re.Match[bytes]) -> bytes:
    """Return the line that makes a variable again.

    A value may be older than the attributes. If bash assigned it to a variable that has them, it
    would change it, or evaluate it as an arithmetic expression, which can run commands. So the
    attributes come after it.
    """
    kind, name, value = declaration["flags"], declaration["name"], declaration["value"]
    if kind == b"-" and value is not None:
        # This takes bash half as long as `declare`.
        line = b"%s=%s\n" % (name, value)
    elif value is not None and _CHANGES_VALUE.search(kind) and not _NUMBER.fullmatch(value):
        shape = _NO_SHAPE.sub(b"", kind) or b"-"
        line = b"declare -%s %s=%s; declare -%s %s\n" % (shape, name, value, kind, name)
    else:
        line = declaration[0]
    if (value is None and name in _SET_AT_START) or (name == b"OPTIND" and kind == b"-"):
        # The command has unset it first, and each bash sets it again.
        line = b"unset -v %s; %s" % (name, line)
    if name.startswith(CHECKED):
        # Bash has complained in the command that set it.
        return b"{ %s; } 2>/dev/null\n" % line[:-1]
    return line


def _attributes(line: bytes) -> tuple[bytes, bytes]:
    _, flags, name = line.split(b" ", 2)
    return flags, name


def _pushed(variable: bytes, listing: bytes) -> bytes:
    """Return what makes the directory stack, of DIRSTACK's value and what `dirs` lists.

    In the listing, a name with a line end looks like two. The variable is another one if the
    command has unset it.
    """
    stack = [unquote(element) for element in _ELEMENT.findall(variable)]
    if b"".join(name + b"\n" for name in stack) != listing:
        stack = listing.removesuffix(b"\n").split(b"\n")
    lines = [
        b"\\builtin pushd -n -- %s\n" % quote(name)
        for name in reversed(stack[1 : MAX_DIRECTORIES + 1])
    ]
    return b"{\n%s} >/dev/null\n" % b"".join(lines) if lines else b""


def unquote(word: bytes) -> bytes:
    """Return the value of a word that bash has quoted as "..." or $'...'."""
    if word[:1] == b'"':
        return _ESCAPED.sub(rb"\1", word[1:-1])
    return _ANSI_C.sub(_ansi_c, word[2:-1])


def _ansi_c(match: re.Match[bytes]) -> bytes:
    code = match[1]
    if code[:1].isdigit():
        return bytes([int(code, 8) & 0xFF]) if code[0] < ord("8") else code
    if len(code) > 1:
        return bytes([int(code[1:], 16)])
    return _ANSI_C_LETTERS.get(code, code)


def _switches(lines: bytes, enabled: frozenset[bytes]) -> bytes:
    on, off = _sorted_options(lines, enabled)
    return b"".join(
        b"\\builtin shopt -%s %s\n" % (letter, b" ".join(names))
        for letter, names in ((b"s", on), (b"u", off))
        if names
    )


def _set_options(lines: bytes, enabled: frozenset[bytes]) -> bytes:
    on, off = _sorted_options(lines, enabled)
    # Posix mode sets a variable, which allexport would export.
    on.sort(key=lambda name: name != b"posix")
    words = [b"-o " + name for name in on] + [b"+o " + name for name in off]
    return b"\\builtin set %s\n" % b" ".join(words)


def _sorted_options(lines: bytes, enabled: frozenset[bytes]) -> tuple[list[bytes], list[bytes]]:
    """Return which options of `lines` are on, and which are off."""
    names = frozenset(_OPTION.findall(lines))
    return sorted(names & enabled), sorted(names - enabled)
