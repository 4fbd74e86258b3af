"""Kills a command's leftover processes if its runner is gone and the keeper cannot kill them.

If memory or descriptors are short, this module may be unable to list the remaining processes. Then
it reports only bash as a survivor, or no survivor if bash has ended.
"""

from __future__ import annotations

import anyio

from shelld.keeper.channel import KILL_DEADLINE_MS, RunnerInfo
from shelld.keeper.orphan_reaper import KILL_INTERVAL_MS
from shelld.keeper.proc import exists
from shelld.keeper.runners import Runners
from shelld.keeper.tree import SessionMembers


async def kill_orphans(pool: Runners, runner: RunnerInfo | None, leader: int | None) -> list[int]:
    """Kill all processes of a command. Return the pids of the survivors.

    `leader` is the pid of the command's bash, if known.
    """
    contained = pool.adopts and (runner is None or runner.subreaper)
    if not contained and leader is not None:
        return await _kill_session(leader)
    if not pool.adopts:
        # The runner never reported a pid, so no process can be found.
        return []
    with anyio.move_on_after(KILL_DEADLINE_MS / 1000):
        while pool.is_dying(None if runner is None else runner.pid):  # noqa: ASYNC110 - ends alone
            await anyio.sleep(KILL_INTERVAL_MS / 1000)
    pool.expect_orphans()
    while (survivors := pool.orphans()) is None:
        if pool.is_blind:
            return _only(leader)
        await anyio.sleep(KILL_INTERVAL_MS / 1000)
    return survivors


async def _kill_session(leader: int) -> list[int]:
    members = SessionMembers()
    members.begin(leader)
    deadline = anyio.current_time() + KILL_DEADLINE_MS / 1000
    while True:
        survivors = members.living()
        if survivors == [] or anyio.current_time() >= deadline:
            return _only(leader) if survivors is None else survivors
        members.kill(None)
        await anyio.sleep(KILL_INTERVAL_MS / 1000)


def _only(leader: int | None) -> list[int]:
    return [leader] if leader is not None and exists(leader) else []
