"""Commands in sessions: their duration, cost and throughput.

The baseline is plain `subprocess.run`, which takes turns with shelld in the same run. Figures are
medians and ratios; absolute times depend on the machine. In rows such as "10 ms apart", the client
sleeps for this time before each command. With `--busy`, one busy loop per processor runs during the
whole benchmark.

Usage: python benchmarks/sessions.py [--rounds N] [--busy]
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext, suppress
from pathlib import Path

from measure import busy_loops, family_of, milliseconds, proportional_mb, report
from shelld_client import Client

BASH_TRUE = ["/bin/bash", "-c", "true"]
GAP_S = 0.01
CLIENTS = 8

VARIABLES = "; ".join(f"variable_{i}='the value of variable {i}'" for i in range(200))
FUNCTIONS = "; ".join(
    f'function_{i}() {{ local a=$1; if [[ $a ]]; then echo "$a"; else echo none; fi; }}'
    for i in range(50)
)


def plain() -> None:
    subprocess.run(BASH_TRUE, capture_output=True, check=True)


def compare(
    name: str, ours: Callable[[], object], rounds: int, *, gap: float, in_a_row: int
) -> None:
    times: list[float] = []
    baseline: list[float] = []
    for _ in range(rounds):
        for action, results in ((ours, times), (plain, baseline)):
            for _ in range(in_a_row):
                time.sleep(gap)
                results.append(milliseconds(action))
    mine, theirs = statistics.median(times), statistics.median(baseline)
    report(name, ms=mine, subprocess_ms=theirs, ratio=mine / theirs)


def latency(rounds: int) -> None:
    with Client.spawn() as shell:
        shell.bash("true")
        shell.bash(VARIABLES, session="large")
        shell.bash(FUNCTIONS, session="large")

        def large() -> object:
            return shell.bash("true", session="large")

        def small() -> object:
            return shell.bash("true")

        def ping() -> None:
            shell.ping()

        def changing() -> object:
            return shell.bash("x=$((x + 1))", session="changing")

        for name, action in (
            ("true", small),
            ("true, large session", large),
            ("x=$((x + 1))", changing),
            ("ping, for comparison", ping),
        ):
            compare(f"{name}, 10 ms apart", action, rounds, gap=GAP_S, in_a_row=1)
            compare(f"{name}, in a row", action, rounds // 10, gap=0, in_a_row=20)
        counters = shell.server_info().counters
        report("run by a bash that waited", share=counters.spares_used / counters.shells_started)
        family = [proportional_mb(pid) for pid in family_of(shell.pid)]
        report("at rest", daemon_mb=family[0], family_mb=sum(family))


def cpu_seconds(pids: list[int]) -> float:
    """Return the user and system time of processes and their reaped children."""
    ticks = 0
    for pid in pids:
        # A process may have ended. The time of an ended process counts as time of the parent that
        # has reaped it.
        with suppress(FileNotFoundError, ProcessLookupError):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            ticks += sum(map(int, fields[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def cpu_time(count: int) -> None:
    """Measure the processor time of all processes that a command involves, including the client."""
    with Client.spawn() as shell:
        for session in ("main", "large"):
            if session == "large":
                shell.bash(VARIABLES, session=session)
                shell.bash(FUNCTIONS, session=session)
            for _ in range(20):
                shell.bash("true", session=session)
            ours = theirs = 0.0
            for _ in range(10):
                pids = [os.getpid(), *family_of(shell.pid)]
                waiting = [pid for pid in pids if Path(f"/proc/{pid}/comm").read_text() == "bash\n"]
                pids = [pid for pid in pids if pid not in waiting]
                before = cpu_seconds(pids)
                for _ in range(count // 10):
                    shell.bash("true", session=session)
                ours += cpu_seconds(pids) - before
                before = cpu_seconds([os.getpid()])
                for _ in range(count // 10):
                    plain()
                theirs += cpu_seconds([os.getpid()]) - before
            report(
                f"CPU time of a command, {session}",
                ms=ours / count * 1000,
                subprocess_ms=theirs / count * 1000,
                ratio=ours / theirs,
            )


def loop(kind: str, seconds: float) -> None:
    """Run one of several clients; print how many commands it ran."""
    with Client.spawn() as shell:
        action = plain if kind == "plain" else lambda: shell.bash("true")
        action()
        # All clients start at the same time.
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        sys.stdin.readline()
        count = 0
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            action()
            count += 1
        sys.stdout.write(f"{count}\n")


def throughput(rounds: int, seconds: float = 2.0) -> None:
    totals: dict[str, list[int]] = {"plain": [], "shelld": []}
    for _ in range(rounds):
        for kind, counts in totals.items():
            command = [sys.executable, __file__, "--loop", kind, "--seconds", str(seconds)]
            clients = [
                subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
                for _ in range(CLIENTS)
            ]
            for client in clients:
                assert client.stdout is not None
                client.stdout.readline()
            total = 0
            for client in clients:
                assert client.stdin is not None
                client.stdin.write("go\n")
                client.stdin.flush()
            for client in clients:
                total += int(client.communicate()[0])
            counts.append(total)
    ours, theirs = (statistics.median(totals[kind]) / seconds for kind in ("shelld", "plain"))
    report(
        f"{CLIENTS} clients with a daemon each", per_s=ours, plain_per_s=theirs, ratio=ours / theirs
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--busy", action="store_true")
    parser.add_argument("--loop", choices=("plain", "shelld"), help=argparse.SUPPRESS)
    parser.add_argument("--seconds", type=float, default=2.0, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.loop:
        loop(options.loop, options.seconds)
        return
    with busy_loops() if options.busy else nullcontext():
        latency(options.rounds)
        cpu_time(options.rounds * 2)
        throughput(3)


if __name__ == "__main__":
    main()
