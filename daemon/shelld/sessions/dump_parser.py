"""Parses the dump that a bash writes as it ends.

The result is the state that the next bash starts from.

Pure, except for a cache. No function here raises, whatever a dump holds. The state leaves out facts
about the process of bash itself, such as its pid, its clock and its call stack.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from shelld.sessions.arguments import MAX_ENTRY_BYTES, MAX_ENV_BYTES, entry_bytes
from shelld.sessions.declarations import ELEMENT, Declaration, declarations_in, declared
from shelld.sessions.dump import LOCAL_OPTIONS, OPTIONS_VARIABLE
from shelld.sessions.functions import Definitions, definitions, without_export
from shelld.sessions.quoting import quote, unquote
from shelld.sessions.state import OptionNames, ShellState, exported
from shelld.sessions.variables import NOT_IMPORTED, SET_AT_START

_PARTS: Final = 10
_SHORT_PARTS: Final = 2
# The index of the part that has the output of `shopt -p`, counted from the end of the dump. Two
# NULs follow the last part.
_SHOPT: Final = 2 - _PARTS - 2
_LOST: Final = 5
_DOTGLOB: Final = b"shopt -s dotglob\n"
# Only the newest entries of the directory stack are kept, because the next bash prints the whole
# stack for each entry that it adds.
MAX_DIRECTORIES: Final = 200
_END: Final = b"\0\0"

# Finds the names of options in the output of `shopt -p` and `set +o`. It skips options that bash
# sets only at its start, and options that follow from the variables BASH_COMPAT and IGNOREEOF. It
# also skips extdebug. If a startup file sets extdebug, bash starts a debugger, or warns that there
# is none.
_OPTION: Final = re.compile(
    rb" (?!login_shell|restricted_shell|extdebug|compat|ignoreeof)([^ \n]++)\n"
)

_FUNCTIONS: Final = re.compile(rb"(?>(?:declare -\S++ [^\n]++\n)*)")
_SWITCHES: Final = re.compile(rb"(?>(?:(?:shopt|set) [-+]\S++(?> \S++|)\n)*)")
_OPTIONS: Final = re.compile(rb'^(declare -\S+ %s=")([^"\n]*+)"$' % OPTIONS_VARIABLE, re.MULTILINE)
_UMASK: Final = re.compile(rb"[0-7]{1,5}\n")
_ALIAS: Final = re.compile(rb"alias (?>-- |)(([^=\n]++)=(?>(?:'[^']*+'|\\')+)\n)")
_ALIASES: Final = re.compile(rb"(?>(?:%s)*)" % _ALIAS.pattern)

_UNKNOWN: Final = OptionNames()

# The cache keeps the settings of at most this many dumps.
_MAX_CACHED: Final = 32
# If a dump is longer than this, its settings are not cached.
_MAX_CACHED_BYTES: Final = 64 * 1024


def is_whole(dump: bytes, *, is_short: bool = False) -> bool:
    """Return whether bash has finished its dump."""
    if is_short:
        return dump.count(b"\0") == _SHORT_PARTS + 1
    return dump.endswith(_END) and dump.count(b"\0") >= _PARTS + 2


def without_options(dump: bytes, names: frozenset[bytes]) -> bytes:
    """Return a copy of the dump in which these options of `set` and `shopt` are off."""

    def without(match: re.Match[bytes]) -> bytes:
        return match[1] + b":".join(x for x in match[2].split(b":") if x not in names) + b'"'

    parts = _OPTIONS.sub(without, dump).split(b"\0")
    if b"dotglob" in names:
        parts[_SHOPT] = parts[_SHOPT].replace(_DOTGLOB, b"shopt -u dotglob\n")
    return b"\0".join(parts)


def hides_options(dump: bytes) -> bool:
    """Return whether a dump is unreadable because a function with `local -` has called `exit`."""
    return LOCAL_OPTIONS in dump


def has_lost_functions(dump: bytes) -> bool:
    """Return whether the dump has a function that bash has printed, but could not read back."""
    parts = _parts(dump)
    return parts is not None and parts[_LOST] != b""


def declared_in(dump: bytes) -> dict[bytes, bytes]:
    """Return the declarations in a dump, by name."""
    parts = _parts(dump)
    return declared(parts[0]) if parts else {}


def _parts(dump: bytes) -> list[bytes] | None:
    return dump.split(b"\0")[-_PARTS - 2 : -2] if is_whole(dump) else None


def _directory(part: bytes) -> tuple[bytes, bool]:
    # The first line is the path. If this is the daemon's directory, a second line is a dot.
    is_daemons = part.endswith(b"\n.")
    cwd = part[:-2] if is_daemons else part.removesuffix(b"\n")
    return (cwd, is_daemons) if cwd.startswith(b"/") else (b"", False)


def parse_dump(dump: bytes, known: OptionNames = _UNKNOWN) -> ShellState | None:
    """Return the state that a dump describes; None if the dump is incomplete or malformed.

    `known`: the names of options, used if the dump does not list them.
    """
    parts = _parts(dump)
    found = declarations_in(parts[0]) if parts else None
    if parts is None or found is None:
        return None
    variables = _variables(found)
    directories, cwd = parts[-2:]
    if variables.enabled is None:
        return None
    read = _settings if len(dump) <= _MAX_CACHED_BYTES else _settings.__wrapped__
    settings = read(known, variables.enabled, *parts[1:-2])
    if settings is None:
        return None
    directory, is_daemons = _directory(cwd)
    defined = settings.defined
    pushed = _pushed(variables.stack, directories)
    return ShellState(
        directory,
        variables.env,
        inherits_cwd=is_daemons,
        declarations=variables.declarations,
        definitions=defined.script,
        switches=settings.switches + without_export(defined.private),
        pushed=pushed,
        aliases=settings.aliases,
        options=settings.options,
        later=frozenset(variables.later),
        permanent=frozenset(variables.permanent),
        names=settings.names,
        function_names=settings.function_names,
        functions=defined.entries,
        private=defined.private,
        sets_traps=settings.sets_traps,
        option_names=settings.option_names,
    )


def parse_short_dump(dump: bytes, before: ShellState, names: frozenset[bytes]) -> ShellState | None:
    """Return the state after a command that could change only these variables and the directory.

    `before`: the state from which that command started. Returns None if the dump is incomplete or
    malformed.
    """
    if not is_whole(dump, is_short=True):
        return None
    _, variables, cwd, _ = dump.split(b"\0")
    found = declarations_in(variables)
    if found is None or not names.issuperset(each.name for each in found):
        return None
    in_env = sum(
        entry_bytes(name, value)
        for name, value in before.env.items()
        if name not in before.later and name not in names
    )
    told_of = _variables(found, in_env)
    changed = ShellState(
        b"",
        told_of.env,
        declarations=told_of.declarations,
        later=frozenset(told_of.later),
        permanent=frozenset(told_of.permanent),
    )
    directory, is_daemons = _directory(cwd)
    state = before.with_entries_of(changed, names)
    return replace(state, cwd=directory, inherits_cwd=is_daemons)


class _Variables(NamedTuple):
    """What the output of `declare -p` contains.

    `enabled`, `stack`: the values of `OPTIONS_VARIABLE` and DIRSTACK.
    """

    env: dict[bytes, bytes]
    declarations: dict[bytes, bytes]
    later: list[bytes]
    permanent: list[bytes]
    enabled: bytes | None
    stack: bytes


def _variables(found: list[Declaration], size: int = 0) -> _Variables:
    """Divide the declarations of a dump among the fields of `_Variables`.

    `size`: the number of bytes that are already in the environment.
    """
    env: dict[bytes, bytes] = {}
    declarations: dict[bytes, bytes] = {}
    later: list[bytes] = []
    permanent: list[bytes] = []
    own: dict[bytes, bytes | None] = {}
    for each in found:
        name = each.name
        if each.is_own:
            own[name] = each.value
            if each.line:
                declarations[name] = each.line
            continue
        if name == b"POSIXLY_CORRECT" and b"x" not in each.flags:
            # The script sets the option posix at its end, and the option sets this variable again.
            continue
        if each.exported is not None:
            env[name] = each.exported
            taken = entry_bytes(name, each.exported)
            if taken > MAX_ENTRY_BYTES or size + taken > MAX_ENV_BYTES:
                later.append(name)
            else:
                size += taken
                if each.flags == b"x":
                    continue
        declarations[name] = each.line
        if b"r" in each.flags or b"n" in each.flags:
            permanent.append(name)
    missing = (NOT_IMPORTED & env.keys()) - declarations.keys()
    declarations.update((name, exported(name, env[name])) for name in missing)
    seen = {each.name for each in found}
    unset = [name for name in SET_AT_START if name not in seen]
    declarations.update((name, b"\\builtin unset -v %s\n" % name) for name in unset)
    stack = own.get(b"DIRSTACK") or b""
    return _Variables(env, declarations, later, permanent, own.get(OPTIONS_VARIABLE), stack)


class _Settings(Struct, frozen=True):
    """All parts of a dump except variables and directories.

    Most commands do not change these parts.
    """

    defined: Definitions
    switches: bytes
    aliases: bytes
    options: bytes
    names: frozenset[bytes]
    function_names: frozenset[bytes]
    sets_traps: bool
    option_names: OptionNames


@lru_cache(maxsize=_MAX_CACHED)
def _settings(known: OptionNames, value: bytes, *parts: bytes) -> _Settings | None:
    """Parse the parts of a dump that `_Settings` describes. Returns None if a part does not have
    the expected form.

    `value`: the value of `OPTIONS_VARIABLE`.
    """
    flags, options, listing, functions, lost, aliases, umask = parts
    if not (
        _SWITCHES.fullmatch(flags)
        and _SWITCHES.fullmatch(options)
        and _FUNCTIONS.fullmatch(listing)
        and _ALIASES.fullmatch(aliases)
        and _UMASK.fullmatch(umask)
    ):
        return None
    listed = _option_names(flags, options) if flags else known
    if not listed.is_known:
        return None
    enabled = _enabled(value, options)
    names = [_attributes(line) for line in listing.split(b"\n")[:-1]]
    is_lost = frozenset(lost.split(b"\n")[:-1])
    function_names = frozenset(name for _, name in names) - is_lost
    return _Settings(
        definitions(
            names,
            functions.removesuffix(b"\n"),
            is_lost,
            by_environment=b"posix" not in enabled,
        ),
        switches=_switches(listed.of_shopt, enabled) + b"\\builtin umask %s" % umask,
        # A function or another alias may be named "alias".
        aliases=_ALIAS.sub(rb"\\builtin alias -- \1", aliases),
        options=_set_options(listed.of_set, enabled),
        names=function_names.union(found[2] for found in _ALIAS.finditer(aliases)),
        function_names=function_names,
        sets_traps=b"trap" in functions or b"trap" in aliases,
        option_names=listed,
    )


def _option_names(flags: bytes, options: bytes) -> OptionNames:
    return OptionNames(frozenset(_OPTION.findall(flags)), frozenset(_OPTION.findall(options)))


def _enabled(value: bytes, listing: bytes) -> frozenset[bytes]:
    """Return the options that are on, from the values of BASHOPTS and SHELLOPTS.

    The two variables miss some changes. Posix mode turns inherit_errexit on, and leaving posix mode
    does not turn it off, but BASHOPTS does not show this. So if posix is on, the result also has
    inherit_errexit. GLOBIGNORE turns dotglob on and off. So the state of dotglob comes from
    `listing`, which is the output of `shopt -p`.
    """
    names = frozenset(unquote(value).split(b":")) - {b"dotglob"}
    if b"posix" in names:
        names |= {b"inherit_errexit"}
    return names | {b"dotglob"} if _DOTGLOB in listing else names


def _attributes(line: bytes) -> tuple[bytes, bytes]:
    _, flags, name = line.split(b" ", 2)
    return flags, name


def _pushed(variable: bytes, listing: bytes) -> bytes:
    """Return the lines that make the directory stack, from DIRSTACK and the output of `dirs`.

    If `dirs` prints the same names as DIRSTACK has, DIRSTACK is used. Otherwise the output of
    `dirs` is used: the command has unset DIRSTACK, and so the variable has lost its special
    meaning. The output of `dirs` alone is not enough, because a name that contains a newline looks
    like two names.
    """
    stack = [unquote(element) for element in ELEMENT.findall(variable)]
    if b"".join(name + b"\n" for name in stack) != listing:
        stack = listing.removesuffix(b"\n").split(b"\n")
    lines = [
        b"\\builtin pushd -n -- %s\n" % quote(name)
        for name in reversed(stack[1 : MAX_DIRECTORIES + 1])
    ]
    return b"{\n%s} >/dev/null\n" % b"".join(lines) if lines else b""


def _switches(names: frozenset[bytes], enabled: frozenset[bytes]) -> bytes:
    return b"".join(
        b"\\builtin shopt -%s %s\n" % (letter, b" ".join(sorted(chosen)))
        for letter, chosen in ((b"s", names & enabled), (b"u", names - enabled))
        if chosen
    )


def _set_options(names: frozenset[bytes], enabled: frozenset[bytes]) -> bytes:
    # Posix mode comes first, because it sets a variable that allexport would export.
    on = sorted(names & enabled, key=lambda name: (name != b"posix", name))
    # A new bash is not privileged. If bash ends privileged mode, it changes its user and group, and
    # prints errors where the system refuses this.
    off = sorted(names - enabled - {b"privileged"})
    words = [b"-o " + name for name in on] + [b"+o " + name for name in off]
    return b"\\builtin set %s\n" % b" ".join(words)
