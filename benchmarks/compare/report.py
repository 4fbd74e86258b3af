"""Writes the page and the README's table of the measurements, from `results.json` alone.

Making the plot needs matplotlib, so this program only checks that the plot shows these figures.

Usage: python -m compare.report [--check]
"""

from __future__ import annotations

import argparse
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from compare.figures import COMMAND_FIGURES, FIGURES, TERMINAL_FIGURES
from compare.results import Results, ahead_of, read
from compare.table import as_cell

ROOT = Path(__file__).parents[2]
RESULTS = Path(__file__).parents[1] / "results.json"
PAGE = ROOT / "docs" / "benchmarks.md"
README = ROOT / "README.md"
PLOT = ROOT / "docs" / "benchmarks.svg"
PLOTTED = ("apart", "output_1000_memory", "crash_left")
OURS = "shelld"

INTRODUCTION = """\
# Benchmarks

This page is generated from `benchmarks/results.json`, which `make bench-peers` writes. For each
row, all programs were measured in one run, in turns, on the same machine:
{machine}.
A figure is a median, with the quartiles in parentheses, and less is better everywhere. Absolute
times depend on this machine; ratios compare the programs.

![Some of the figures](benchmarks.svg)

One benchmark program drove each contestant over the contestant's own protocol: shelld through its
Python client, MCP servers over lines of JSON, SWE-ReX over HTTP, and Codex's two servers over their
protocols. Programs that can be installed come from PyPI and npm unchanged, in the versions below,
with their default settings. The only exception: limits on time and on commands were lifted where a
limit would have made the measurement impossible. Agents whose shell is part of a program that needs
a login were not measured.

- Memory at rest is the memory of all processes between the program and its commands. Memory for
  output is the largest growth of the memory of these processes after a fresh start. If a program
  starts its commands itself, its own memory counts. Memory that several processes share is divided
  among them (Pss in proc(5)).
- The three processes are a child, one that ignores SIGHUP (`nohup`) and one in a session of its own
  (`setsid`). The figure counts the processes that are left three seconds after the end.
- To kill the server, the benchmark sends SIGKILL to the process that the client has started. If the
  client has started no process, the benchmark sends SIGKILL to the calling program.
"""

TERMINALS = """\
## Terminals

This section adds programs that only run terminals, and leaves out programs that have none.

- tmux ran in its control mode, with a server of its own: one client keeps running, sends
  `send-keys` and `capture-pane`, and gets the output. Programs that start a new `tmux` for each
  of these steps take longer.
- No command ends while it is measured, because tmux loses some of the output that comes just before
  the end.
- pexpect ran inside the benchmark program, so no process stood between pexpect and the terminal. By
  default, pexpect pauses for 50 ms before each write.
- Desktop Commander has only pipes; `script` of util-linux made its terminals.
- Codex's tool for terminals (unified exec) cannot be called without a model. Codex's two
  servers start processes on a terminal for any program, with `process/start` and `command/exec`.
- The screen has 24 rows of 80 columns. A program in bash redraws the whole screen for each
  line that it reads.
"""

# For each figure in which another contestant is ahead of shelld: the reason.
NOTES = {
    "start": (
        "a compiled program does not have to start an interpreter. Half of shelld's time goes "
        "into importing asyncio, as in any Python program that uses it."
    ),
    "in_a_row": (
        "a spare shell also has to be started. If calls follow without a pause, the next spare "
        "shell starts while a call runs, on the same two processors. If calls are 10 ms apart, "
        "which is less than any agent takes, it starts between them."
    ),
    "beside": (
        "`sleep 1` has taken the spare bash. So shelld has to start another bash for `true`, and a "
        "runner for this bash."
    ),
    "fifty": (
        "in shelld, each running command has its own runner. The runner is a small process that "
        "makes sure that nothing of the command is left. If no runner is idle, shelld has to fork "
        "one first."
    ),
    "thousand": "the reason is the same as for 50 commands.",
    "output_100": "both keep only a part of the output, and the time is that of `cat`.",
    "output_1000": "the reason is the same as for 100 MB.",
    "output_100_memory": (
        "shelld keeps output in memory up to a fixed size. Older output goes to a file and can "
        "still be read. codex exec-server sends output on as it comes. Only the last 1 MB can be "
        "read again."
    ),
    "output_1000_memory": "the reason is the same as for 100 MB.",
    "leftover": (
        "if another process still holds the pipe when bash has ended, the answer comes 50 ms "
        "later, because that process may still write something. Otherwise the output of "
        "`> >(tee log)` would be lost."
    ),
    "tty_start": (
        "all programs start a bash, which takes most of the time. shelld asks a runner to start "
        "bash, and the runner makes sure that nothing of the command is left."
    ),
    "tty_answer": (
        "pexpect has nothing between the program and the terminal. tmux and Codex's two servers "
        "are machine code. They send output on as it comes."
    ),
    "tty_output": (
        "shelld empties the terminal as fast as a loop that only reads. Most of the time "
        "goes into passing the output on, as JSON text, between two programs in Python. Codex's "
        "two servers send bytes as base64."
    ),
    "tty_screen": (
        "one process of tmux draws the output and answers. Output can be hostile, so shelld draws "
        "each screen in a separate process. shelld asks this process several times."
    ),
}

# The README's table: the figures and contestants that matter to a newcomer.
SHORT_FIGURES = (
    "apart",
    "thousand",
    "output_1000",
    "output_1000_memory",
    "leftover",
    "timeout_left",
    "kill_left",
    "crash_left",
    "start",
    "memory",
)
SHORT_LEFT_OUT = ("asyncio", "anyio.run_process", "SWE-ReX execute")
SECTION = re.compile(r"(<!-- measured -->\n).*?(<!-- end of measured -->)", re.DOTALL)


def _names(results: Results, figures: Iterable[str]) -> list[str]:
    """Return the names of all contestants in the rows of these figures."""
    rows = (results.rows.get(figure, {}) for figure in figures)
    return list(dict.fromkeys(name for row in rows for name in row))


def _full_table(results: Results, figures: Iterable[str]) -> Iterator[str]:
    measured = [figure for figure in figures if figure in results.rows]
    return _table(results, measured, _names(results, measured), spread=True)


def _table(
    results: Results, figures: Sequence[str], names: Sequence[str], *, spread: bool
) -> Iterator[str]:
    yield f"| | {' | '.join(names)} |"
    yield "|---" * (len(names) + 1) + "|"
    for figure in figures:
        title, unit = FIGURES[figure]
        cells = (as_cell(results.rows[figure][name], unit, spread=spread) for name in names)
        yield f"| {title} | {' | '.join(cells)} |"


def _page(results: Results) -> str:
    lines = [INTRODUCTION.format(machine=results.machine)]
    lines += _full_table(results, COMMAND_FIGURES)
    if results.rows.keys() & TERMINAL_FIGURES.keys():
        lines += ["", TERMINALS, *_full_table(results, TERMINAL_FIGURES)]
    lines += ["", "## Who was asked", "", "| | version |", "|---|---|"]
    lines += [f"| {column.name} | {column.version} |" for column in results.columns]
    lines += [f"| {name} | not asked: {why} |" for name, why in results.missing.items()]
    lines += ["", "## Where there is no figure", ""]
    for figure, row in results.rows.items():
        whys: dict[str, list[str]] = {}
        for name, cell in row.items():
            if cell.why is not None:
                whys.setdefault(cell.why, []).append(name)
        if whys:
            lines.append(f"- {FIGURES[figure].title}:")
            lines += [f"  - {', '.join(names)}: {why}" for why, names in whys.items()]
    lines += ["", "## Where shelld is not ahead", ""]
    for figure in results.rows:
        if others := ahead_of(results, figure, OURS):
            lines.append(
                f"- {FIGURES[figure].title} (ahead of shelld: {', '.join(others)}): {NOTES[figure]}"
            )
    return "\n".join(lines) + "\n"


def _short(results: Results) -> str:
    names = [name for name in _names(results, SHORT_FIGURES) if name not in SHORT_LEFT_OUT]
    return "\n".join([*_table(results, SHORT_FIGURES, names, spread=False), ""])


def pages() -> dict[Path, str]:
    """Return the expected content of the documents, by path."""
    results = read(RESULTS)
    short = _short(results)
    readme, count = SECTION.subn(lambda found: found[1] + short + found[2], README.read_text())
    assert count == 1
    return {PAGE: _page(results), README: readme}


def figures_of_plot(results: Results) -> list[str]:
    """Return the names of the contestants and the figures that the plot must show."""
    return _names(results, PLOTTED) + [
        as_cell(cell, FIGURES[figure][1])
        for figure in PLOTTED
        for cell in results.rows[figure].values()
    ]


def plot_is_current() -> bool:
    texts = Counter(re.findall(r">([^<>]+)</text>", PLOT.read_text()))
    return not Counter(figures_of_plot(read(RESULTS))) - texts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="only tell if they are up to date")
    options = parser.parse_args()
    for path, text in pages().items():
        if not options.check:
            path.write_text(text)
        elif path.read_text() != text:
            sys.exit(f"{path.name}: python -m compare.report")
    if options.check and not plot_is_current():
        sys.exit(f"{PLOT.name}: python -m compare.plot")


if __name__ == "__main__":
    main()
