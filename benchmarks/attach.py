"""The time that `shelld attach` takes to its first answer, and the cost of calls through it.

The lasting daemon runs already. No process stands between the client and this daemon, so the
client's calls should take as long as calls to a plain daemon. The two daemons take turns, and
figures are medians. The kernel shares processors between sessions (autogroup), and a lasting daemon
has a session of its own. So the plain daemon gets a session of its own, too, as it does when a
client starts it. On a busy machine, a ping of the plain daemon took ten times as long in a session
of its own as in the session of the benchmark.

Usage: python benchmarks/attach.py [--rounds N]
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from functools import partial

from measure import RawDaemon, interleaved, report

_PAUSE_S = 0.005
_COMMAND = {"command": "true"}


def _first_answer_ms(*arguments: str) -> float:
    began = time.perf_counter()
    daemon = RawDaemon(*arguments, new_session=True)
    daemon.request("ping")
    took = time.perf_counter() - began
    daemon.close()
    return took * 1000


def starts(rounds: int) -> None:
    """Measure the starts. Each client leaves before the next one comes."""
    ways = {"attach": ["attach"], "plain": []}
    _first_answer_ms("attach")
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, arguments in ways.items():
            times[name].append(_first_answer_ms(*arguments))
    figures = {name: statistics.median(each) for name, each in times.items()}
    report("to the first answer, ms", **figures)


def calls(rounds: int) -> None:
    attached, plain = RawDaemon("attach"), RawDaemon(new_session=True)
    try:
        for method, params in (("ping", None), ("bash", _COMMAND)):
            attached.request(method, params)
            plain.request(method, params)
            figures = interleaved(
                rounds,
                _PAUSE_S,
                attach=partial(attached.request, method, params),
                plain=partial(plain.request, method, params),
            )
            report(f"{method}, ms", **figures)
            report("  attach to plain, %", ratio=100 * figures["attach"] / figures["plain"])
    finally:
        attached.close()
        plain.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=200)
    wanted = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as runtime:
        # The benchmark has its own directory of sockets, so it touches no daemon of the user.
        os.environ["XDG_RUNTIME_DIR"] = runtime
        try:
            starts(max(1, wanted // 10))
            calls(wanted)
        finally:
            RawDaemon("stop", "main").close()
