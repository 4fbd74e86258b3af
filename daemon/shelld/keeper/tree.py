"""The processes below this one, and signals to them that cannot hit a stranger.

Two ways of knowing what a command has started, with the same methods:

* `Descendants`, where this process is a child subreaper (prctl(2), Linux): everything that was
  forked below it, however it detached. To have no child left is the proof that nothing is left.
* `SessionMembers`, where there are no subreapers: what is still in the session of the command, or
  can be traced to it by living parents. Weaker: a process that has left the session *and* lost
  its parent before anybody looked is not known.

A pid is only signalled while something keeps it from being reused: direct children are reaped by
nobody but us, and deeper ones are held by a pidfd and looked at again before the signal.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

_PR_SET_CHILD_SUBREAPER: Final = 36
_PR_SET_NAME: Final = 15

_GONE: Final = (FileNotFoundError, ProcessLookupError)
_DEAD: Final = ("Z", "X")


def become_subreaper() -> bool:
    """Adopt orphaned descendants from now on; False where the system has no subreapers."""
    if sys.platform != "linux":
        return False
    import ctypes

    return bool(ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0)


def set_process_name(name: bytes) -> None:
    """Be called `name` (at most 15 bytes) in lists of processes, where that is possible."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_NAME, name, 0, 0, 0)


# -- looking ----------------------------------------------------------------------------------


class ProcessInfo(NamedTuple):
    """`state` is ps(1)'s letter."""

    parent: int
    state: str


def processes() -> dict[int, ProcessInfo]:
    """Return every process there is to see, by pid: from /proc, or from ps(1)."""
    return _processes_by_proc() if os.path.exists("/proc/self/stat") else _processes_by_ps()


def _processes_by_proc() -> dict[int, ProcessInfo]:
    return {int(name): look(int(name)) for name in os.listdir("/proc") if name.isdigit()}


def _processes_by_ps() -> dict[int, ProcessInfo]:
    # A large import, but only where there is no /proc.
    import subprocess

    columns = ("-o", "pid=", "-o", "ppid=", "-o", "stat=")
    listing = subprocess.run(["ps", "-A", *columns], capture_output=True, check=True).stdout
    rows = [line.split() for line in listing.decode().splitlines()]
    return {int(pid): ProcessInfo(int(parent), state[0]) for pid, parent, state in rows}


def _read(path: str) -> bytes:
    # What an open file object costs besides is time that a fork needs to get away.
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        content = b""
        while data := os.read(descriptor, 65536):
            content += data
        return content
    finally:
        os.close(descriptor)


def look(pid: int) -> ProcessInfo:
    """Return what /proc says of a process; the state is "X" if it is gone."""
    try:
        # The name, in parentheses, may contain anything; the last one ends it.
        fields = _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
    except _GONE:
        return ProcessInfo(0, "X")
    return ProcessInfo(int(fields[1]), fields[0].decode())


def _by_parent(found: dict[int, ProcessInfo] | None = None) -> dict[int, list[int]]:
    by_parent: dict[int, list[int]] = {}
    for pid, process in (processes() if found is None else found).items():
        by_parent.setdefault(process.parent, []).append(pid)
    return by_parent


def children(pid: int) -> list[int]:
    """Return the direct children of a process, the youngest last, zombies included."""
    found: list[int] = []
    with contextlib.suppress(*_GONE):
        for thread in os.listdir(f"/proc/{pid}/task"):
            found.extend(map(int, _read(f"/proc/{pid}/task/{thread}/children").split()))
    return found


def session_of(pid: int) -> int:
    """Return the session of a process, or -1 if it is gone."""
    try:
        return os.getsid(pid)
    except OSError:
        return -1


# Asked of each process when it is come upon, as that may change meanwhile.
Spared = Callable[[int], bool]


def _nobody(_pid: int) -> bool:
    return False


def walk(is_spared: Spared = _nobody) -> Iterator[tuple[int, int]]:
    """Yield pid and parent pid of everything below this process, zombies included.

    What is spared, with all below it, is left out. What forks meanwhile may be missed, so callers
    repeat. The youngest come first, and each when its own children are known already: to kill one
    at once is the way to catch up with those that live just long enough to fork.
    """
    us = os.getpid()
    # Kernels without CONFIG_PROC_CHILDREN leave a look at every process.
    by_parent = None if os.path.exists(f"/proc/{us}/task/{us}/children") else _by_parent()
    seen = {us}
    waiting = [(us, 0)]
    while waiting:
        pid, parent = waiting.pop()
        for child in children(pid) if by_parent is None else by_parent.get(pid, []):
            if child not in seen and not is_spared(child):
                seen.add(child)
                waiting.append((child, pid))
        if pid != us:
            yield pid, parent


def living_descendants() -> list[int]:
    """Return the pids below this process that still run, in order."""
    return sorted(pid for pid, _ in walk() if look(pid).state not in _DEAD)


# -- signalling -------------------------------------------------------------------------------


def signal_process(pid: int, number: int, parent: int) -> None:
    """Signal a process below this one that was found as a child of `parent`, if it still is."""
    us = os.getpid()
    # Gone, of another uid (it shows up as a survivor), or no descriptor left for a pidfd.
    with contextlib.suppress(OSError):
        if parent == us or not hasattr(os, "pidfd_open"):
            os.kill(pid, number)
            return
        handle = os.pidfd_open(pid)
        try:
            # Had the pid been reused before pidfd_open, its parent would be another one.
            if look(pid).parent in (parent, us):
                signal.pidfd_send_signal(handle, number)
        finally:
            os.close(handle)


def kill_descendants(is_spared: Spared = _nobody) -> list[int]:
    """SIGKILL everything below this process; return the pids, of which some may be zombies.

    To be repeated until nothing is left.
    """
    found: list[int] = []
    for pid, parent in walk(is_spared):
        found.append(pid)
        signal_process(pid, signal.SIGKILL, parent)
    return found


def _is_outside(pid: int, group: int) -> bool:
    try:
        return os.getpgid(pid) != group
    except OSError:
        return False


def _signal_group(group: int, number: int) -> None:
    # All of the group in one call, which no fork can slip through.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


# -- what a command has started -----------------------------------------------------------------


class Descendants:
    """Of a subreaper: everything below it.

    `leader` is the command's own process, of its own group and session, or None once reaped.
    """

    # Every end is a SIGCHLD.
    poll_interval_ms: int | None = None

    def begin(self, leader: int) -> None:
        """A command was started."""

    def living(self) -> list[int]:
        """Return the pids that still run."""
        return living_descendants()

    def remaining(self, *, childless: bool) -> list[int]:
        """Return `living`; `childless`, that no child is left to wait for, is the proof of none."""
        return [] if childless else self.living()

    def signal(self, number: int, leader: int | None) -> None:
        """Send a signal to each process, once: to many a second SIGTERM means "now".

        To the group of the command first, so that no script sees its children end and goes on; but
        the others are looked for before that, while they still have parents to be found by.
        """
        others = [
            (pid, parent) for pid, parent in walk() if leader is None or _is_outside(pid, leader)
        ]
        if leader is not None:
            _signal_group(leader, number)
        for pid, parent in others:
            signal_process(pid, number, parent)

    def kill(self, leader: int | None) -> None:
        """SIGKILL; to be repeated until nothing is left."""
        if leader is not None:
            _signal_group(leader, signal.SIGKILL)
        kill_descendants()


class SessionMembers:
    """Without subreapers: what is in the session, and what was traced to it while it could be."""

    # Nobody tells of the end of a process that is not a child.
    poll_interval_ms: int | None = 250

    def __init__(self) -> None:
        self._session = 0
        # pid -> its session: a pid that was reused is in another one.
        self._known: dict[int, int] = {}

    def begin(self, leader: int) -> None:
        self._session = leader
        self._known.clear()

    def living(self) -> list[int]:
        """Return the pids that still run, of those that can be known."""
        everything = {
            pid: process for pid, process in processes().items() if process.state not in _DEAD
        }
        sessions = {pid: session_of(pid) for pid in everything}
        known = {pid for pid, session in self._known.items() if sessions.get(pid) == session}
        known.update(pid for pid, session in sessions.items() if session == self._session)
        by_parent = _by_parent(everything)
        waiting = list(known)
        while waiting:
            for child in by_parent.get(waiting.pop(), []):
                if child not in known:
                    known.add(child)
                    waiting.append(child)
        self._known = {pid: sessions[pid] for pid in known}
        return sorted(known)

    def remaining(self, *, childless: bool) -> list[int]:
        return self.living()

    def signal(self, number: int, leader: int | None) -> None:
        others = [pid for pid in self.living() if leader is None or _is_outside(pid, leader)]
        if leader is not None:
            _signal_group(leader, number)
        for pid in others:
            with contextlib.suppress(OSError):
                os.kill(pid, number)

    def kill(self, leader: int | None) -> None:
        self.signal(signal.SIGKILL, leader)
