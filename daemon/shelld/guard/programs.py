"""Follows one command whose words are known.

The command calls a function, or starts a builtin or program.
"""

from __future__ import annotations

import abc
import re
import shlex
from collections.abc import Iterator, Sequence
from typing import Any, Final

from shelld.guard import rules
from shelld.guard.builtins import BUILTINS
from shelld.guard.files import BIN_DIRECTORIES
from shelld.guard.fork_bomb import FORK_BOMB, is_fork_bomb_if_called
from shelld.guard.globs import has_glob, matches
from shelld.guard.interpreters import language_of
from shelld.guard.launchers import HANDLERS
from shelld.guard.markers import UNKNOWN, plain
from shelld.guard.paths import normalized
from shelld.guard.scripted import KNOWN, Scripted
from shelld.guard.shell_options import ShellOptions
from shelld.guard.vocabulary import (
    DESTROYERS,
    JUDGED,
    SHELLS,
    SPEAKERS,
    STARTERS,
    WRAPPERS,
    WRITERS,
)
from shelld.guard.wrappers import Inner, unwrapped

# If the path of a program is a pattern, the guard follows at most this many programs that match it.
_MAX_CANDIDATES: Final = 32
# The names of the dynamic loader, ld.so(8), begin with one of these strings.
_LOADERS: Final = ("ld-linux", "ld-musl", "ld64.so", "ld.so")
# The variables that an interactive shell expands. Other shells expand only PS4, which is the first
# of these variables.
_PROMPTS: Final = ("PS4", "PS0", "PS1", "PS2")
# Bash runs this function if a program does not exist.
_NOT_FOUND: Final = "command_not_found_handle"
_STDIN: Final = ("/dev/stdin", "/dev/fd/0")
_FUNCTION_ENTRY: Final = re.compile(r"BASH_FUNC_([^\s%]++)%%")
# The guard follows at most this many nested calls of a recursive function.
_MAX_RECURSION: Final = 2


class Programs(Scripted):
    @abc.abstractmethod
    def _run_function(self, function: Any, stdin: str) -> str: ...

    # -- one command ------------------------------------------------------------------------

    def execute(self, argv: list[str], stdin: str) -> str:
        """Follow a command. Return its output, or `UNKNOWN` if it is unknown."""
        program = argv[0].rpartition("/")[2] if argv else ""
        if not program:
            # The command has no name, or its name is the name of a directory.
            return ""
        if not self.budget.take():
            self.unresolved("it is too complex to follow")
            return UNKNOWN
        self.budget.note(argv)
        if UNKNOWN in program:
            self.unresolved("the name of a program that would run is not known in advance")
            return UNKNOWN
        self.budget.depth += 1
        try:
            return self._execute(program, argv, stdin)
        finally:
            self.budget.depth -= 1

    def _execute(self, program: str, argv: list[str], stdin: str) -> str:
        inner = _named_builtin(program, argv)
        if inner:
            # The builtin runs in this shell, even if a function has the same name.
            program, argv = inner[0], inner
        elif (function := self.functions.get(argv[0])) is not None:
            return self._call(function, argv, stdin)
        builtin = BUILTINS.get(program)
        if builtin is not None:
            return str(builtin(self, argv[1:], stdin))
        if argv[0] in self.hashed:
            # Bash may no longer use the path that ``hash -p`` has set, so the guard also follows
            # the program with the plain name.
            self.copy()._start(self.hashed[argv[0]].rpartition("/")[2], argv, stdin)
        if has_glob(argv[0]):
            return self._one_of(argv, stdin)
        handler = self.functions.get(_NOT_FOUND)
        if handler is not None and program == argv[0] and program not in KNOWN:
            # The guard does not know whether the program exists, so it follows both the function
            # and the program.
            self.copy()._call(handler, [_NOT_FOUND, *argv], stdin)
        return self._start(program, argv, stdin)

    def _one_of(self, argv: list[str], stdin: str) -> str:
        """Follow every program that `argv[0]` could match. `argv[0]` is a pattern."""
        pattern = normalized(argv[0], self.cwd)
        for path in _paths_like(pattern):
            self.copy().execute([path, *argv[1:]], stdin)
        return UNKNOWN

    def _call(self, function: Any, argv: list[str], stdin: str) -> str:
        active = self.budget.active
        if active.count(function) >= _MAX_RECURSION:
            # The guard has already followed the body of this function.
            return UNKNOWN
        if is_fork_bomb_if_called(argv, self.calls):
            self.report(FORK_BOMB)
        before, self.positional = self.positional, argv[1:]
        active.append(function)
        self.hidden.append({})
        try:
            return self._run_function(function, stdin)
        finally:
            active.pop()
            self.restore(self.hidden.pop())
            self.positional = before

    def _start(self, program: str, argv: list[str], stdin: str) -> str:
        # A shell that a program starts does not inherit the options of this shell.
        before, self.nounset = self.nounset, False
        try:
            return self._follow(program, argv, stdin)
        finally:
            self.nounset = before

    def _follow(self, program: str, argv: list[str], stdin: str) -> str:
        arguments = argv[1:]
        self._check(program, arguments, stdin)
        self._stranger(program, arguments)
        if program in SHELLS:
            return self._shell(arguments, stdin)
        language = language_of(program)
        if language is not None:
            self._interpreter(language, arguments, stdin)
        if program in SPEAKERS:
            self._speaker(program, arguments, stdin)
        if program == "coproc":
            words = [plain(each) if has_glob(each) else shlex.quote(each) for each in arguments]
            self.start_coprocess("COPROC", " ".join(words))
            return ""
        if program.startswith(_LOADERS):
            program = "ld.so"
        inner = unwrapped(program, arguments)
        if inner is not None:
            return self._unwrapped(inner, stdin)
        kind = STARTERS.get(program)
        if kind is not None:
            return HANDLERS[kind](self, arguments, stdin)
        if self.files and (path := self.written_program(argv[0])):
            return self.run_file(path, arguments, stdin)
        self.record(program, arguments, stdin)
        output = self.written_by(argv, stdin)
        if program == "tee" and output != UNKNOWN:
            for each in arguments:
                if not each.startswith("-"):
                    self.write(normalized(each, self.cwd), output)
        return output

    def _check(self, program: str, arguments: Sequence[str], stdin: str) -> None:
        policy = self.budget.policy
        if policy.block:
            self.report(policy.check(program, arguments))
        if not rules.is_judged(program) and not self.is_for_each:
            return
        place = self.place(stdin)
        self.report(rules.check(program, arguments, place))
        if self.is_for_each:
            # Running a program on every file of a tree is like running it recursively.
            if program in JUDGED:
                self.report(rules.check(program, ["-R", *arguments], place))
            if program in DESTROYERS:
                for target in rules.destroyed_by(program, arguments):
                    self.report(rules.check("rm", ["-r", "--", target], place))

    def _unwrapped(self, inner: Inner, stdin: str) -> str:
        self.run_told("".join(inner.argv[:1]), inner.assignments)
        child = self.copy()
        # The wrapper does not use exported functions itself, but passes them on to the program.
        child.inherited, child.functions = self.exported_functions(), {}
        child.variables.update(inner.assignments)
        child.exported = child.exported | set(inner.assignments)
        if inner.away:
            child.cwd, child.home = UNKNOWN, None
        if inner.cwd is not None:
            child.cwd = normalized(inner.cwd, child.cwd)
        if inner.script is not None:
            return child.run_script(inner.script, stdin)
        return child.execute(inner.argv, stdin)

    # -- shells -----------------------------------------------------------------------------

    def _shell(self, arguments: Sequence[str], stdin: str) -> str:
        options = ShellOptions(arguments)
        if options.is_idle:
            return UNKNOWN if options.tells else ""
        child = self.copy()
        child.aliases, child.arrays, child.hashed, child.pushed = {}, {}, {}, ()
        child.functions = child.inherited = self.exported_functions()
        child.options, child.integers, child.cases = options.switched, frozenset(), {}
        child.nounset = options.nounset
        child.variables = {
            name: value for name, value in self.variables.items() if name in self.exported
        }
        for name, value in list(child.variables.items()):
            if (entry := _FUNCTION_ENTRY.fullmatch(name)) and value.startswith("() {"):
                child.run_script(f"{entry[1]} {value}", "")
        # Bash sets PWD to its working directory when it starts.
        child.variables.pop("PWD", None)
        child.variables.pop("_", None)
        # Bash expands BASH_ENV, and runs this file before the script. An interactive shell runs
        # other files.
        files: list[str | None] = [child.expanded_value("BASH_ENV")]
        if options.may_be_interactive:
            files += [options.startup_file, child.expanded_value("ENV")]
        for file in filter(None, files):
            path = normalized(file, self.cwd)
            content = stdin if path in _STDIN else self.files.get(path)
            if content:
                # The file may define what the script uses. Perhaps the shell does not run the file,
                # so also follow the script without it.
                started = child.copy()
                started.run_text(content, "")
                started.run_shell(options, stdin)
        return child.run_shell(options, stdin)

    def run_shell(self, options: ShellOptions, stdin: str) -> str:
        """Follow what a shell runs once it has started."""
        for name in _PROMPTS if options.may_be_interactive else _PROMPTS[:1]:
            self.prompt(self.variables.get(name, ""))
        if options.may_be_interactive:
            self.copy().run_text(self.variables.get("PROMPT_COMMAND", ""), "")
        rest = options.rest
        if options.has_command:
            if not rest:
                return ""
            script, self.name, self.positional = rest[0], (rest[1:2] or ["bash"])[0], rest[2:]
            return self.run_text(script, stdin)
        if rest and not options.reads_stdin:
            self.name, self.positional = rest[0], rest[1:]
            path = normalized(rest[0], self.cwd)
            text = stdin if path in _STDIN else self.content(path)
            self.check_file(path, text)
            return self.run_text(text, "")
        self.positional = rest
        return self.run_text(stdin, "")

    def run_text(self, script: str, stdin: str) -> str:
        """Follow a script. The script may be unknown, in whole or in part."""
        if UNKNOWN in script:
            self.unresolved("the script that a shell would run is not known in advance")
        if script in ("", UNKNOWN):
            return script
        return self.run_script(script, stdin)


def _named_builtin(program: str, argv: list[str]) -> list[str]:
    """Return the words after ``builtin`` or ``command`` if they call a builtin, else []."""
    if program not in ("builtin", "command"):
        return []
    rest = argv[1:]
    while rest and rest[0] in ("--", "-p", "builtin", "command"):
        rest.pop(0)
    return rest if rest and rest[0] in BUILTINS else []


def _paths_like(pattern: str) -> Iterator[str]:
    """Yield the paths that a pattern matches. Tries only programs that matter to the guard."""
    names = (*JUDGED, *WRITERS, *SHELLS, *WRAPPERS, *STARTERS, "mkfs.ext4", "mkfs.xfs", "mkfs.vfat")
    directories = [each for each in BIN_DIRECTORIES if matches(pattern.rpartition("/")[0], each)]
    found = 0
    for directory in directories[:1]:
        for name in names:
            if matches(pattern, f"{directory}/{name}"):
                yield f"{directory}/{name}"
                found += 1
                if found >= _MAX_CANDIDATES:
                    return
    if matches(pattern.rpartition("/")[0], "/lib64") and matches(pattern, _LOADER):
        yield _LOADER


_LOADER: Final = "/lib64/ld-linux-x86-64.so.2"
