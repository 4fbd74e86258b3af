"""The cost of a target: what a hop adds to a call, and what a dead target costs all other calls.

Every target is a daemon of this machine, so no network is measured. To measure the hop, calls of
the daemon itself and calls of the target take turns, and figures are medians. To measure the cost
of a dead target, the daemon gets the same calls before and after one of its targets is stopped with
SIGSTOP. The stopped target looks like a host that no longer answers, and requests to it wait.

Usage: python benchmarks/targets.py [--rounds N] [--targets N] [--shells N]
"""

from __future__ import annotations

import argparse
import itertools
import os
import shlex
import signal
import time
from functools import partial
from pathlib import Path
from typing import Any

from measure import DAEMON, RawDaemon, family_of, interleaved, milliseconds, percentile, report

_PAUSE_S = 0.005
_FAR = [*DAEMON, "--stdio"]
# An environment variable of the target's daemon, which holds the name of the target.
_VARIABLE = "BENCHMARK_TARGET"
_CALLS: dict[str, tuple[str, dict[str, Any]]] = {
    "get_session": ("get_session", {}),
    "bash true": ("bash", {"command": "true"}),
}
# How many requests wait for the dead target.
_WAITING = 50


def _hub(names: list[str]) -> RawDaemon:
    far = {name: shlex.join(["env", f"{_VARIABLE}={name}", *_FAR]) for name in names}
    options = [f"--target={name}={argv}" for name, argv in far.items()]
    return RawDaemon("--max-shells", "2000", *options)


def _pid_of(name: str, hub: RawDaemon) -> int:
    """Return the pid of the daemon at a target."""
    for pid in family_of(hub.process.pid):
        if f"{_VARIABLE}={name}".encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
            # The daemon comes first, before the processes that it has started.
            return pid
    raise LookupError(name)


def hop(rounds: int) -> None:
    """Measure the same calls here and at a target."""
    hub = _hub(["far"])
    try:
        for pause, (name, (method, params)) in itertools.product((_PAUSE_S, 0), _CALLS.items()):
            there = {**params, "target": "far", "session": "there"}
            here = {**params, "session": "here"}
            hub.request(method, there)
            times = interleaved(
                rounds,
                pause,
                here=partial(hub.request, method, here),
                there=partial(hub.request, method, there),
            )
            added = times["there"] - times["here"]
            report(f"{name}{'' if pause else ' in a row'}, ms", **times, added=added)
    finally:
        hub.close()


def dead_target(rounds: int, count: int, shells: int) -> None:
    """Measure calls to many targets before and after one of them stops answering."""
    names = [f"t{number}" for number in range(count)]
    hub = _hub(names)
    try:
        for name in names:
            for _ in range(shells):
                sleep = {"command": "sleep 1000", "run_in_background": True, "target": name}
                assert b"bash_id" in hub.request("bash", sleep)
        dead, *alive = names
        pid = _pid_of(dead, hub)
        before = _round_trips(hub, alive, rounds)
        os.kill(pid, signal.SIGSTOP)
        try:
            for _ in range(_WAITING):
                hub.send("bash", {"command": "true", "target": dead})
            after = _round_trips(hub, alive, rounds)
        finally:
            os.kill(pid, signal.SIGCONT)
        for _ in range(_WAITING):
            hub.reader.readline()
        for name in _CALLS:
            figures = {
                f"{when}_p{percent}": percentile(times[name], percent)
                for percent in (50, 99)
                for when, times in (("before", before), ("after", after))
            }
            report(f"{name}, {count} targets, ms", **figures)
    finally:
        hub.close()


def _round_trips(hub: RawDaemon, names: list[str], rounds: int) -> dict[str, list[float]]:
    """Call the targets in turn, and return the times of each kind of call."""
    times: dict[str, list[float]] = {name: [] for name in _CALLS}
    for _, name in zip(range(rounds * len(names)), itertools.cycle(names), strict=False):
        for kind, (method, params) in _CALLS.items():
            time.sleep(_PAUSE_S)
            call = partial(hub.request, method, {**params, "target": name, "session": name})
            times[kind].append(milliseconds(call))
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--targets", type=int, default=20)
    parser.add_argument("--shells", type=int, default=50, help="how many run at each target")
    options = parser.parse_args()
    hop(options.rounds)
    dead_target(options.rounds // 10, options.targets, options.shells)


if __name__ == "__main__":
    main()
