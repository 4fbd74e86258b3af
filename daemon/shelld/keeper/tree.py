"""Finds and signals the descendants of this process. Never signals any other process.

Two classes find the processes that a command has started. They have the same methods:

* `Descendants` is for a process that is a child subreaper (prctl(2), Linux). It finds all processes
  that descend from this process, even if they have detached themselves. If this process has no
  child left, no process of the command is left.
* `SessionMembers` is for a system without subreapers. It finds all processes in the session of the
  command, and all processes that are linked to this session by a chain of living parents. This
  class is weaker, because it misses a process that left the session *and* lost its parent between
  two scans.

A pid is signalled only while it cannot be reused. Only this process can reap its direct children.
For any other process, this process holds a pidfd, and checks the parent again before the signal.

Nothing here raises OSError. A process that cannot be inspected (see `proc`) counts as alive and as
childless. If this process's own children cannot be listed, a function returns None. A caller must
not conclude from None that no process is left.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
from collections.abc import Callable, Iterator
from typing import Final

from shelld.keeper.proc import by_parent, exists, info_of, lister, processes, session_of

# One round visits and kills at most this many direct children.
_KILLED_AT_ONCE: Final = 500

# A function that returns whether to spare a process. The walk calls this function when it reaches
# the process, because the result may change during the walk.
Spared = Callable[[int], bool]


def _nobody(_pid: int) -> bool:
    return False


def walk(
    is_spared: Spared = _nobody, *, newest: int | None = None
) -> Iterator[tuple[int, int]] | None:
    """Return an iterator over the pids of all descendants of this process, each with its parent's
    pid.

    The iterator includes zombies. It omits spared processes and their descendants. Returns None if
    the direct children cannot be listed. `newest` is the maximum number of direct children that are
    not spared; the iterator omits older ones.

    The walk may miss processes that fork during the walk, so callers repeat it. The walk yields the
    youngest process first. It lists the children of a process before it yields the process, so that
    a caller can kill each process immediately. A slower caller could not catch up with processes
    that live just long enough to fork.
    """
    list_children = lister()
    if list_children is None:
        return None
    us = os.getpid()
    try:
        own = list_children(us)
    except (OSError, ValueError):
        return None
    if newest is not None and len(own) > newest:
        found = itertools.islice((pid for pid in reversed(own) if not is_spared(pid)), newest)
        own = list(found)[::-1]
    return _walk(us, own, list_children, is_spared)


def _walk(
    us: int, own: list[int], list_children: Callable[[int], list[int]], is_spared: Spared
) -> Iterator[tuple[int, int]]:
    seen = {us}
    waiting: list[tuple[int, int]] = []

    def add(children: list[int], parent: int) -> None:
        for child in children:
            if child not in seen and not is_spared(child):
                seen.add(child)
                waiting.append((child, parent))

    add(own, us)
    while waiting:
        pid, parent = waiting.pop()
        if parent != us or not _has_ended(pid):
            with contextlib.suppress(OSError, ValueError):
                add(list_children(pid), pid)
        yield pid, parent


def _has_ended(child: int) -> bool:
    """Return whether a child of this process is a zombie, and so has no children.

    If there are thousands of zombies, it takes too long to list the children of each zombie. Other
    processes can fork in the meantime.
    """
    try:
        return os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except OSError:
        return False


def living_descendants() -> list[int] | None:
    """Return the sorted pids of the descendants that still run; None if they cannot be listed."""
    found = walk()
    return None if found is None else sorted(pid for pid, _ in found if not info_of(pid).is_dead)


# -- signalling -------------------------------------------------------------------------------


def signal_process(pid: int, number: int, parent: int) -> None:
    """Signal a descendant of this process. A scan found it as a child of `parent`.

    If the system has pidfd_open(2), the descendant gets the signal only while it is a child of
    `parent` or of this process.
    """
    us = os.getpid()
    # An error has one of three causes: the process is gone, it has another uid, or no descriptor is
    # left. A process with another uid becomes a survivor.
    with contextlib.suppress(OSError):
        if parent == us or not hasattr(os, "pidfd_open"):
            os.kill(pid, number)
            return
        handle = os.pidfd_open(pid)
        try:
            # If the pid was reused before pidfd_open, the new process has another parent. A process
            # that cannot be inspected gets no signal until it is a child of this process.
            if info_of(pid).parent in (parent, us):
                signal.pidfd_send_signal(handle, number)
        finally:
            os.close(handle)


def kill_descendants(is_spared: Spared = _nobody) -> list[int] | None:
    """SIGKILL all descendants of this process; return their pids, including zombies.

    Returns None if the processes cannot be listed. If there are many children, a call kills only
    the newest of them, so repeat this until no process is left. The children that still fork are
    among the newest. The older ones are zombies by then.
    """
    below = walk(is_spared, newest=_KILLED_AT_ONCE)
    if below is None:
        return None
    found: list[int] = []
    for pid, parent in below:
        found.append(pid)
        signal_process(pid, signal.SIGKILL, parent)
    return found


def _is_outside(pid: int, group: int) -> bool:
    try:
        return os.getpgid(pid) != group
    except OSError:
        return False


def _signal_group(group: int, number: int) -> None:
    # One call signals the whole group, so no fork can slip through.
    with contextlib.suppress(OSError):
        os.killpg(group, number)


# -- what a command has started -----------------------------------------------------------------


class Descendants:
    """Finds the processes of a command if this process is a subreaper.

    `leader` is the pid of the command's own process, which leads its own group and session.
    `leader` is None once the command's own process was reaped.
    """

    # This class needs no polling. The last process to end is a child of this process, so SIGCHLD
    # arrives.
    poll_interval_ms: int | None = None

    def begin(self, leader: int) -> None:
        """Record that a command has started."""

    def living(self) -> list[int] | None:
        """Return the pids of the processes that still run; None if they cannot be listed."""
        return living_descendants()

    def remaining(self, *, childless: bool) -> list[int] | None:
        """Return the result of `living`, or an empty list if there is no child (`childless`)."""
        return [] if childless else self.living()

    def signal(self, number: int, leader: int | None) -> None:
        """Send a signal to each process once, because many programs take a second SIGTERM as an
        order to exit without cleaning up.

        Signal the command's group first. Otherwise a script could see that its children have ended,
        and continue. But before this signal, find the processes outside the group, because their
        parents may end at the signal.
        """
        others = [
            (pid, parent)
            for pid, parent in walk() or ()
            if leader is None or _is_outside(pid, leader)
        ]
        if leader is not None:
            _signal_group(leader, number)
        for pid, parent in others:
            signal_process(pid, number, parent)

    def unreaped(self) -> list[int]:
        """Return the pids of all descendants of this process, including zombies."""
        return sorted(pid for pid, _ in walk() or ())

    def kill(self, leader: int | None) -> bool:
        """SIGKILL all processes; return False if they cannot be listed.

        Repeat until no process is left.
        """
        if leader is not None:
            _signal_group(leader, signal.SIGKILL)
        return kill_descendants() is not None


class SessionMembers:
    """If the system has no subreapers, finds the processes of a command by the command's session.
    Finds the processes in this session, and all processes that earlier scans have linked to it.
    """

    # This class needs polling, because SIGCHLD arrives only when a direct child ends.
    poll_interval_ms: int | None = 250

    def __init__(self) -> None:
        self._session = 0
        # Maps each known pid to its session. A reused pid is in another session.
        self._known: dict[int, int] = {}

    def begin(self, leader: int) -> None:
        self._session = leader
        self._known.clear()

    def living(self) -> list[int] | None:
        """Return the pids of the known processes that still run; None if they cannot be listed."""
        found = processes()
        if found is None:
            return None
        everything = {pid: process for pid, process in found.items() if not process.is_dead}
        sessions = {pid: session_of(pid) for pid in everything}
        known = {pid for pid, session in self._known.items() if sessions.get(pid) == session}
        known.update(pid for pid, session in sessions.items() if session == self._session)
        children = by_parent(everything)
        waiting = list(known)
        while waiting:
            for child in children.get(waiting.pop(), []):
                if child not in known:
                    known.add(child)
                    waiting.append(child)
        self._known = {pid: sessions[pid] for pid in known}
        return sorted(known)

    def remaining(self, *, childless: bool) -> list[int] | None:
        return self.living()

    def signal(self, number: int, leader: int | None) -> bool:
        """Send a signal to each process; return False if they cannot be listed."""
        found = self.living()
        others = [pid for pid in found or () if leader is None or _is_outside(pid, leader)]
        if leader is not None:
            _signal_group(leader, number)
        for pid in others:
            with contextlib.suppress(OSError):
                os.kill(pid, number)
        return found is not None

    def unreaped(self) -> list[int]:
        """Return the pid of the session leader if it was not reaped."""
        return [self._session] if exists(self._session) else []

    def kill(self, leader: int | None) -> bool:
        return self.signal(signal.SIGKILL, leader)
