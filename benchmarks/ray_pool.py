"""A pool on Ray: the cost of a call, and the commands per second of several daemons and nodes.

The benchmark compares a call through the pool with a call to an actor that has an `AsyncClient`.
The two calls take turns. The benchmark also compares the commands per second with those of
SWE-ReX's local runtime, in the same run. Figures are medians; absolute numbers depend on the
machine.

The last rows are a model of a large cluster, from the figures of this run. The model assumes that
nodes share nothing, and that commands wait more than they compute. Then the throughput of the
daemons adds up until the driver, which is one process, is busy.

Needs Ray and SWE-ReX: make clients

Usage: python benchmarks/ray_pool.py [--rounds N] [--calls N] [--commands N] [--daemons N ...]
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from importlib import import_module
from typing import Any, Final

from swerex.runtime.abstract import BashAction, CreateBashSessionRequest
from swerex.runtime.local import LocalRuntime

from measure import family_of, proportional_mb, report
from shelld_client import AsyncClient
from shelld_client.ray import Pool

ray: Final[Any] = import_module("ray")

TRUE: Final = "true"
MACHINES: Final = 100


class OwnActor:
    """The actor that a program would have to define if it did not use the pool."""

    async def start(self) -> None:
        self._client = await AsyncClient.spawn().__aenter__()

    async def bash(self, command: str) -> str:
        return (await self._client.bash(command)).stdout


async def seconds(action: Awaitable[object]) -> float:
    began = time.perf_counter()
    await action
    return time.perf_counter() - began


async def one_by_one(call: Callable[[], Awaitable[object]], count: int) -> None:
    for _ in range(count):
        await call()


async def calls(rounds: int, count: int) -> None:
    """Compare calls through the pool with direct calls to an actor. The two take turns."""
    actor = ray.remote(OwnActor).options(num_cpus=0).remote()
    await actor.start.remote()
    async with Pool(1, num_cpus=0) as pool:
        session = pool.session("a")
        ways: dict[str, Callable[[], Awaitable[object]]] = {
            "actor": lambda: actor.bash.remote(TRUE),
            "pool": lambda: session.bash(TRUE),
        }
        times: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(rounds):
            for name, way in ways.items():
                times[name].append(await seconds(one_by_one(way, count)) / count * 1000)
    ray.kill(actor)
    actor_ms, pool_ms = (statistics.median(times[name]) for name in ("actor", "pool"))
    report("a call (ms)", actor=actor_ms, pool=pool_ms, ratio=pool_ms / actor_ms)


async def throughput(size: int, rounds: int, commands: int) -> tuple[float, float]:
    """Return the commands per second, and the driver's seconds of processor time per command."""
    async with Pool(size, num_cpus=0) as pool:
        sessions = [pool.session(f"s{number}") for number in range(16 * size)]
        each = max(1, commands // len(sessions))
        pids = {(await session.server_info()).pid for session in sessions}

        async def work() -> None:
            await asyncio.gather(
                *(one_by_one(partial(session.bash, TRUE), each) for session in sessions)
            )

        await work()
        cpu = time.process_time()
        times = [await seconds(work()) for _ in range(rounds)]
        done = each * len(sessions)
        driver_s = (time.process_time() - cpu) / (rounds * done)
        memory = sum(proportional_mb(one) for pid in pids for one in family_of(pid))
    rate = done / statistics.median(times)
    report(
        f"{size} daemons, {len(sessions)} sessions",
        commands_per_s=rate,
        driver_ms=driver_s * 1000,
        daemon_mb=memory / size,
    )
    return rate, driver_s


async def swe_rex(commands: int) -> None:
    runtime = LocalRuntime()
    await runtime.create_session(CreateBashSessionRequest())

    async def command() -> None:
        await runtime.run_in_session(BashAction(command=TRUE))

    took = await seconds(one_by_one(command, commands))
    await runtime.close()
    report("SWE-ReX's local runtime", commands_per_s=commands / took)


async def measure(rounds: int, count: int, commands: int, sizes: Sequence[int]) -> None:
    await calls(rounds, count)
    rates = [await throughput(size, rounds, commands) for size in sizes]
    await swe_rex(min(commands, 50))
    # Use the first rate, which is that of one daemon, because several daemons would share the
    # processors of this machine.
    rate, driver_s = rates[0]
    report(
        f"model: {MACHINES} machines, a daemon each",
        daemons_per_s=MACHINES * rate,
        driver_per_s=1 / driver_s,
        drivers_needed=MACHINES * rate * driver_s,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--calls", type=int, default=200)
    parser.add_argument("--commands", type=int, default=1_000)
    parser.add_argument("--daemons", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--nodes", type=int, default=1, help="nodes of a cluster on this machine")
    options = parser.parse_args()
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    if options.nodes > 1:
        cluster = import_module("ray.cluster_utils").Cluster(initialize_head=True)
        for _ in range(options.nodes - 1):
            cluster.add_node()
        ray.init(address=cluster.address, log_to_driver=False)
    else:
        ray.init(include_dashboard=False, log_to_driver=False)
    asyncio.run(measure(options.rounds, options.calls, options.commands, options.daemons))


if __name__ == "__main__":
    main()
