"""Follows conditions and function definitions, and decides which statements run.

The guard follows every branch except branches that cannot run, such as the body of ``if false``.
"""

from __future__ import annotations

import abc
import re
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple

from shelld.guard import callees, parse
from shelld.guard.fork_bomb import FORK_BOMB, is_fork_bomb
from shelld.guard.loops import Loops
from shelld.guard.patterns import matches_whole
from shelld.guard.units import ExpansionError
from shelld.guard.words import calculated, expand_text

Node = Any

_STATUS: Final = {"true": True, ":": True, "false": False}
# Patterns for tests without variables. A test that matches `_CONSTANT` is true. A test that matches
# `_EMPTY` is false.
_CONSTANT: Final = re.compile(r"(?:test|\[\[?)\s+\w+(?:\s+\]\]?)?|\(\(\s*[1-9]\d*\s*\)\)")
_EMPTY: Final = re.compile(r"\[\s*\]|test|\(\(\s*0\s*\)\)")


class Function(NamedTuple):
    """A function.

    `redirects` are the redirections in the definition of the function. They apply to every call.
    """

    body: Node
    redirects: tuple[Node, ...]


class Compounds(Loops):
    @abc.abstractmethod
    def _redirect(self, redirects: Sequence[Node], stdin: str) -> tuple[str, str | None]: ...

    @abc.abstractmethod
    def _written(self, target: str | None, output: str) -> str: ...

    def _group(self, node: Node, stdin: str) -> str:
        text = parse.text_of(node)
        if not text.startswith("(("):
            return self._run_children(node, stdin)
        with suppress(ExpansionError):
            calculated(text[2:-2], self)
        return ""

    # -- conditions -------------------------------------------------------------------------

    def _run_all(self, nodes: Sequence[Node], stdin: str) -> str:
        return "".join([self._run(each, stdin) for each in nodes])

    def _status(self, nodes: Sequence[Node]) -> bool | None:
        """Return whether the last command in `nodes` succeeds, or None if it is unknown."""
        if not nodes:
            return None
        node = nodes[-1]
        members = node.named_children
        if node.type == "negated_command":
            status = self._status(members)
            return None if status is None else not status
        if node.type == "list" and len(members) == 2:
            left, right = self._status(members[:1]), self._status(members[1:])
            decides = node.children[1].type == "||"
            return left if left is decides else (right if left is not None else None)
        text = parse.text_of(node)
        if text in self.functions or text in self.aliases:
            return None
        if _CONSTANT.fullmatch(text):
            return True
        return False if _EMPTY.fullmatch(text) else _STATUS.get(text)

    def _list(self, node: Node, stdin: str) -> str:
        if len(node.named_children) != 2 or len(node.children) != 3:
            return self._run_children(node, stdin)
        left, right = node.named_children
        output = self._run(left, stdin)
        return output if self._skips_right(node) else output + self._run(right, stdin)

    def _skips_right(self, node: Node) -> bool:
        """Return whether the last member of a list certainly does not run."""
        members = node.named_children
        return len(members) == 2 and self._status(members[:1]) is (node.children[1].type == "||")

    def _if(self, node: Node, stdin: str) -> str:
        """Follow every branch of ``if`` that can run."""
        conditions: list[Node] = []
        branch: list[Node] = []
        others: list[Node] = []
        has_condition = False
        for child in node.children:
            if child.type == "then":
                has_condition = True
            elif child.type in ("elif_clause", "else_clause"):
                others.append(child)
            elif child.is_named:
                (branch if has_condition else conditions).append(child)
        status = self._status(conditions)
        output = self._run_all(conditions, stdin)
        if status is not False:
            output += self._run_all(branch, stdin)
        if status is not True:
            output += self._run_all(others, stdin)
        return output

    def _case(self, node: Node, stdin: str) -> str:
        """Follow every item of ``case``.

        If one item surely runs, the variables and the directory that this item sets override what
        the other items set.
        """
        items = [each for each in node.named_children if each.type == "case_item"]
        subjects = [each for each in node.named_children if each.type != "case_item"]
        chosen = self._chosen(subjects, items)
        output, own, own_cwd = "", "", None
        own_variables: dict[str, str] = {}
        for item in items:
            if item != chosen:
                output += self._item(item, stdin)
                continue
            variables, cwd = dict(self.variables), self.cwd
            own = self._item(item, stdin)
            own_variables = dict(self.variables.items() - variables.items())
            own_cwd = self.cwd if self.cwd != cwd else None
        self.variables.update(own_variables)
        self.cwd = own_cwd or self.cwd
        return output if chosen is None else own

    def _item(self, item: Node, stdin: str) -> str:
        patterns, body = _parts(item)
        for pattern in patterns:
            self.substitutions(pattern, stdin)
        return self._run_all(body, stdin)

    def _chosen(self, subjects: Sequence[Node], items: Sequence[Node]) -> Node | None:
        """Return the item of ``case`` that surely runs, or None if no item surely runs."""
        before, self.has_unset = self.has_unset, False
        try:
            value = "".join([expand_text(parse.text_of(each), self) for each in subjects[:1]])
            is_known = not self.has_unset
        except ExpansionError:
            return None
        finally:
            self.has_unset = before
        ends = {child.type for each in items for child in each.children[-1:]}
        if not is_known or ends & {";&", ";;&"}:
            return None
        for item in items:
            results = [self._matches(value, each) for each in _parts(item)[0]]
            if True in results:
                return item
            if None in results:
                break
        return None

    def _matches(self, value: str, pattern: Node) -> bool | None:
        try:
            return matches_whole(value, expand_text(parse.text_of(pattern), self))
        except ExpansionError:
            return None

    def _function(self, node: Node, _stdin: str, more: Sequence[Node] = ()) -> str:
        """Define a function.

        The parser puts some redirections of the function outside of `node`. `more` are these
        redirections.
        """
        name = parse.text_of(node.named_children[0])
        redirects = [each for each in node.named_children if each.type.endswith("_redirect")]
        bodies = [each for each in node.named_children[1:] if each not in redirects]
        body = bodies[-1]
        self.functions[name] = Function(body, (*redirects, *more))
        self.calls[name] = callees.calls_of(body)
        if is_fork_bomb(name, self.calls):
            self.report(FORK_BOMB, parse.text_of(node))
        return ""

    def _run_function(self, function: Function, stdin: str) -> str:
        if not function.redirects:
            return self._run(function.body, stdin)
        try:
            stdin, target = self._redirect(function.redirects, stdin)
        except ExpansionError:
            return ""
        return self._written(target, self._run(function.body, stdin))


def _parts(item: Node) -> tuple[list[Node], list[Node]]:
    """Return the patterns and the statements of an item of ``case``."""
    end = next((index for index, each in enumerate(item.children) if each.type == ")"), 0)
    patterns, body = item.children[:end], item.children[end:]
    return [each for each in patterns if each.is_named], [each for each in body if each.is_named]
