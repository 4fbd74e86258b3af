"""Commands that cannot enter the cgroup of their session, and limits of an embedded manager."""

from __future__ import annotations

import os
from pathlib import Path

import anyio
import pytest

from shelld.keeper.cgroup import owner_tag
from shelld.limits.cgroups import Cgroups
from shelld.limits.limiter import Limiter
from shelld.limits.members import Command, Member
from shelld.sessions.session import Session
from shelld.shells.launch import StartRequest
from shelld.shells.manager import Manager
from shelld.shells.options import ManagerOptions
from shelld.shells.shell import Shell
from shelld.shells.spare import SpareLaunch
from shelld_protocol import ResourceLimits
from support import wait_for


async def run(manager: Manager, command: str, session: str | None = "main") -> Shell:
    """Run a command in the foreground and wait until all its processes are gone."""
    shell = await manager.start(StartRequest(command, session=session, in_foreground=True))
    with anyio.fail_after(60):
        await shell.wait_until(lambda: shell.is_empty)
    return shell


async def test_daemon_watches_a_command_that_cannot_enter_its_cgroup(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if "pids" not in Cgroups().parents:
        pytest.skip("needs a writable cgroup with the controller for processes")
    admit, admitted = Limiter.admit, list[Member]()

    def admit_to_a_cgroup_that_vanishes(*args: object, **options: bool) -> Member:
        member: Member = admit(*args, **options)  # type: ignore[arg-type]  # pyright: ignore
        for directory in member.cgroups.directories:
            os.rmdir(directory)
        admitted.append(member)
        return member

    options = ManagerOptions(limits=ResourceLimits(processes=10), spare_shells=0)
    async with Manager(options) as manager:
        before = await run(manager, "true")
        assert before.limits is not None
        assert before.limits.processes == "cgroup"
        monkeypatch.setattr(Limiter, "admit", admit_to_a_cgroup_that_vanishes)
        shell = await run(manager, "for _ in {1..30}; do sleep 300 & done; wait")
        assert shell.limits is not None
        assert (shell.limits.processes, shell.reason) == ("watch", "processes")
        assert admitted[0].cgroups.kinds == set()
        monkeypatch.undo()
        after = await run(manager, "true")
        assert after.limits is not None
        assert after.limits.processes == "cgroup"


async def test_spare_shell_counts_before_it_gets_its_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begin, run_command = Limiter.begin, SpareLaunch.run
    order: list[str] = []

    def begin_noted(limiter: Limiter, member: Member, command: Command) -> None:
        order.append("counts")
        begin(limiter, member, command)

    def run_noted(launch: SpareLaunch, session: Session, request: StartRequest) -> None:
        order.append("runs")
        run_command(launch, session, request)

    monkeypatch.setattr(Limiter, "begin", begin_noted)
    monkeypatch.setattr(SpareLaunch, "run", run_noted)
    async with Manager(ManagerOptions(limits=ResourceLimits(processes=10))) as manager:
        with anyio.fail_after(60):
            while "runs" not in order:
                order.clear()
                await run(manager, "true")
    assert order == ["counts", "runs"]


async def test_manager_leaves_no_cgroups() -> None:
    directories = [Path(parent.directory) for parent in Cgroups().parents.values()]

    def left() -> list[Path]:
        return [
            path for each in directories for path in each.glob(f"shelld-{owner_tag()}-limits-*")
        ]

    limits = ResourceLimits(memory_bytes=64 * 2**20, processes=100)
    async with Manager(ManagerOptions(limits=limits)) as manager:
        for session in ("main", "other", None):
            for _ in range(3):
                await run(manager, "true", session)
        assert len(left()) >= 3 * len(directories)
    wait_for(lambda: not left(), "the removal")
