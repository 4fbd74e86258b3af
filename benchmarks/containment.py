"""The cost of containment.

The benchmark measures how long a command on a runner takes, how long a kill takes (until it is
proved that no process is left), and how long the daemon takes to stop. It also measures the memory
of an idle daemon, and how long a thousand shells take to start and to end. Every ratio is relative
to a plain spawn, which takes turns with shelld in the same run.

Usage: python benchmarks/containment.py [--rounds N]
"""

from __future__ import annotations

import argparse
import json
import os
import select
import signal
import statistics
import subprocess
import time
from pathlib import Path

from measure import RawDaemon, family_of, milliseconds, report, resident_mb
from shelld.keeper.channel import EMPTY, EXITED, KILL, RUN, STARTED, Channel
from shelld.keeper.pool import RunnerPool

BALLAST = 1024 * 1024 * 1024
MECHANISMS = ("subreaper", "cgroup")


class Runs:
    """Commands on one runner, without the daemon."""

    def __init__(self, mechanism: str) -> None:
        self.pool = RunnerPool(mechanism=mechanism)
        self.channel: Channel = self.pool.acquire()
        self._null = os.open(os.devnull, os.O_RDWR)
        self._env = dict(os.environb)

    def start(self, command: bytes) -> None:
        message = (RUN, b"/bin/bash", [b"bash", b"-c", command], self._env, b"", 3)
        self.channel.send(message, (self._null,) * 3)

    def until(self, kind: int) -> None:
        while True:
            select.select([self.channel], [], [])
            received = self.channel.receive()
            assert received is not None
            if any(message[0] == kind for message, _ in received):
                return

    def run(self) -> None:
        self.start(b":")
        self.until(EMPTY)

    def run_to_exit(self) -> float:
        began = time.perf_counter()
        self.start(b":")
        self.until(EXITED)
        return (time.perf_counter() - began) * 1000

    def close(self) -> None:
        self.channel.close()
        self.pool.close()
        os.close(self._null)


def spawn() -> None:
    null = subprocess.DEVNULL
    command = ["/bin/bash", "-c", ":"]
    subprocess.Popen(command, stdin=null, stdout=null, stderr=null, start_new_session=True).wait()


def one_command(rounds: int, mechanism: str, ballast: int) -> None:
    # Let this process, which acts as the daemon here, hold this much memory.
    held = bytearray(os.urandom(4096)) * (ballast // 4096)
    runs = Runs(mechanism)
    runs.run()
    direct: list[float] = []
    proved: list[float] = []
    for _ in range(rounds):
        direct.append(milliseconds(spawn))
        proved.append(milliseconds(runs.run))
    runs.close()
    ours, theirs = statistics.median(proved), statistics.median(direct)
    name = f"a command to its proof, {mechanism}, {len(held) >> 20} MiB"
    report(name, ms=ours, spawn_ms=theirs, ratio=ours / theirs)


def sleeping_below(pid: int) -> int:
    return [Path(f"/proc/{member}/comm").read_text() for member in family_of(pid)].count("sleep\n")


def kill_to_proof(rounds: int, mechanism: str, name: str, command: bytes, count: int) -> None:
    times: list[float] = []
    for _ in range(rounds):
        runs = Runs(mechanism)
        runs.start(command)
        runs.until(STARTED)
        assert runs.channel.peer is not None
        # Between fork and exec, a SIGTERM to a child of bash runs bash's own handler and is lost.
        while sleeping_below(runs.channel.peer.pid) < count:
            select.select([], [], [], 0.005)
        began = time.perf_counter()
        runs.channel.send((KILL, int(signal.SIGTERM), 1_000))
        runs.until(EMPTY)
        times.append((time.perf_counter() - began) * 1000)
        runs.close()
    label = f"kill to proof, {name}, {mechanism}"
    report(label, median_ms=statistics.median(times), worst_ms=max(times))


def memory() -> None:
    runs = Runs("cgroup")
    runs.start(b"sleep 60")
    runs.until(STARTED)
    assert runs.channel.peer is not None
    rollup = Path(f"/proc/{runs.channel.peer.pid}/smaps_rollup").read_text().splitlines()
    private = sum(int(line.split()[1]) for line in rollup if line.startswith("Private")) / 1024
    runs.close()
    daemon = RawDaemon()
    # Run several commands at once, so that several idle runners are left.
    for _ in range(8):
        daemon.send("bash", {"command": "sleep 0.2"})
    for _ in range(8):
        daemon.reader.readline()

    def at_rest() -> bool:
        return len(family_of(daemon.process.pid)) <= 4

    # Idle runners end one by one if nobody needs them.
    while not at_rest():
        select.select([], [], [], 1)
    family = family_of(daemon.process.pid)
    resident = sum(resident_mb(pid) for pid in family)
    daemon.close()
    report("memory at rest", family_rss_mb=resident, runner_private_mb=private)


def stubborn_stop(rounds: int) -> None:
    """Measure how long the daemon takes to stop. The stop should take less than 2 s.

    One command ignores SIGTERM. Another command has left two processes, one of them in a session of
    its own.
    """
    stubborn = "trap '' TERM HUP INT; echo set; while :; do sleep 0.05; done"
    times: list[float] = []
    for _ in range(rounds):
        daemon = RawDaemon()
        daemon.request("bash", {"command": "(setsid sleep 300 &) ; nohup sleep 300 & disown"})
        started = daemon.request("bash", {"command": stubborn, "run_in_background": True})
        bash_id = json.loads(started)["result"]["bash_id"]
        daemon.request("bash_output", {"bash_id": bash_id, "wait": 20_000})
        times.append(milliseconds(daemon.close))
    report("stop, SIGTERM ignored", median_ms=statistics.median(times), worst_ms=max(times))


def thousand_shells(count: int = 1000) -> None:
    daemon = RawDaemon("--max-shells", str(count))
    daemon.request("ping")
    began = time.perf_counter()
    for _ in range(count):
        daemon.send("bash", {"command": "sleep 300", "run_in_background": True})
    daemon.send("ping")
    pings: list[float] = []
    asked = time.perf_counter()
    answers = errors = 0
    while answers < count:
        answer = json.loads(daemon.reader.readline())
        if answer.get("result") == {}:
            pings.append((time.perf_counter() - asked) * 1000)
            asked = time.perf_counter()
            daemon.send("ping")
        else:
            answers += 1
            errors += "error" in answer
    seconds = time.perf_counter() - began
    daemon.reader.readline()
    threads = len(list(Path(f"/proc/{daemon.process.pid}/task").iterdir()))
    began = time.perf_counter()
    daemon.close()
    stop = time.perf_counter() - began
    report(
        f"{count} shells at once",
        seconds=seconds,
        errors=errors,
        threads=threads,
        worst_ping_ms=max(pings),
        stop_s=stop,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=400)
    rounds = parser.parse_args().rounds
    for mechanism in MECHANISMS:
        for ballast in (0, BALLAST):
            one_command(rounds, mechanism, ballast)
    sessions = b"for i in {1..200}; do setsid sleep 60 & done; wait"
    for mechanism in MECHANISMS:
        kill_to_proof(rounds // 20, mechanism, "1 process", b"exec sleep 60", 1)
        kill_to_proof(rounds // 20, mechanism, "200 sessions", sessions, 200)
    memory()
    stubborn_stop(max(3, rounds // 40))
    thousand_shells()


if __name__ == "__main__":
    main()
