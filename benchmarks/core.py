"""The core figures: a ping, the start-up, a short command, many commands at once, and the memory.

The baseline is plain `subprocess`, which takes turns with shelld in the same run. Figures are
medians and ratios; absolute times depend on the machine.

Usage: python benchmarks/core.py [--rounds N]
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import threading
import time

import anyio

from measure import RawDaemon, family_of, milliseconds, report, resident_mb
from shelld_client import AsyncClient, Client

IMPORT_ASYNCIO = [sys.executable, "-c", "import asyncio"]
BASH_TRUE = ["/bin/bash", "-c", "true"]


def start_up(rounds: int) -> None:
    def first_answer() -> None:
        daemon = RawDaemon()
        daemon.request("bash", {"command": "true"})
        times.append((time.perf_counter() - began) * 1000)
        daemon.close()

    times: list[float] = []
    baseline: list[float] = []
    for _ in range(rounds):
        began = time.perf_counter()
        first_answer()
        baseline.append(milliseconds(lambda: subprocess.run(IMPORT_ASYNCIO, check=True)))
    ours, theirs = statistics.median(times), statistics.median(baseline)
    report("start-up to first bash / asyncio", ms=ours, asyncio_ms=theirs, ratio=ours / theirs)


def ping(count: int = 2000) -> None:
    daemon = RawDaemon()
    daemon.request("ping")
    times = sorted(milliseconds(lambda: daemon.request("ping")) for _ in range(count))
    report("ping, one at a time", p50_ms=times[count // 2], p99_ms=times[count * 99 // 100])
    total = 10_000
    lines = b"".join(b'{"jsonrpc":"2.0","id":%d,"method":"ping"}\n' % i for i in range(total))

    def feed(writer: subprocess.Popen[bytes]) -> None:
        writer.communicate(lines)

    memory: list[float] = []
    rates: list[float] = []
    for _ in range(5):
        began = time.perf_counter()
        # Another process writes the requests, so that this process can read the answers at the same
        # time.
        writer = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=daemon.stdin)
        feeding = threading.Thread(target=feed, args=(writer,))
        feeding.start()
        for _ in range(total):
            daemon.reader.readline()
        rates.append(total / (time.perf_counter() - began))
        feeding.join()
        memory.append(resident_mb(daemon.process.pid))
    report(
        "10,000 pings pipelined, 5 rounds",
        per_second=statistics.median(rates),
        rss_first_mb=memory[0],
        rss_last_mb=memory[-1],
    )
    daemon.close()


def short_command(rounds: int) -> None:
    daemon = RawDaemon()
    params = {"command": "true"}
    daemon.request("bash", params)

    async def through_async_client(baseline: list[float]) -> list[float]:
        times: list[float] = []
        async with AsyncClient.spawn() as shell:
            await shell.bash("true")
            for _ in range(rounds):
                began = time.perf_counter()
                await shell.bash("true")
                times.append((time.perf_counter() - began) * 1000)
                baseline.append(milliseconds(plain))
        return times

    def plain() -> object:
        return subprocess.run(BASH_TRUE, capture_output=True, check=True)

    raw: list[float] = []
    sync: list[float] = []
    baseline: list[float] = []
    with Client.spawn() as client:
        client.bash("true")
        for _ in range(rounds):
            raw.append(milliseconds(lambda: daemon.request("bash", params)))
            baseline.append(milliseconds(plain))
            sync.append(milliseconds(lambda: client.bash("true")))
    daemon.close()
    theirs = statistics.median(baseline)
    ours = statistics.median(raw)
    report("bash true, raw pipe", ms=ours, subprocess_ms=theirs, ratio=ours / theirs)
    ours = statistics.median(sync)
    report("bash true, Client", ms=ours, subprocess_ms=theirs, ratio=ours / theirs)
    baseline = []
    ours = statistics.median(anyio.run(through_async_client, baseline))
    theirs = statistics.median(baseline)
    report("bash true, AsyncClient", ms=ours, subprocess_ms=theirs, ratio=ours / theirs)


def many_at_once(count: int = 50) -> None:
    async def run() -> float:
        async with AsyncClient.spawn() as shell:
            await shell.ping()
            began = time.perf_counter()
            async with anyio.create_task_group() as tasks:
                for _ in range(count):
                    tasks.start_soon(shell.bash, "sleep 1")
            return time.perf_counter() - began

    report(f"{count} concurrent sleep 1", seconds=anyio.run(run))


def at_rest() -> None:
    daemon = RawDaemon()
    daemon.request("bash", {"command": "true"})
    resident = [resident_mb(pid) for pid in family_of(daemon.process.pid)]
    report("at rest", daemon_rss_mb=resident[0], family_rss_mb=sum(resident))
    daemon.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=300)
    rounds = parser.parse_args().rounds
    start_up(max(5, rounds // 15))
    ping()
    short_command(rounds)
    many_at_once()
    at_rest()


if __name__ == "__main__":
    main()
