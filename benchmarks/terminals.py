"""The cost of terminals, and of writing input to running commands.

The benchmark measures the start of a command with a terminal and with pipes, and the time from a
write to its answer. It also measures the throughput of a terminal. Finally, it measures the
daemon's memory and the delay of the screen while a program writes a lot to its terminal. All
variants take turns; figures are medians.

Usage: python benchmarks/terminals.py [--rounds N] [--megabytes N]
"""

from __future__ import annotations

import argparse
import json
import time

from measure import RawDaemon, interleaved, report, resident_mb
from shelld_client import Client


def starts(rounds: int) -> None:
    with Client.spawn(args=["--spare-shells", "0"]) as shell:
        medians = interleaved(
            rounds,
            0.0,
            pipes=lambda: shell.bash("echo hi", session=None),
            terminal=lambda: shell.bash("echo hi", session=None, tty=True),
            open_stdin=lambda: shell.bash("echo hi", session=None, open_stdin=True),
        )
    report("start", **medians, ratio=medians["terminal"] / medians["pipes"])


def answers(rounds: int) -> None:
    with Client.spawn() as shell:
        pipe = shell.bash("cat", open_stdin=True, run_in_background=True).bash_id
        quiet = shell.bash("stty -echo; echo; exec cat", tty=True, run_in_background=True).bash_id
        shell.bash_output(quiet, wait=10_000)
        medians = interleaved(
            rounds,
            0.0,
            ping=shell.ping,
            pipe=lambda: shell.write_stdin(pipe, "x\n", wait=10_000),
            terminal=lambda: shell.write_stdin(quiet, "x\n", wait=10_000),
        )
    report("write to answer through cat", **medians)


def throughput(megabytes: int) -> None:
    daemon = RawDaemon()
    count = megabytes * 1024 * 1024
    # The first command loads what all commands need.
    daemon.request("bash", {"command": "true"})
    before = resident_mb(daemon.process.pid)
    began = time.monotonic()
    command = f"stty -opost; head -c {count} /dev/zero"
    params = {"command": command, "tty": True, "run_in_background": True}
    started = json.loads(daemon.request("bash", params))["result"]
    wait = {"bash_id": started["bash_id"], "wait": 600_000, "until": "exit", "max_bytes": 1}
    read = json.loads(daemon.request("bash_output", wait))["result"]
    seconds = time.monotonic() - began
    wait["stdout_offset"] = count - 1
    assert json.loads(daemon.request("bash_output", wait))["result"]["stdoutRange"]["end"] == count
    assert read["status"] == "completed"
    report(
        f"{megabytes} MB through a terminal",
        mb_per_s=megabytes / seconds,
        growth_mb=resident_mb(daemon.process.pid) - before,
    )
    daemon.close()


# This program writes the time again and again, 25 MB in a second.
_CLOCK = """
import sys, time
due = time.monotonic()
while True:
    line = f"{time.monotonic():.4f} " + "x" * 60
    sys.stdout.write(f"{line}\\n" * 5_000)
    due = max(due + 5_000 * 73 / 25e6, time.monotonic() - 1)
    time.sleep(max(0, due - time.monotonic()))
"""


def lags(looks: int) -> None:
    """Measure how late the screen is: the time when it arrives, minus the latest time that is
    printed on it.
    """
    found = list[float]()
    with Client.spawn() as shell:
        bash_id = shell.bash(f"python3 -c '{_CLOCK}'", tty=True, run_in_background=True).bash_id
        began = time.monotonic()
        shell.bash_output(bash_id, wait=10_000)
        # The first request for the screen starts the process that emulates it.
        shell.read_screen(bash_id)
        for _ in range(looks):
            lines = shell.read_screen(bash_id).lines
            seen = max(line.split()[0] for line in lines[:-1] if line)
            found.append(time.monotonic() - float(seen))
        seconds = time.monotonic() - began
        (listed,) = shell.list_shells()
        shell.kill_shell(bash_id)
    found.sort()
    report(
        "screen of a program that writes",
        lag_ms=found[len(found) // 2] * 1000,
        p95_ms=found[len(found) * 95 // 100] * 1000,
        most_ms=found[-1] * 1000,
        mb_per_s=listed.unread_bytes / seconds / 1e6,
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--megabytes", type=int, default=1024)
    options = parser.parse_args()
    starts(options.rounds)
    answers(options.rounds)
    throughput(options.megabytes)
    lags(options.rounds)
