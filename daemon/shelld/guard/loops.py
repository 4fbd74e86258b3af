"""Follows loops, and finds out how many times their bodies run, and with which values."""

from __future__ import annotations

import abc
import re
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

from shelld.guard import callees, parse
from shelld.guard.arithmetic import arithmetic
from shelld.guard.fork_bomb import FORK_BOMB
from shelld.guard.markers import ENDLESS, UNKNOWN
from shelld.guard.programs import Programs
from shelld.guard.units import ExpansionError
from shelld.guard.words import calculated, expand_word

Node = Any

# The guard follows at most this many iterations of a loop over known values.
_MAX_ROUNDS: Final = 64
# The guard follows at most this many iterations of ``for ((...))``.
_MAX_COUNTED: Final = 16
# Matches the condition of a loop if the condition compares numbers.
_COMPARISON: Final = re.compile(r"(?:test |\[\[? |\(\()([\s\w$\"{}\[\]@#<>=!-]*?)(?: \]\]?|\)\)|)")
_OPERATORS: Final = {"-lt": "<", "-le": "<=", "-gt": ">", "-ge": ">=", "-ne": "!=", "-eq": "=="}


class Loops(Programs):
    @abc.abstractmethod
    def _run(self, node: Node, stdin: str) -> str: ...

    @abc.abstractmethod
    def _run_children(self, node: Node, stdin: str) -> str: ...

    @abc.abstractmethod
    def _run_all(self, nodes: Sequence[Node], stdin: str) -> str: ...

    @abc.abstractmethod
    def _status(self, nodes: Sequence[Node]) -> bool | None: ...

    def _for(self, node: Node, stdin: str) -> str:
        name = ""
        values: list[str] = []
        bodies: list[Node] = []
        has_list = any(each.type == "in" for each in node.children)
        walks = False
        for child in node.named_children:
            if child.type == "variable_name":
                name = parse.text_of(child)
            elif child.type in ("do_group", "compound_statement"):
                bodies.append(child)
            else:
                try:
                    fields = expand_word(parse.text_of(child), self)
                except ExpansionError:
                    fields = [UNKNOWN]
                # In the output of `find` on a tree, `UNKNOWN` follows a known path and stands for
                # everything below this path. See `_while`.
                walks = walks or (UNKNOWN in fields and fields[0].startswith("/"))
                values += fields
        values = values if has_list else list(self.positional)
        output = ""
        if len(values) > _MAX_ROUNDS:
            self.unresolved("a loop in it is too long to be followed")
        before, self.is_for_each = self.is_for_each, self.is_for_each or walks
        # Follow the body even if the list appears to be empty.
        for value in values[:_MAX_ROUNDS] or [UNKNOWN]:
            self.assign(name, value)
            output += "".join([self._run(body, stdin) for body in bodies])
        self.is_for_each = before
        return output

    def _count(self, node: Node, stdin: str) -> str:
        """Follow ``for ((first; condition; step))`` for at most `_MAX_COUNTED` iterations."""
        body = node.named_children[-1]
        header = parse.text_of(node)[: body.start_byte - node.start_byte].partition("((")[2]
        first, condition, step = ([*header.rpartition("))")[0].split(";"), "", ""])[:3]
        output = ""
        with suppress(ExpansionError):
            calculated(first, self)
            for _ in range(_MAX_COUNTED):
                goes_on = calculated(condition, self) if condition.strip() else UNKNOWN
                if goes_on == "0":
                    break
                output += self._run(body, stdin)
                if goes_on == UNKNOWN:
                    # The number of iterations is unknown, so the variables that `step` assigns
                    # become unknown.
                    arithmetic(f"{step},{UNKNOWN}", self)
                    break
                calculated(step, self)
            else:
                self.unresolved("a loop in it is too long to be followed")
        return output

    def _while(self, node: Node, stdin: str) -> str:
        is_counted = node.type == "c_style_for_statement"
        body = next(
            (
                each
                for each in node.named_children
                if each.type == "do_group" or (is_counted and each.type == "compound_statement")
            ),
            None,
        )
        conditions = [each for each in node.named_children if each != body]
        if is_counted:
            runs: bool | None = True if not conditions else None
        else:
            runs = self._status(conditions[-1:])
            if runs is not None and node.children[0].type == "until":
                runs = not runs
        if runs is False:
            return self._run_all(conditions, stdin)
        if runs and body is not None and callees.only_starts(body):
            self.report(FORK_BOMB, parse.text_of(node))
        if is_counted and body is not None:
            return self._count(node, stdin)
        before = self.is_for_each
        # The output of `find` begins with its start directories, and then has `UNKNOWN` for
        # everything below them. With such input, the loop runs for every file of a tree.
        self.is_for_each = before or (UNKNOWN in stdin and stdin.strip(UNKNOWN).startswith("/"))
        try:
            output = self._rounds(node, conditions, stdin)
        finally:
            self.is_for_each = before
        is_endless = runs and output != "" and body is not None and callees.only_prints(body)
        return output + ENDLESS if is_endless else output

    def _rounds(self, node: Node, conditions: Sequence[Node], stdin: str) -> str:
        """Follow a loop while it reads known input, or while its numeric condition is true."""
        output = ""
        for _ in range(_MAX_ROUNDS):
            reads = self.reads
            output += self._run_children(node, stdin)
            goes_on = self.has_more if self.reads != reads else self._compares(conditions, node)
            if not goes_on:
                return output
        self.unresolved("a loop in it is too long to be followed")
        return output

    def _compares(self, conditions: Sequence[Node], node: Node) -> bool:
        """Return whether the condition of a loop compares two known numbers, and is true."""
        text = parse.text_of(conditions[-1]) if conditions else ""
        if node.children[0].type == "until" or not (match := _COMPARISON.fullmatch(text)):
            return False
        expression = match[1]
        for name, operator in _OPERATORS.items():
            expression = expression.replace(f" {name} ", operator)
        before = self.has_unset
        try:
            return calculated(expression.replace('"', ""), self) not in ("0", UNKNOWN)
        except ExpansionError:
            return False
        finally:
            self.has_unset = before
