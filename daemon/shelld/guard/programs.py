"""What becomes of one command whose words are known: a function, a builtin, a wrapper, a shell, or
a program that is looked up in the rules.
"""

from __future__ import annotations

import abc
import itertools
import re
import shlex
from collections.abc import Sequence
from typing import Any, Final, Self

from shelld.guard import rules
from shelld.guard.outputs import Surroundings, output_of
from shelld.guard.rules import Finding, Place, normalized
from shelld.guard.verdict import Budget
from shelld.guard.words import UNKNOWN, plain
from shelld.guard.wrappers import WRAPPERS, unwrapped

SHELLS: Final = frozenset({"sh", "bash", "dash", "zsh", "ksh", "mksh", "ash", "fish", "rbash"})

_INTERPRETERS: Final = re.compile(r"(?:python|perl|ruby|node|php|lua|bun|deno)[\d.]*")
_MAX_ITEMS: Final = 32
# How often a function is followed that calls itself.
_MAX_RECURSION: Final = 2


class Programs(abc.ABC):
    """The state of a shell. `variables` are all that is set, `exported` the names others see."""

    def __init__(
        self, budget: Budget, environment: dict[str, str], cwd: str, home: str | None
    ) -> None:
        self.budget = budget
        self.variables = environment
        self.exported = frozenset(environment)
        self.arrays: dict[str, list[str]] = {}
        self.functions: dict[str, Any] = {}
        # Of each function, which commands it runs, and whether beside others.
        self.calls: dict[str, list[tuple[str, bool]]] = {}
        self.aliases: dict[str, str] = {}
        # What the command itself has written, by path.
        self.files: dict[str, str] = {}
        self.positional: list[str] = []
        self.name = "bash"
        self.cwd = cwd
        self.home = home
        # The text that is being looked at.
        self.segment = ""

    def copy(self, budget: Budget | None = None) -> Self:
        """Return another shell that knows the same; what it learns it keeps for itself."""
        other = type(self)(budget or self.budget, dict(self.variables), self.cwd, self.home)
        other.exported = self.exported
        other.arrays = dict(self.arrays)
        other.functions = dict(self.functions)
        other.calls = self.calls
        other.aliases = dict(self.aliases)
        # Files are everybody's who works on the same command.
        other.files = self.files if budget is None else {}
        other.positional, other.name = self.positional, self.name
        other.segment = self.segment
        return other

    @abc.abstractmethod
    def run_script(self, text: str, stdin: str) -> str: ...

    @abc.abstractmethod
    def report(self, finding: Finding | None, segment: str | None = None) -> None: ...

    @abc.abstractmethod
    def assigned(self, text: str) -> tuple[str, str]: ...

    @abc.abstractmethod
    def assign(self, name: str, value: str) -> None: ...

    @abc.abstractmethod
    def _run(self, node: Any, stdin: str) -> str: ...

    def unresolved(self, reason: str) -> None:
        self.budget.unresolved = self.budget.unresolved or reason

    # -- one command ------------------------------------------------------------------------

    def execute(self, argv: list[str], stdin: str) -> str:
        """Follow a command; return what it writes, `UNKNOWN` if that is not known."""
        if not argv:
            return ""
        if not self.budget.take() or self.budget.depth > 72:
            self.unresolved("it is too much to be followed")
            return UNKNOWN
        self.budget.note(" ".join(plain(each).replace(UNKNOWN, "<unknown>") for each in argv))
        program = argv[0].rpartition("/")[2]
        if UNKNOWN in program or not program:
            self.unresolved("which program runs is not known before it does")
            return UNKNOWN
        body = self.functions.get(argv[0])
        self.budget.depth += 1
        try:
            if body is not None:
                return self._call(body, argv[1:], stdin)
            builtin = _BUILTINS.get(program)
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
        starter = _STARTERS.get(program)
        if starter is not None:
            return str(starter(self, argv[1:], stdin))
        if program in SHELLS:
            return self._shell(argv[1:], stdin)
        if _INTERPRETERS.fullmatch(program):
            self._interpreter(argv[1:])
        inner = unwrapped(argv)
        if inner is not None:
            return self._unwrapped(inner, stdin)
        around = Surroundings(None if stdin == UNKNOWN else stdin, self.files, self.cwd)
        output = output_of(argv, around)
        if program == "tee" and output is not None:
            for each in argv[1:]:
                if not each.startswith("-"):
                    self.files[normalized(each, self.cwd)] = output
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
            return self._run_in(child, script, stdin)
        if rest and not reads_stdin:
            child.name, child.positional = rest[0], rest[1:]
            path = normalized(rest[0], self.cwd)
            text = stdin if path in ("/dev/stdin", "/dev/fd/0") else self.files.get(path, UNKNOWN)
            return self._run_in(child, text, "")
        child.positional = rest
        return self._run_in(child, stdin, "")

    def _run_in(self, child: Any, script: str, stdin: str) -> str:
        if UNKNOWN in script:
            self.unresolved("a shell runs what is not known before")
        if script in ("", UNKNOWN):
            return UNKNOWN if script else ""
        return str(child.run_script(script, stdin))

    def _interpreter(self, arguments: Sequence[str]) -> None:
        """Look for shell commands, and for what removes trees, in code on the command line."""
        for option, code in itertools.pairwise(arguments):
            if option not in ("-c", "-e", "-E", "-r", "-pe", "-ne", "--eval"):
                continue
            if re.search(r"""(?:rmtree|rmSync|remove_dir_all|rm_rf)\s*\(?\s*(["'])/+\1""", code):
                self.report(Finding("rm-root", "it removes the whole file system"))
            if re.search(r"fork\s+while\s+fork|while\s*[(1T].*fork\s*\(", code, re.S):
                self.report(Finding("fork-bomb", "it starts itself again and again, without end"))
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

    # -- builtins ---------------------------------------------------------------------------

    def _cd(self, arguments: Sequence[str], _stdin: str) -> str:
        operands = [each for each in arguments if not each.startswith("-") or each == "-"]
        if not operands:
            # Home; or somewhere else, if what was meant to be there is only set where it will run.
            self.cwd = UNKNOWN
        elif operands[0] == "-":
            self.cwd = self.variables.get("OLDPWD", UNKNOWN)
        elif operands[0]:
            self.cwd = normalized(operands[0], self.cwd)
        return ""

    def _eval(self, arguments: Sequence[str], stdin: str) -> str:
        script = " ".join(arguments)
        if UNKNOWN in script:
            self.unresolved("what is evaluated is not known before")
        return self.run_script(script, stdin)

    def _source(self, arguments: Sequence[str], stdin: str) -> str:
        if not arguments:
            return ""
        path = normalized(arguments[0], self.cwd)
        text = stdin if path == "/dev/stdin" else self.files.get(path, UNKNOWN)
        if UNKNOWN in text:
            self.unresolved("a script is read that is not known before")
            return UNKNOWN
        return self.run_script(text, stdin)

    def _trap(self, arguments: Sequence[str], _stdin: str) -> str:
        if arguments and not arguments[0].startswith("-"):
            self.copy().run_script(arguments[0], "")
        return ""

    def _alias(self, arguments: Sequence[str], _stdin: str) -> str:
        for each in arguments:
            name, equals, value = each.partition("=")
            if equals:
                self.aliases[name] = value
        return ""

    def _set(self, arguments: Sequence[str], _stdin: str) -> str:
        rest = list(arguments)
        while rest and rest[0][:1] in "-+" and len(rest[0]) > 1:
            if rest.pop(0) == "--":
                self.positional = rest
                return ""
        if rest:
            self.positional = rest
        return ""

    def _shift(self, arguments: Sequence[str], _stdin: str) -> str:
        count = int(arguments[0]) if arguments and arguments[0].isdigit() else 1
        self.positional = self.positional[count:]
        return ""

    def _read(self, arguments: Sequence[str], stdin: str) -> str:
        names = [each for each in arguments if re.fullmatch(r"[A-Za-z_]\w*", each)] or ["REPLY"]
        known = stdin != UNKNOWN and stdin
        fields = stdin.split("\n", maxsplit=1)[0].split(None, len(names) - 1) if known else []
        for index, name in enumerate(names):
            value = fields[index] if index < len(fields) else ("" if known else UNKNOWN)
            self.assign(name, value)
        return ""

    def _mapfile(self, arguments: Sequence[str], stdin: str) -> str:
        names = [each for each in arguments if re.fullmatch(r"[A-Za-z_]\w*", each)]
        self.arrays[names[-1] if names else "MAPFILE"] = stdin.splitlines()
        return ""

    def _printf(self, arguments: Sequence[str], stdin: str) -> str:
        if len(arguments) > 2 and arguments[0] == "-v":
            around = Surroundings(stdin, self.files, self.cwd)
            text = output_of(["printf", *arguments[2:]], around)
            self.assign(arguments[1], UNKNOWN if text is None else text)
            return ""
        around = Surroundings(stdin, self.files, self.cwd)
        output = output_of(["printf", *arguments], around)
        return UNKNOWN if output is None else output

    def _export(self, arguments: Sequence[str], _stdin: str) -> str:
        for each in arguments:
            name, equals, value = each.partition("=")
            if equals:
                self.assign(name, value)
            self.exported = self.exported | {name}
        return ""

    def _declare(self, arguments: Sequence[str], stdin: str) -> str:
        if any(each.startswith("-") and "x" in each for each in arguments):
            return self._export(arguments, stdin)
        for each in arguments:
            name, equals, value = each.partition("=")
            if equals:
                self.assign(name, value)
        return ""

    # -- programs that run others for each of something -------------------------------------

    def _xargs(self, arguments: Sequence[str], stdin: str) -> str:
        rest = list(arguments)
        replaced: str | None = None
        while rest and rest[0].startswith("-") and len(rest[0]) > 1:
            option = rest.pop(0)
            if option.startswith("-I"):
                replaced = option[2:] or (rest.pop(0) if rest else "{}")
            elif option.startswith(("-i", "--replace")):
                replaced = option.partition("=")[2] or "{}"
            elif option in ("-n", "-P", "-d", "-L", "-s", "-a", "-E", "--max-args", "--max-procs"):
                if rest:
                    rest.pop(0)
            elif option == "--":
                break
        if not rest:
            return stdin
        stdin = stdin.replace("\0", "\n")
        items = stdin.splitlines() if replaced else stdin.split()
        if replaced is not None:
            outputs = [
                self.copy().execute([word.replace(replaced, item) for word in rest], "")
                for item in items[:_MAX_ITEMS]
            ]
            return "".join(outputs)
        return str(self.copy().execute([*rest, *items[:_MAX_ITEMS]], ""))

    def _parallel(self, arguments: Sequence[str], stdin: str) -> str:
        rest = list(arguments)
        while rest and rest[0].startswith("-") and rest[0] != ":::":
            if rest.pop(0) in ("-j", "-P", "-N", "-n", "--jobs", "--delay", "--timeout") and rest:
                rest.pop(0)
        items = stdin.splitlines()
        if ":::" in rest:
            index = rest.index(":::")
            rest, items = rest[:index], [each for each in rest[index + 1 :] if each != ":::"]
        template = " ".join(rest)
        for item in items[:_MAX_ITEMS]:
            word = item if UNKNOWN in item else shlex.quote(plain(item))
            script = template.replace("{}", word) if "{}" in template else f"{template} {word}"
            self.copy().run_script(script if template else item, "")
        return UNKNOWN

    def _find(self, arguments: Sequence[str], _stdin: str) -> str:
        starts: list[str] = []
        rest = list(arguments)
        while rest and rest[0] in ("-H", "-L", "-P"):
            rest.pop(0)
        while rest and not rest[0].startswith("-") and rest[0] not in ("(", "!", ")"):
            starts.append(rest.pop(0))
        starts = starts or ["."]
        is_wide = _is_wide(rest)
        place = Place(self.cwd, self.home)
        found = starts if is_wide else [f"{start}/{UNKNOWN}" for start in starts]
        index = 0
        while index < len(rest):
            action = rest[index]
            if action == "-delete" and is_wide:
                self.report(rules.check("rm", ["-r", *starts], place))
            elif action in ("-exec", "-execdir", "-ok", "-okdir"):
                end = next(
                    (at for at in range(index + 1, len(rest)) if rest[at] in (";", "+")), len(rest)
                )
                for item in found:
                    command = [word.replace("{}", item) for word in rest[index + 1 : end]]
                    if is_wide and command[:1] and command[0] in ("rm", "chmod", "chown", "chgrp"):
                        # What is done to each of all files is done to all.
                        command.insert(1, "-R")
                    self.copy().execute(command, "")
                index = end
            elif action in ("-fprint", "-fprintf", "-fls") and index + 1 < len(rest):
                self.report(rules.overwrites(rest[index + 1], place))
            index += 1
        return "".join(f"{start}\n" for start in starts) + UNKNOWN if is_wide else UNKNOWN

    def _crontab(self, _arguments: Sequence[str], stdin: str) -> str:
        for line in stdin.splitlines()[:_MAX_ITEMS]:
            match = re.match(r"\s*(?:@\w+|(?:\S+\s+){4}\S+)\s+(.*)", line)
            if match is not None and not line.lstrip().startswith("#"):
                self.copy().run_script(match[1], "")
        return UNKNOWN

    def _at(self, _arguments: Sequence[str], stdin: str) -> str:
        return self._run_in(self.copy(), stdin, "")

    def _sed(self, arguments: Sequence[str], stdin: str) -> str:
        for each in arguments:
            if (match := re.match(r"(?:\d+|\$|/[^/]*/)?\s*e\s+(.+)", each)) is not None:
                self.copy().run_script(match[1], "")
        around = Surroundings(None if stdin == UNKNOWN else stdin, self.files, self.cwd)
        output = output_of(["sed", *arguments], around)
        return UNKNOWN if output is None else output

    def _docker(self, arguments: Sequence[str], stdin: str) -> str:
        """A container is another world, unless the root of this one is mounted in it."""
        for index, each in enumerate(arguments):
            value = each.partition("=")[2] if "=" in each else "".join(arguments[index + 1 :][:1])
            if each.partition("=")[0] in ("-v", "--volume") and value.startswith("/:"):
                target = value.split(":")[1]
                words = [word.replace(target, "/", 1) for word in arguments[index + 2 :]]
                for at in range(len(words)):
                    if words[at] in rules.CHECKS or words[at] in SHELLS:
                        return str(self.copy().execute(words[at:], stdin))
        return UNKNOWN

    def _awk(self, arguments: Sequence[str], stdin: str) -> str:
        for each in arguments:
            for match in re.finditer(r'system\s*\(\s*"((?:[^"\\]|\\.)*)"', each):
                self.copy().run_script(match[1], "")
        around = Surroundings(None if stdin == UNKNOWN else stdin, self.files, self.cwd)
        output = output_of(["awk", *arguments], around)
        return UNKNOWN if output is None else output


# Tests of find that let everything through, with how many arguments they take.
_WIDE_TESTS: Final = {
    "-depth": 0,
    "-d": 0,
    "-xdev": 0,
    "-mount": 0,
    "-print": 0,
    "-print0": 0,
    "-ls": 0,
    "-maxdepth": 1,
    "-mindepth": 1,
    "-type": 1,
    "-daystart": 0,
    "-follow": 0,
    "-true": 0,
    "-noleaf": 0,
    "-ignore_readdir_race": 0,
    "-warn": 0,
    "-nowarn": 0,
    "(": 0,
    ")": 0,
    "-o": 0,
    "-a": 0,
    "-or": 0,
    "-and": 0,
    "-prune": 0,
    "-delete": 0,
    "-quit": 0,
    ",": 0,
}


def _is_wide(expression: Sequence[str]) -> bool:
    """Whether an expression of find has no test that leaves much out."""
    index = 0
    while index < len(expression):
        word = expression[index]
        if word in ("-exec", "-execdir", "-ok", "-okdir"):
            while index < len(expression) and expression[index] not in (";", "+"):
                index += 1
        elif word in ("-name", "-path", "-iname", "-ipath", "-wholename"):
            pattern = plain("".join(expression[index + 1 : index + 2]))
            if pattern.strip("*?/."):
                return False
            index += 1
        elif word in _WIDE_TESTS:
            index += _WIDE_TESTS[word]
        else:
            return False
        index += 1
    return True


def _nothing(_shell: Programs, _arguments: Sequence[str], _stdin: str) -> str:
    return ""


_BUILTINS: Final = {
    "cd": Programs._cd,
    "pushd": Programs._cd,
    "eval": Programs._eval,
    "source": Programs._source,
    ".": Programs._source,
    "trap": Programs._trap,
    "alias": Programs._alias,
    "set": Programs._set,
    "shift": Programs._shift,
    "read": Programs._read,
    "mapfile": Programs._mapfile,
    "readarray": Programs._mapfile,
    "printf": Programs._printf,
    "export": Programs._export,
    "declare": Programs._declare,
    "typeset": Programs._declare,
    "local": Programs._declare,
    "readonly": Programs._declare,
    **dict.fromkeys(("[", "test", "exit", "return", "wait", "shopt"), _nothing),
}

_STARTERS: Final = {
    "xargs": Programs._xargs,
    "parallel": Programs._parallel,
    "find": Programs._find,
    "crontab": Programs._crontab,
    "at": Programs._at,
    "batch": Programs._at,
    "sed": Programs._sed,
    "awk": Programs._awk,
    "gawk": Programs._awk,
    "docker": Programs._docker,
    "podman": Programs._docker,
}

# Programs that rules are about, or that start what is among their words.
TELLING: Final = frozenset(
    {
        *rules.CHECKS,
        *WRAPPERS,
        *_STARTERS,
        *SHELLS,
        *("eval", "source", "trap", "alias", "exec", "command", "builtin", "env", "busybox"),
        *("toybox", "cd", "pushd", "python", "python2", "python3", "perl", "ruby", "node", "php"),
    }
)
