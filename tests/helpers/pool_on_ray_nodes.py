"""A test of the pool on a Ray of three nodes, one of which is killed while the pool is used.

`tests/client/test_ray_pool.py` runs it, in a process of its own.
"""

from __future__ import annotations

import asyncio
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from shelld_client import SessionLost
from shelld_client.ray import Pool
from support import is_alive

ray: Any = import_module("ray")
cluster_utils: Any = import_module("ray.cluster_utils")

# Warnings from Ray and its dependencies do not fail these tests.
pytestmark = [
    pytest.mark.long,
    pytest.mark.filterwarnings("default"),
    pytest.mark.timeout(1500),
]

NODES = 3
SESSIONS = 1_000
COMMANDS = 20


@pytest.fixture
def leaks_nothing() -> None:
    """This fixture replaces the check for leaks, because the threads and descriptors of Ray
    stay.
    """


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    # The path is short, because Ray puts sockets below it.
    directory = tempfile.mkdtemp(dir="/tmp")
    node: dict[str, Any] = {"num_cpus": 1, "object_store_memory": 80 * 2**20}
    monkeypatch.setenv("RAY_TMPDIR", directory)
    first = {**node, "include_dashboard": False}
    found = cluster_utils.Cluster(initialize_head=True, head_node_args=first)
    for _ in range(NODES - 1):
        found.add_node(**node)
    ray.init(address=found.address, log_to_driver=False)
    found.wait_for_nodes()
    yield found
    ray.shutdown()
    found.shutdown()
    shutil.rmtree(directory, ignore_errors=True)


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def pid_of(node: Any) -> int:
    """Return the pid of a node's raylet, which is the parent of its workers."""
    [raylet] = node.all_processes["raylet"]
    return int(raylet.process.pid)


async def test_death_of_a_node_concerns_only_its_sessions(cluster: Any) -> None:
    victim = next(iter(cluster.worker_nodes))
    names = [f"s{number}" for number in range(SESSIONS)]
    begun = asyncio.Event()
    count = 0

    async def work(pool: Pool, name: str) -> None:
        """Run the commands of a session, and check every answer."""
        nonlocal count
        session = pool.session(name)
        await session.bash(f"name={name}; n=0")
        for number in range(1, COMMANDS):
            result = await session.bash("echo $name $((n += 1))")
            assert result.stdout == f"{name} {number}\n"
            count += 1
            if count == SESSIONS * COMMANDS // 3:
                begun.set()

    async with Pool(NODES, actor_options={"scheduling_strategy": "SPREAD"}) as pool:
        infos = await asyncio.gather(*(pool.session(name).server_info() for name in names))
        raylets = [parent_of(parent_of(info.pid)) for info in infos]
        assert len(set(raylets)) == NODES
        doomed = {
            name for name, raylet in zip(names, raylets, strict=True) if raylet == pid_of(victim)
        }
        assert len(doomed) in (SESSIONS // NODES, SESSIONS // NODES + 1)

        working = {name: asyncio.create_task(work(pool, name)) for name in names}
        await begun.wait()
        assert not any(working[name].done() for name in doomed)
        killed_at = time.monotonic()
        await asyncio.to_thread(cluster.remove_node, victim, allow_graceful=False)
        told = await asyncio.gather(*(working[name] for name in doomed), return_exceptions=True)
        # Print this time, but do not check it, because a busy machine takes longer.
        sys.stdout.write(f"all were told {time.monotonic() - killed_at:.2f} s after the kill\n")
        assert {type(each) for each in told} == {SessionLost}
        assert {each.session for each in told if isinstance(each, SessionLost)} == doomed
        for name in working.keys() - doomed:
            await working[name]
        pids = {info.pid for name, info in zip(names, infos, strict=True) if name in doomed}
        assert not any(map(is_alive, pids))
        # There is no room for another daemon, and new sessions go to the daemons that are left.
        assert len(pool.loads) == NODES - 1
        assert pool.size == NODES
        assert (await pool.bash("echo new", session="new")).stdout == "new\n"
