"""Defines the interface through which builtins and launchers use a shell."""

from __future__ import annotations

import abc
from collections.abc import Sequence

from shelld.guard.declarations import Declarations


class Shell(Declarations):
    @abc.abstractmethod
    def execute(self, argv: list[str], stdin: str) -> str:
        """Follow a command. Return its output, or `UNKNOWN` if it is unknown."""

    @abc.abstractmethod
    def run_text(self, script: str, stdin: str) -> str:
        """Follow a script that another shell runs. Return its output."""

    @abc.abstractmethod
    def content_of(self, name: str, stdin: str) -> str:
        """Return the content of a file, or `UNKNOWN` if it is unknown."""

    @abc.abstractmethod
    def written_by(self, argv: Sequence[str], stdin: str) -> str:
        """Return the output of a program that changes nothing, or `UNKNOWN` if it is unknown."""
