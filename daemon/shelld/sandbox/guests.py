"""The commands and spare shells in one sandbox, and what its proxy has refused to each."""

from __future__ import annotations

from typing import Protocol

from shelld.proxy.process import Entry
from shelld.sandbox.denials import Denials


class Guest(Protocol):
    """A command or a spare shell. `runner`: the pid of its runner, if it has one. `began`: when the
    command began (time.monotonic()); infinite for a spare shell.
    """

    @property
    def runner(self) -> int | None: ...

    @property
    def began(self) -> float: ...

    @property
    def denials(self) -> Denials: ...

    @property
    def is_gone(self) -> bool:
        """Whether nothing is left of it."""
        ...


class Guests:
    def __init__(self) -> None:
        self._guests: list[Guest] = []

    @property
    def are_none(self) -> bool:
        # Somebody may have failed to call `leave`.
        return all(guest.is_gone for guest in self._guests)

    def join(self, guest: Guest) -> None:
        self._guests[:] = [each for each in self._guests if not each.is_gone]
        self._guests.append(guest)

    def leave(self, guest: Guest) -> None:
        if guest in self._guests:
            self._guests.remove(guest)

    def note_denial(self, entry: Entry) -> None:
        """Count a refusal for its command. An entry of DENIED: see `shelld.proxy`."""
        runner, host, port, reason, count, at = entry
        there = [guest for guest in self._guests if guest.began <= at]
        # A client that has closed its connection too soon may belong to any command.
        for guest in [guest for guest in there if guest.runner == runner] or there:
            guest.denials.add(host, port, reason, count)
