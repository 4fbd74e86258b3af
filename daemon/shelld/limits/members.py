"""Knows which commands share limits, and how each limit is enforced. Inspects no process.

A session with limits is a `Group`, and each command that runs in it is a `Member`. A command
without a session is the only member of a group of its own.

Invariant: if a limit on memory or processes has a cgroup, and all members are in this cgroup, the
cgroup enforces the limit. Otherwise, `limiter` watches the limit.
"""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Mapping
from typing import Final, Literal, Protocol, get_args

from shelld.keeper.start import Restrictions
from shelld.limits.cgroups import CommandCgroups, Kind, SessionCgroups
from shelld_protocol.structs import EnforcedLimits, LimitMechanism, ResourceLimits

LimitReason = Literal["memory", "processes", "cpu", "file_size"]
LIMIT_REASONS: Final = frozenset(get_args(LimitReason))

# With SIGXFSZ, the kernel ends a process that writes too large a file. The first return code means
# that the kernel has ended bash itself. The second means that the kernel has ended the last process
# for which bash waited.
_FILE_TOO_LARGE: Final = (-signal.SIGXFSZ, 128 + signal.SIGXFSZ)


def rlimits_of(limits: ResourceLimits) -> tuple[tuple[int, int], ...]:
    """Return the limits that the kernel enforces for each single process, in the form of
    `Restrictions`.
    """
    both = ((resource.RLIMIT_FSIZE, limits.file_bytes), (resource.RLIMIT_NOFILE, limits.open_files))
    return tuple((number, value) for number, value in both if value is not None)


def cgroup_limits_of(limits: ResourceLimits) -> Mapping[Kind, int]:
    """Return the limits that a cgroup can enforce."""
    both: tuple[tuple[Kind, int | None], ...]
    both = (("memory", limits.memory_bytes), ("pids", limits.processes))
    return {kind: value for kind, value in both if value is not None}


class Command(Protocol):
    """A running command, from the point of view of the code that watches limits.

    `runner` is the pid of the command's runner. It is None if the pid is unknown or the runner has
    ended.
    """

    @property
    def runner(self) -> int | None: ...

    @property
    def is_killed_at_once(self) -> bool:
        """Whether somebody has asked to kill the command immediately, without a grace period."""
        ...

    @property
    def is_gone(self) -> bool:
        """Whether all processes of the command have ended."""
        ...

    def exceed(self, reason: LimitReason) -> None:
        """Kill the command with all its processes."""
        ...


class Group:
    """The members that share limits. A member stays in the group while it runs, or waits as a spare
    shell.

    `is_of_session` says that the group is for a session, and not for a single command. `is_closed`
    says that the session was closed.
    """

    def __init__(
        self, limits: ResourceLimits, cgroups: SessionCgroups, *, is_of_session: bool
    ) -> None:
        self.limits = limits
        self.cgroups = cgroups
        self.members: set[Member] = set()
        self.is_of_session = is_of_session
        self.is_closed = False

    @property
    def waiting(self) -> int:
        """The number of members that are spare shells without a command."""
        return sum(member.is_waiting for member in self.members)

    @property
    def is_running(self) -> bool:
        """Whether any member is not a waiting spare shell."""
        return self.waiting < len(self.members)

    @property
    def has_process_limit(self) -> bool:
        """Whether the kernel refuses processes above a limit."""
        return "pids" in self.cgroups.paths

    def make_room(self) -> None:
        """Raise the limit on processes by the number of spare shells that wait. So commands can use
        the whole limit.

        The kernel lets a spare shell enter a full cgroup. So raise the limit only after the spare
        shell has entered. If the limit rose earlier, a command could start processes up to the
        higher limit.
        """
        self.cgroups.make_room(sum(member.has_entered for member in self.members))

    def is_watched(self, kind: Kind) -> bool:
        """Whether the group has this limit, but no cgroup enforces the limit for all members."""
        is_limited = kind in cgroup_limits_of(self.limits)
        return is_limited and not all(kind in each.cgroups.kinds for each in self.members)


class Member:
    """One command with limits.

    With `is_waiting`, the member is a spare shell, which must not use up the limit on processes.
    """

    def __init__(self, group: Group, cgroups: CommandCgroups, *, is_waiting: bool) -> None:
        self.group = group
        self.cgroups = cgroups
        self.is_waiting = is_waiting
        # Whether this is a waiting spare shell that has started.
        self.has_entered = False
        self.command: Command | None = None
        # When the command began (time.monotonic()).
        self.began_at = 0.0
        # The processor time of the processes that the runner reaped before the command began; None
        # if unknown.
        self.reaped_before_s: float | None = None

    @property
    def restrictions(self) -> Restrictions | None:
        """The restrictions that apply to the command from its start; None if there are none."""
        limits = rlimits_of(self.group.limits)
        directories = tuple(map(os.fsencode, self.cgroups.directories))
        return Restrictions(limits, directories) if limits or directories else None

    @property
    def enforced(self) -> EnforcedLimits:
        """The mechanism that enforces each limit of the command."""
        limits = self.group.limits
        return EnforcedLimits(
            memory=self._mechanism("memory"),
            processes=self._mechanism("pids"),
            cpu="none" if limits.cpu_seconds is None else "watch",
            file_size="none" if limits.file_bytes is None else "rlimit",
            open_files="none" if limits.open_files is None else "rlimit",
        )

    def _mechanism(self, kind: Kind) -> LimitMechanism:
        if kind in self.cgroups.kinds:
            return "cgroup"
        return "watch" if kind in cgroup_limits_of(self.group.limits) else "none"

    @property
    def needs_watch(self) -> bool:
        """Whether the daemon must scan the command regularly."""
        limits = self.group.limits
        # The daemon must also watch a command in a memory cgroup, because the kernel may kill only
        # a part of the command.
        return limits.cpu_seconds is not None or bool(cgroup_limits_of(limits))

    def refused(self, indexes: tuple[int, ...]) -> None:
        """Record which of the cgroups in `restrictions` the command could not enter."""
        directories = self.cgroups.directories
        for index in indexes:
            self.cgroups.refused(directories[index])

    def reason_of_end(self, returncode: int) -> LimitReason | None:
        """Return the limit that made a command fail; None if no limit did.

        Assumes that nobody has killed the command.
        """
        if returncode == 0:
            return None
        if self.cgroups.has_met("memory"):
            return "memory"
        if self.group.limits.file_bytes is not None and returncode in _FILE_TOO_LARGE:
            return "file_size"
        return "processes" if self.cgroups.has_met("pids") else None
