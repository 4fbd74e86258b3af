"""The limiter measures commands, and ends the command that exceeds a limit. Numbers stand for
processes.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager

import anyio
import anyio.lowlevel
import pytest

from shelld.limits import limiter as limiter_module
from shelld.limits.cgroups import Cgroups, CommandCgroups, Kind, SessionCgroups
from shelld.limits.limiter import Limiter
from shelld.limits.members import LimitReason, Member
from shelld.limits.usage import Usage
from shelld.process.faults import NO_THREAD, run_once
from shelld_protocol.errors import ErrorKind, RpcError
from shelld_protocol.structs import ResourceLimits

MIB = 1024 * 1024


class FakeCommand:
    """`ended` lists the reasons why the limiter ended the command."""

    def __init__(self, runner: int | None, *, threads: int = 1, rss: int = 0, pss: int = 0) -> None:
        self.runner = runner
        self.usage = Usage()
        self.usage.threads, self.usage.rss_bytes, self.usage.pids = threads, rss, [runner or 0]
        self.pss = pss
        self.is_killed_at_once = self.is_gone = False
        self.ended: list[LimitReason] = []

    def exceed(self, reason: LimitReason) -> None:
        self.is_killed_at_once = True
        self.ended.append(reason)


class Machine:
    """Stands for the machine.

    `commands` maps each runner to its command, and `scans` and `pss_scans` count the measurements.
    """

    def __init__(self) -> None:
        self.commands: dict[int, FakeCommand] = {}
        self.scans = 0
        self.pss_scans = 0

    def scan(self, runner: int, reaped_before_s: float) -> Iterator[Usage]:
        self.scans += 1
        usage = self.commands[runner].usage
        usage.cpu_s -= reaped_before_s
        yield usage

    def reaped(self, _runner: int) -> float:
        return 0.0

    def pss(self, pids: list[int]) -> int:
        self.pss_scans += 1
        return sum(self.commands[pid].pss for pid in pids)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    """A machine without cgroups, on which the limiter measures commands all the time."""
    machine = Machine()
    monkeypatch.setattr(limiter_module, "scan", machine.scan)
    monkeypatch.setattr(limiter_module, "pss_bytes", machine.pss)
    monkeypatch.setattr(limiter_module, "reaped_cpu_s", machine.reaped)
    monkeypatch.setattr(limiter_module, "CHECK_INTERVAL_S", 0.0)
    monkeypatch.setattr(Cgroups, "parents", {})
    return machine


def unable(_runner: int) -> float:
    raise MemoryError


@asynccontextmanager
async def running(machine: Machine) -> AsyncGenerator[Limiter]:
    async with anyio.create_task_group() as tasks:

        def start(task: Callable[[], Awaitable[None]]) -> None:
            tasks.start_soon(run_once, task, "the watch")

        limiter = Limiter(start)
        with anyio.fail_after(60):
            yield limiter
        tasks.cancel_scope.cancel()
        limiter.close()


def begin(
    limiter: Limiter,
    machine: Machine,
    limits: ResourceLimits,
    session: object | None = "main",
    **usage: int,
) -> tuple[FakeCommand, Member]:
    member = limiter.admit(session, limits)
    runner = len(machine.commands) + 1
    command = machine.commands[runner] = FakeCommand(runner, **usage)
    limiter.begin(member, command)
    return command, member


async def scans(machine: Machine, count: int = 4) -> None:
    """Wait until the limiter has measured every command again."""
    enough = machine.scans + count * len(machine.commands)
    while machine.scans < enough:
        await anyio.lowlevel.checkpoint()


async def test_largest_command_of_a_session_is_ended(machine: Machine) -> None:
    limits = ResourceLimits(memory_bytes=100 * MIB)
    async with running(machine) as limiter:
        small, _ = begin(limiter, machine, limits, rss=40 * MIB, pss=40 * MIB)
        other, _ = begin(limiter, machine, limits, session="other", rss=90 * MIB, pss=90 * MIB)
        await scans(machine)
        assert machine.pss_scans == 0
        large, _ = begin(limiter, machine, limits, rss=70 * MIB, pss=70 * MIB)
        while not large.is_killed_at_once:
            await anyio.lowlevel.checkpoint()
        # The memory of the ended command no longer counts.
        await scans(machine, 2)
    assert (small.ended, large.ended, other.ended) == ([], ["memory"], [])


async def test_shared_memory_counts_once_and_ends_no_command(machine: Machine) -> None:
    async with running(machine) as limiter:
        limits = ResourceLimits(memory_bytes=100 * MIB)
        command, _ = begin(limiter, machine, limits, rss=400 * MIB, pss=90 * MIB)
        while machine.pss_scans < 3:
            await anyio.lowlevel.checkpoint()
    assert command.ended == []


async def test_limit_holds_if_no_thread_can_start(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object) -> None:
        raise RuntimeError(NO_THREAD)

    monkeypatch.setattr(limiter_module, "run_in_thread", fail)
    async with running(machine) as limiter:
        limits = ResourceLimits(memory_bytes=100 * MIB)
        command, _ = begin(limiter, machine, limits, rss=101 * MIB, pss=101 * MIB)
        while not command.is_killed_at_once:
            await anyio.lowlevel.checkpoint()
    assert command.ended == ["memory"]


async def test_processor_time_counts_from_the_first_scan_that_succeeds(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers: list[float | None] = [None, None, 7.0]

    def reaped(_runner: int) -> float:
        answer = answers.pop(0)
        if answer is None:
            raise OSError
        return answer

    monkeypatch.setattr(limiter_module, "reaped_cpu_s", reaped)
    async with running(machine) as limiter:
        command, member = begin(limiter, machine, ResourceLimits(cpu_seconds=1))
        command.usage.cpu_s = 7.5
        while answers:
            await anyio.lowlevel.checkpoint()
        assert (member.reaped_before_s, command.ended) == (7.0, [])
        command.usage.cpu_s = 99
        while not command.is_killed_at_once:
            await anyio.lowlevel.checkpoint()


async def test_limit_holds_if_the_count_at_the_start_fails(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(machine) as limiter:
        with monkeypatch.context() as patched:
            patched.setattr(limiter_module, "reaped_cpu_s", unable)
            with pytest.raises(MemoryError):
                begin(limiter, machine, ResourceLimits(cpu_seconds=1))
        machine.commands[1].usage.cpu_s = 99
        while not machine.commands[1].is_killed_at_once:
            await anyio.lowlevel.checkpoint()
    assert machine.commands[1].ended == ["cpu"]


async def test_limiter_starts_measuring_later_if_its_task_cannot_start(machine: Machine) -> None:
    async with anyio.create_task_group() as tasks:
        starts: list[Callable[[], Awaitable[None]]] = []

        def start(task: Callable[[], Awaitable[None]]) -> None:
            starts.append(task)
            if len(starts) == 1:
                raise MemoryError
            tasks.start_soon(run_once, task, "the watch")

        limiter = Limiter(start)
        with pytest.raises(MemoryError):
            begin(limiter, machine, ResourceLimits(processes=1), threads=2)
        limiter.trim()
        with anyio.fail_after(60):
            while not machine.commands[1].is_killed_at_once:
                await anyio.lowlevel.checkpoint()
        tasks.cancel_scope.cancel()
    assert machine.commands[1].ended == ["processes"]


async def test_command_with_most_threads_is_ended(machine: Machine) -> None:
    async with running(machine) as limiter:
        limits = ResourceLimits(processes=10)
        few, _ = begin(limiter, machine, limits, threads=4)
        many, _ = begin(limiter, machine, limits, threads=6)
        await scans(machine)
        many.usage.threads = 7
        while not many.is_killed_at_once:
            await anyio.lowlevel.checkpoint()
    assert (few.ended, many.ended) == ([], ["processes"])


async def test_each_command_has_its_own_processor_time(machine: Machine) -> None:
    async with running(machine) as limiter:
        limits = ResourceLimits(cpu_seconds=10)
        idle, _ = begin(limiter, machine, limits)
        busy, _ = begin(limiter, machine, limits)
        idle.usage.cpu_s, busy.usage.cpu_s = 9.9, 10.1
        while not busy.is_killed_at_once:
            await anyio.lowlevel.checkpoint()
        await scans(machine)
    assert (idle.ended, busy.ended) == ([], ["cpu"])


async def test_commands_without_a_session_are_judged_alone(machine: Machine) -> None:
    async with running(machine) as limiter:
        limits = ResourceLimits(processes=10)
        commands = [begin(limiter, machine, limits, None, threads=9)[0] for _ in range(3)]
        await scans(machine)
        assert [command.ended for command in commands] == [[], [], []]


async def test_limiter_scans_only_while_a_limited_command_runs(machine: Machine) -> None:
    started: list[object] = []
    limits = ResourceLimits(processes=10)
    async with anyio.create_task_group() as tasks:

        def start(task: Callable[[], Awaitable[None]]) -> None:
            started.append(task)
            tasks.start_soon(run_once, task, "the watch")

        limiter = Limiter(start)
        limiter.end(limiter.admit("other", ResourceLimits(file_bytes=0)))
        _, only_files = begin(limiter, machine, ResourceLimits(file_bytes=0), None)
        assert started == []
        for _ in range(2):
            members = [begin(limiter, machine, limits)[1] for _ in range(2)]
            await scans(machine)
            for member in members:
                limiter.end(member)
            # The watching task ends by itself when no limited command is left.
            before = len(started)
            with anyio.fail_after(60):
                while vars(limiter)["_is_watching"]:
                    await anyio.lowlevel.checkpoint()
            assert len(started) == before
        limiter.end(only_files)
        limiter.forget("other")
        limiter.forget("main")
        limiter.close()
    # One task watched the two commands that ran at the same time.
    assert len(started) == 2


async def test_limiter_does_not_scan_a_lost_runner(machine: Machine) -> None:
    async with running(machine) as limiter:
        limits = ResourceLimits(processes=10, cpu_seconds=1)
        lost, _ = begin(limiter, machine, limits, threads=99)
        lost.runner = None
        command, _ = begin(limiter, machine, limits)
        before = machine.scans
        while machine.scans < before + 3:
            await anyio.lowlevel.checkpoint()
    assert (lost.ended, command.ended) == ([], [])


async def test_limiter_does_not_scan_the_runner_of_an_ended_command(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limiter_module, "_SLICE_S", -1.0)
    monkeypatch.setattr(limiter_module, "_SLICE_PAUSE_S", 0.0)
    async with running(machine) as limiter:
        command, member = begin(limiter, machine, ResourceLimits(processes=10), threads=1)

        def scan(_runner: int, _before: float) -> Iterator[Usage]:
            # The command ends during the scan. The scan must not go on, because the runner may
            # already run another command.
            limiter.end(member)
            yield command.usage
            raise AssertionError

        monkeypatch.setattr(limiter_module, "scan", scan)
        while vars(limiter)["_is_watching"]:
            await anyio.lowlevel.checkpoint()
    assert command.ended == []


async def test_command_that_ends_during_the_scan_has_no_reason(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(machine) as limiter:
        command, member = begin(limiter, machine, ResourceLimits(cpu_seconds=1))

        def scan(_runner: int, _before: float) -> Iterator[Usage]:
            command.usage.cpu_s = 99
            yield command.usage
            command.is_killed_at_once = True

        monkeypatch.setattr(limiter_module, "scan", scan)
        while not command.is_killed_at_once:
            await anyio.lowlevel.checkpoint()
        limiter.end(member)
        while vars(limiter)["_is_watching"]:
            await anyio.lowlevel.checkpoint()
    assert command.ended == []


async def test_limit_that_nothing_enforces_is_refused(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limiter_module, "proc_is_usable", lambda: False)
    async with running(machine) as limiter:
        for limits in (
            ResourceLimits(memory_bytes=64 * MIB),
            ResourceLimits(processes=10),
            ResourceLimits(cpu_seconds=1),
        ):
            with pytest.raises(RpcError) as caught:
                limiter.admit("main", limits)
            assert caught.value.kind is ErrorKind.UNAVAILABLE
            assert caught.value.data["what"] == "limits"
            limiter.forget("main")
        member = limiter.admit("main", ResourceLimits(file_bytes=0, open_files=16))
        assert member.enforced.file_size == member.enforced.open_files == "rlimit"


class FakeCgroups(CommandCgroups):
    """Cgroups whose processes have met the limits in `met`. `scans` counts how often the limiter
    asks whether a limit was met.
    """

    def __init__(self, kinds: set[Kind], met: set[Kind]) -> None:
        self._before = dict.fromkeys(kinds, 0)
        self._paths = {}
        self.met = met
        self.scans = 0

    def has_met(self, kind: Kind) -> bool:
        self.scans += 1
        return kind in self.met


@pytest.mark.parametrize(
    ("met", "returncode", "reason"),
    [
        ({"memory"}, 0, None),
        ({"memory"}, -9, "memory"),
        ({"memory"}, 1, "memory"),
        ({"memory", "pids"}, 1, "memory"),
        ({"pids"}, 1, "processes"),
        ({"pids"}, 0, None),
        ({"pids"}, 153, "file_size"),
        (set[Kind](), 153, "file_size"),
        (set[Kind](), -25, "file_size"),
        (set[Kind](), -9, None),
        (set[Kind](), 25, None),
    ],
)
async def test_ended_command_has_the_limit_as_its_reason(
    machine: Machine, met: set[Kind], returncode: int, reason: LimitReason | None
) -> None:
    async with running(machine) as limiter:
        limits = ResourceLimits(memory_bytes=64 * MIB, processes=10, file_bytes=0)
        member = limiter.admit("main", limits)
        member.cgroups = FakeCgroups({"memory", "pids"}, met)
        assert member.reason_of_end(returncode) == reason


async def test_kill_in_a_cgroup_ends_the_whole_command(machine: Machine) -> None:
    async with running(machine) as limiter:
        command, member = begin(limiter, machine, ResourceLimits(memory_bytes=64 * MIB))
        other, _ = begin(limiter, machine, ResourceLimits(memory_bytes=64 * MIB))
        met: set[Kind] = set()
        member.cgroups = cgroups = FakeCgroups({"memory"}, met)
        while cgroups.scans < 3:
            await anyio.lowlevel.checkpoint()
        assert command.ended == []
        met.add("memory")
        while not command.is_killed_at_once:
            await anyio.lowlevel.checkpoint()
    assert (command.ended, other.ended) == (["memory"], [])


async def test_limiter_measures_all_commands_if_one_is_in_no_cgroup(machine: Machine) -> None:
    async with running(machine) as limiter:
        limits = ResourceLimits(processes=10)
        inside, member = begin(limiter, machine, limits, threads=8)
        member.cgroups = cgroups = FakeCgroups({"pids"}, set())
        while cgroups.scans < 3:
            await anyio.lowlevel.checkpoint()
        assert (machine.scans, member.enforced.processes) == (0, "cgroup")
        outside, member = begin(limiter, machine, limits, threads=3)
        assert member.enforced.processes == "watch"
        while not inside.is_killed_at_once:
            await anyio.lowlevel.checkpoint()
    assert (inside.ended, outside.ended) == (["processes"], [])


async def test_youngest_command_of_a_crowded_cgroup_is_ended(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def is_crowded(_cgroups: SessionCgroups, _waiting: int) -> bool:
        return True

    monkeypatch.setattr(SessionCgroups, "is_crowded", is_crowded)
    async with running(machine) as limiter:
        limits = ResourceLimits(processes=2)
        started: list[FakeCommand] = []
        members: list[Member] = []
        for _ in range(3):
            command, member = begin(limiter, machine, limits)
            member.cgroups = FakeCgroups({"pids"}, set())
            started.append(command)
            members.append(member)
        while not started[2].ended:
            await anyio.lowlevel.checkpoint()
        # Until the killed command has ended, the kernel still counts its processes. So the limiter
        # kills no other command now.
        others = FakeCgroups({"pids"}, set())
        members[0].cgroups = others
        while others.scans < 3:
            await anyio.lowlevel.checkpoint()
        assert [command.ended for command in started] == [[], [], ["processes"]]
        limiter.end(members[2])
        while not started[1].ended:
            await anyio.lowlevel.checkpoint()
    assert [command.ended for command in started] == [[], ["processes"], ["processes"]]


async def test_spare_shell_gets_room_once_it_runs(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    room: list[int] = []

    def make_room(_cgroups: SessionCgroups, count: int) -> None:
        room.append(count)

    monkeypatch.setattr(SessionCgroups, "make_room", make_room)
    async with running(machine) as limiter:
        limits = ResourceLimits(processes=2)
        spare = limiter.admit("main", limits, is_waiting=True)
        # The limiter makes no room for the spare shell yet, because a command could take the room
        # before the spare shell enters the cgroup.
        assert room == []
        limiter.spare_runs(spare)
        other = limiter.admit("main", limits, is_waiting=True)
        limiter.spare_runs(other)
        limiter.begin(spare, FakeCommand(None))
        limiter.end(other)
        assert room == [1, 2, 1, 0]
        limiter.end(spare)


async def test_vanished_command_does_not_count_before_it_is_marked_as_ended(
    machine: Machine,
) -> None:
    limits = ResourceLimits(processes=10)
    async with running(machine) as limiter:
        gone, member = begin(limiter, machine, limits, threads=6)
        gone.is_gone = True
        other, _ = begin(limiter, machine, limits, threads=6)
        await scans(machine)
        assert gone.ended + other.ended == []
        limiter.trim()
        assert member not in member.group.members
