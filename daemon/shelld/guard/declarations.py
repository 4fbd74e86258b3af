"""Follows statements that change variables, and ``[[`` tests.

Examples of such statements are assignments, ``declare`` and ``unset``. They change the state of a
shell. `names` stores this state. This module also follows the subscripts and substitutions that
bash evaluates in these statements and tests.
"""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Any, Final

from shelld.guard import nodes, parse
from shelld.guard.markers import plain
from shelld.guard.names import Names, function_entry
from shelld.guard.units import ExpansionError
from shelld.guard.words import calculated, expand_text, expand_word

Node = Any

# In a test, bash evaluates the subscript of a name after -v, and both sides of a numeric
# comparison. These patterns do not backtrack, because the text may be long.
_NAMED: Final = re.compile(r"-v\s++('[^']*+'|\"[^\"]*+\"|\S++)")
_SUBSCRIPT: Final = re.compile(r"\w++\[(.*)\]", re.S)
_OPERAND: Final = r"'[^']*+'|\"[^\"]*+\"|\S++"
_COMPARED: Final = re.compile(rf"(?<!\S)({_OPERAND})\s++-(?:eq|ne|lt|le|gt|ge)(?=\s++({_OPERAND}))")


# The guard evaluates only operands that match this pattern. Such operands can contain an
# assignment, or a variable whose value has a subscript.
_EVALUATED: Final = re.compile(r"[=$A-Za-z_]")
# The target of a nameref, which is a variable or a member of an array.
_REFERENCE: Final = re.compile(r"[A-Za-z_]\w*+(?>(?:\[.*\])?)", re.S)


class Declarations(Names):
    def assignment(self, node: Node, _stdin: str, *, is_local: bool = False) -> str:
        """Follow ``name=value``.

        If `is_local` is true, hide the old value until the function returns.
        """
        array = next((each for each in node.children if each.type == "array"), None)
        try:
            if array is not None:
                name = parse.text_of(node).partition("=")[0].removesuffix("+")
                members = [parse.text_of(each) for each in array.named_children]
                fields = [self._member(name, each) for each in self.expanded(members)]
                before = self.list_of(name) if parse.text_of(node)[len(name)] == "+" else []
                if is_local:
                    self.hide(name)
                self.arrays[name] = [*before, *fields]
            else:
                name, value = self.assigned_by(node)
                if is_local:
                    self.hide(name)
                self.assign(name, value)
        except ExpansionError:
            pass
        return ""

    def _member(self, name: str, field: str) -> str:
        """Return the value of an array member.

        For ``[key]=value``, also store the value under ``name[key]``.
        """
        match = re.match(r"\ue003?\[?([^\]]*)\]=(.*)", field, re.S)
        if match is None:
            return field
        self.variables[f"{name}[{match[1]}]"] = match[2]
        self._enter_in_table(name, match[1], match[2])
        return match[2]

    def assigned_by(self, node: Node) -> tuple[str, str]:
        return self.assigned(parse.text_of(node))

    def assigned(self, text: str) -> tuple[str, str]:
        """Return the name and the expanded value of ``name=value``."""
        name, _, word = text.partition("=")
        value = expand_text(word, self, is_assigned=True)
        if name.endswith("+"):
            name = name[:-1]
            before = self.value_of(name) or ""
            value = f"{before or 0}+({value})" if name in self.integers else before + value
        if "[" in name:
            try:
                self.substitutions(parse.parse(name, self.budget.parse_seconds), "")
            except parse.TooSlow:
                self.budget.too_slow()
            self.arrays.setdefault(name.partition("[")[0], []).append(value)
        return name, value

    def declaration(self, node: Node, _stdin: str) -> str:
        kind = node.children[0].type
        is_export = kind == "export"
        # In a function, ``declare`` makes a variable local, as ``local`` does.
        is_local = kind in ("local", "declare", "typeset") and bool(self.hidden)
        kinds = "".join(each for each in map(parse.text_of, node.named_children) if each[:1] == "-")
        is_local = is_local and "g" not in kinds
        for child in node.named_children:
            text = parse.text_of(child)
            if text.startswith("-"):
                is_export = is_export or "x" in text
                continue
            if child.type == "variable_assignment":
                self.assignment(child, "", is_local=is_local)
                self._declared(text.partition("=")[0], kinds)
            else:
                try:
                    text = "".join(expand_word(text, self)[:1])
                except ExpansionError:
                    continue
                if is_local:
                    self.hide(text.partition("=")[0])
                if "=" in text:
                    name, _, value = text.partition("=")
                    self.assign(name, plain(value))
                self._declared(text.partition("=")[0], kinds)
            if is_export:
                name = text.partition("=")[0]
                entry = function_entry(name) if "f" in kinds else name
                self.exported = self.exported - {entry} if "n" in kinds else self.exported | {entry}
        return ""

    def _declared(self, name: str, kinds: str) -> None:
        """Apply the attributes ``-i``, ``-l``, ``-u`` and ``-n``, which change values."""
        value = self.variables.get(name)
        if "i" in kinds:
            self.integers = self.integers | {name}
        if "l" in kinds or "u" in kinds:
            self.cases[name] = "l" if "l" in kinds else "u"
        if value is None:
            return
        if "i" in kinds:
            self.assign(name, value)
        if "n" in kinds and value != name and _REFERENCE.fullmatch(value):
            self.references[name] = value
            self.substituted(value)
        elif "l" in kinds:
            self.variables[name] = value.lower()
        elif "u" in kinds:
            self.variables[name] = value.upper()

    def unset(self, node: Node, _stdin: str) -> str:
        for child in node.named_children:
            name = parse.text_of(child)
            with suppress(ExpansionError):
                name = plain("".join(expand_word(name, self)[:1]))
            if "[" in name:
                self.substituted(name)
                self.remove_member(name)
            self.variables.pop(name, None)
            self.arrays.pop(name, None)
            self.functions.pop(name, None)
        return ""

    def substitutions(self, node: Node, _stdin: str) -> str:
        """Follow the substitutions in a value, a test or a pattern."""
        for script in nodes.substitutions_of(node):
            self.output_of(script)
        return ""

    def test(self, node: Node, stdin: str) -> str:
        """Follow the substitutions in a ``[[`` test.

        Bash evaluates numeric operands and subscripts as arithmetic. Also follow the assignments in
        them.
        """
        self.substitutions(node, stdin)
        text = parse.text_of(node)
        evaluated = [self._subscript_in(match[1]) for match in _NAMED.finditer(text)]
        for match in _COMPARED.finditer(text):
            evaluated += match.groups()
        before = self.has_unset
        for expression in evaluated:
            if _EVALUATED.search(expression):
                with suppress(ExpansionError):
                    calculated(expression.strip("\"'"), self)
        self.has_unset = before
        return ""

    def _subscript_in(self, word: str) -> str:
        """Return the subscript that bash evaluates in the operand of -v, or "" if there is none."""
        with suppress(ExpansionError):
            match = _SUBSCRIPT.fullmatch(plain(expand_text(word, self)))
            return match[1] if match is not None else ""
        return ""
