"""The processes below this one, and signals to them that cannot hit a stranger.

Two ways of knowing what a command has started, with the same methods:

* `Descendants`, where this process is a child subreaper (prctl(2), Linux): everything that was
  forked below it, however it detached. To have no child left is the proof that nothing is left.
* `SessionMembers`, where there are no subreapers: what is still in the session of the command, or
  can be traced to it by living parents. Weaker: a process that has left the session *and* lost
  its parent before anybody looked is not known.

A pid is only signalled while something keeps it from being reused: direct children are reaped by
nobody but us, and deeper ones are held by a pidfd and looked at again before the signal.

Nothing here raises OSError. /proc may hide a process (mount option hidepid), and reading it may
fail for want of a descriptor or of memory. A process that cannot be looked at counts as alive, and
as one without children. If not even this process's own children can be listed, the answer is None:
whoever asks must not take that for "nothing is left".
"""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import sys
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

# Direct children of which one round looks for those to kill.
_KILLED_AT_ONCE: Final = 500

_PR_SET_PDEATHSIG: Final = 1
_PR_SET_CHILD_SUBREAPER: Final = 36
_PR_SET_NAME: Final = 15


def become_subreaper() -> bool:
    """Adopt orphaned descendants from now on; False where the system has no subreapers."""
    return _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def continue_when_parent_ends() -> None:
    """Have the kernel send this process SIGCONT whenever its parent ends, whoever that is by then.

    While the parent lives, it continues this process if a command stops it. Forks do not inherit
    this. The kernel also sends the signal when only the thread that forked this process ends; to a
    process that is not stopped, it does nothing.
    """
    _prctl(_PR_SET_PDEATHSIG, signal.SIGCONT)


def set_process_name(name: bytes) -> None:
    """Be called `name` (at most 15 bytes) in lists of processes, where that is possible."""
    _prctl(_PR_SET_NAME, name)


def _prctl(option: int, argument: int | bytes) -> bool:
    if sys.platform != "linux":
        return False
    try:
        import ctypes

        return bool(ctypes.CDLL(None).prctl(option, argument, 0, 0, 0) == 0)
    except (ImportError, OSError):
        # A Python without ctypes, or no memory for it.
        return False


# -- looking ----------------------------------------------------------------------------------


class ProcessInfo(NamedTuple):
    """`state` is ps(1)'s letter, or "?" for a process that cannot be looked at."""

    parent: int
    state: str
    # In state Z, more than one means that only the first thread has ended.
    threads: int = 1

    @property
    def is_dead(self) -> bool:
        return self.state == "X" or (self.state == "Z" and self.threads <= 1)


_GONE: Final = ProcessInfo(0, "X")
_HIDDEN: Final = ProcessInfo(0, "?")


def proc_is_usable() -> bool:
    """Whether /proc is mounted, and numbers processes as this one does.

    In a new PID namespace, the /proc of the old one is still there until another is mounted.
    """
    return os.path.exists(f"/proc/self/task/{os.getpid()}/stat")


def processes() -> dict[int, ProcessInfo] | None:
    """Return every process that can be seen, by pid; None if they cannot be listed."""
    try:
        if proc_is_usable():
            return {int(name): look(int(name)) for name in os.listdir("/proc") if name.isdigit()}
        return _processes_by_ps()
    except (OSError, ValueError):
        return None


def _processes_by_ps() -> dict[int, ProcessInfo]:
    # A large import, but only where there is no /proc.
    import subprocess

    columns = ("-o", "pid=", "-o", "ppid=", "-o", "stat=")
    try:
        listing = subprocess.run(["ps", "-A", *columns], capture_output=True, check=True).stdout
    except subprocess.SubprocessError as error:
        raise OSError from error
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
        return ProcessInfo(int(fields[1]), fields[0].decode(), int(fields[17]))
    except ProcessLookupError:
        return _GONE
    except FileNotFoundError:
        # Or hidden: hidepid=2 hides even that there is such a process.
        return _HIDDEN if exists(pid) else _GONE
    except (OSError, ValueError, IndexError):
        return _HIDDEN


def exists(pid: int) -> bool:
    """Whether there is such a process, be it a zombie; asked of the kernel, not of /proc."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def _by_parent(found: dict[int, ProcessInfo]) -> dict[int, list[int]]:
    by_parent: dict[int, list[int]] = {}
    for pid, process in found.items():
        by_parent.setdefault(process.parent, []).append(pid)
    return by_parent


def _children(pid: int) -> list[int]:
    """Return the direct children of a process, the youngest last, zombies included."""
    found: list[int] = []
    is_gone = True
    for thread in os.listdir(f"/proc/{pid}/task"):
        # A thread may end between the two.
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            found.extend(map(int, _read(f"/proc/{pid}/task/{thread}/children").split()))
            is_gone = False
    if is_gone:
        raise ProcessLookupError
    return found


def _lister() -> Callable[[int], list[int]] | None:
    """Return what lists the direct children of a process; it raises OSError and ValueError."""
    if os.path.exists(f"/proc/self/task/{os.getpid()}/children"):
        return _children
    # Kernels without CONFIG_PROC_CHILDREN leave a look at every process.
    everything = processes()
    if everything is None:
        return None
    by_parent = _by_parent(everything)
    return lambda pid: by_parent.get(pid, [])


def own_children() -> list[int] | None:
    """Return this process's direct children, zombies included; None if they cannot be listed."""
    list_children = _lister()
    try:
        return None if list_children is None else list_children(os.getpid())
    except (OSError, ValueError):
        return None


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


def walk(
    is_spared: Spared = _nobody, *, newest: int | None = None
) -> Iterator[tuple[int, int]] | None:
    """Return an iterator over pid and parent pid of everything below this process.

    Zombies are included. None if not even the direct children can be listed. `newest`: of the
    direct children, only so many that are not spared.

    What is spared, with all below it, is left out. What forks meanwhile may be missed, so callers
    repeat. The youngest come first, and each when its own children are known already: to kill one
    at once is the way to catch up with those that live just long enough to fork.
    """
    list_children = _lister()
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
    """Whether a child of this process is a zombie, and so has no children.

    To ask each of thousands of zombies for its children would take longer than others need to fork.
    """
    try:
        return os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except OSError:
        return False


def living_descendants() -> list[int] | None:
    """Return the pids below this process that still run, in order; None if nobody can tell."""
    found = walk()
    return None if found is None else sorted(pid for pid, _ in found if not look(pid).is_dead)


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
            # Had the pid been reused before pidfd_open, its parent would be another one. A process
            # that cannot be looked at is left until it is a child of this one.
            if look(pid).parent in (parent, us):
                signal.pidfd_send_signal(handle, number)
        finally:
            os.close(handle)


def kill_descendants(is_spared: Spared = _nobody) -> list[int] | None:
    """SIGKILL everything below this process; return the pids, of which some may be zombies.

    None if nobody can tell what there is. To be repeated until nothing is left: of very many
    children, these are the newest. Those that fork are among them, and the older ones are zombies.
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
    # All of the group in one call, which no fork can slip through.
    with contextlib.suppress(OSError):
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

    def living(self) -> list[int] | None:
        """Return the pids that still run; None if nobody can tell."""
        return living_descendants()

    def remaining(self, *, childless: bool) -> list[int] | None:
        """Return `living`. `childless`: no child is left to wait for, so nothing runs."""
        return [] if childless else self.living()

    def signal(self, number: int, leader: int | None) -> None:
        """Send a signal to each process, once: to many a second SIGTERM means "now".

        To the group of the command first, so that no script sees its children end and goes on; but
        the others are looked for before that, while they still have parents to be found by.
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
        """Return the pids of all that there is, also of zombies."""
        return sorted(pid for pid, _ in walk() or ())

    def kill(self, leader: int | None) -> bool:
        """SIGKILL, to be repeated until nothing is left; False if nobody can tell what there is."""
        if leader is not None:
            _signal_group(leader, signal.SIGKILL)
        return kill_descendants() is not None


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

    def living(self) -> list[int] | None:
        """Return the pids that still run, of those that can be known; None if nobody can tell."""
        found = processes()
        if found is None:
            return None
        everything = {pid: process for pid, process in found.items() if not process.is_dead}
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

    def remaining(self, *, childless: bool) -> list[int] | None:
        return self.living()

    def signal(self, number: int, leader: int | None) -> bool:
        """Send a signal to each process; False if nobody can tell what there is."""
        found = self.living()
        others = [pid for pid in found or () if leader is None or _is_outside(pid, leader)]
        if leader is not None:
            _signal_group(leader, number)
        for pid in others:
            with contextlib.suppress(OSError):
                os.kill(pid, number)
        return found is not None

    def unreaped(self) -> list[int]:
        """Return the pid of the session's leader, if that was not reaped."""
        return [self._session] if exists(self._session) else []

    def kill(self, leader: int | None) -> bool:
        return self.signal(signal.SIGKILL, leader)
