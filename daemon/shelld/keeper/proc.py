"""Reads facts about processes from /proc and from the kernel. Changes nothing.

/proc may hide a process (mount option hidepid), and reading /proc may fail for lack of a descriptor
or of memory. A process that cannot be inspected counts as alive.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

# A short file of /proc is never this long.
_SHORT_BYTES: Final = 4096


class ProcessInfo(NamedTuple):
    """`state` is the letter of ps(1), or "?" for a process that cannot be inspected."""

    parent: int
    state: str
    # The number of threads. In state Z, more than one thread means that only the first thread has
    # ended.
    threads: int = 1

    @property
    def is_dead(self) -> bool:
        return self.state == "X" or (self.state == "Z" and self.threads <= 1)


_GONE: Final = ProcessInfo(0, "X")
_HIDDEN: Final = ProcessInfo(0, "?")


def proc_is_usable() -> bool:
    """Return whether /proc is mounted and belongs to the PID namespace of this process.

    In a new PID namespace, the /proc of the old namespace stays mounted until it is replaced.
    """
    return os.path.exists(f"/proc/self/task/{os.getpid()}/stat")


def processes() -> dict[int, ProcessInfo] | None:
    """Return every visible process by pid; None if they cannot be listed."""
    try:
        if proc_is_usable():
            return {int(name): info_of(int(name)) for name in os.listdir("/proc") if name.isdigit()}
        return _processes_by_ps()
    except (OSError, ValueError):
        return None


def _processes_by_ps() -> dict[int, ProcessInfo]:
    # Import it only here, because the module is large and needed only without /proc.
    import subprocess

    columns = ("-o", "pid=", "-o", "ppid=", "-o", "stat=")
    try:
        listing = subprocess.run(["ps", "-A", *columns], capture_output=True, check=True).stdout
    except subprocess.SubprocessError as error:
        raise OSError from error
    rows = [line.split() for line in listing.decode().splitlines()]
    return {int(pid): ProcessInfo(int(parent), state[0]) for pid, parent, state in rows}


def read_file(path: str) -> bytes:
    """Return the content of a file of /proc. Raises OSError."""
    # Use no file object, because a read would then take longer, and a process could fork and escape
    # during the read.
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        content = b""
        while data := os.read(descriptor, 65536):
            content += data
        return content
    finally:
        os.close(descriptor)


def read_short_file(path: str) -> bytes:
    """Return the content of a file of /proc that the kernel returns in one read. Raises OSError.

    For a file about one thread or descriptor, one read returns the whole file. For a list, one read
    returns only a part.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(descriptor, _SHORT_BYTES)
    finally:
        os.close(descriptor)


def stat_fields(pid: int) -> list[bytes]:
    """Return the fields of /proc/PID/stat, beginning with the third, the state. Raises OSError."""
    return fields_of(read_short_file(f"/proc/{pid}/stat"))


def fields_of(stat: bytes) -> list[bytes]:
    """Return what `stat_fields` returns, given the content of the file."""
    # The name is in parentheses and may contain anything; the last parenthesis ends it.
    return stat.rpartition(b")")[2].split()


def info_of(pid: int) -> ProcessInfo:
    """Return what /proc says about a process; the state is "X" if it is gone."""
    try:
        fields = stat_fields(pid)
        return ProcessInfo(int(fields[1]), fields[0].decode(), int(fields[17]))
    except ProcessLookupError:
        return _GONE
    except FileNotFoundError:
        # The process is gone or hidden. The mount option hidepid=2 hides even the existence of a
        # process.
        return _HIDDEN if exists(pid) else _GONE
    except (OSError, ValueError, IndexError):
        return _HIDDEN


def exists(pid: int) -> bool:
    """Return whether a process exists, zombies included. Asks the kernel, not /proc."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def by_parent(found: dict[int, ProcessInfo]) -> dict[int, list[int]]:
    """Return a map from the pid of each parent to the pids of its children."""
    children: dict[int, list[int]] = {}
    for pid, process in found.items():
        children.setdefault(process.parent, []).append(pid)
    return children


def children_of(pid: int) -> list[int]:
    """Return the direct children of a process, the youngest last, zombies included."""
    return [child for children in children_by_thread(pid) for child in children]


def children_by_thread(pid: int) -> Iterator[list[int]]:
    """Yield the direct children of a process, thread by thread."""
    is_gone = True
    for thread in os.listdir(f"/proc/{pid}/task"):
        # The thread may have ended since `listdir`.
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            yield list(map(int, read_file(f"/proc/{pid}/task/{thread}/children").split()))
            is_gone = False
    if is_gone:
        raise ProcessLookupError


def lister() -> Callable[[int], list[int]] | None:
    """Return a function that lists a process's children; None if no process can be listed.

    The function raises OSError and ValueError.
    """
    if os.path.exists(f"/proc/self/task/{os.getpid()}/children"):
        return children_of
    # A kernel without CONFIG_PROC_CHILDREN has no lists of children, so scan all processes.
    everything = processes()
    if everything is None:
        return None
    children = by_parent(everything)
    return lambda pid: children.get(pid, [])


def own_children() -> list[int] | None:
    """Return this process's direct children, zombies included; None if they cannot be listed."""
    list_children = lister()
    try:
        return None if list_children is None else list_children(os.getpid())
    except (OSError, ValueError):
        return None


def session_of(pid: int) -> int:
    """Return the session id of a process, or -1 if it is gone."""
    try:
        return os.getsid(pid)
    except OSError:
        return -1
