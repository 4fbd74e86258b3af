"""Makes cgroups in which the kernel limits the memory and the processes of a session's commands.

A session has a cgroup with its limits, and each of its commands has a cgroup below the cgroup of
the session. So the kernel limits the commands together, but counts for each command how many times
it has hit a limit. A command reuses the cgroup of an earlier command of the session, if possible.
This saves time: to make or remove a cgroup, the kernel waits for all processes of the machine that
are just entering a cgroup.

If this process may write to the directory of its own cgroup, the module makes the cgroups in this
directory. With cgroup v2, this works only if no process is directly in this directory. So with
cgroup v2, the module can also make siblings of this process's cgroup, if their parent directory was
delegated to this user.

This module owns the directories of the cgroups that it makes. The name of each directory begins
with the prefix of `keeper.cgroup` and contains the pid of this process. So if this process is
killed, its keeper finds and removes the directories. This module raises no OSError. If the module
cannot make a cgroup, `limiter` watches the limit instead.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Set
from contextlib import suppress
from typing import Final, Literal, NamedTuple

from shelld.keeper.cgroup import PREFIX, is_delegated, owner_tag, remove, remove_stale, write
from shelld.keeper.own_cgroups import OwnCgroup, own_cgroups

Kind = Literal["memory", "pids"]
KINDS: Final[tuple[Kind, ...]] = ("memory", "pids")


class _Files(NamedTuple):
    """The names of a cgroup's files for one kind of limit.

    The file `limit` sets the limit. The file `counter` counts events, and `line` matches the line
    with the count. The keys of `more` are the names of files that set further limits, and its
    values are these limits. If such a value is None, the file gets the same value as the file
    `limit`. Not every system has these files. The file `switch` makes the limit apply to all
    descendants of the cgroup.
    """

    limit: str
    more: Mapping[str, str | None]
    counter: str
    line: re.Pattern[bytes]
    switch: str = ""


_OOM_KILLS: Final = re.compile(rb"^oom_kill (\d+)$", re.MULTILINE)
# Matches the number of times that a cgroup has hit its own limit. The number in `_OOM_KILLS` also
# includes processes that were killed because the machine or an ancestor of the cgroup was short of
# memory.
_OOMS: Final = re.compile(rb"^oom (\d+)$", re.MULTILINE)
_REFUSED_FORKS: Final = re.compile(rb"^max (\d+)$", re.MULTILINE)
_PIDS: Final = _Files("pids.max", {}, "pids.events", _REFUSED_FORKS)
_FILES: Final[Mapping[tuple[Kind, bool], _Files]] = {
    ("memory", False): _Files(
        "memory.limit_in_bytes",
        {"memory.memsw.limit_in_bytes": None},
        "memory.oom_control",
        _OOM_KILLS,
        switch="memory.use_hierarchy",
    ),
    ("memory", True): _Files("memory.max", {"memory.swap.max": "0"}, "memory.events", _OOM_KILLS),
    ("pids", False): _PIDS,
    ("pids", True): _PIDS,
}


# The numbers are unique in this process. A program may have several managers, and each manager has
# its own `Cgroups`.
_numbers: Final = itertools.count(1)


class ParentCgroup(NamedTuple):
    """A directory in which the daemon can make cgroups for one kind of limit."""

    directory: str
    is_v2: bool


def find_parents(own: list[OwnCgroup], *, under_systemd: bool) -> dict[Kind, ParentCgroup]:
    """For each kind of limit that a cgroup can enforce, return the directory in which to make
    cgroups.

    `own` are the cgroups of this process.
    """
    return {
        kind: parent
        for kind in KINDS
        if (parent := next(_parents(kind, own, under_systemd=under_systemd), None)) is not None
    }


def _parents(kind: Kind, own: list[OwnCgroup], *, under_systemd: bool) -> Iterator[ParentCgroup]:
    for each in own:
        if kind in each.controllers.split(","):
            if _is_writable(each.directory):
                yield ParentCgroup(each.directory, is_v2=False)
        elif not each.controllers:
            for directory in (each.directory, each.parent):
                # The limits of this process's own cgroup do not apply to the siblings of this
                # cgroup. So a sibling must be in a delegated directory.
                must_be_delegated = under_systemd or directory != each.directory
                is_ours = not must_be_delegated or is_delegated(directory)
                if is_ours and _is_writable(directory) and _enable(kind, directory):
                    yield ParentCgroup(directory, is_v2=True)


def _is_writable(directory: str) -> bool:
    return all(os.access(path, os.W_OK) for path in (directory, f"{directory}/cgroup.procs"))


def _enable(kind: Kind, directory: str) -> bool:
    """Enable a controller of cgroup v2 for the cgroups below a directory."""
    control = f"{directory}/cgroup.subtree_control"
    # The kernel refuses the write while a process is in the directory.
    return kind in _read(control).split() or write(control, f"+{kind}".encode())


class CommandCgroups:
    """The cgroups of one command."""

    def __init__(self, session: SessionCgroups, name: str) -> None:
        self._session = session
        self._paths: dict[Kind, str] = {
            kind: f"{path}/{name}" for kind, path in session.paths.items()
        }
        # For each limit that the kernel enforces, how many times processes had reached the limit
        # before the command started.
        self._before: dict[Kind, int] = {}
        self._shortages_before = 0
        for path in set(self._paths.values()):
            with suppress(OSError):
                os.mkdir(path)
        if "memory" in self._paths and session.is_v2("memory"):
            # Make the kernel kill all processes of the command together.
            write(f"{self._paths['memory']}/memory.oom.group", b"1")
        self.begin()

    def begin(self) -> None:
        """Record what the kernel has counted so far, so that only later events count for the next
        command.
        """
        self._shortages_before = self._session.count_shortages()
        self._before = {}
        for kind in self._paths:
            if (count := self._counted(kind)) is not None:
                self._before[kind] = count

    def count_from_now(self) -> None:
        """Ignore the events that the kernel counted before the spare shell got its command."""
        self._shortages_before = self._session.count_shortages()
        self._before = {
            kind: max(before, self._counted(kind) or 0) for kind, before in self._before.items()
        }

    @property
    def kinds(self) -> Set[Kind]:
        """The limits that the kernel enforces for the command."""
        return self._before.keys()

    @property
    def directories(self) -> tuple[str, ...]:
        """The directories of the cgroups that the command must enter."""
        return tuple(dict.fromkeys(self._paths[kind] for kind in KINDS if kind in self.kinds))

    def refused(self, directory: str) -> None:
        """Record that the command could not enter a cgroup."""
        self._before = {
            kind: count for kind, count in self._before.items() if self._paths[kind] != directory
        }

    def has_met(self, kind: Kind) -> bool:
        """Whether the kernel has killed a process of the command, or has refused a fork, because of
        this limit.
        """
        if kind not in self.kinds or (self._counted(kind) or 0) <= self._before[kind]:
            return False
        if kind != "memory" or not self._session.is_v2(kind):
            # Cgroup v1 does not report why a process was killed. Since Linux 6.13, `memory.failcnt`
            # does not report this either.
            return True
        return self._session.count_shortages() > self._shortages_before

    def give_back(self) -> bool:
        """Keep the cgroups for another command.

        Returns False if a cgroup is missing, or if a process is still in one of the cgroups.
        """
        is_whole = self.kinds == self._paths.keys()
        is_empty = not any(_read(f"{path}/cgroup.procs") for path in self._paths.values())
        if is_whole and is_empty:
            self._session.unused.append(self)
        return is_whole and is_empty

    def _counted(self, kind: Kind) -> int | None:
        own = self._session.count(kind, self._paths[kind])
        if own is None or kind == "memory":
            return own
        # Since Linux 6.11, a refused fork counts in the cgroup that has the limit, and not in the
        # cgroup of the process.
        return own + (self._session.count(kind, self._session.paths[kind]) or 0)

    def remove(self) -> bool:
        """Remove the directories. Return False if a process is still in one of them."""
        return _remove_all(self._paths.values())


class SessionCgroups:
    """The cgroups of one session.

    `paths` maps each limit to the directory of the cgroup that enforces it.
    """

    def __init__(
        self, name: str, parents: Mapping[Kind, ParentCgroup], limits: Mapping[Kind, int]
    ) -> None:
        self._parents = parents
        self._limits = limits
        self._numbers = itertools.count(1)
        self.paths: dict[Kind, str] = {}
        # The cgroups of earlier commands, which the next commands can reuse.
        self.unused: list[CommandCgroups] = []
        for kind, limit in limits.items():
            if kind in parents and self._make(kind, f"{parents[kind].directory}/{name}", limit):
                self.paths[kind] = f"{parents[kind].directory}/{name}"

    def is_v2(self, kind: Kind) -> bool:
        return self._parents[kind].is_v2

    def _make(self, kind: Kind, path: str, limit: int) -> bool:
        files = _FILES[kind, self.is_v2(kind)]
        is_new = path not in self.paths.values()
        try:
            if is_new:
                os.mkdir(path)
        except OSError:
            return False
        is_limited = write(f"{path}/{files.limit}", b"%d" % limit)
        switch = f"{path}/{files.switch}"
        if files.switch and os.path.exists(switch):
            # Before Linux 5.11, a limit applies to the descendants of a cgroup only if this file
            # contains 1.
            is_limited &= write(switch, b"1")
        for name, value in files.more.items():
            write(f"{path}/{name}", (value or str(limit)).encode())
        if is_limited and self.is_v2(kind):
            is_limited = _enable(kind, path)
        if not is_limited and is_new:
            remove(path)
        return is_limited

    def count(self, kind: Kind, path: str) -> int | None:
        """Return how many times a cgroup has hit the limit; None if the number cannot be read."""
        files = _FILES[kind, self.is_v2(kind)]
        found = files.line.search(_read(f"{path}/{files.counter}").encode())
        return None if found is None else int(found[1])

    def count_shortages(self) -> int:
        """Return how many times the session has hit its memory limit.

        Only cgroup v2 counts this. With cgroup v1, the result is 0.
        """
        if "memory" not in self.paths or not self.is_v2("memory"):
            return 0
        found = _OOMS.search(_read(f"{self.paths['memory']}/memory.events").encode())
        return 0 if found is None else int(found[1])

    def open(self) -> CommandCgroups:
        """Return cgroups for a command. Leave out a cgroup that cannot be made."""
        if not self.unused:
            return CommandCgroups(self, f"command-{next(self._numbers)}")
        command = self.unused.pop()
        command.begin()
        return command

    def make_room(self, count: int) -> None:
        """Raise the limit on processes by `count`."""
        if "pids" in self.paths:
            write(f"{self.paths['pids']}/{_PIDS.limit}", b"%d" % (self._limits["pids"] + count))

    def is_crowded(self, waiting: int) -> bool:
        """Return whether there are too many processes, not counting the spare shells that wait.
        This can happen, because the kernel refuses a fork above the limit, but lets every process
        enter the cgroup.
        """
        count = _read(f"{self.paths['pids']}/pids.current") if "pids" in self.paths else ""
        return count.strip().isdecimal() and int(count) > self._limits["pids"] + waiting

    def remove(self) -> bool:
        """Remove the directories. Return False if a process is still in one of them."""
        return _remove_all(self.paths.values())


class Cgroups:
    """Owns all cgroups of a daemon.

    Searches for usable directories when it needs the first cgroup.
    """

    def __init__(self) -> None:
        self._parents: dict[Kind, ParentCgroup] | None = None
        self._sessions: set[SessionCgroups] = set()
        # The cgroups that could not be removed yet.
        self._left: set[SessionCgroups | CommandCgroups] = set()

    @property
    def parents(self) -> dict[Kind, ParentCgroup]:
        if self._parents is None:
            under_systemd = os.path.exists("/run/systemd/system")
            self._parents = find_parents(own_cgroups(), under_systemd=under_systemd)
            for parent in self._parents.values():
                remove_stale(parent.directory)
        return self._parents

    def open(self, limits: Mapping[Kind, int]) -> SessionCgroups:
        """Make the cgroups of a session. Leave out a cgroup that cannot be made."""
        name = f"{PREFIX}{owner_tag()}-limits-{next(_numbers)}"
        session = SessionCgroups(name, self.parents if limits else {}, limits)
        self._sessions.add(session)
        return session

    def end_command(self, command: CommandCgroups) -> None:
        """Keep the cgroups of a command for another command, if possible.

        Otherwise, remove them later.
        """
        if not command.give_back():
            self._left.add(command)

    def end_session(self, session: SessionCgroups) -> None:
        """Remove the cgroups of a session.

        If a cgroup still has processes, `trim` removes it later.
        """
        self._sessions.discard(session)
        if not session.remove():
            self._left.add(session)

    def trim(self) -> None:
        """Remove the cgroups that could not be removed before."""
        self._left = {each for each in self._left if not each.remove()}

    def close(self) -> None:
        """Remove all cgroups that contain no processes.

        The keeper removes the cgroups that still have processes.
        """
        for session in list(self._sessions):
            self.end_session(session)
        self.trim()
        self._left.clear()


def _remove_all(paths: Iterable[str]) -> bool:
    # With cgroup v2, the limits on memory and on processes can have the same directory.
    results = {path: remove(path) for path in set(paths)}
    return all(results.values())


def _read(path: str) -> str:
    try:
        with open(path) as file:
            return file.read()
    except OSError:
        return ""
