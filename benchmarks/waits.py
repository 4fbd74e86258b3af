"""For each `until`, measures the delay between an event and the answer to a waiting call.

The benchmark compares such a call with a client that asks every 100 ms, and counts the calls of
both. The two methods take turns, and figures are medians. The events come at random moments.

The benchmark also measures the daemon's processor time while many calls wait for an event that
never happens.

Usage: python benchmarks/waits.py [--rounds N] [--waits N] [--seconds N]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from measure import RawDaemon, percentile, report, table
from shelld_client import BashOutputResult, Client
from shelld_client.call_options import OutputOptions

_POLL_S = 0.1
_QUIET_MS = 500
_WAIT_MS = 20_000

# This command writes the time of the event.
_NOW = "sleep 0.$((RANDOM % 300 + 200)); echo =$EPOCHREALTIME"
_SERVER = (
    'python3 -c \'import socket, time; time.sleep(0.3); s = socket.create_server(("127.0.0.1", 0));'
    ' print(f"={time.time()}", flush=True); time.sleep(300)\''
)


def _prompts(result: BashOutputResult, _silent_s: float) -> bool:
    return result.prompt is not None


def _matches(result: BashOutputResult, _silent_s: float) -> bool:
    return "=" in result.stdout


def _is_quiet(_result: BashOutputResult, silent_s: float) -> bool:
    return silent_s >= _QUIET_MS / 1000


def _listens(result: BashOutputResult, _silent_s: float) -> bool:
    return bool(result.listening)


def _has_ended(result: BashOutputResult, _silent_s: float) -> bool:
    return not result.is_running


class _Wait(NamedTuple):
    """`wait` has the options of a call that waits, and `poll` those of a call that returns at once.

    `is_over` gets a result of `poll` and the seconds of silence, and returns whether the event has
    happened.
    """

    command: str
    wait: OutputOptions
    poll: OutputOptions
    is_over: Callable[[BashOutputResult, float], bool]
    event_after_s: float = 0.0


_WAITS = {
    "prompt": _Wait(f"{_NOW}; read x", {"wait": _WAIT_MS, "until": "prompt"}, {}, _prompts),
    "match": _Wait(
        f"{_NOW}; sleep 300", {"wait": _WAIT_MS, "until": "match", "pattern": "="}, {}, _matches
    ),
    "quiet": _Wait(
        f"{_NOW}; sleep 300",
        {"wait": _WAIT_MS, "until": "quiet", "quiet_ms": _QUIET_MS},
        {},
        _is_quiet,
        _QUIET_MS / 1000,
    ),
    "listening": _Wait(
        _SERVER, {"wait": _WAIT_MS, "until": "listening"}, {"until": "listening"}, _listens
    ),
    "exit": _Wait(_NOW, {"wait": _WAIT_MS, "until": "exit"}, {}, _has_ended),
}


def _delay_ms(shell: Client, bash_id: str, ended_at: float, event_after_s: float) -> float:
    text = shell.bash_output(
        bash_id, wait=_WAIT_MS, until="match", pattern="=", stdout_offset=0
    ).stdout
    moment = float(text.partition("=")[2].split()[0])
    return (ended_at - moment - event_after_s) * 1000


def _waited(shell: Client, bash_id: str, each: _Wait) -> int:
    while shell.bash_output(bash_id, **each.wait).reached is None:
        pass
    return 1


def _polled(shell: Client, bash_id: str, each: _Wait) -> int:
    trips, news_at = 0, time.monotonic()
    while True:
        trips += 1
        result = shell.bash_output(bash_id, **each.poll)
        now = time.monotonic()
        if result.stdout:
            news_at = now
        if each.is_over(result, now - news_at):
            return trips
        time.sleep(_POLL_S)


def events(rounds: int) -> None:
    ways = {"until": _waited, f"every {_POLL_S * 1000:.0f} ms": _polled}
    delays: dict[tuple[str, str], list[float]] = {}
    trips: dict[tuple[str, str], list[int]] = {}
    with Client.spawn() as shell:
        for _ in range(rounds):
            for name, each in _WAITS.items():
                for way, until in ways.items():
                    bash_id = shell.bash(
                        each.command, session=None, tty=name == "prompt", run_in_background=True
                    ).bash_id
                    count = until(shell, bash_id, each)
                    ended_at = time.time()
                    delay = _delay_ms(shell, bash_id, ended_at, each.event_after_s)
                    delays.setdefault((name, way), []).append(delay)
                    trips.setdefault((name, way), []).append(count)
                    shell.kill_shell(bash_id, grace=0)
    rows = [("", *(f"{way}: calls, ms p50/p95" for way in ways))]
    for name in _WAITS:
        cells = (
            f"{statistics.median(trips[name, way]):.0f}, {statistics.median(delays[name, way]):.1f}"
            f"/{percentile(delays[name, way], 95):.1f}"
            for way in ways
        )
        rows.append((name, *cells))
    table(rows)


def _processor_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def idle(waits: int, seconds: int) -> None:
    """Report the processor time while calls wait, in their first seconds and in later seconds."""
    for until in ("listening", "prompt", "exit"):
        daemon = RawDaemon("--max-shells", str(waits))
        for _ in range(waits):
            command = {"command": "sleep 600", "session": None, "tty": True}
            started = daemon.request("bash", {**command, "run_in_background": True})
            bash_id = json.loads(started)["result"]["bash_id"]
            daemon.send("bash_output", {"bash_id": bash_id, "wait": 600_000, "until": until})
            # The daemon reads requests in order. So once this ping is answered, the daemon has read
            # the earlier request.
            daemon.request("ping")
        shares: list[float] = []
        for _ in range(2):
            began, used = time.monotonic(), _processor_s(daemon.process.pid)
            time.sleep(seconds)
            used = _processor_s(daemon.process.pid) - used
            shares.append(100 * used / (time.monotonic() - began))
        report(f"{waits} wait until {until}", first_percent=shares[0], then_percent=shares[1])
        daemon.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--waits", type=int, default=50)
    parser.add_argument("--seconds", type=int, default=10)
    options = parser.parse_args()
    events(options.rounds)
    idle(options.waits, options.seconds)
