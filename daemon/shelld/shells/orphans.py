"""What a runner has left that was killed together with the keeper, so that nobody else ends it."""

from __future__ import annotations

import anyio

from shelld.keeper.channel import KILL_DEADLINE_MS, RunnerInfo
from shelld.keeper.pool import RunnerPool
from shelld.keeper.strangers import KILL_INTERVAL_MS
from shelld.keeper.tree import SessionMembers


async def kill_orphans(
    pool: RunnerPool, runner: RunnerInfo | None, leader: int | None
) -> list[int]:
    """Kill what there is left of a command; return the pids that survive.

    `leader` is the pid of its bash, if that is known.
    """
    contained = pool.adopts and (runner is None or runner.subreaper)
    if not contained and leader is not None:
        return await _kill_session(leader)
    if not pool.adopts:
        # It was killed before it could say what it has started, and nothing leads there.
        return []
    with anyio.move_on_after(KILL_DEADLINE_MS / 1000):
        while pool.is_dying(None if runner is None else runner.pid):  # noqa: ASYNC110 - ends alone
            await anyio.sleep(KILL_INTERVAL_MS / 1000)
    pool.expect_orphans()
    while (survivors := pool.orphans()) is None:  # noqa: ASYNC110 - killed by the call
        await anyio.sleep(KILL_INTERVAL_MS / 1000)
    return survivors


async def _kill_session(leader: int) -> list[int]:
    members = SessionMembers()
    members.begin(leader)
    deadline = anyio.current_time() + KILL_DEADLINE_MS / 1000
    while survivors := members.living():
        members.kill(None)
        if anyio.current_time() >= deadline:
            break
        await anyio.sleep(KILL_INTERVAL_MS / 1000)
    return survivors
