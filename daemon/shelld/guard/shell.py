"""What builtins and launchers ask of the shell that runs them."""

from __future__ import annotations

import abc
from collections.abc import Sequence

from shelld.guard.names import Names


class Shell(Names):
    @abc.abstractmethod
    def execute(self, argv: list[str], stdin: str) -> str:
        """Follow a command; return what it writes, `UNKNOWN` if that is not known."""

    @abc.abstractmethod
    def run_text(self, script: str, stdin: str) -> str:
        """Follow a script that another shell runs; return what that writes."""

    @abc.abstractmethod
    def content_of(self, name: str, stdin: str) -> str:
        """Return what is known to be in a file."""

    @abc.abstractmethod
    def written_by(self, argv: Sequence[str], stdin: str) -> str:
        """Return what a program that changes nothing writes, `UNKNOWN` if that is not known."""
