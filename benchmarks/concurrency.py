"""Commands per second while many run at once: in one session, in a thousand, and without a session.

The baselines are `subprocess.run` in four threads and asyncio's subprocesses. They take turns with
shelld in the same run. Figures are medians; absolute numbers depend on the machine. With `--busy`,
one busy loop per processor runs during the whole benchmark.

Usage: python benchmarks/concurrency.py [--rounds N] [--commands N] [--only TEXT] [--busy]
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import statistics
import subprocess
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from measure import busy_loops, family_of, proportional_mb, report
from shelld_client import AsyncClient

TRUE: Final = "true"
CHANGE: Final = "x=$((x + 1))"
THREADS: Final = 4
SESSIONS: Final = 1_000

Run = Callable[[int], Awaitable[object]]


def run_plainly(command: str) -> None:
    subprocess.run(["/bin/bash", "-c", command], capture_output=True, check=True)


async def run_in_threads(command: str, count: int) -> None:
    with ThreadPoolExecutor(THREADS) as pool:
        loop = asyncio.get_running_loop()
        await asyncio.gather(
            *(loop.run_in_executor(pool, run_plainly, command) for _ in range(count))
        )


async def run_in_asyncio(command: str) -> None:
    process = await asyncio.create_subprocess_exec(
        *("/bin/bash", "-c", command),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    await process.communicate()


async def in_flight(limit: int, count: int, run: Run) -> None:
    """Run `count` commands, at most `limit` at the same time."""
    numbers = iter(range(count))

    async def work() -> None:
        for number in numbers:
            await run(number)

    await asyncio.gather(*(work() for _ in range(limit)))


async def seconds(action: Awaitable[object]) -> float:
    began = time.perf_counter()
    await action
    return time.perf_counter() - began


def rows(shell: AsyncClient) -> dict[str, tuple[str, Run]]:
    turns = itertools.count()

    async def stateless(_: int) -> object:
        return await shell.bash(TRUE, session=None)

    async def one_session(_: int) -> object:
        return await shell.bash(TRUE, session="one")

    async def changing(_: int) -> object:
        return await shell.bash(CHANGE, session="changing")

    async def many(_: int) -> object:
        return await shell.bash(CHANGE, session=f"session {next(turns) % SESSIONS}")

    return {
        "stateless": (TRUE, stateless),
        "one session": (TRUE, one_session),
        "one session that changes": (CHANGE, changing),
        "1,000 sessions that change": (CHANGE, many),
    }


async def compare(shell: AsyncClient, only: str, rounds: int, commands: int) -> None:
    for name, (command, run) in rows(shell).items():
        for limit in (1, 16, 64, 256):
            title = f"{name}, {limit} in flight"
            if only not in title:
                continue
            times: dict[str, list[float]] = {"shelld": [], "threads": [], "asyncio": []}
            await in_flight(limit, commands // 2, run)
            for _ in range(rounds):
                times["shelld"].append(await seconds(in_flight(limit, commands, run)))
                times["threads"].append(await seconds(run_in_threads(command, commands)))

                async def in_asyncio(_: int, command: str = command) -> None:
                    await run_in_asyncio(command)

                asyncio_limit = min(limit, 2 * THREADS)
                times["asyncio"].append(
                    await seconds(in_flight(asyncio_limit, commands, in_asyncio))
                )
            rates = {each: commands / statistics.median(taken) for each, taken in times.items()}
            report(
                title,
                per_s=rates["shelld"],
                threads_per_s=rates["threads"],
                asyncio_per_s=rates["asyncio"],
                ratio=rates["shelld"] / rates["threads"],
            )


async def memory() -> None:
    """Report how much memory a thousand sessions with a small state take."""
    async with AsyncClient.spawn() as shell:

        async def run(number: int) -> object:
            return await shell.bash("x=1 y=2; export Z=3; cd /", session=f"session {number}")

        await in_flight(16, SESSIONS, run)
        assert shell.pid is not None
        family = [proportional_mb(pid) for pid in family_of(shell.pid)]
        report(f"{SESSIONS} sessions", daemon_mb=family[0], family_mb=sum(family))


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--commands", type=int, default=200)
    parser.add_argument("--only", default="")
    parser.add_argument("--busy", action="store_true")
    options = parser.parse_args()
    with busy_loops() if options.busy else contextlib.nullcontext():
        async with AsyncClient.spawn() as shell:
            await compare(shell, options.only, options.rounds, options.commands)
            counters = (await shell.server_info()).counters
            share = counters.spares_used / counters.shells_started
            report("run by a spare shell", share=share)
    if not options.only:
        await memory()


if __name__ == "__main__":
    asyncio.run(main())
