"""Applies the operator's own rules, which block or allow further commands. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Final

from msgspec import Struct

from shelld.guard.markers import plain
from shelld.guard.verdict import Finding


class BlockRule(Struct, frozen=True, forbid_unknown_fields=True):
    """A rule that blocks a program. `program` and `arguments` are fnmatch(3) patterns."""

    name: str
    program: str
    arguments: list[str] = []
    reason: str = "a rule of the operator forbids it"


class Policy(Struct, frozen=True, forbid_unknown_fields=True):
    disable: frozenset[str] = frozenset()
    allow: list[str] = []
    block: list[BlockRule] = []

    def allows(self, command: str) -> bool:
        """Return whether the operator allows a command, even if a rule would block it."""
        text = command.strip()
        return any(fnmatchcase(text, pattern) for pattern in self.allow)

    def check(self, program: str, arguments: Sequence[str]) -> Finding | None:
        for rule in self.block:
            if fnmatchcase(program, rule.program) and all(
                any(fnmatchcase(plain(argument), pattern) for argument in arguments)
                for pattern in rule.arguments
            ):
                return Finding(rule.name, rule.reason)
        return None


DEFAULT_POLICY: Final = Policy()
