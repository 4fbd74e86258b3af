"""The state of a bash, in a form from which another bash can start. Pure.

A state consists of an environment and a script. The next bash starts with this environment, and
runs this script. The next command then runs as if all commands were typed into one bash.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from shelld.sessions.functions import function_of
from shelld.sessions.quoting import quote

# Prefixes of the variables that affect how bash starts. Bash prints an error for a locale or a
# BASH_COMPAT that it does not know, and the loader loads the libraries of LD_PRELOAD. So if a
# command has changed one of these variables, the script sets it.
SET_LATE: Final = (b"LC_", b"LANG", b"BASH_COMPAT", b"LD_")

_NAME: Final = re.compile(rb"[A-Za-z_][A-Za-z0-9_]*")


# Options that make the guard find more in a command, and the lines that turn these options on.
# nounset is not in the list, because it makes the guard find less. The guard also judges lines that
# are typed into other shells, which run without nounset.
_TELLING_OPTIONS: Final = (
    (b"allexport", b"\\builtin set -o allexport\n"),
    (b"cdable_vars", b"\\builtin shopt -s cdable_vars\n"),
)


# Finds the options that a line of `set` turns on.
_SET_ON: Final = re.compile(rb" -o (\S+)")


class OptionNames(Struct, frozen=True):
    """The names of all options of `set` and `shopt`. They depend only on the version of bash."""

    of_set: frozenset[bytes] = frozenset()
    of_shopt: frozenset[bytes] = frozenset()

    @property
    def is_known(self) -> bool:
        return bool(self.of_set)


class ShellState(Struct, frozen=True):
    """The state of a bash.

    `env` has the exported variables. `script` and `options` restore everything except these
    variables.

    `later`: the names of variables that must not be in the environment when bash starts. The script
    sets them. The fields that make up the script are in the order in which bash runs them. `cwd` is
    empty if bash did not know its directory. `inherits_cwd`: `cwd` is the daemon's own directory.
    Bash then starts in this directory, even if it was renamed and another directory has its path.
    """

    cwd: bytes
    env: dict[bytes, bytes]
    # The lines of the script that set or unset some variables. For these variables, the entry in
    # `env` is not enough, or each bash sets them at its start.
    declarations: dict[bytes, bytes] = {}
    # These lines define the functions that are not in `functions`. They may leave extglob on.
    definitions: bytes = b""
    # The options of shopt, and the umask.
    switches: bytes = b""
    # The directory stack.
    pushed: bytes = b""
    aliases: bytes = b""
    # The options of `set`, in one line. This line runs last, because bash could trace all lines
    # after it.
    options: bytes = b""
    later: frozenset[bytes] = frozenset()
    # The names of functions and aliases.
    names: frozenset[bytes] = frozenset()
    function_names: frozenset[bytes] = frozenset()
    # Readonly variables and namerefs, which bash cannot unset.
    permanent: frozenset[bytes] = frozenset()
    # Functions that the next bash gets as environment entries. They are not in the script.
    functions: dict[bytes, bytes] = {}
    # The names of the functions in `functions` that the session does not export.
    private: tuple[bytes, ...] = ()
    # True if a function or an alias contains the word `trap`.
    sets_traps: bool = False
    inherits_cwd: bool = False
    option_names: OptionNames = OptionNames()

    @property
    def variables(self) -> bytes:
        return b"".join(self.declarations.values())

    @property
    def script(self) -> bytes:
        return self.variables + self.definitions + self.switches + self.pushed + self.aliases

    @property
    def other_meanings(self) -> bytes:
        """The lines that define functions and aliases, set the directory stack, and turn on options
        that give a command another meaning.
        """
        shopt_on, _, _ = self.switches.partition(b"\\builtin shopt -u")
        # The `env` of a call may have added options at the end of the line.
        set_on = _SET_ON.findall(self.options)
        options = telling_lines({*shopt_on.split(), *set_on})
        return self.definitions + self.pushed + self.aliases + options

    @property
    def size(self) -> int:
        """The approximate number of bytes that bash would need to report this state."""
        names = self.env.keys() - self.declarations.keys()
        in_env = sum(len(name) + len(self.env[name]) for name in names)
        functions = sum(map(len, self.functions.values()))
        return len(self.script) + in_env + functions

    def without(self, names: frozenset[bytes]) -> ShellState:
        """Return a copy of this state. The script of the copy has no lines for the variables in
        `names`.
        """
        kept = {name: line for name, line in self.declarations.items() if name not in names}
        return replace(self, declarations=kept)

    def with_entries_of(self, other: ShellState, names: Iterable[bytes]) -> ShellState:
        """Return this state, with the variables in `names` taken from `other`."""
        env, declarations, later = {**self.env}, {**self.declarations}, set(self.later)
        permanent = set(self.permanent)
        for name in names:
            for entries, others in ((env, other.env), (declarations, other.declarations)):
                entries.pop(name, None)
                if name in others:
                    entries[name] = others[name]
            later.discard(name)
            later.update({name} & other.later)
            permanent.discard(name)
            permanent.update({name} & other.permanent)
        return replace(
            self,
            env=env,
            declarations=declarations,
            later=frozenset(later),
            permanent=frozenset(permanent),
        )


def telling_lines(names: Iterable[bytes]) -> bytes:
    """Some options in `names` make the guard find more. Return the lines that turn on these
    options.
    """
    return b"".join(line for name, line in _TELLING_OPTIONS if name in names)


def exported(name: bytes, value: bytes) -> bytes:
    """Return the line that sets a variable and exports it."""
    return b"\\builtin export %s=%s\n" % (name, quote(value))


def first_state(cwd: bytes, env: dict[bytes, bytes]) -> ShellState:
    """Return the state of a bash that has started in `cwd` with `env`, and has run nothing.

    Leaves out the options of the shell that has started the daemon. For example, `set -x` in that
    shell is not meant for the commands of the daemon's callers.
    """
    env = {name: value for name, value in env.items() if name not in (b"SHELLOPTS", b"BASHOPTS")}
    functions = {entry: name for entry in env if (name := function_of(entry)) is not None}
    sets_traps = any(b"trap" in env[entry] for entry in functions)
    names = frozenset(functions.values())
    return ShellState(
        cwd, env, names=names, function_names=names, sets_traps=sets_traps, inherits_cwd=True
    )


def passed_on(env: dict[bytes, bytes]) -> dict[bytes, bytes]:
    """Return the entries of an environment that cannot be variables of bash.

    Their names are not identifiers. Bash passes them on to the programs that it starts. No command
    can change them, and no dump has them.
    """
    return {
        name: value
        for name, value in env.items()
        if _NAME.fullmatch(name) is None and function_of(name) is None
    }


def with_late_settings(state: ShellState, base: dict[bytes, bytes]) -> ShellState:
    """Return the state, but move changed `SET_LATE` variables from the environment to the script.

    If bash reports an error about the value of such a variable, the script hides this error. The
    command that set the variable has already shown the error.
    """
    names = [
        name
        for name, value in state.env.items()
        if name.startswith(SET_LATE) and value != base.get(name) and name not in state.later
    ]
    if not names:
        return state
    lines = {
        name: b"{ \\builtin export %s=%s; } 2>/dev/null\n" % (name, quote(state.env[name]))
        for name in names
    }
    # A variable with other attributes already has a line in `state.declarations`. Keep that line.
    return replace(
        state,
        declarations={**lines, **state.declarations},
        later=state.later.union(names),
    )
