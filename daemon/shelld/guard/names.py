"""Stores the state of a shell: variables, arrays, functions, aliases, and the working directory.

The guard runs no code to find out a value. An unknown value is `UNKNOWN`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final, Self

from shelld.guard.arrays import Arrays, Hidden
from shelld.guard.budget import Blocked, Budget
from shelld.guard.callees import Call
from shelld.guard.ends import Ends
from shelld.guard.markers import HOLE, UNKNOWN, plain
from shelld.guard.paths import normalized
from shelld.guard.rules import RULES, Place
from shelld.guard.units import ExpansionError
from shelld.guard.verdict import Finding
from shelld.guard.words import calculated, expand_text, expand_word

Node = Any

# If a command uses an unset variable, its author may have expected the variable to be set. So these
# rules make such a command unresolved, and do not block it. The other rules block such a command.
_LENIENT_RULES: Final = RULES - {"rm-root", "mkfs", "fork-bomb"}

# Expanding a word costs as much as copying this many characters.
_EXPANDING: Final = 300
# The guard reads the clock once for each group of this many words.
_WORDS_PER_LOOK: Final = 32
# The maximum length of a value in characters. A longer value becomes `UNKNOWN`.
MAX_VALUE: Final = 64 * 1024

_SPECIAL: Final = {
    "?": "0",
    "$": UNKNOWN,
    "!": UNKNOWN,
    "-": "hBc",
    "_": UNKNOWN,
    "RANDOM": UNKNOWN,
    "BASH": "/bin/bash",
    "SECONDS": "0",
    "LINENO": UNKNOWN,
    "PPID": UNKNOWN,
    "UID": UNKNOWN,
    "EUID": UNKNOWN,
    "HOSTNAME": UNKNOWN,
    "OSTYPE": UNKNOWN,
    "BASHPID": UNKNOWN,
    "BASH_VERSION": UNKNOWN,
    "MACHTYPE": UNKNOWN,
    "HOSTTYPE": UNKNOWN,
}

_FILE: Final = re.compile(r"\s*<(?![<&>(])[ \t]*(?=\S)")

# Bash itself sets these variables. The guard does not know their values, and assumes that ``set
# -u`` accepts them.
_SET_BY_BASH: Final = re.compile(
    "[@*]|BASH.*|COMP_.*|DIRSTACK|EPOCH.*|FUNCNAME|GROUPS|HIST.*|OPT.*|PATH|PIPESTATUS|PS[0-9]"
    "|SHELLOPTS|SHLVL|SRANDOM|TERM|COLUMNS|LINES|COPROC.*|MAPFILE|READLINE_.*|REPLY|OLDPWD"
)


def function_entry(name: str) -> str:
    """Return the name of the environment entry that exports a function."""
    return f"BASH_FUNC_{name}%%"


class Names(Arrays):
    """Implements `scope.Scope`. `exported` has the names of `variables` that programs inherit."""

    def __init__(
        self, budget: Budget, environment: dict[str, str], cwd: str, home: str | None
    ) -> None:
        super().__init__()
        self.budget = budget
        self.variables = environment
        self.exported = frozenset(environment)
        self.arrays: dict[str, list[str]] = {}
        # Maps the name of each nameref (``declare -n``) to its target.
        self.references: dict[str, str] = {}
        self.functions: dict[str, Any] = {}
        # The commands that each function always runs.
        self.calls: dict[str, list[Call]] = {}
        self.aliases: dict[str, str] = {}
        # The paths of programs that ``hash -p`` sets. The keys are the names of the programs.
        self.hashed: dict[str, str] = {}
        self.positional: list[str] = []
        self.name = "bash"
        self.cwd = cwd
        self.home = home
        # The directories on the stack of ``pushd``, without the working directory.
        self.pushed: tuple[str, ...] = ()
        # The text of the command that the guard follows now, and whether this command uses an unset
        # variable.
        self.segment = ""
        self.has_unset = False
        # True if bash stops at an unset variable, False if it does not, and None if this is
        # unknown.
        self.nounset: bool | None = False
        # The names of the options that ``shopt`` or ``set`` has turned on.
        self.options: frozenset[str] = frozenset()
        # The actions of ``trap``. The keys are the names of signals.
        self.traps: dict[str, str] = {}
        # The exported functions that a wrapper such as ``env`` has in its environment, and passes
        # on to a shell.
        self.inherited: dict[str, Any] = {}
        # The names with the attribute ``declare -i``, and the names whose values bash converts to
        # upper or lower case.
        self.integers: frozenset[str] = frozenset()
        self.cases: dict[str, str] = {}
        # For each running function, what ``local`` has hidden: the values of variables, the members
        # of arrays, and the targets of namerefs.
        self.hidden: list[dict[str, Hidden]] = []
        # The number of nested scripts that the guard follows now in this shell.
        self.scripts = 0
        # If true, programs run on every file below their operands, as with ``find -exec``.
        self.is_for_each = False

    def copy(self, budget: Budget | None = None) -> Self:
        """Return a copy of this shell, like a subshell.

        Changes to the copy do not affect this shell.
        """
        other = type(self)(budget or self.budget, dict(self.variables), self.cwd, self.home)
        other.exported = self.exported
        other.arrays = dict(self.arrays)
        other.references = dict(self.references)
        other.functions = dict(self.functions)
        other.aliases = dict(self.aliases)
        other.hashed = dict(self.hashed)
        other.take_streams(self, shares=budget is None)
        # All shells of the same command share `calls`.
        other.calls = self.calls if budget is None else dict(self.calls)
        other.positional, other.name = self.positional, self.name
        other.pushed = self.pushed
        other.options, other.integers = self.options, self.integers
        other.cases = dict(self.cases)
        other.inherited = self.inherited
        other.segment, other.has_unset = self.segment, self.has_unset
        other.is_for_each = self.is_for_each
        other.nounset = self.nounset
        return other

    # -- values for words -------------------------------------------------------------------

    def spend(self, characters: int) -> None:
        self.budget.spend(characters)

    def miss(self, name: str) -> None:
        self.has_unset = True
        if self.nounset and not _SET_BY_BASH.fullmatch(name):
            raise ExpansionError

    def value_of(self, name: str) -> str | None:
        if name.isdecimal():
            parameters = [self.name, *self.positional]
            return parameters[int(name)] if int(name) < len(parameters) else None
        if name == "#":
            return str(len(self.positional))
        meant = self.meant_by(name)
        if meant != name and "[" in meant:
            return self._member_of(meant)
        name = meant
        if name in self.arrays:
            return self.member_of(name, 0)
        if name in ("PWD", "DIRSTACK"):
            # If the command has not set these variables, they have the working directory as their
            # value.
            return self.variables.get(name, self.cwd)
        return self.variables.get(name, _SPECIAL.get(name))

    def _member_of(self, reference: str) -> str | None:
        """Return the value of an array member to which a nameref refers."""
        name, _, index = reference.removesuffix("]").partition("[")
        if reference in self.variables:
            return self.variables[reference]
        number = index.lstrip("-")
        members = self.arrays.get(name, [])
        if not number.isdecimal() or int(number) >= len(members):
            return UNKNOWN if members else None
        return self.member_of(name, int(index))

    def list_of(self, name: str) -> list[str]:
        if name == "@":
            return self.positional
        if name in self.arrays:
            return [each for each in self.arrays[name] if each != HOLE]
        if name == "DIRSTACK":
            return [self.cwd, *self.pushed]
        value = self.value_of(name)
        return [] if value is None else [value]

    def enter(self, directory: str) -> None:
        """Change the working directory and update PWD and OLDPWD, as ``cd`` does."""
        self.variables["OLDPWD"] = self.value_of("PWD") or ""
        self.variables.pop("PWD", None)
        self.cwd = directory

    def assign(self, name: str, value: str) -> None:
        name = self.meant_by(name)
        if "[" in name:
            self.substituted(name)
            self._enter_in_table(name.partition("[")[0], name.partition("[")[2][:-1], value)
        if name in self.integers:
            with suppress(ExpansionError):
                value = calculated(value, self)
        if name in self.cases:
            value = value.lower() if self.cases[name] == "l" else value.upper()
        if "allexport" in self.options:
            self.exported = self.exported | {name}
        self.arrays.pop(name, None)
        self.variables[name] = value if len(value) <= MAX_VALUE else UNKNOWN
        if name == "PS4":
            # Bash expands PS4 before each command that it traces.
            self.prompt(value)

    def substituted(self, text: str) -> None:
        """Follow the substitutions that bash runs when it evaluates a subscript in a text."""
        if "$(" in text or "`" in text:
            with suppress(ExpansionError):
                expand_text(text, self.copy())

    def _enter_in_table(self, name: str, key: str, value: str) -> None:
        """Set a path in BASH_CMDS, or an alias in BASH_ALIASES. Ignore other arrays."""
        if name == "BASH_CMDS":
            self.hashed[key] = value
        elif name == "BASH_ALIASES":
            self.aliases[key] = value

    def switch(self, option: str, *, is_on: bool) -> None:
        self.options = self.options | {option} if is_on else self.options - {option}

    def exported_functions(self) -> dict[str, Any]:
        """Return the functions that a new bash inherits from this shell."""
        if "allexport" in self.options:
            return {**self.inherited, **self.functions}
        own = {
            name: function
            for name, function in self.functions.items()
            if function_entry(name) in self.exported
        }
        return {**self.inherited, **own}

    def prompt(self, value: str) -> None:
        """Follow the substitutions in a prompt."""
        with suppress(ExpansionError):
            expand_text(value, self.copy())

    def expanded_value(self, name: str) -> str:
        """Expand the value of a variable, such as BASH_ENV, that a shell expands when it starts."""
        with suppress(ExpansionError):
            return expand_text(self.variables.get(name, ""), self.copy())
        return ""

    def output_of(self, script: str) -> str:
        if (word := _FILE.match(script)) and not script[Ends(script).of_word(word.end()) :].strip():
            # The script is ``$(< file)``, which reads a file.
            target = expand_text(script[word.end() :].strip(), self)
            return self.content(normalized(target, self.cwd)).rstrip("\n")
        return plain(self.copy().run_script(script, "")).rstrip("\n")

    def expanded(self, words: Sequence[str]) -> list[str]:
        self.budget.spend(len(words) * _EXPANDING)
        fields: list[str] = []
        for index, word in enumerate(words, 1):
            if index % _WORDS_PER_LOOK == 0 and not self.budget.has_time():
                self.unresolved("it is too complex to follow")
                break
            fields += expand_word(word, self)
        return fields

    def place(self, stdin: str = "") -> Place:
        """Return the directories, stdin and links that a program would run with."""
        return Place(self.cwd, self.home, stdin, self.links)

    # -- reports ----------------------------------------------------------------------------

    def report(self, finding: Finding | None, segment: str | None = None) -> None:
        """Raise `Blocked` if a finding is certain. Else mark the command as unresolved."""
        if finding is None or not self.budget.reports:
            return
        if finding.rule in self.budget.policy.disable:
            return
        if self.has_unset and finding.rule in _LENIENT_RULES:
            self.unresolved("a variable in it has no value here")
            return
        if not finding.is_certain:
            self.unresolved(finding.reason)
            return
        raise Blocked(finding, segment or self.segment)

    def unresolved(self, reason: str) -> None:
        # Code that the guard does not follow may change shell options.
        self.nounset = None
        self.budget.unresolved = self.budget.unresolved or reason
