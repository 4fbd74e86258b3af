"""Many processes end at the same time. The reaper handles only some of them in one round."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator

import pytest

from runs import Run
from shelld.keeper import orphan_reaper as reaper_module
from shelld.keeper import pool as pool_module
from shelld.keeper.channel import (
    EMPTY,
    EXITED,
    KILL,
    LOST,
    STARTED,
    SURVIVORS,
    Channel,
)
from shelld.keeper.orphan_reaper import REAPED_AT_ONCE, ROUNDS_BEFORE_GIVING_UP, OrphanReaper
from shelld.keeper.pool import RunnerPool
from shelld.keeper.tree import Spared

# As long as a child is left, each `wait` reports another ended process.
_ENDLESS_ENDS = """
import os
def endless(wait):
    def call(*args):
        found = wait(*args)
        return found if found[0] else (999_999, *found[1:])
    return call
os.wait4, os.waitpid = endless(os.wait4), endless(os.waitpid)
"""


_ONE_AT_A_TIME = "import shelld.keeper.orphan_reaper as s; s.REAPED_AT_ONCE = 1"


# When the reaper finds the first child that has ended, it waits until all other children have
# ended, too. So one signal reports all of them.
_ALL_TOGETHER = f"""
{_ONE_AT_A_TIME}
import os
from shelld.keeper.tree import living_descendants
def call(*args, wait=os.wait4):
    found = wait(*args)
    while found[0] and living_descendants():
        pass
    return found
os.wait4 = call
"""


@pytest.fixture
def altered_pool(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[RunnerPool]:
    """A pool whose keeper and runners first run the code in the parameter."""
    boot: str = getattr(pool_module, "_BOOT")  # noqa: B009 - private
    altered = boot.replace("from shelld", f"exec({request.param!r}); from shelld", 1)
    assert altered != boot
    monkeypatch.setattr(pool_module, "_BOOT", altered)
    pool = RunnerPool()
    yield pool
    pool.close()


both_floods = pytest.mark.parametrize(
    "altered_pool", [_ENDLESS_ENDS, _ONE_AT_A_TIME], ids=["endless", "one"], indirect=True
)


@both_floods
def test_command_is_killed_while_its_processes_end(altered_pool: RunnerPool) -> None:
    run = Run(altered_pool, b"for i in {1..10}; do (sleep 300 &); done; wait; sleep 300")
    run.until(STARTED)
    run.channel.send((KILL, int(signal.SIGKILL), 0))
    run.until(EXITED)
    run.until_empty()
    run.channel.close()


@both_floods
def test_lost_runner_is_reported_while_processes_end(altered_pool: RunnerPool) -> None:
    run = Run(altered_pool, b"for i in {1..10}; do (sleep 300 &); done; wait; sleep 300")
    os.kill(run.runner, signal.SIGKILL)
    run.until(LOST)
    run.until(EMPTY)
    run.channel.close()


@pytest.mark.parametrize(
    "altered_pool", [_ONE_AT_A_TIME, _ALL_TOGETHER], ids=["one", "together"], indirect=True
)
def test_processes_that_exit_by_themselves_are_reaped(altered_pool: RunnerPool) -> None:
    run = Run(altered_pool, b"for i in {1..20}; do (sleep 0.01 &); done")
    run.until_empty()
    run.channel.close()


_IMPATIENT = "import shelld.keeper.keeper as s; s._GIVE_UP_INTERVAL_S = 0.01"


@pytest.mark.parametrize("altered_pool", [_IMPATIENT], indirect=True)
def test_deaf_keeper_ends_no_working_runner(altered_pool: RunnerPool) -> None:
    run = Run(altered_pool, b"sleep 0.3; exit 7")
    run.until(STARTED)
    keeper: Channel = getattr(altered_pool, "_keeper")  # noqa: B009 - private
    keeper.shut_down()
    assert os.waitstatus_to_exitcode(run.until(EXITED)[1]) == 7
    run.channel.close()


# The kill deadline is 0, and the first rounds of kills have no effect.
_LATE_AND_WEAK = """
import shelld.keeper.channel as channel, shelld.keeper.cgroup as cgroup, shelld.keeper.tree as tree
import shelld.keeper.orphan_reaper as orphan_reaper
channel.KILL_DEADLINE_MS = 0
orphan_reaper.KILL_INTERVAL_MS = {interval}
rounds = []
def weak(kill):
    def call(*args):
        rounds.append(1)
        return len(rounds) <= {rounds} or kill(*args)
    return call
cgroup.Cgroup.kill = lambda _group: None
tree.Descendants.kill = weak(tree.Descendants.kill)
"""


@pytest.mark.parametrize(
    ("altered_pool", "is_told"),
    [
        # The second round kills. The runner then has 18 more rounds, of a second each, to notice
        # the end of the processes.
        (_LATE_AND_WEAK.format(rounds=1, interval=1_000), False),
        (_LATE_AND_WEAK.format(rounds=ROUNDS_BEFORE_GIVING_UP, interval=1), True),
    ],
    ids=["few", "many"],
    indirect=["altered_pool"],
)
def test_runner_names_survivors_after_many_rounds(altered_pool: RunnerPool, is_told: bool) -> None:
    run = Run(altered_pool, b"sleep 300; true")
    run.until(STARTED)
    run.channel.send((KILL, int(signal.SIGKILL), 0))
    run.until_empty()
    assert (SURVIVORS in run.kinds()) is is_told
    run.channel.close()


def test_clean_up_reaps_limited_number_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    reaped: list[int] = []

    def ended(_pid: int, _options: int) -> tuple[int, int]:
        reaped.append(1)
        return 999_999, 0

    monkeypatch.setattr(os, "waitpid", ended)
    monkeypatch.setattr(pool_module, "CLEAN_UP_S", 0)
    pool = RunnerPool(adopts=True)
    assert pool.clean_up() == 0
    assert len(reaped) == REAPED_AT_ONCE
    pool.abandon()


def test_kill_is_not_given_up_after_few_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now)

    def survivors(_is_spared: Spared) -> list[int]:
        return [7]

    monkeypatch.setattr(reaper_module, "kill_descendants", survivors)
    orphan_reaper = OrphanReaper()
    orphan_reaper.must_start = True
    orphan_reaper.kill_round(lambda _pid: False)
    # Much time passes, as if the system gave this process no processor time.
    now = 1_000.0
    for _ in range(ROUNDS_BEFORE_GIVING_UP - 2):
        orphan_reaper.kill_round(lambda _pid: False)
        assert not orphan_reaper.is_done
    orphan_reaper.kill_round(lambda _pid: False)
    assert orphan_reaper.is_done
    assert orphan_reaper.survivors == [7]
