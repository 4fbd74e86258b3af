"""What the words of a command may refer to, as `words` asks for it and `names` has it."""

from __future__ import annotations

from typing import Protocol


class Scope(Protocol):
    """What the words of a command may refer to."""

    def value_of(self, name: str) -> str | None:
        """Return the value of a variable or a special parameter, None if it is not set."""
        ...

    def spend(self, characters: int) -> None:
        """Count text that was looked at."""
        ...

    def miss(self, name: str) -> None:
        """Take note that a name has no value and that nothing stands in for it.

        Raises `ExpansionError` if bash stops there.
        """
        ...

    def list_of(self, name: str) -> list[str]:
        """Return the positional parameters (``@``), or the members of an array."""
        ...

    def assign(self, name: str, value: str) -> None: ...

    def output_of(self, script: str) -> str:
        """Run a command substitution, as far as that is possible; return what it writes."""
        ...

    def file_of(self, script: str) -> str:
        """Return the name of the file that a process substitution is."""
        ...
