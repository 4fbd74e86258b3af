"""Stores the members of arrays, the targets of namerefs, and the values that ``local`` hides."""

from __future__ import annotations

import abc
from typing import Any, Final, NamedTuple

from shelld.guard.markers import HOLE, UNKNOWN
from shelld.guard.streams import Streams

# The maximum length of a chain of namerefs (``declare -n``) in bash.
_MAX_REFERENCES: Final = 8


class Hidden(NamedTuple):
    """What a name stood for before ``local`` hid the name: a value, the members of an array, or the
    target of a nameref.
    """

    value: str | None
    members: list[str] | None
    target: str | None


def _put(table: dict[str, Any], name: str, value: Any) -> None:
    if value is None:
        table.pop(name, None)
    else:
        table[name] = value


class Arrays(Streams):
    variables: dict[str, str]
    # Maps the name of each nameref (``declare -n``) to its target.
    references: dict[str, str]
    # For each running function, the names that ``local`` has hidden, and what these names stood
    # for.
    hidden: list[dict[str, Hidden]]

    @abc.abstractmethod
    def list_of(self, name: str) -> list[str]: ...

    def member_of(self, name: str, index: int) -> str | None:
        members = self.arrays.get(name) or self.list_of(name)
        if not -len(members) <= index < len(members):
            return UNKNOWN if members else None
        return None if members[index] == HOLE else members[index]

    def remove_member(self, reference: str) -> None:
        """Remove one member of an array, as ``unset 'name[index]'`` does."""
        name, _, index = reference.removesuffix("]").partition("[")
        members = list(self.arrays.get(name, ()))
        number = index.lstrip("-")
        if index in ("@", "*"):
            self.arrays.pop(name, None)
        elif (value := self.variables.get(reference)) is not None:
            # An earlier ``name[index]=value`` has stored this value, and has also added it at the
            # end of the array.
            self.arrays[name] = [HOLE if each == value else each for each in members]
        elif number.isdecimal() and -len(members) <= int(index) < len(members):
            members[int(index)] = HOLE
            self.arrays[name] = members

    def hide(self, name: str) -> None:
        """Save and remove the value of a name, so that `restore` can give the value back later."""
        if self.hidden and name not in self.hidden[-1]:
            self.hidden[-1][name] = Hidden(
                self.variables.pop(name, None),
                self.arrays.pop(name, None),
                self.references.pop(name, None),
            )

    def restore(self, names: dict[str, Hidden]) -> None:
        """Restore what the names stood for before a function hid them with ``local``."""
        for name, (value, members, target) in names.items():
            _put(self.variables, name, value)
            _put(self.arrays, name, members)
            _put(self.references, name, target)

    def meant_by(self, name: str) -> str:
        """Return the variable that a name refers to. Follows chains of namerefs."""
        for _ in range(_MAX_REFERENCES):
            if name not in self.references:
                break
            name = self.references[name]
        return name
