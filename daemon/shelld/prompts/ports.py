"""Finds the TCP ports on which the processes of a command listen.

Reads /proc only. Each network namespace lists its listening sockets, and the descriptors of a
process tell which of them it holds. So a port of another program does not count, nor does a port of
a container that the command has started: a server outside of the command's processes opens it.
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
import sys
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from shelld.prompts.kernel import name_of
from shelld.prompts.members import members

_TABLES: Final = (("tcp", socket.AF_INET), ("tcp6", socket.AF_INET6))
_SOCKET: Final = re.compile(r"socket:\[(\d+)\]")
# TCP_LISTEN. The kernel lists the sockets in this state before all others.
_LISTENS: Final = b"0A"
_PIECE_BYTES: Final = 64 * 1024
# More descriptors of one process are not looked at.
_MAX_DESCRIPTORS: Final = 4_096


class Listening(NamedTuple):
    port: int
    address: str
    pid: int
    program: str


# By inode.
_Sockets = Mapping[str, tuple[int, str]]


def proc_lists_sockets() -> bool:
    """Whether /proc tells of listening sockets at all."""
    return os.access("/proc/self/net/tcp", os.R_OK)


def find(top: int, port: int | None) -> Iterator[Listening | None]:
    """Yield each port on which a command listens, and None after each process.

    `top` is the command's bash. With `port`, only that port counts. A process that cannot be
    inspected has no ports. If several processes listen on one address, the first one counts.
    """
    tables: dict[int, _Sockets] = {}
    found: set[tuple[int, str]] = set()
    for pid in members(top):
        with contextlib.suppress(OSError, ValueError):
            namespace = os.stat(f"/proc/{pid}/ns/net").st_ino
            if namespace not in tables:
                tables[namespace] = _listening_sockets(pid, port)
            for place in _held(pid, tables[namespace]):
                if place not in found:
                    found.add(place)
                    yield Listening(*place, pid, name_of(pid))
        yield None


def _held(pid: int, sockets: _Sockets) -> Iterator[tuple[int, str]]:
    if not sockets:
        return
    directory = f"/proc/{pid}/fd"
    for name in os.listdir(directory)[:_MAX_DESCRIPTORS]:
        # A descriptor may be closed meanwhile.
        with contextlib.suppress(FileNotFoundError):
            link = _SOCKET.fullmatch(os.readlink(f"{directory}/{name}"))
            if link is not None and (place := sockets.get(link[1])) is not None:
                yield place


def _listening_sockets(pid: int, port: int | None) -> _Sockets:
    """Return the listening sockets of the network namespace of a process."""
    found: dict[str, tuple[int, str]] = {}
    for name, family in _TABLES:
        with contextlib.suppress(FileNotFoundError):
            for fields in _listening_lines(f"/proc/{pid}/net/{name}"):
                host, _, number = fields[1].partition(b":")
                if port in {None, int(number, 16)}:
                    place = int(number, 16), _address(family, host)
                    found[fields[9].decode()] = place
    return found


def _listening_lines(path: str) -> Iterator[list[bytes]]:
    """Yield the fields of each listening socket. A busy machine has many others after them."""
    with open(path, "rb", buffering=_PIECE_BYTES) as file:
        next(file, None)
        for line in file:
            fields = line.split()
            if fields[3] != _LISTENS:
                return
            yield fields


def _address(family: socket.AddressFamily, words: bytes) -> str:
    """Return the address in its usual form. The kernel writes words in the order of the machine."""
    parts = [int(words[at : at + 8], 16) for at in range(0, len(words), 8)]
    return socket.inet_ntop(family, b"".join(part.to_bytes(4, sys.byteorder) for part in parts))
