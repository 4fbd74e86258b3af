"""Measures how reliably and how soon the daemon sees that a command waits for input, and what this
costs.

The benchmark runs the corpus of prompts: programs that wait for input, and decoys that do not. It
counts the programs that the daemon reports as waiting. For comparison, it makes two guesses about
each program, and counts the programs that seem to wait. One guess: the program waits if it writes
nothing for two seconds. The other guess: the program waits if a pattern matches the last line of
its output. Then the benchmark measures the daemon's processor time while the daemon watches many
silent commands.

The FILE of `--patterns` has one Python regular expression per line. The repository has no such
file.

Usage: PYTHONPATH=tests/helpers python benchmarks/prompts.py
    [--patterns FILE]... [--shells N] [--seconds N]
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import statistics
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from measure import percentile, table
from prompt_corpus import WAITING, Entry
from prompt_decoys import DECOYS
from prompt_shells import batches, corpus_daemon, each_result, end, start, why_not
from support import Json, RawDaemon, raw_daemon

# Other tools use an idle timer: after this much silence (ms), they assume a prompt.
_IDLE_MS = 2_000
# How many programs start at once. More programs would slow each other down.
_AT_ONCE = 3
# How long a program may take to start (ms). A prompt that the daemon has not found within this time
# counts as missed.
_PATIENCE_MS = 20_000
# Each time this command writes a line, the benchmark asks once whether the decoys seem to wait. In
# total, this takes longer than the silence after which the daemon reports a likely prompt.
_CLOCK = "while sleep 0.5; do echo tick; done"
_ROUNDS = 8
# The daemon checks the processes at growing intervals. After this time, the daemon checks rarely.
_SETTLE_S = 8.0

Patterns = dict[str, list[re.Pattern[str]]]


class Judged(NamedTuple):
    """What each method of detection says about one program of the corpus.

    `after_ms` has an entry for each method that has reported that the program waits for input. The
    value says how long the program was silent before the report, or is None if this is unknown.
    """

    entry: Entry
    after_ms: dict[str, float | None]


def _last_line(daemon: RawDaemon, shell: str) -> str:
    read = {"bash_id": shell, "stdout_offset": 0, "max_bytes": 1 << 20}
    text: str = daemon.call("bash_output", read)["stdout"]
    return text.rsplit("\n", 1)[-1].rsplit("\r", 1)[-1]


def _guesses(
    daemon: RawDaemon, shells: Sequence[str], patterns: Patterns
) -> list[dict[str, float | None]]:
    """Return the running shells that seem to wait, judged by their silence and by the patterns."""
    wait = {"wait": 2 * _IDLE_MS, "until": "quiet", "quiet_ms": _IDLE_MS}
    results = each_result(daemon, "bash_output", [{"bash_id": each, **wait} for each in shells])
    found = list[dict[str, float | None]]()
    for shell, result in zip(shells, results, strict=True):
        line = _last_line(daemon, shell)
        said: dict[str, float | None] = {
            name: None
            for name, each in patterns.items()
            if any(pattern.search(line) for pattern in each)
        }
        if result["reached"] == "quiet":
            said["idle"] = _IDLE_MS
        found.append(said)
    return found


def waiting(daemon: RawDaemon, place: Path, patterns: Patterns) -> list[Judged]:
    judged = list[Judged]()
    for batch in batches(entry for entry in WAITING if why_not(entry) is None):
        shells, results = list[str](), list[Json]()
        for few in batches(batch, _AT_ONCE):
            asked = list[int]()
            for entry in few:
                shells.append(start(daemon, entry, place))
                wait = {"bash_id": shells[-1], "wait": _PATIENCE_MS, "until": "prompt"}
                asked.append(daemon.request("bash_output", wait))
            results += [daemon.answer(request)["result"] for request in asked]
        guesses = _guesses(daemon, shells, patterns)
        for entry, result, said in zip(batch, results, guesses, strict=True):
            prompt = result["prompt"]
            if prompt is not None:
                # If a program has written nothing, `sinceMs` counts from the start of the shell,
                # which started before the program did. So do not record this silence.
                after = prompt["sinceMs"] if result["stdout"] else None
                said |= {prompt["certainty"]: after}
            if prompt is None or prompt["certainty"] != entry.waits:
                print(f"  missed: {entry.name}, which is {entry.waits}: {prompt}")
            judged.append(Judged(entry, said))
        end(daemon, shells)
    return judged


def decoys(daemon: RawDaemon, place: Path, patterns: Patterns) -> list[Judged]:
    judged = list[Judged]()
    clock = daemon.background(_CLOCK)
    for batch in batches(entry for entry in DECOYS if why_not(entry) is None):
        shells = [start(daemon, entry, place) for entry in batch]
        waits = (
            {"bash_id": each, "wait": _PATIENCE_MS, "until": "match", "pattern": entry.ready}
            for each, entry in zip(shells, batch, strict=True)
        )
        for result in each_result(daemon, "bash_output", waits):
            assert result["reached"] == "match", result
        flagged: dict[str, Json] = {}
        for _ in range(_ROUNDS):
            daemon.call("bash_output", {"bash_id": clock, "wait": _PATIENCE_MS})
            for shell in daemon.call("list_shells")["shells"]:
                if shell["prompt"] is not None:
                    flagged[shell["bash_id"]] = shell["prompt"]
        guesses = _guesses(daemon, shells, patterns)
        for shell_id, entry, said in zip(shells, batch, guesses, strict=True):
            if (prompt := flagged.get(shell_id)) is not None:
                print(f"  flagged: {entry.name}: {prompt}")
                said[prompt["certainty"]] = None
            judged.append(Judged(entry, said))
        end(daemon, shells)
    return judged


def _share(judged: Sequence[Judged], *ways: str) -> str:
    count = sum(any(way in each.after_ms for way in ways) for each in judged)
    return f"{count} ({100 * count / len(judged):.1f} %)"


def _delays(judged: Sequence[Judged], *ways: str) -> str:
    after = [each.after_ms.get(way) for each in judged for way in ways]
    known = [each for each in after if each is not None]
    if not known:
        return "-"
    return f"{statistics.median(known):.0f}/{percentile(known, 95):.0f}"


def recall(patterns: Patterns) -> None:
    with tempfile.TemporaryDirectory() as name, corpus_daemon() as daemon:
        for folder in ("waiting", "decoys"):
            Path(name, folder).mkdir()
        waits = waiting(daemon, Path(name, "waiting"), patterns)
        others = decoys(daemon, Path(name, "decoys"), patterns)
    ways = {
        "proved": ("proved",),
        "likely": ("likely",),
        "both": ("proved", "likely"),
        f"silent for {_IDLE_MS / 1000:.0f} s": ("idle",),
        **{name: (name,) for name in patterns},
    }
    table(
        [
            ("", *ways),
            (f"found, of {len(waits)} that wait", *(_share(waits, *way) for way in ways.values())),
            (f"flagged, of {len(others)} decoys", *(_share(others, *way) for way in ways.values())),
            ("ms after the last output, p50/p95", *(_delays(waits, *way) for way in ways.values())),
        ]
    )


# -- processor time ----------------------------------------------------------------------------


def _processor_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def idle(shells: int, seconds: float) -> None:
    """Compare three daemons that run silent commands. In one, calls wait with `until`; in another,
    calls have `on_prompt`; the third watches for no prompts.
    """

    def ask_for_prompt(daemon: RawDaemon, bash_id: str) -> None:
        wait = {"bash_id": bash_id, "wait": 600_000, "until": "prompt"}
        daemon.request("bash_output", wait)

    command = "sleep 900; true"
    with contextlib.ExitStack() as stack:
        daemons = {
            name: stack.enter_context(raw_daemon())
            for name in ("unwatched", "until prompt", "on_prompt")
        }
        for name, daemon in daemons.items():
            for _ in range(shells):
                params: Json = {"command": command, "session": None, "tty": True}
                if name == "on_prompt":
                    daemon.request("bash", {**params, "on_prompt": "background"})
                    continue
                bash_id = daemon.call("bash", {**params, "run_in_background": True})["bash_id"]
                if name == "until prompt":
                    ask_for_prompt(daemon, bash_id)
            daemon.call("ping")
        time.sleep(_SETTLE_S)
        before = {name: _processor_s(daemon.pid) for name, daemon in daemons.items()}
        began = time.monotonic()
        time.sleep(seconds)
        passed = time.monotonic() - began
        shares = {
            name: (_processor_s(daemon.pid) - before[name]) / passed
            for name, daemon in daemons.items()
        }
    print(f"\nprocessor time of the daemon with {shells} silent shells, share of a core")
    table([tuple(shares), tuple(f"{100 * share:.2f} %" for share in shares.values())])


def _read_patterns(files: Iterable[Path]) -> Patterns:
    return {
        file.stem: [re.compile(line) for line in file.read_text().splitlines() if line]
        for file in files
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--patterns", type=Path, action="append", default=[])
    parser.add_argument("--shells", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=20)
    options = parser.parse_args()
    recall(_read_patterns(options.patterns))
    idle(options.shells, options.seconds)
