"""Follows the commands and spare shells in one sandbox, and counts refused connections for each."""

from __future__ import annotations

from typing import Protocol

from shelld.proxy.process import Entry
from shelld.sandbox.denials import Denials


class Guest(Protocol):
    """A command or a spare shell. `runner`: the pid of the guest's runner, if the guest has a
    runner. `began`: the time.monotonic() at which the command began. It is infinite for a spare
    shell.
    """

    @property
    def runner(self) -> int | None: ...

    @property
    def began(self) -> float: ...

    @property
    def denials(self) -> Denials: ...

    @property
    def is_gone(self) -> bool:
        """Whether all processes of the command or the spare shell have ended."""
        ...


class Guests:
    def __init__(self) -> None:
        self._guests: list[Guest] = []

    @property
    def are_none(self) -> bool:
        # A caller may have failed to call `leave`.
        return all(guest.is_gone for guest in self._guests)

    def join(self, guest: Guest) -> None:
        self._guests[:] = [each for each in self._guests if not each.is_gone]
        self._guests.append(guest)

    def leave(self, guest: Guest) -> None:
        if guest in self._guests:
            self._guests.remove(guest)

    def note_denial(self, entry: Entry) -> None:
        """Count a refused connection for the command that has tried to connect. `entry` is an entry
        of DENIED: see `shelld.proxy`.
        """
        runner, host, port, reason, count, at = entry
        there = [guest for guest in self._guests if guest.began <= at]
        # If a client closes its connection too soon, the proxy cannot find the runner of this
        # client, so any command may be the one that tried to connect. So count the refusal for all
        # commands that had begun.
        for guest in [guest for guest in there if guest.runner == runner] or there:
            guest.denials.add(host, port, reason, count)
