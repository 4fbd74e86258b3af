"""Encodes what a new lasting daemon must know. This data becomes the first words of the daemon's
command line.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from typing import NamedTuple


class Lasting(NamedTuple):
    """Describes a lasting daemon. It ends after `linger_s` seconds without a client."""

    name: str
    listener: socket.socket
    linger_s: int

    @property
    def words(self) -> list[str]:
        """The words to add to the command line of the process that inherits the socket."""
        return ["lasting", self.name, str(self.linger_s), str(self.listener.fileno())]


def lasting_of(words: Sequence[str]) -> Lasting:
    """Parse the words that follow ``lasting`` on the daemon's command line."""
    name, linger_s, descriptor = words
    return Lasting(name, socket.socket(fileno=int(descriptor)), int(linger_s))
