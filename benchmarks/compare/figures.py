"""The figures that the benchmark measures. Each figure is a row of one of two tables."""

from __future__ import annotations

from typing import NamedTuple


class Figure(NamedTuple):
    """A row of a table. Less is better in every row."""

    title: str
    unit: str


COMMAND_FIGURES = {
    "start": Figure("time from the start to the first answer", "ms"),
    "memory": Figure("memory at rest", "MB"),
    "ping": Figure("ping", "ms"),
    "apart": Figure("`true`, 10 ms apart", "ms"),
    "in_a_row": Figure("`true`, in a row", "ms"),
    "beside": Figure("`true`, while `sleep 1` runs", "ms"),
    "fifty": Figure("50 `sleep 1` at once", "s"),
    "thousand": Figure("1,000 `sleep 1` at once", "s"),
    "true_64": Figure("64 `true` at once", "ms"),
    "true_256": Figure("256 `true` at once", "ms"),
    "output_100": Figure("100 MB of output", "s"),
    "output_100_memory": Figure("memory for 100 MB of output", "MB"),
    "output_1000": Figure("1 GB of output", "s"),
    "output_1000_memory": Figure("memory for 1 GB of output", "MB"),
    "leftover": Figure("`sleep 300 & echo hi`", "s"),
    "timeout_left": Figure("of 3 processes, left after a timeout", ""),
    "kill": Figure("from a kill until 3 processes are gone", "ms"),
    "kill_left": Figure("of 3 processes, left after a kill", ""),
    "crash_left": Figure("of 3 processes, left after SIGKILL of the server", ""),
    "forgotten": Figure("directory and variable that the next command lacks", ""),
}

TERMINAL_FIGURES = {
    "tty_start": Figure("from the start of `echo` in a terminal to its output, 10 ms apart", "ms"),
    "tty_answer": Figure("from a typed line to its copy by `cat`", "ms"),
    "tty_output": Figure("20 MB of output in a terminal", "s"),
    "tty_screen": Figure("from a typed line to the redrawn screen", "ms"),
}

FIGURES = {**COMMAND_FIGURES, **TERMINAL_FIGURES}
