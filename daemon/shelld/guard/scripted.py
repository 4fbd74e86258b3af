"""Judges the commands in the text and code that a program gets.

A speaker is a program with its own language. A text in this language can contain commands. An
interpreter runs code. Other programs get commands in options, in words after ``--``, and in
variables.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

from shelld.guard import rules
from shelld.guard.builtins import BUILTINS
from shelld.guard.files import Files
from shelld.guard.fork_bomb import FORK_BOMB
from shelld.guard.git import CONFIGURATION, setting_in
from shelld.guard.globs import has_glob
from shelld.guard.interpreters import OWN_HOME, code_of, commands_in, language_of
from shelld.guard.markers import UNKNOWN
from shelld.guard.outputs import OUTPUTS
from shelld.guard.paths import normalized
from shelld.guard.speakers import directories_of, scripts_of
from shelld.guard.strangers import command_behind_dashes, commands_of, overwritten_by
from shelld.guard.vocabulary import (
    EVERYDAY_WRAPPERS,
    JUDGED,
    LANGUAGES,
    SHELLS,
    SPEAKERS,
    STARTERS,
    TELLERS,
    WRAPPERS,
    WRITERS,
)
from shelld.guard.wrappers import unwrapped

# Searching text for commands takes this many times as long as copying the text.
_SEARCHING: Final = 20
# Programs that exist on most systems.
KNOWN: Final = frozenset(
    {
        *(*JUDGED, *SHELLS, *WRAPPERS, *EVERYDAY_WRAPPERS, *STARTERS, *WRITERS, *SPEAKERS),
        *(*OUTPUTS, *TELLERS, *LANGUAGES),
    }
)
# These programs get a command as arguments, and run it.
_STARTERS: Final = frozenset({*SHELLS, *WRAPPERS})
# Some subcommands of these programs run the command that follows them. The guard may not know all
# of these subcommands.
_WITH_SUBCOMMANDS: Final = frozenset(
    name for name, line in {**WRAPPERS, **EVERYDAY_WRAPPERS}.items() if "sub:" in line
) - {"git", "npm", "pnpm", "yarn", "bun", "deno"}
# The value of a variable is a command if the name of the variable matches `_TOLD`. The programs in
# `_DEAF` run no commands from variables.
_TOLD: Final = re.compile(
    r"(?:EDITOR|PAGER|BROWSER|VISUAL|ASKPASS|OPENER|TERMINAL|_COMMAND|_CMD|_HOOK|_EXEC|_WRAPPER"
    r"|_LAUNCHER|_RSH|_SSH)\Z|\A(?:CC|CXX|CPP|LD|AR|SHELL)\Z"
)
_DEAF: Final = frozenset(
    {*OUTPUTS, *BUILTINS, *SHELLS, *TELLERS, ""} - {"cargo", "gh", "git", "man"}
)


class Scripted(Files):
    def _stranger(self, program: str, arguments: Sequence[str]) -> None:
        """Judge the files that an unknown program overwrites, and the commands that it runs."""
        if program in _WITH_SUBCOMMANDS and unwrapped(program, arguments) is None:
            self._follow_likely([command_behind_dashes(arguments)])
        if program in KNOWN or has_glob(program):
            return
        # Only a path below /dev, or a link to such a path, can name a disk. The same is true for
        # the programs in `WRITERS`.
        if self.links or self.cwd.startswith("/dev") or any("/dev" in each for each in arguments):
            place = self.place()
            for each in overwritten_by(arguments):
                self.report(rules.overwrites(each, place))
        scripts, commands = commands_of(arguments)
        before = self.budget.unresolved
        for script in scripts:
            self.copy().run_script(script, "")
        self.budget.unresolved = before
        self._follow_likely(commands)

    def _follow_likely(self, commands: Sequence[list[str]]) -> None:
        """Follow commands that a program may run. Report only commands that are dangerous."""
        before = self.budget.unresolved
        for command in commands:
            name = "".join(command[:1]).rpartition("/")[2]
            if rules.is_judged(name) or name in _STARTERS:
                self.copy().execute(command, "")
        self.budget.unresolved = before

    def _speaker(self, program: str, arguments: Sequence[str], stdin: str) -> None:
        """A program with its own language gets text in this language. Follow the commands in the
        text.
        """
        self.spend((len(stdin) + sum(map(len, arguments))) * _SEARCHING)
        shell = self.copy()
        for directory in directories_of(program, arguments):
            shell.cwd = normalized(directory, shell.cwd)
        content_of = partial(shell.content_of, stdin=stdin)
        for script in scripts_of(program, arguments, self._exported, content_of, stdin):
            shell.copy().run_text(script, "")
        if program == "git" and (setting := setting_in(arguments)):
            self.files[CONFIGURATION] = f"{self.files.get(CONFIGURATION, '')}\0{setting}"

    def _exported(self, name: str) -> str | None:
        """Return the value of a variable if it is exported, else None."""
        return self.variables.get(name) if name in self.exported else None

    def run_told(self, program: str, variables: Mapping[str, str]) -> None:
        """Follow commands in environment variables, as in ``BROWSER='...' program``."""
        name = program.rpartition("/")[2]
        if name in _DEAF and language_of(name) is None:
            return
        for variable, value in variables.items():
            if _TOLD.search(variable):
                self.copy().run_text(value, "")

    def _interpreter(self, language: str, arguments: Sequence[str], stdin: str) -> None:
        """Follow the commands that an interpreter would start when it runs known code."""
        code = code_of(language, arguments, stdin, partial(self.content_of, stdin=stdin))
        self.spend(len(code) * _SEARCHING)
        commands = commands_in(language, code)
        if commands.is_fork_bomb:
            self.report(FORK_BOMB)
        place = self.place()
        walks = UNKNOWN in stdin and stdin.startswith("/")
        if commands.removes_files and (self.is_for_each or walks):
            # The code removes files that are its arguments or the lines of its input.
            given = [each for each in arguments if each.startswith("/")]
            given += stdin.split(UNKNOWN, maxsplit=1)[0].split() if walks else []
            self.report(rules.check("rm", ["-r", "--", *given], place))
        for path in commands.removed:
            removed = (self.home or UNKNOWN) if path == OWN_HOME else path
            self.report(rules.check("rm", ["-r", "--", removed], place))
        for path in commands.written:
            self.report(rules.overwrites(path, place))
        for script in commands.scripts:
            self.copy().run_script(script, "")
        for argv in commands.argvs:
            self.copy().execute(list(argv), "")
