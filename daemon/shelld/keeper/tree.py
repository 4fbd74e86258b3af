"""Finds and signals the processes below this one. Never signals any other process.

Two classes know the processes that a command has started. They have the same methods:

* `Descendants`, if this process is a child subreaper (prctl(2), Linux): everything that was forked
  below it, however it detached. If this process has no child left, nothing is left.
* `SessionMembers`, without subreapers: everything that is still in the session of the command, or
  is linked to that session by a chain of living parents. This is weaker: it misses a process that
  left the session *and* lost its parent before anybody looked.

A pid is signalled only while it cannot be reused. Only this process can reap its direct children.
For a deeper process, it holds a pidfd, and checks the parent again before the signal.

Nothing here raises OSError. /proc may hide a process (mount option hidepid), and reading /proc may
fail for lack of a descriptor or of memory. A process that cannot be inspected counts as alive and
as childless. If not even this process's own children can be listed, the answer is None: a caller
must not take that for "nothing is left".
"""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import sys
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

# The maximum number of direct children that one round walks and kills.
_KILLED_AT_ONCE: Final = 500

_PR_SET_PDEATHSIG: Final = 1
_PR_SET_CHILD_SUBREAPER: Final = 36
_PR_SET_NAME: Final = 15


def become_subreaper() -> bool:
    """Adopt orphaned descendants from now on; return False if the system has no subreapers."""
    return _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def continue_when_parent_ends() -> None:
    """Have the kernel send this process SIGCONT whenever its parent, or a later parent, ends.

    If a command has stopped this process, a living parent continues it. The signal does so once the
    parent has ended. Forks do not inherit this setting. The kernel also sends the signal when only
    the thread that forked this process ends. That is harmless: SIGCONT does nothing to a process
    that is not stopped.
    """
    _prctl(_PR_SET_PDEATHSIG, signal.SIGCONT)


def set_process_name(name: bytes) -> None:
    """Set this process's name in process lists (at most 15 bytes), if the system allows it."""
    _prctl(_PR_SET_NAME, name)


def _prctl(option: int, argument: int | bytes) -> bool:
    if sys.platform != "linux":
        return False
    try:
        import ctypes

        return bool(ctypes.CDLL(None).prctl(option, argument, 0, 0, 0) == 0)
    except (ImportError, OSError):
        # This Python has no ctypes, or there is no memory for it.
        return False


# -- inspecting -------------------------------------------------------------------------------


class ProcessInfo(NamedTuple):
    """`state` is the letter of ps(1), or "?" for a process that cannot be inspected."""

    parent: int
    state: str
    # In state Z, more than one thread means that only the first thread has ended.
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
            return {int(name): look(int(name)) for name in os.listdir("/proc") if name.isdigit()}
        return _processes_by_ps()
    except (OSError, ValueError):
        return None


def _processes_by_ps() -> dict[int, ProcessInfo]:
    # A large import, needed only without /proc.
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
    # Use no file object: that would take longer, and a process could fork and escape meanwhile.
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        content = b""
        while data := os.read(descriptor, 65536):
            content += data
        return content
    finally:
        os.close(descriptor)


def stat_fields(pid: int) -> list[bytes]:
    """Return the fields of /proc/PID/stat from the third on, which is the state. Raises OSError."""
    return fields_of(read_file(f"/proc/{pid}/stat"))


def fields_of(stat: bytes) -> list[bytes]:
    """Return the same fields, from the content of the file."""
    # The name is in parentheses and may contain anything; the last parenthesis ends it.
    return stat.rpartition(b")")[2].split()


def look(pid: int) -> ProcessInfo:
    """Return what /proc says about a process; the state is "X" if it is gone."""
    try:
        fields = stat_fields(pid)
        return ProcessInfo(int(fields[1]), fields[0].decode(), int(fields[17]))
    except ProcessLookupError:
        return _GONE
    except FileNotFoundError:
        # Gone or hidden: hidepid=2 hides even the existence of a process.
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


def _by_parent(found: dict[int, ProcessInfo]) -> dict[int, list[int]]:
    by_parent: dict[int, list[int]] = {}
    for pid, process in found.items():
        by_parent.setdefault(process.parent, []).append(pid)
    return by_parent


def children_of(pid: int) -> list[int]:
    """Return the direct children of a process, the youngest last, zombies included."""
    return [child for children in children_by_thread(pid) for child in children]


def children_by_thread(pid: int) -> Iterator[list[int]]:
    """Yield the direct children of a process, those of one thread after the other."""
    is_gone = True
    for thread in os.listdir(f"/proc/{pid}/task"):
        # A thread may end between the two reads.
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
    # A kernel without CONFIG_PROC_CHILDREN requires a scan of every process.
    everything = processes()
    if everything is None:
        return None
    by_parent = _by_parent(everything)
    return lambda pid: by_parent.get(pid, [])


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


# Whether to spare a process. The walk asks when it reaches the process, because the answer may
# change during the walk.
Spared = Callable[[int], bool]


def _nobody(_pid: int) -> bool:
    return False


def walk(
    is_spared: Spared = _nobody, *, newest: int | None = None
) -> Iterator[tuple[int, int]] | None:
    """Return an iterator over pid and parent pid of everything below this process.

    Includes zombies; omits spared processes and everything below them. Returns None if not even the
    direct children can be listed. `newest`: the maximum number of direct children that are not
    spared; the iterator omits older ones.

    The walk may miss processes that fork meanwhile, so callers repeat it. Yields the youngest
    first, and lists the children of a process before yielding it, so that a caller can kill each
    process at once. A slower caller could not catch up with processes that live just long enough to
    fork.
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

    Listing the children of thousands of zombies would take longer than other processes need to
    fork.
    """
    try:
        return os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except OSError:
        return False


def living_descendants() -> list[int] | None:
    """Return the pids below this process that still run, sorted; None if they cannot be listed."""
    found = walk()
    return None if found is None else sorted(pid for pid, _ in found if not look(pid).is_dead)


# -- signalling -------------------------------------------------------------------------------


def signal_process(pid: int, number: int, parent: int) -> None:
    """Signal a process below this one that was found as a child of `parent`.

    Does nothing if the parent of the process is now neither `parent` nor this process.
    """
    us = os.getpid()
    # Errors mean that the process is gone or has another uid (then it becomes a survivor), or that
    # no descriptor is left.
    with contextlib.suppress(OSError):
        if parent == us or not hasattr(os, "pidfd_open"):
            os.kill(pid, number)
            return
        handle = os.pidfd_open(pid)
        try:
            # If the pid was reused before pidfd_open, the new process has another parent. A process
            # that cannot be inspected gets no signal until it is a child of this process.
            if look(pid).parent in (parent, us):
                signal.pidfd_send_signal(handle, number)
        finally:
            os.close(handle)


def kill_descendants(is_spared: Spared = _nobody) -> list[int] | None:
    """SIGKILL everything below this process; return the pids, including zombies.

    Returns None if the processes cannot be listed. Repeat this until nothing is left: of many
    children, each call kills only the newest. Children that fork are among the newest; the older
    ones are zombies.
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
    """Everything below this process, which is a subreaper.

    `leader`: the command's own process, which leads its own group and session; None once this
    process was reaped.
    """

    # No polling: the last process to end is a child of this one, so SIGCHLD arrives.
    poll_interval_ms: int | None = None

    def begin(self, leader: int) -> None:
        """Note the start of a command."""

    def living(self) -> list[int] | None:
        """Return the pids that still run; None if they cannot be listed."""
        return living_descendants()

    def remaining(self, *, childless: bool) -> list[int] | None:
        """Return the result of `living`, or an empty list if there is no child (`childless`)."""
        return [] if childless else self.living()

    def signal(self, number: int, leader: int | None) -> None:
        """Send a signal to each process once: many programs take a second SIGTERM to mean "now".

        Signal the command's group first. Otherwise a script could see its children end, and go on.
        Before that, find the processes outside the group: the parents that lead to them may end at
        the signal.
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
        """Return the pids of all processes below this one, including zombies."""
        return sorted(pid for pid, _ in walk() or ())

    def kill(self, leader: int | None) -> bool:
        """SIGKILL everything; return False if it cannot be listed. Repeat until nothing is left."""
        if leader is not None:
            _signal_group(leader, signal.SIGKILL)
        return kill_descendants() is not None


class SessionMembers:
    """Without subreapers: the command's session, and everything traced to it so far."""

    # Poll: SIGCHLD arrives only when a direct child ends.
    poll_interval_ms: int | None = 250

    def __init__(self) -> None:
        self._session = 0
        # Maps pids to their sessions, because a reused pid is in another session.
        self._known: dict[int, int] = {}

    def begin(self, leader: int) -> None:
        self._session = leader
        self._known.clear()

    def living(self) -> list[int] | None:
        """Return the pids known to still run; None if they cannot be listed."""
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
