"""Follows redirections. Finds the files that they overwrite, and the input and output of commands.

Decides to which command a redirection belongs, because the parser attaches a redirection to the
whole list or pipeline. The parser also puts the rest of the line after ``<<`` into the node of the
here-document.
"""

from __future__ import annotations

import abc
import re
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from shelld.guard import nodes, parse, rules
from shelld.guard.compounds import Compounds
from shelld.guard.descriptors import name_of_descriptor
from shelld.guard.links import resolved
from shelld.guard.markers import UNKNOWN, plain
from shelld.guard.paths import normalized
from shelld.guard.rules import overwrites
from shelld.guard.traps import run_traps
from shelld.guard.units import ExpansionError
from shelld.guard.words import expand_heredoc, expand_text

# If a redirection follows a statement of one of these types, the redirection belongs to the last
# member of the statement.
_WITH_MEMBERS: Final = frozenset(("list", "pipeline"))

Node = Any


class _LastMember(NamedTuple):
    """The last member of a list or pipeline. Redirections after the list belong to this member.

    In ``a && b | c > x``, the last member is ``c``, but the parser puts the redirection outside of
    the whole list. `body` is the syntax node of the member, or None if there is no command. `shell`
    is the shell that runs the member, and `stdin` is its input. `output` is the text that the
    earlier members of a list write. `runs` is False if the member certainly does not run.
    """

    shell: Redirections
    body: Node | None
    stdin: str
    output: str
    runs: bool


class Redirections(Compounds):
    """Follows pipelines, and statements that have redirections."""

    @abc.abstractmethod
    def _command(self, node: Node, stdin: str, more: Sequence[str] = ()) -> str: ...

    @abc.abstractmethod
    def _execute_words(self, words: Sequence[str], stdin: str, segment: str) -> str: ...

    def _redirect(self, redirects: Sequence[Node], stdin: str) -> tuple[str, str | None]:
        """Follow redirections.

        Return the text of stdin, and the path of the file that gets the output. The path is None if
        the output goes to stdout.
        """
        target: str | None = None
        statement = redirects[0].parent if redirects else None
        # ``>&N`` may send stdout to the file of another descriptor.
        has_copies = statement is not None and b">&" in statement.text
        for node in redirects:
            if not self.budget.take():
                self.unresolved("it is too complex to follow")
                break
            number = nodes.descriptor(node)
            if len(number) > 1 and (name := name_of_descriptor(number)):
                self.assign(name, number)
            if node.type == "herestring_redirect":
                text = expand_text(parse.text_of(node.named_children[-1]), self) + "\n"
                stdin = self._opened(node, text, stdin)
            elif node.type == "heredoc_redirect":
                stdin = self._opened(node, self._heredoc(node), stdin)
            elif (redirection := self._file_of(node)) is not None:
                operator, path = redirection
                if operator == "<<<":
                    stdin = self._opened(node, path + "\n", stdin)
                elif operator.startswith("<") and operator != "<>":
                    text = "" if path == "/dev/null" else self.content(path)
                    stdin = self._opened(node, text, stdin)
                elif operator == "<>" and nodes.descriptor(node) == "0":
                    self._overwrite(path, parse.text_of(node))
                    stdin = self._opened(node, self.content(path), stdin)
                elif self._opens(node, operator, path) and (has_copies or nodes.is_of_stdout(node)):
                    self._truncate(statement, operator, path)
                    target = path
        return stdin, target

    def _opens(self, node: Node, operator: str, path: str) -> bool:
        """Open a descriptor for writing.

        Return whether the output of this descriptor goes to `path`.
        """
        copy = f"/dev/fd/{nodes.descriptor(node)}"
        if path in self.consumers:
            if not nodes.is_of_stdout(node):
                # In ``3> >(script)``, the descriptor is another path of the same pipe.
                self.consumers[copy] = self.consumers[path]
                return False
            return True
        if operator.endswith("&") and path.startswith("/dev/fd/"):
            return False
        if not nodes.is_of_stdout(node):
            self.link(copy, path)
        self._overwrite(path, parse.text_of(node))
        return True

    def _file_of(self, node: Node) -> tuple[str, str] | None:
        """Return the operator of a redirection, and its path. For ``<<<``, return the text in place
        of a path.

        Return None if the redirection has neither a path nor a text.
        """
        operator, word = nodes.redirection(node)
        if word is None:
            return None
        text = expand_text(word, self)
        if operator == "<" and nodes.is_herestring(node):
            return "<<<", text
        name = plain(text).removesuffix("-")
        if operator.endswith("&") and name.isdecimal():
            # This descriptor is a copy of another descriptor.
            return operator, resolved(f"/dev/fd/{name}", self.links, is_followed=True)
        return operator, normalized(text, self.cwd)

    def _overwrite(self, path: str, segment: str) -> None:
        self.report(overwrites(path, self.place()), segment)
        if self.is_for_each:
            # Overwriting every file below a directory is like removing the directory.
            self.report(rules.check("rm", ["-r", "--", path], self.place()))

    def _opened(self, node: Node, text: str, stdin: str) -> str:
        """Open a descriptor for reading. Return the stdin of the command."""
        self.consume("", 0)
        descriptor = nodes.descriptor(node)
        if descriptor == "0":
            return text
        self.links.pop(f"/dev/fd/{descriptor}", None)
        self.files[f"/dev/fd/{descriptor}"] = text
        return stdin

    def _opens_stdin(self, redirects: Sequence[Node]) -> bool:
        return any(
            each.type != "file_redirect" or nodes.redirection(each)[0].startswith("<")
            for each in redirects
            if nodes.descriptor(each) == "0"
        )

    def _output_after(self, redirects: Sequence[Node], target: str | None) -> str | None:
        """Return the path of the file to which the shell writes after an ``exec`` with these
        redirections.
        """
        changes = any(
            nodes.is_of_stdout(each) and not nodes.redirection(each)[0].startswith("<")
            for each in redirects
            if each.type == "file_redirect"
        )
        return target if changes else self.output

    def _heredoc(self, node: Node) -> str:
        text = nodes.heredoc_body(node)
        if text is None:
            return ""
        start = next(each for each in node.children if each.type == "heredoc_start")
        if re.search(r"['\"\\]", parse.text_of(start)):
            return text
        try:
            return expand_heredoc(text, self)
        except ExpansionError:
            return UNKNOWN

    def _written(self, target: str | None, output: str) -> str:
        if target is None:
            return output
        return self.write(target, output)

    def _truncate(self, statement: Node, operator: str, path: str) -> None:
        """Forget the content of a file that the redirection certainly truncates."""
        is_here = self.scripts == 1 and not self.budget.active
        if path not in self.files or path in self.pipes:
            return
        if not is_here or operator not in (">", ">|", "&>"):
            return
        has_members = statement.named_children[0].type in _WITH_MEMBERS
        if not has_members and nodes.is_always_reached(statement):
            self.files.pop(path, None)

    def _redirected(self, node: Node, stdin: str) -> str:
        """Follow a statement with redirections."""
        members = node.named_children
        redirects = [each for each in members if each.type.endswith("_redirect")]
        # A ``<<`` or ``<`` that the parser did not recognize belongs to a redirection.
        bodies = [
            each
            for each in members
            if not each.type.endswith("_redirect")
            and not (each.type == "ERROR" and each.text in (b"<<", b"<"))
        ]
        inner, tails, words = nodes.heredoc_tails(redirects)
        words += [word for each in redirects for word in nodes.words_behind(each)]
        if bodies and redirects:
            words[:0] = nodes.words_between(bodies[-1], redirects[0])
        output = self._run_all(bodies[:-1], stdin)
        last = self._last_member(bodies[-1] if bodies else None, stdin)
        output, part, shell = output + last.output, "", last.shell
        if last.body is not None and last.body.type == "function_definition":
            return output + shell._function(last.body, stdin, redirects)
        if last.runs:
            shell.has_unset = False
            try:
                given, target = shell._redirect(redirects, last.stdin)
                target = shell._redirect(inner, given)[1] or target
            except ExpansionError:
                return output
            before = shell.input
            opens = shell._opens_stdin([*redirects, *inner])
            shell.input = None if opens else before
            is_exec = last.body is not None and parse.text_of(last.body) == "exec"
            kept, shell.output = shell.output, None if target else shell.output
            part = shell._written(target, shell._run_body(node, last.body, given, words))
            shell.output = kept
            if is_exec:
                shell.output = shell._output_after([*redirects, *inner], target)
            if opens:
                shell.input = given if is_exec else before
        for tail in tails:
            if tail.type != "pipeline":
                part += self._run(tail, stdin)
            elif last.runs:
                part = shell._pipe(tail.named_children, part)
        return output + part

    def _last_member(self, body: Node | None, stdin: str) -> _LastMember:
        """Follow all members of a list or pipeline except the last. Return the last member."""
        shell, given, output = self, stdin, ""
        while body is not None and body.type in _WITH_MEMBERS and body.named_children:
            *before, last = body.named_children
            if body.type == "pipeline":
                given, shell = shell._pipe(before, given), shell.copy()
            else:
                output += shell._run_all(before, given)
                if self._skips_right(body):
                    return _LastMember(shell, last, given, output, runs=False)
            body = last
        return _LastMember(shell, body, given, output, runs=True)

    def _pipe(self, members: Sequence[Node], stdin: str) -> str:
        words = nodes.words_of(members[0]) if members and members[0].type == "command" else []
        if len(members) == 2 and len(words) == 2 and words[0] == "coproc":
            # If a coprocess runs a compound command, `ends` rewrites the coprocess as a pipeline.
            # The first member of this pipeline is ``coproc NAME``, and the second member is the
            # compound command.
            self.start_coprocess(words[1], parse.text_of(members[1]))
            return ""
        for index, member in enumerate(members):
            part = self.copy()
            # Only the first member reads the input of the shell.
            part.input = part.input if index == 0 else None
            stdin = part._run(member, stdin)
            if part.traps:
                run_traps(part)
        return stdin

    def _run_body(self, node: Node, body: Node | None, stdin: str, words: Sequence[str]) -> str:
        """Follow the body of a redirected statement.

        `words` are words of the statement that come after redirections.
        """
        if body is None:
            # In ``<a >b rm x``, all words of the command come after a redirection.
            return self._execute_words(words, stdin, parse.text_of(node)) if words else ""
        if body.type != "command":
            return self._run(body, stdin)
        if words and parse.text_of(body).isdecimal():
            # In ``0<<EOF bash``, the number is a descriptor, and not the command.
            return self._execute_words(words, stdin, parse.text_of(node))
        return self._command(body, stdin, words)
