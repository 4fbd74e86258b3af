"""What `shelld attach` tells a daemon that it starts, as the first words of its command line."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from typing import NamedTuple


class Lasting(NamedTuple):
    """A lasting daemon: its name, its socket, and how many seconds it stays without a client."""

    name: str
    listener: socket.socket
    linger_s: int

    @property
    def words(self) -> list[str]:
        """The words, for a process that inherits the socket."""
        return ["lasting", self.name, str(self.linger_s), str(self.listener.fileno())]


def lasting_of(words: Sequence[str]) -> Lasting:
    """Return what the words after ``lasting`` say."""
    name, linger_s, descriptor = words
    return Lasting(name, socket.socket(fileno=int(descriptor)), int(linger_s))
