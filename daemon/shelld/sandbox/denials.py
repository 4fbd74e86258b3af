"""Counts the connections that the network of a sandbox has refused to one command."""

from __future__ import annotations

from typing import Final

from shelld.proxy import Reason
from shelld_protocol.sandboxes import Denied

# If a command tries every host, its entries must not fill the memory of the daemon, and must not
# fill the result.
_MAX_ENTRIES: Final = 100
_OTHERS: Final = ("*", 0)


class Denials:
    def __init__(self) -> None:
        self._counts: dict[tuple[str, int, Reason], int] = {}

    def add(self, host: str, port: int, reason: Reason, count: int) -> None:
        key = (host, port, reason)
        if key not in self._counts and len(self._counts) >= _MAX_ENTRIES:
            key = (*_OTHERS, reason)
        self._counts[key] = self._counts.get(key, 0) + count

    @property
    def shown(self) -> list[Denied] | None:
        """The refused connections, in the form that results use; None if nothing was refused."""
        return [
            Denied("network", host, port, count, reason)
            for (host, port, reason), count in self._counts.items()
        ] or None
