"""The output figures: large output, endless output, filters, reading new output.

The baseline is plain `subprocess` or `re`, which takes turns with shelld in the same run. Figures
are medians and ratios; absolute times depend on the machine.

Usage: python benchmarks/output.py [--rounds N] [--seconds N]
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from measure import RawDaemon, milliseconds, report, resident_mb

MEGABYTE = 1_000_000
MIB = 1 << 20


def call(daemon: RawDaemon, method: str, **params: Any) -> Any:
    answer = json.loads(daemon.request(method, params))
    return answer["result"]


def percentile(times: list[float], share: float) -> float:
    return sorted(times)[min(len(times) - 1, int(len(times) * share))]


def spool_mb(daemon: RawDaemon) -> float:
    """Return how many MB the daemon's spool takes on disk."""
    for entry in Path(f"/proc/{daemon.process.pid}/fd").iterdir():
        if os.readlink(entry).endswith("(deleted)"):
            return entry.stat().st_blocks * 512 / MIB
    return 0.0


class Pinger:
    """This object sends pings during other work, through the same pipe, and times the pings."""

    def __init__(self, daemon: RawDaemon) -> None:
        self.times: list[float] = []
        self._daemon = daemon

    def until(self, request_id: int | None, *, seconds: float = 600) -> Any:
        """Ping until a request is answered or the time is up; return the answer."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            began = time.perf_counter()
            self._daemon.stdin.write(b'{"jsonrpc":"2.0","id":"ping","method":"ping"}\n')
            while b'"ping"' not in (line := self._daemon.reader.readline())[:40]:
                answer = json.loads(line)
                if answer["id"] == request_id:
                    self._daemon.reader.readline()
                    return answer["result"]
            self.times.append((time.perf_counter() - began) * 1000)
            time.sleep(0.001)
        return None

    def report(self, name: str, **figures: float) -> None:
        worst = max(self.times, default=0.0)
        report(name, ping_p99_ms=percentile(self.times, 0.99), ping_worst_ms=worst, **figures)


def foreground(megabytes: int, rounds: int) -> None:
    source = Path(os.environ.get("TMPDIR", "/tmp")) / f"text-{os.getpid()}"
    source.write_bytes(b"some line of a log\n" * (10 * MEGABYTE // 19))
    # The page cache delivers this data faster than the daemon or the baseline can read it.
    command = f"for i in {{1..{megabytes // 10}}}; do cat {source}; done"
    daemon = RawDaemon()
    call(daemon, "bash", command=f"cat {source}")
    before = peak = resident_mb(daemon.process.pid)
    ours: list[float] = []
    theirs: list[float] = []

    def plain() -> object:
        return subprocess.run(["bash", "-c", command], capture_output=True, check=True)

    for _ in range(rounds):
        ours.append(milliseconds(lambda: call(daemon, "bash", command=command)))
        peak = max(peak, resident_mb(daemon.process.pid))
        theirs.append(milliseconds(plain))
    source.unlink()
    report(
        f"{megabytes} MB in the foreground",
        ms=statistics.median(ours),
        worst_ms=max(ours),
        subprocess_ms=statistics.median(theirs),
        ratio=statistics.median(ours) / statistics.median(theirs),
        rss_growth_mb=peak - before,
    )
    daemon.close()


def endless(seconds: int) -> None:
    daemon = RawDaemon()
    call(daemon, "bash", command=f"head -c {4 * MEGABYTE} /dev/zero")
    before = resident_mb(daemon.process.pid)
    bash_id = call(daemon, "bash", command="yes", run_in_background=True)["bash_id"]
    pinger = Pinger(daemon)
    pinger.until(None, seconds=seconds)
    growth = resident_mb(daemon.process.pid) - before
    disk = spool_mb(daemon)
    call(daemon, "kill_shell", shell_id=bash_id, signal="KILL")
    kept = dropped = 0
    while True:
        read = call(daemon, "bash_output", bash_id=bash_id, max_bytes=16 * MIB)
        kept += len(read["stdout"])
        dropped += int(read["droppedBytes"])
        if not read["more"]:
            break
    exact = kept + dropped == read["stdoutRange"]["end"]
    pinger.report(
        f"yes for {seconds} s",
        written_gb=(kept + dropped) / 1e9,
        rss_growth_mb=growth,
        disk_mib=disk,
        exact=float(exact),
    )
    daemon.close()


def filters() -> None:
    word = "error"
    lines = b"".join(
        b"%08d %s %s\n" % (number, b"x" * 60, b"error" if number % 100 == 0 else b"fine.")
        for number in range(64 * MIB // 76)
    )
    source = Path(os.environ.get("TMPDIR", "/tmp")) / f"lines-{os.getpid()}"
    source.write_bytes(lines)
    daemon = RawDaemon("--retain-bytes", str(70 * MIB))
    try:
        bash_id = call(daemon, "bash", command=f"cat {source}")["bash_id"]
    finally:
        source.unlink()
    text = lines.decode()
    search = re.compile(word).search
    ours: list[float] = []
    theirs: list[float] = []
    for _ in range(5):
        began = time.perf_counter()
        found = [line for line in text.splitlines(keepends=True) if search(line)]
        theirs.append(time.perf_counter() - began)
        began = time.perf_counter()
        count = filtered(daemon, bash_id, word).count("\n")
        ours.append(time.perf_counter() - began)
        assert count == len(found)
    size = len(lines) / 1e6
    report(
        "64 MiB filtered by a word",
        mb_per_s=size / statistics.median(ours),
        python_re_mb_per_s=size / statistics.median(theirs),
        ratio=statistics.median(theirs) / statistics.median(ours),
    )
    for pattern in (word, "(a+)+$", r"^(\w+\s?)*$", r"(?<=\d{8} )x+ error", "."):
        pinger = Pinger(daemon)
        began = time.perf_counter()
        filtered(daemon, bash_id, pattern, pinger)
        seconds = time.perf_counter() - began
        pinger.report(f"  ping while 64 MiB by {pattern}", mb_per_s=size / seconds)
    daemon.close()


def filtered(daemon: RawDaemon, bash_id: str, pattern: str, pinger: Pinger | None = None) -> str:
    found: list[str] = []
    position = 0
    while True:
        params = {
            "bash_id": bash_id,
            "filter": pattern,
            "stdout_offset": position,
            "max_bytes": 16 * MIB,
        }
        if pinger is None:
            read = call(daemon, "bash_output", **params)
        else:
            daemon.send("bash_output", params)
            read = pinger.until(1)
        found.append(read["stdout"])
        position = read["stdoutRange"]["end"]
        if not read["more"]:
            return "".join(found)


def increments(rounds: int, count: int = 10_000) -> None:
    daemon = RawDaemon("--retain-bytes", str(110 * MIB))
    command = f"yes 'some line of a log' | head -c {100 * MEGABYTE}"
    bash_id = call(daemon, "bash", command=command)["bash_id"]
    step = 100 * MEGABYTE // count

    def request(offset: int, size: int) -> bytes:
        params = {"bash_id": bash_id, "stdout_offset": offset, "max_bytes": size}
        message = {"jsonrpc": "2.0", "id": 1, "method": "bash_output", "params": params}
        return json.dumps(message).encode() + b"\n"

    small = [request(offset, step) for offset in range(0, 100 * MEGABYTE, step)]
    large = [request(offset, 16 * MIB) for offset in range(0, 100 * MEGABYTE, 16 * MIB)]

    def one_at_a_time(requests: list[bytes]) -> None:
        for line in requests:
            daemon.stdin.write(line)
            json.loads(daemon.reader.readline())

    def at_once(requests: list[bytes]) -> None:
        writer = threading.Thread(target=lambda: daemon.stdin.write(b"".join(requests)))
        writer.start()
        for _ in requests:
            json.loads(daemon.reader.readline())
        writer.join()

    def compare(name: str, ask: Callable[[list[bytes]], None]) -> None:
        many: list[float] = []
        one: list[float] = []
        for _ in range(rounds):
            many.append(milliseconds(lambda: ask(small)))
            one.append(milliseconds(lambda: ask(large)))
        ours, theirs = statistics.median(many), statistics.median(one)
        report(f"{count} reads of 100 MB, {name}", ms=ours, in_one_ms=theirs, ratio=ours / theirs)

    compare("one at a time", one_at_a_time)
    compare("at once", at_once)
    daemon.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=int, default=30)
    options = parser.parse_args()
    foreground(100, options.rounds)
    foreground(1000, 3)
    endless(options.seconds)
    filters()
    increments(max(3, options.rounds // 3))


if __name__ == "__main__":
    main()
