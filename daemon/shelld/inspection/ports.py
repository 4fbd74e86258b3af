"""Finds the TCP ports on which the processes of a command listen.

The kernel lists listening sockets per network namespace. The descriptors of a process show which of
these sockets the process holds. So a port of another program does not count. If the command has
started a container, the container's ports do not count either, because a server outside of the
command's processes opens them.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from shelld.inspection.kernel import name_of
from shelld.inspection.members import members
from shelld.inspection.sockets import Socket, listening

_SOCKET: Final = re.compile(r"socket:\[(\d+)\]")
# The caller may pause whenever this number of descriptors has been examined.
_STEP_DESCRIPTORS: Final = 256


class Listening(NamedTuple):
    port: int
    address: str
    pid: int
    program: str


# Maps the inode of a socket to its port and address. All sockets of a machine have different
# inodes.
_Sockets = Mapping[str, tuple[int, str]]


def find(
    top: int, port: int | None, here: Iterable[Socket], elsewhere: dict[int, str]
) -> Iterator[Listening | None]:
    """Yield each port on which a command listens. Yield None whenever the caller may pause.

    `top` is the command's bash. If `port` is given, yield only this port. A process that cannot be
    inspected counts as a process without ports. If several processes listen on one address, yield
    only the first process that is found.

    `here`: the sockets that listen in the network namespace of the daemon. This function adds the
    other namespaces of the command to `elsewhere`, which must be empty. `elsewhere` then maps the
    inode of each namespace to the directory in /proc of a process in the namespace.
    """
    # A process may listen in a namespace that it has left. Most likely, this is the namespace of
    # the daemon, so always include the sockets there.
    own = os.stat("/proc/self/ns/net").st_ino
    sockets = dict(_chosen(here, port))
    found: set[tuple[int, str]] = set()
    for pid in members(top):
        if pid is not None:
            with contextlib.suppress(OSError, ValueError):
                proc_dir = living_thread(pid)
                namespace = os.stat(f"{proc_dir}/ns/net").st_ino
                if namespace != own and namespace not in elsewhere:
                    elsewhere[namespace] = proc_dir
                    sockets.update(_chosen(listening(proc_dir), port))
                for held in _held(proc_dir, sockets):
                    if held is None:
                        yield None
                    elif held not in found:
                        found.add(held)
                        yield Listening(*held, pid, name_of(pid))
        yield None


def living_thread(pid: int) -> str:
    """Return a process's directory in /proc. If the first thread of the process has ended, return
    the directory of a living thread instead.
    """
    proc_dir = f"/proc/{pid}"
    with contextlib.suppress(OSError):
        os.stat(f"{proc_dir}/ns/net")
        return proc_dir
    for thread in os.listdir(f"{proc_dir}/task"):
        with contextlib.suppress(OSError):
            os.stat(f"{proc_dir}/task/{thread}/ns/net")
            return f"{proc_dir}/task/{thread}"
    return proc_dir


def _chosen(found: Iterable[Socket], port: int | None) -> _Sockets:
    return {
        str(each.inode): (each.port, each.address) for each in found if port in {None, each.port}
    }


def _held(proc_dir: str, sockets: _Sockets) -> Iterator[tuple[int, str] | None]:
    """Yield the sockets that a process holds. Yield None whenever the caller may pause."""
    if not sockets:
        return
    with os.scandir(f"{proc_dir}/fd") as entries:
        for number, entry in enumerate(entries):
            if number % _STEP_DESCRIPTORS == 0:
                yield None
            # A descriptor may be closed during the scan.
            with contextlib.suppress(FileNotFoundError):
                link = _SOCKET.fullmatch(os.readlink(entry.path))
                if link is not None and (held := sockets.get(link[1])) is not None:
                    yield held
