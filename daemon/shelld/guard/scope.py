"""Defines the interface through which `words` gets the values that `names` stores."""

from __future__ import annotations

from typing import Protocol


class Scope(Protocol):
    """The part of a shell's state that is needed to expand words."""

    home: str | None

    def value_of(self, name: str) -> str | None:
        """Return the value of a variable or a special parameter, or None if it is unset."""
        ...

    def spend(self, characters: int) -> None:
        """Subtract the cost of processing this many characters from the budget."""
        ...

    def miss(self, name: str) -> None:
        """Record the use of a name that has no value and no default.

        Raises `ExpansionError` if such a use makes bash stop.
        """
        ...

    def list_of(self, name: str) -> list[str]:
        """Return the positional parameters (for ``@``) or the members of an array."""
        ...

    def member_of(self, name: str, index: int) -> str | None:
        """Return the member of an array, or None if it is unset, or `UNKNOWN` if it is unknown."""
        ...

    def assign(self, name: str, value: str) -> None: ...

    def substituted(self, text: str) -> None:
        """Follow the substitutions in `text`, a subscript.

        Bash runs these substitutions when it evaluates the subscript.
        """
        ...

    def output_of(self, script: str) -> str:
        """Follow a command substitution as far as possible. Return its output."""
        ...

    def file_of(self, script: str, *, is_read: bool) -> str:
        """Return the file name that bash would put in place of ``<(script)`` or ``>(script)``.

        `is_read` is true for ``<(script)``.
        """
        ...
