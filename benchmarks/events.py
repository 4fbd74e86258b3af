"""Events: their order, the delay of an exit, the speed of output, and the cost of a slow client.

The benchmark also measures Codex's exec-server, if `make bench-peers` has installed it. The servers
take turns. Each command writes the time just before it exits. So the measured delay of an exit
includes the exit of bash.

Usage: python benchmarks/events.py [--commands N] [--rounds N]
"""

from __future__ import annotations

import argparse
import base64
import itertools
import os
import select
import statistics
import time
from collections.abc import Iterator
from typing import Any

import anyio

from compare.codex import ExecServer, params_of
from compare.contestant import NoAnswer
from compare.installed import NotInstalled, from_npm
from compare.lines import LineServer
from compare.peers import CODEX
from measure import DAEMON, percentile, resident_mb, table
from shelld_client import AsyncClient, ExitEvent, OutputEvent

_IN_FLIGHT = 64
_IDLE_SHELLS = 255
_PUSHED_BYTES = 100_000_000
_PUSH = f"head -c {_PUSHED_BYTES} /dev/zero | tr '\\0' x"
_NOW = "echo =$EPOCHREALTIME"
# Keep all output, so that a busy machine loses nothing.
_KEEP_ALL = ("--retain-bytes", "256M", "--retain-total-bytes", "1G")


class Ours:
    """Starts one daemon, and calls it without the client library."""

    name = "shelld"

    def __init__(self, *options: str) -> None:
        self._server = LineServer([*DAEMON, *options])

    def ask(self, method: str, **params: object) -> dict[str, Any]:
        result: dict[str, Any] = self._server.answer(self.send(method, **params))["result"]
        return result

    def send(self, method: str, **params: object) -> int:
        return self._server.send(method, params)

    def messages(self, limit_s: float = 60) -> Iterator[dict[str, Any]]:
        """Yield messages for `limit_s` seconds."""
        return self._server.messages(limit_s)

    @property
    def pid(self) -> int:
        return self._server.pids()[0]

    def read_byte(self) -> None:
        """Read one byte, which becomes a part of the next message."""
        inside = vars(self._server)
        if select.select([inside["_stdout"]], [], [], 1)[0]:
            inside["_partial"].append(os.read(inside["_stdout"].fileno(), 1))

    def close(self) -> None:
        self._server.close()


def order(count: int) -> tuple[int, int, int]:
    """Count the errors in the events of short commands.

    Return how many exits came twice or never, how much output came after the exit of its shell, and
    how many events had a wrong number.
    """
    ours = Ours("--max-shells", "200")
    ours.ask("subscribe", events=["output", "exit"], interval_ms=0)
    running = {ours.send("bash", command="echo out", session=None) for _ in range(_IN_FLIGHT)}
    left, answered, expected = count - _IN_FLIGHT, 0, itertools.count(1)
    exits: dict[str, int] = {}
    early = wrong = 0
    # The time limit assumes ten commands a second, which even a busy machine can run.
    for message in ours.messages(60 + count / 10):
        if "method" in message:
            event = message["params"]
            wrong += event["seq"] != next(expected)
            early += message["method"] == "shell/output" and event["bash_id"] in exits
            if message["method"] == "shell/exited":
                exits[event["bash_id"]] = exits.get(event["bash_id"], 0) + 1
        elif message["id"] in running:
            answered += 1
            if left:
                left -= 1
                running.add(ours.send("bash", command="echo out", session=None))
        if answered == count and sum(exits.values()) >= count:
            break
    ours.close()
    return abs(len(exits) - count) + sum(each != 1 for each in exits.values()), early, wrong


def our_exits(rounds: int, idle: int) -> list[float]:
    """Return the delays, in ms, between the last line of a command and the event of its exit."""
    ours = Ours("--max-shells", "300")
    for _ in range(idle):
        ours.ask("bash", command="sleep 1000", run_in_background=True, session=None)
    ours.ask("subscribe", events=["output", "exit"])
    times: list[float] = []
    for _ in range(rounds):
        ours.send("bash", command=_NOW, run_in_background=True, session=None)
        written = 0.0
        for message in ours.messages():
            if message.get("method") == "shell/output":
                written = float(message["params"]["text"].strip("=\n"))
            elif message.get("method") == "shell/exited":
                times.append((time.time() - written) * 1000)
                break
    ours.close()
    return times


class Codex(ExecServer):
    def exits(self, rounds: int) -> tuple[list[float], int]:
        """Return the delays, in ms, between the last line of a command and the event of its exit.
        Also return how many pieces of output came after the exit.
        """
        times: list[float] = []
        early = 0
        for _ in range(rounds):
            process_id, written, exited = self.start(_NOW), 0.0, 0.0
            for message in self._server.messages():
                params = params_of(message)
                if params.get("processId") != process_id:
                    continue
                if message["method"] == "process/output":
                    text = base64.b64decode(params["chunk"]).decode()
                    written = float(text.strip("=\n")) if "=" in text else written
                    early += bool(exited)
                elif message["method"] == "process/exited":
                    exited = time.time()
                if written and exited:
                    times.append((exited - written) * 1000)
                    break
        return times, early

    def push(self) -> float:
        """Return how many seconds it takes to receive the pushed output."""
        began, count = time.perf_counter(), 0
        process_id = self.start(_PUSH)
        for message in self._server.messages(60):
            params = params_of(message)
            is_output = message.get("method") == "process/output"
            if is_output and params["processId"] == process_id:
                count += len(base64.b64decode(params["chunk"]))
                if count == _PUSHED_BYTES:
                    break
        return time.perf_counter() - began


async def our_push() -> tuple[float, float]:
    """Return the seconds that the Python client takes for the pushed output, and the growth of the
    daemon in MB.
    """
    async with AsyncClient.spawn(args=_KEEP_ALL) as shell:
        before = resident_mb(shell.pid)
        async with shell.events() as events:
            began, count = time.perf_counter(), 0
            await shell.bash(_PUSH, run_in_background=True)
            async for event in events:
                if isinstance(event, OutputEvent):
                    assert event.dropped == event.skipped == 0
                    count += len(event.text)
                elif isinstance(event, ExitEvent):
                    break
            seconds = time.perf_counter() - began
        assert count == _PUSHED_BYTES
        return seconds, resident_mb(shell.pid) - before


def slow_client() -> tuple[float, bool]:
    """Return the growth of a daemon in MB, and whether the exit event came. The client reads
    slowly.
    """
    ours = Ours()
    ours.ask("subscribe", events=["output", "exit"])
    before = most = resident_mb(ours.pid)
    ours.send("bash", command=_PUSH, run_in_background=True)
    end_at = time.monotonic() + 5
    while time.monotonic() < end_at:
        ours.read_byte()
        most = max(most, resident_mb(ours.pid))
        time.sleep(0.05)
    has_ended = any(each.get("method") == "shell/exited" for each in ours.messages())
    ours.close()
    return most - before, has_ended


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure events.")
    parser.add_argument("--commands", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    lost, early, wrong = order(options.commands)
    print(f"{options.commands} commands: {lost} exits lost or doubled, ", end="")
    print(f"{early} outputs after an exit, {wrong} numbers wrong")
    codex: Codex | None = None
    try:
        codex = Codex(from_npm(*CODEX))
        codex.open()
    except (NotInstalled, NoAnswer) as error:
        print(f"Codex's exec-server is left out: {error}")
    exits: dict[str, list[float]] = {}
    pushes: dict[str, list[float]] = {}
    grown: list[float] = []
    codex_early = 0
    for _ in range(options.rounds):
        exits.setdefault("shelld", []).extend(our_exits(100, 0))
        exits.setdefault("shelld, 256 shells", []).extend(our_exits(100, _IDLE_SHELLS))
        seconds, mb = anyio.run(our_push)
        pushes.setdefault("shelld", []).append(seconds)
        grown.append(mb)
        if codex is not None:
            times, before = codex.exits(100)
            exits.setdefault("codex exec-server", []).extend(times)
            codex_early += before
            pushes.setdefault("codex exec-server", []).append(codex.push())
    rows = [("event of an exit, ms", "p50", "p99")]
    for name, each in exits.items():
        rows.append((name, f"{statistics.median(each):.2f}", f"{percentile(each, 99):.2f}"))
    table(rows)
    if codex is not None:
        print(f"exits of Codex before their output: {codex_early} of {100 * options.rounds}")
        codex.close()
    for name, each in pushes.items():
        print(f"push of 100 MB, {name}: {100 / statistics.median(each):.0f} MB/s")
    print(f"the daemon grows by {max(grown):.1f} MB")
    grew, has_ended = slow_client()
    print(f"with a client that hardly reads: {grew:.1f} MB, the exit came: {has_ended}")


if __name__ == "__main__":
    main()
