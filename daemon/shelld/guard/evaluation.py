"""Implements a shell that runs nothing, and finds the programs that a command would start.

The shell has the state of a real shell (`names`), and checks every program (`programs`) against
`rules`. It raises `Blocked` at the first program that must not run.

`MAX_STEPS` limits the number of steps, `MAX_DEPTH` limits the depth, and `MAX_SCRIPT_DEPTH` limits
the nesting of scripts. A command that exceeds a limit is unresolved, never harmless.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Final

from shelld.guard import callees, nodes, parse
from shelld.guard.builtins import nounset_after
from shelld.guard.declarations import Declarations
from shelld.guard.fallback import simple_commands, without_heredocs
from shelld.guard.fork_bomb import FORK_BOMB
from shelld.guard.markers import ENDLESS, UNKNOWN, plain
from shelld.guard.paths import normalized
from shelld.guard.redirections import Redirections
from shelld.guard.rules import overwrites
from shelld.guard.traps import run_traps
from shelld.guard.units import ExpansionError, joined_lines, rewritten
from shelld.guard.words import expand_text

# The guard follows no script or alias that is nested more deeply than this. Nested statements also
# count towards this depth.
MAX_SCRIPT_DEPTH: Final = 24
# The maximum length in characters of a script to parse. The guard drops the here-documents of a
# longer script. If the script is still too long, the guard only searches its beginning for
# commands.
MAX_PARSED: Final = 64 * 1024
# If a script cannot be parsed, the guard searches this many of its characters for commands.
_MAX_FRAGMENTS_TEXT: Final = 32 * 1024
# Parsing text costs this many times as much as copying the text.
_PARSING: Final = 30

# Commands after which the guard does not know the last argument, `$_`.
_WITHOUT_ARGUMENTS: Final = frozenset(
    ("variable_assignment", "declaration_command", "unset_command", "test_command")
)

Node = Any


class Evaluation(Redirections):
    """A shell that runs nothing. Its entry point is `follow`."""

    # -- statements -------------------------------------------------------------------------

    def follow(self, text: str, stdin: str) -> None:
        """Follow a whole command.

        If the command reads a named pipe before it writes to that pipe, follow the command twice.
        The second time, the pipe contains the text that the command writes.
        """
        if "mkfifo" not in text and "mknod" not in text:
            self.run_script(text, stdin)
            return
        again = self.copy()
        self.run_script(text, stdin)
        if not self.awaited.isdisjoint(self.files):
            self.budget.unresolved = None
            again.run_script(text, stdin)

    def run_script(self, text: str, stdin: str) -> str:
        """Follow a script. Return its output, with `UNKNOWN` for the unknown parts."""
        if self.budget.depth >= MAX_SCRIPT_DEPTH:
            self.unresolved("it is nested too deeply to be followed")
            return UNKNOWN
        self.budget.depth += 1
        self.scripts += 1
        text, endless, _ = text.partition(ENDLESS)
        text = joined_lines(plain(text))
        self.spend(min(len(text), MAX_PARSED))
        try:
            if len(text) > MAX_PARSED:
                text = without_heredocs(text)
            if len(text) > MAX_PARSED:
                # The guard does not parse a text that is still longer than `MAX_PARSED`, because
                # the parser can take more than a second.
                self.unresolved("it is too long to be followed")
                self._run_fragments(text)
                return UNKNOWN
            text = rewritten(text)
            # Charge the budget only for the text that the parser gets. The here-documents that the
            # guard has dropped must not use up the budget.
            self.spend(len(text) * _PARSING)
            try:
                root = parse.parse(text, self.budget.parse_seconds)
            except parse.TooSlow:
                self.budget.too_slow()
                self._run_fragments(text)
                return UNKNOWN
            if endless and callees.only_starts(root):
                self.report(FORK_BOMB, text)
            output = self._run(root, stdin)
            if root.has_error:
                self._run_fragments(text)
            if self.traps and self.scripts == 1:
                run_traps(self)
            return output
        finally:
            self.scripts -= 1
            self.budget.depth -= 1

    def _run_fragments(self, text: str) -> None:
        """In text that cannot be parsed, follow every part that could be a command."""
        shell = self.copy()
        if len(text) > _MAX_FRAGMENTS_TEXT:
            self.unresolved("it is too long to be followed")
            text = text[:_MAX_FRAGMENTS_TEXT]
        for words, targets in simple_commands(text):
            shell.segment, shell.has_unset = " ".join(words), False
            try:
                shell._run_fragment(words, targets)
            except ExpansionError:
                continue

    def _run_fragment(self, words: list[str], targets: list[str]) -> None:
        for target in targets:
            path = normalized(expand_text(target, self), self.cwd)
            self.report(overwrites(path, self.place()))
        if words[:1] == ["for"] and words[2:3] == ["in"]:
            # The guard cannot parse this loop, so it cannot follow the iterations one by one.
            self.assign(words[1], " ".join(self.expanded(words[3:])))
            return
        while words and _ASSIGNMENT.match(words[0]):
            self.assign(*self.assigned(words.pop(0)))
        self.execute(self.expanded(words), UNKNOWN)

    def _run(self, node: Node, stdin: str) -> str:
        self.budget.depth += 1
        try:
            if not self.budget.take():
                self.unresolved("it is too complex to follow")
                return UNKNOWN
            shell = self.copy() if nodes.is_in_background(node) else self
            method = self._STATEMENTS.get(node.type)
            if method is None:
                return shell._run_children(node, stdin)
            output = self.written(str(method(shell, node, stdin)))
            if shell is not self and shell.traps:
                run_traps(shell)
            if node.type in _WITHOUT_ARGUMENTS:
                shell.variables["_"] = UNKNOWN
            return output
        finally:
            self.budget.depth -= 1

    def _run_children(self, node: Node, stdin: str) -> str:
        return "".join([self._run(child, stdin) for child in node.named_children])

    def _command(self, node: Node, stdin: str, more: Sequence[str] = ()) -> str:
        self.has_unset = False
        words = nodes.words_of(node)
        assignments: list[Node] = []
        redirects: list[Node] = []
        for child in node.named_children:
            if child.type == "variable_assignment":
                assignments.append(child)
            elif child.type.endswith("_redirect"):
                redirects.append(child)
        words += more
        if not words:
            self._redirect(redirects, stdin)
            for each in assignments:
                self.assignment(each, stdin)
            self.variables["_"] = UNKNOWN
            return ""
        if words[0] in self.aliases and self.budget.depth < MAX_SCRIPT_DEPTH:
            return self.run_script(" ".join(self._without_aliases(words)), stdin)
        try:
            argv = self.expanded(words)
            stdin, target = self._redirect(redirects, stdin)
            local = dict(self.assigned_by(each) for each in assignments)
        except ExpansionError:
            # Bash does not run a command whose expansion fails.
            return ""
        if argv[:1] == ["set"] and self._surely_runs(node) and nounset_after(argv[1:]):
            self.nounset = True
        if argv == ["exec"]:
            self.input = stdin if self._opens_stdin(redirects) else self.input
            self.output = self._output_after(redirects, target)
        elif self.input is not None and not self._opens_stdin(redirects):
            stdin = self.input
        segment, self.segment = self.segment, parse.text_of(node)
        output = self._with_variables(local, argv, stdin)
        # In the next command, ``$_`` is the last argument of this command.
        self.variables["_"] = argv[-1] if argv else ""
        self.segment = segment
        return self._written(target, output)

    def _without_aliases(self, words: Sequence[str]) -> list[str]:
        """Replace the alias at the beginning of a command.

        If the alias ends with a blank, also replace the next word.

        Reference: bash(1), ALIASES.
        """
        rest = list(words)
        found: list[str] = []
        while rest and (alias := self.aliases.get(rest[0])) is not None:
            found.append(alias)
            del rest[0]
            if alias[-1:] not in (" ", "\t"):
                break
        return [*found, *rest]

    def _surely_runs(self, node: Node) -> bool:
        """Return whether two things are certain: this shell runs the command itself, without a
        subshell, and the command ends before later commands start.
        """
        is_own = self.scripts == 1 and not self.budget.active and "set" not in self.functions
        return is_own and self.nounset is not None and nodes.is_always_reached(node)

    def _with_variables(self, local: dict[str, str], argv: list[str], stdin: str) -> str:
        if not local:
            return self.execute(argv, stdin)
        before = {name: self.variables.get(name) for name in local}
        exported = self.exported
        self.variables.update(local)
        self.exported = exported | set(local)
        self.run_told("".join(argv[:1]), local)
        try:
            return self.execute(argv, stdin)
        finally:
            self.exported = exported
            for name, value in before.items():
                if value is None:
                    self.variables.pop(name, None)
                else:
                    self.variables[name] = value

    def _execute_words(self, words: Sequence[str], stdin: str, segment: str) -> str:
        self.segment = segment
        return self.execute(self.expanded(words), stdin)

    # -- pipelines --------------------------------------------------------------------------

    def _pipeline(self, node: Node, stdin: str) -> str:
        return self._pipe(node.named_children, stdin)

    def _subshell(self, node: Node, stdin: str) -> str:
        shell = self.copy()
        output = shell._run_children(node, stdin)
        if shell.traps:
            run_traps(shell)
        return output

    _STATEMENTS: ClassVar[dict[str, Callable[[Evaluation, Node, str], str]]] = {
        "command": _command,
        "redirected_statement": Redirections._redirected,
        "pipeline": _pipeline,
        "subshell": _subshell,
        "if_statement": Redirections._if,
        "elif_clause": Redirections._if,
        "list": Redirections._list,
        "for_statement": Redirections._for,
        "while_statement": Redirections._while,
        "c_style_for_statement": Redirections._while,
        "case_statement": Redirections._case,
        "function_definition": Redirections._function,
        "compound_statement": Redirections._group,
        "test_command": Declarations.test,
        "variable_assignment": Declarations.assignment,
        "declaration_command": Declarations.declaration,
        "unset_command": Declarations.unset,
        **dict.fromkeys(
            (
                *("binary_expression", "unary_expression", "postfix_expression"),
                *("word", "string", "concatenation", "expansion", "simple_expansion", "number"),
                *("command_substitution", "process_substitution", "arithmetic_expansion", "array"),
                *("raw_string", "comment", "variable_name", "heredoc_body", "subscript", "regex"),
                *("parenthesized_expression", "ternary_expression", "file_descriptor"),
            ),
            Declarations.substitutions,
        ),
    }


_ASSIGNMENT: Final = re.compile(r"[A-Za-z_]\w*\+?=")
