"""Provides what all benchmarks use: clocks, a report, and code that calls a daemon without the
client library.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from pathlib import Path

DAEMON = [sys.executable, "-m", "shelld"]


def milliseconds(action: Callable[[], object]) -> float:
    began = time.perf_counter()
    action()
    return (time.perf_counter() - began) * 1000


def interleaved(rounds: int, pause: float, **ways: Callable[[], object]) -> dict[str, float]:
    """Return each function's median time in ms, from rounds in which all functions take turns."""
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            time.sleep(pause)
            times[name].append(milliseconds(way))
    return {name: statistics.median(each) for name, each in times.items()}


def report(name: str, **figures: float) -> None:
    shown = "  ".join(f"{key}={value:.2f}" for key, value in figures.items())
    print(f"{name:<40}{shown}", flush=True)


def percentile(values: Iterable[float], percent: int) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, len(ordered) * percent // 100)]


def table(rows: Sequence[Sequence[str]]) -> None:
    """Print rows of cells as columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)))


def resident_mb(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    return 0.0


def proportional_mb(pid: int) -> float:
    """Return the memory of a process, including its share of shared memory; 0 if the process has
    ended.
    """
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    found = re.search(r"^Pss:\s+(\d+)", text, re.MULTILINE)
    return int(found[1]) / 1024 if found else 0.0


def family_of(pid: int) -> list[int]:
    """Return the pids of a process and all its descendants."""
    family = [pid]
    for member in family:
        for task in Path(f"/proc/{member}/task").iterdir():
            family += [int(child) for child in (task / "children").read_text().split()]
    return family


@contextlib.contextmanager
def busy_loops() -> Generator[None]:
    """Run one busy loop per processor at the same time."""
    command = [sys.executable, "-c", "while 1: pass"]
    loops = [subprocess.Popen(command) for _ in range(os.cpu_count() or 1)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


class RawDaemon:
    """Starts a daemon, and calls it without the client library, as a program in another language
    would.
    """

    def __init__(self, *arguments: str, new_session: bool = False) -> None:
        self.process = subprocess.Popen(
            [*DAEMON, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            start_new_session=new_session,
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.stdin = self.process.stdin
        self.reader = open(self.process.stdout.fileno(), "rb", closefd=False)  # noqa: SIM115

    def send(self, method: str, params: object = None) -> None:
        message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        self.stdin.write(json.dumps(message).encode() + b"\n")

    def request(self, method: str, params: object = None) -> bytes:
        self.send(method, params)
        return self.reader.readline()

    def close(self) -> None:
        self.stdin.close()
        self.process.wait()
        self.reader.close()
        assert self.process.stdout is not None
        self.process.stdout.close()
