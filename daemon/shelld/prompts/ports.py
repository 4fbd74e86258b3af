"""Finds the TCP ports on which the processes of a command listen.

The kernel lists listening sockets per network namespace. The descriptors of a process show which of
them it holds. So a port of another program does not count, nor does a port of a container that the
command has started: a server outside of the command's processes opens it.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from shelld.prompts.kernel import name_of
from shelld.prompts.members import members
from shelld.prompts.sockets import Socket, listening

_SOCKET: Final = re.compile(r"socket:\[(\d+)\]")
# More descriptors of one process are not looked at.
_MAX_DESCRIPTORS: Final = 4_096
_STEP_DESCRIPTORS: Final = 256


class Listening(NamedTuple):
    port: int
    address: str
    pid: int
    program: str


def find(top: int, port: int | None) -> Iterator[Listening | None]:
    """Yield each port on which a command listens, and None whenever the caller may pause.

    `top` is the command's bash. With `port`, only that port counts. A process that cannot be
    inspected has no ports. If several processes listen on one address, the first one counts.
    """
    # By namespace and inode.
    tables: dict[int, Mapping[str, Socket]] = {}
    found: set[tuple[int, str]] = set()
    for pid in members(top):
        with contextlib.suppress(OSError, ValueError):
            namespace = os.stat(f"/proc/{pid}/ns/net").st_ino
            if namespace not in tables:
                tables[namespace] = {
                    str(each.inode): each for each in listening(pid) if port in {None, each.port}
                }
            for held in _held(pid, tables[namespace]):
                place = None if held is None else (held.port, held.address)
                if place is None:
                    yield None
                elif place not in found:
                    found.add(place)
                    yield Listening(*place, pid, name_of(pid))
        yield None


def _held(pid: int, sockets: Mapping[str, Socket]) -> Iterator[Socket | None]:
    """Yield the sockets that a process holds, and None now and then."""
    if not sockets:
        return
    with os.scandir(f"/proc/{pid}/fd") as entries:
        for number, entry in enumerate(itertools.islice(entries, _MAX_DESCRIPTORS)):
            if number % _STEP_DESCRIPTORS == 0:
                yield None
            # A descriptor may be closed meanwhile.
            with contextlib.suppress(FileNotFoundError):
                link = _SOCKET.fullmatch(os.readlink(entry.path))
                if link is not None and (held := sockets.get(link[1])) is not None:
                    yield held
