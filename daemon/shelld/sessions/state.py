"""What a bash is asked to remember, and what makes another one remember it. Pure.

A state is an environment to start a bash with, and a script for it to run; as if all commands were
typed into one bash.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from shelld.sessions.functions import function_of
from shelld.sessions.quoting import quote

# Bash complains about a value of these that it does not know.
CHECKED: Final = (b"LC_", b"LANG", b"BASH_COMPAT")

_NAME: Final = re.compile(rb"[A-Za-z_][A-Za-z0-9_]*")


class ShellState(Struct, frozen=True):
    """The state of a bash: `env` has the exported variables, `script` and `options` make the rest.

    `later` names variables that a process cannot be started with, so the script sets them. The
    parts of the script are in the order in which bash has to run them. `cwd` is empty if bash did
    not know its directory. `inherits_cwd`: that is the daemon's own, where each bash starts, even
    if it was renamed and another directory has its path.
    """

    cwd: bytes
    env: dict[bytes, bytes]
    # For each variable, the line that sets it, or that unsets a variable which each bash has.
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
    inherits_cwd: bool = False

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
    return ShellState(
        cwd, env, names=names, function_names=names, sets_traps=sets_traps, inherits_cwd=True
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
