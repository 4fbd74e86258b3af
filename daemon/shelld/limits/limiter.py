"""Puts commands under the limits of their sessions, and watches the limits that no cgroup enforces.

The limiter owns the cgroups of all sessions. It also owns the only task that scans limited
commands. The task runs only while there are such commands.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

import anyio

from shelld.eventloop.threads import run_in_thread
from shelld.keeper.proc import proc_is_usable
from shelld.limits.cgroups import KINDS, Cgroups
from shelld.limits.members import (
    Command,
    Group,
    LimitReason,
    Member,
    cgroup_limits_of,
)
from shelld.limits.usage import Usage, pss_bytes, reaped_cpu_s, scan
from shelld.process import faults
from shelld_protocol.errors import unavailable
from shelld_protocol.structs import ResourceLimits

# The pause between two scans. After a long scan, the pause is `_REST_SHARE` times as long as the
# scan, but at most `_MAX_INTERVAL_S`.
CHECK_INTERVAL_S: Final = 0.2
_MAX_INTERVAL_S: Final = 2.0
_REST_SHARE: Final = 20
# A scan works for this long without a pause. Then it pauses for `_SLICE_PAUSE_S`, so that other
# tasks can run on the event loop.
_SLICE_S: Final = 0.002
_SLICE_PAUSE_S: Final = 0.004

# The limiter keeps at most this many groups without members.
_MAX_UNUSED: Final = 8

_HINT: Final = "Mount /proc, or let the daemon create cgroups."


class Limiter:
    """Enforces the limits of all commands.

    `start_task` starts a task that outlives the current request.
    """

    def __init__(self, start_task: Callable[[Callable[[], Awaitable[None]]], object]) -> None:
        self._start_task = start_task
        self._cgroups = Cgroups()
        # The groups of sessions. The key identifies the session.
        self._groups: dict[object, Group] = {}
        # The unused groups for commands without a session.
        self._unused: list[Group] = []
        self._watched: set[Member] = set()
        self._is_watching = False
        # The processor time that all scans have taken.
        self._cost_s = 0.0
        # The processor time that scans have taken since the last pause.
        self._slice_s = 0.0

    # -- commands ---------------------------------------------------------------------------

    def admit(
        self, session: object | None, limits: ResourceLimits, *, is_waiting: bool = False
    ) -> Member:
        """Return the `Member` for a command that will start. If `is_waiting` is true, the member is
        a spare shell, which has no command yet.

        If `session` is None, the command shares its limits with no other command. Raises `RpcError`
        (unavailable) if a limit cannot be enforced.
        """
        group = self._group_of(session, limits)
        member = Member(group, group.cgroups.open(), is_waiting=is_waiting)
        group.members.add(member)
        enforced = member.enforced
        needs_proc = "watch" in (enforced.memory, enforced.processes, enforced.cpu)
        if needs_proc and not proc_is_usable():
            self.end(member)
            raise unavailable("limits", "/proc", _HINT)
        return member

    def _group_of(self, session: object | None, limits: ResourceLimits) -> Group:
        if session in self._groups:
            return self._groups[session]
        if session is None and self._unused and self._unused[-1].limits == limits:
            return self._unused.pop()
        cgroups = self._cgroups.open(cgroup_limits_of(limits))
        group = Group(limits, cgroups, is_of_session=session is not None)
        if session is not None:
            self._groups[session] = group
        return group

    def may_start_spare(self, session: object) -> bool:
        """Return whether a spare shell of a session may start now.

        While a spare shell starts, it counts as a process, see `Group.make_room`. So if a command
        of the session runs, the kernel could refuse a process to this command.
        """
        group = self._groups.get(session)
        return group is None or not (group.has_process_limit and group.is_running)

    def spare_runs(self, member: Member) -> None:
        """Record that a spare shell runs, and waits for its command."""
        member.has_entered = member.is_waiting
        member.group.make_room()

    def begin(self, member: Member, command: Command) -> None:
        """Record that a command runs."""
        member.command = command
        member.began_at = time.monotonic()
        if member.is_waiting:
            member.is_waiting = member.has_entered = False
            member.cgroups.count_from_now()
            member.group.make_room()
        if member.needs_watch:
            self._watched.add(member)
            self._keep_watching()
        # This call comes last, because it may fail. If it fails, the limiter counts the processor
        # time only from the first scan on.
        _note_reaped(member)

    def end(self, member: Member) -> None:
        """Record that no process of a command is left, or that the command never ran."""
        group = member.group
        self._watched.discard(member)
        if member not in group.members:
            return
        group.members.discard(member)
        self._cgroups.end_command(member.cgroups)
        if member.is_waiting:
            group.make_room()
        if group.members or (group.is_of_session and not group.is_closed):
            return
        if group.is_of_session or len(self._unused) >= _MAX_UNUSED:
            self._cgroups.end_session(group.cgroups)
        else:
            self._unused.append(group)

    def forget(self, session: object) -> None:
        """Forget a session. The limits of the session apply until its last command has ended."""
        group = self._groups.pop(session, None)
        if group is not None:
            group.is_closed = True
            if not group.members:
                self._cgroups.end_session(group.cgroups)

    def trim(self) -> None:
        """Retry what has failed before: forget the commands that are gone, and remove cgroups."""
        for member in list(self._watched):
            if member.command is not None and member.command.is_gone:
                self.end(member)
        self._keep_watching()
        self._cgroups.trim()

    def close(self) -> None:
        """Remove all cgroups that no process uses."""
        self._cgroups.close()

    # -- the watch --------------------------------------------------------------------------

    def _keep_watching(self) -> None:
        if self._watched and not self._is_watching:
            self._start_task(self._watch)
            self._is_watching = True

    async def _watch(self) -> None:
        # If this task fails, it is started again. So `_is_watching` stays true.
        pause = CHECK_INTERVAL_S
        while self._watched:
            await anyio.sleep(pause)
            before = self._cost_s
            for group in {member.group for member in self._watched}:
                await self._check_group(group)
            cost = self._cost_s - before
            pause = max(CHECK_INTERVAL_S, min(cost * _REST_SHARE, _MAX_INTERVAL_S))
        self._is_watching = False

    async def _check_group(self, group: Group) -> None:
        """Kill commands of a group, if a command or the whole group exceeds a limit."""
        await self._check_cgroups(group)
        is_watched = any(map(group.is_watched, KINDS))
        if not is_watched and group.limits.cpu_seconds is None:
            return
        usages = {member: await self._usage_of(member) for member in self._judged(group)}
        limits = group.limits
        for member, usage in usages.items():
            if member.reaped_before_s is None:
                # The earlier processor time of the runner is unknown, so count the processor time
                # from now on.
                _note_reaped(member)
            elif limits.cpu_seconds is not None and usage.cpu_s > limits.cpu_seconds:
                self._end_by(member, "cpu")
        if limits.processes is not None and group.is_watched("pids"):
            counts = {member: usage.threads for member, usage in usages.items()}
            self._judge(group, counts, limits.processes, "processes")
        if limits.memory_bytes is not None and group.is_watched("memory"):
            sizes = {member: usage.rss_bytes for member, usage in usages.items()}
            if self._sum(group, sizes) > limits.memory_bytes:
                # The sum of `rss_bytes` counts shared memory several times. So measure the sizes
                # exactly.
                pids = {member: usages[member].pids for member in sizes}
                sizes, cost = await _measure(pids)
                self._cost_s += cost
            self._judge(group, sizes, limits.memory_bytes, "memory")

    async def _check_cgroups(self, group: Group) -> None:
        for member in self._judged(group):
            began = time.thread_time()
            if member.cgroups.has_met("memory"):
                self._end_by(member, "memory")
            await self._count(time.thread_time() - began)
        began = time.thread_time()
        self._thin_out(group)
        await self._count(time.thread_time() - began)

    async def _count(self, cost_s: float) -> None:
        """Add `cost_s` to the processor time of all scans.

        Pause if other tasks have waited too long.
        """
        self._cost_s += cost_s
        self._slice_s += cost_s
        if self._slice_s > _SLICE_S:
            self._slice_s = 0.0
            await anyio.sleep(_SLICE_PAUSE_S)

    def _thin_out(self, group: Group) -> None:
        """Kill the youngest command if too many processes have entered the cgroup."""
        judged = self._judged(group)
        # Kill nothing while a member is being killed, because the kernel still counts the processes
        # of this member.
        nobody_dies = len(judged) + group.waiting == len(group.members)
        if judged and nobody_dies and group.cgroups.is_crowded(group.waiting):
            self._end_by(max(judged, key=lambda member: member.began_at), "processes")

    def _judged(self, group: Group) -> list[Member]:
        """Return the members that run and are not being killed.

        A command that is being killed will soon free its resources.
        """
        return [
            member
            for member in group.members
            if member in self._watched
            and member.command is not None
            and not member.command.is_killed_at_once
            # When a command is gone, its runner may already run another command.
            and not member.command.is_gone
        ]

    def _sum(self, group: Group, amounts: dict[Member, int]) -> int:
        return sum(amounts.get(member, 0) for member in self._judged(group))

    def _judge(
        self, group: Group, amounts: dict[Member, int], limit: int, reason: LimitReason
    ) -> None:
        """If the members together use more than the limit, kill the member that uses the most."""
        if self._sum(group, amounts) > limit:
            # If several members use equally much, choose the youngest of them.
            largest = max(
                self._judged(group), key=lambda member: (amounts.get(member, 0), member.began_at)
            )
            self._end_by(largest, reason)

    def _end_by(self, member: Member, reason: LimitReason) -> None:
        # The command may have ended during the scan.
        if member.command is not None and member in self._judged(member.group):
            member.command.exceed(reason)

    async def _usage_of(self, member: Member) -> Usage:
        """Return the usage of a command. Scans its processes in slices."""
        usage = Usage()
        if member.command is None or (runner := member.command.runner) is None:
            return usage
        with suppress(OSError, ValueError, IndexError):
            began = time.thread_time()
            for usage in scan(runner, member.reaped_before_s or 0.0):  # noqa: B007 - the last one
                await self._count(time.thread_time() - began)
                began = time.thread_time()
                if member not in self._watched:
                    # The runner may have another command by now.
                    return Usage()
            await self._count(time.thread_time() - began)
        return usage


def _note_reaped(member: Member) -> None:
    """Record the processor time of the processes that the runner has reaped so far."""
    runner = None if member.command is None else member.command.runner
    if runner is not None and member.group.limits.cpu_seconds is not None:
        with suppress(OSError, ValueError):
            member.reaped_before_s = reaped_cpu_s(runner)


async def _measure(pids: dict[Member, list[int]]) -> tuple[dict[Member, int], float]:
    """Measure the memory of commands in a thread, if possible. Return the same as `_pss_of_all`."""
    try:
        return await run_in_thread(_pss_of_all, pids)
    except RuntimeError as error:
        if faults.shortage(error) is None:
            raise
        # No thread can start. Measure on the event loop instead, because the limit must still be
        # enforced.
        return _pss_of_all(pids)


def _pss_of_all(pids: dict[Member, list[int]]) -> tuple[dict[Member, int], float]:
    """Return the memory of each command, and the processor time that the measurement has taken."""
    began = time.thread_time()
    sizes = {member: pss_bytes(each) for member, each in pids.items()}
    return sizes, time.thread_time() - began
