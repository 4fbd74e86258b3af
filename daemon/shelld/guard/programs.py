"""What becomes of one command whose words are known: a function, a builtin, a wrapper, a shell, or
a program that is looked up in the rules.
"""

from __future__ import annotations

import abc
import itertools
import re
import shlex
from collections.abc import Sequence
from typing import Any, Final

from shelld.guard import rules
from shelld.guard.builtins import BUILTINS
from shelld.guard.fork_bomb import FORK_BOMB
from shelld.guard.launchers import SHELLS, STARTERS
from shelld.guard.markers import UNKNOWN, plain
from shelld.guard.names import Names
from shelld.guard.outputs import Surroundings, output_of
from shelld.guard.rules import Place, normalized
from shelld.guard.wrappers import unwrapped

_INTERPRETERS: Final = re.compile(r"(?:python|perl|ruby|node|php|lua|bun|deno)[\d.]*")
# How often a function is followed that calls itself.
_MAX_RECURSION: Final = 2


class Programs(Names):
    @abc.abstractmethod
    def _run(self, node: Any, stdin: str) -> str: ...

    # -- one command ------------------------------------------------------------------------

    def execute(self, argv: list[str], stdin: str) -> str:
        """Follow a command; return what it writes, `UNKNOWN` if that is not known."""
        program = argv[0].rpartition("/")[2] if argv else ""
        if not program:
            # No name at all, or that of a directory.
            return ""
        if not self.budget.take():
            self.unresolved("it is too much to be followed")
            return UNKNOWN
        self.budget.note(" ".join(plain(each).replace(UNKNOWN, "<unknown>") for each in argv))
        if UNKNOWN in program:
            self.unresolved("which program runs is not known before it does")
            return UNKNOWN
        body = self.functions.get(argv[0])
        self.budget.depth += 1
        try:
            if body is not None:
                return self._call(body, argv[1:], stdin)
            builtin = BUILTINS.get(program)
            if builtin is not None:
                return str(builtin(self, argv[1:], stdin))
            return self._start(program, argv, stdin)
        finally:
            self.budget.depth -= 1

    def _call(self, body: Any, arguments: list[str], stdin: str) -> str:
        active = self.budget.active
        if active.count(body) >= _MAX_RECURSION:
            # What it runs has been seen.
            return UNKNOWN
        before, self.positional = self.positional, arguments
        active.append(body)
        try:
            return self._run(body, stdin)
        finally:
            active.pop()
            self.positional = before

    def _start(self, program: str, argv: list[str], stdin: str) -> str:
        self.report(rules.check(program, argv[1:], Place(self.cwd, self.home)))
        self.report(self.budget.policy.check(program, argv[1:]))
        starter = STARTERS.get(program)
        if starter is not None:
            return str(starter(self, argv[1:], stdin))
        if program in SHELLS:
            return self._shell(argv[1:], stdin)
        if _INTERPRETERS.fullmatch(program):
            self._interpreter(argv[1:])
        inner = unwrapped(argv)
        if inner is not None:
            return self._unwrapped(inner, stdin)
        if "/" in argv[0] and (script := self.files.get(normalized(argv[0], self.cwd))) is not None:
            return self._shell(argv, stdin) if script else ""
        output = self.written_by(argv, stdin)
        if program == "tee" and output != UNKNOWN:
            for each in argv[1:]:
                if not each.startswith("-"):
                    self.files[normalized(each, self.cwd)] = output
        return output

    def written_by(self, argv: Sequence[str], stdin: str) -> str:
        """Return what a program that changes nothing writes, `UNKNOWN` if that is not known."""
        around = Surroundings(None if stdin == UNKNOWN else stdin, self.files, self.cwd)
        output = output_of(argv, around)
        return UNKNOWN if output is None else output

    def _unwrapped(self, inner: Any, stdin: str) -> str:
        child = self.copy()
        child.functions = {}
        child.variables.update(inner.assignments)
        child.exported = child.exported | set(inner.assignments)
        if inner.cwd is not None:
            child.cwd = normalized(inner.cwd, self.cwd)
        if inner.script is not None:
            return str(child.run_script(inner.script, stdin))
        output: str = child.execute(inner.argv, stdin)
        return output

    # -- shells -----------------------------------------------------------------------------

    def _shell(self, arguments: Sequence[str], stdin: str) -> str:
        rest = list(arguments)
        has_command = reads_stdin = False
        while rest and rest[0][:1] in "-+" and len(rest[0]) > 1:
            option = rest.pop(0)
            if option in ("--rcfile", "--init-file") and rest:
                rest.pop(0)
            elif option in ("--version", "--help"):
                return UNKNOWN
            elif option.startswith("--"):
                if option == "--":
                    break
            elif option[0] == "-":
                if "n" in option:
                    return ""
                has_command = has_command or "c" in option
                reads_stdin = reads_stdin or "s" in option
            if not option.startswith("--") and option[-1] in "oO" and rest:
                rest.pop(0)
        if rest[:1] == ["-"]:
            rest.pop(0)
        child = self.copy()
        child.functions, child.aliases, child.arrays = {}, {}, {}
        child.variables = {
            name: value for name, value in self.variables.items() if name in self.exported
        }
        if has_command:
            if not rest:
                return ""
            script, child.name, child.positional = rest[0], (rest[1:2] or ["bash"])[0], rest[2:]
            return child.run_text(script, stdin)
        if rest and not reads_stdin:
            child.name, child.positional = rest[0], rest[1:]
            path = normalized(rest[0], self.cwd)
            text = stdin if path in ("/dev/stdin", "/dev/fd/0") else self.files.get(path, UNKNOWN)
            return child.run_text(text, "")
        child.positional = rest
        return child.run_text(stdin, "")

    def run_text(self, script: str, stdin: str) -> str:
        """Follow a script that may not be known, or not in full."""
        if UNKNOWN in script:
            self.unresolved("a shell runs what is not known before")
        if script in ("", UNKNOWN):
            return script
        return self.run_script(script, stdin)

    def _interpreter(self, arguments: Sequence[str]) -> None:
        """Look for shell commands, and for what removes trees, in code on the command line."""
        for option, code in itertools.pairwise(arguments):
            if option not in ("-c", "-e", "-E", "-r", "-pe", "-ne", "--eval"):
                continue
            if re.search(r"""(?:rmtree|rmSync|remove_dir_all|rm_rf)\s*\(?\s*(["'])/+\1""", code):
                self.report(rules.REMOVES_ROOT)
            if re.search(r"fork\s+while\s+fork|while\s*[(1T].*fork\s*\(", code, re.S):
                self.report(FORK_BOMB)
            if re.search(r"system|popen|subprocess|exec|spawn|qx|`|Popen|sh\b", code):
                literals = [
                    match[1] or match[2] or match[3] or ""
                    for match in re.finditer(r"""'([^']*)'|"([^"]*)"|`([^`]*)`""", code)
                ]
                for literal in literals[:20]:
                    self.copy().run_script(literal, "")
                self.copy().run_script(shlex.join(literals), "")
                opened = re.search(r"""open\s*\(\s*["'](/dev/[^"']+)["']\s*,\s*["'][wa]""", code)
                if opened:
                    self.report(rules.overwrites(opened[1], Place(self.cwd, None)))
