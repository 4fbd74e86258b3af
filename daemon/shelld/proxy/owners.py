"""Finds the commands whose connections the proxy has refused. Only reads /proc.

A connection has an inode in the network namespace of the sandbox, and a process of the command has
a descriptor of this inode. The runner of a process identifies the command: see `keeper`. A client
that has already closed its connection is not found.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Final

from shelld.keeper.proc import children_of, read_file

# It takes some 50 µs to examine a process.
_MAX_PROCESSES: Final = 2_000

# Matches a line of /proc/PID/net/tcp. The groups are the client's address and port in hexadecimal
# digits, and the inode of its socket.
_LINE: Final = re.compile(
    r"^ *\d+: ([0-9A-F]{8}:[0-9A-F]{4}) \S+ \S+ \S+ \S+ \S+ +\d+ +\d+ (\d+) ", re.MULTILINE
)

# The address and port of a client, as the kernel reports them to the proxy.
Peer = tuple[str, int]


def runners_of(first: int, peers: Iterable[Peer]) -> dict[Peer, int]:
    """Return the pid of the runner for each client that is found.

    `first`: the pid of the sandbox's first process. Its only child is the keeper.
    """
    with suppress(OSError, ValueError, IndexError):
        keeper = children_of(first)[0]
        wanted = _inodes(keeper, peers)
        found: dict[Peer, int] = {}
        for runner, pid in _processes(keeper):
            if not wanted:
                break
            for inode in _sockets(pid) & wanted.keys():
                found[wanted.pop(inode)] = runner
        return found
    return {}


def _inodes(pid: int, peers: Iterable[Peer]) -> dict[int, Peer]:
    """Map the inode of each client's connection to the client."""
    names = {_name(peer): peer for peer in peers}
    table = read_file(f"/proc/{pid}/net/tcp").decode("ascii")
    return {
        int(inode): names[name]
        for name, inode in _LINE.findall(table)
        if name in names and inode != "0"
    }


def _name(peer: Peer) -> str:
    """Return a client as /proc/net/tcp writes it, with the address in the machine's byte order."""
    address, port = peer
    parts = bytes(map(int, address.split(".")))
    return f"{int.from_bytes(parts, sys.byteorder):08X}:{port:04X}"


def _processes(keeper: int) -> Iterator[tuple[int, int]]:
    """Yield the descendants of a keeper's runners, each with its runner."""
    seen = 0
    for runner in children_of(keeper):
        waiting = [runner]
        while waiting and seen < _MAX_PROCESSES:
            seen += 1
            with suppress(OSError, ValueError):
                children = children_of(waiting.pop())
                waiting += children
                yield from ((runner, child) for child in children)


def _sockets(pid: int) -> set[int]:
    """Return the inodes of a process's sockets."""
    found: set[int] = set()
    with suppress(OSError):
        for name in os.listdir(f"/proc/{pid}/fd"):
            with suppress(OSError, ValueError):
                target = os.readlink(f"/proc/{pid}/fd/{name}")
                if target.startswith("socket:["):
                    found.add(int(target[8:-1]))
    return found
