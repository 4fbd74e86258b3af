"""The questions to each contestant about terminals."""

from __future__ import annotations

import itertools
import time
from contextlib import closing
from functools import partial

from compare.contestant import NoAnswer, seconds_since
from compare.questions import GAP_S, IN_A_ROW, MEGABYTE, Question, Samples
from compare.terminal import ROWS, HasTerminals
from measure import milliseconds

OUTPUT_BYTES = 20 * MEGABYTE

# The awaited text looks like a prompt, because some contestants answer only at a prompt. No command
# ends by itself, because tmux loses some of the output that comes just before the end.
READY = "ready>"
SHOW = f"echo '{READY}'; read -r"
CAT = f"stty -echo; echo '{READY}'; exec cat"
WRITE = (
    f"stty -echo -opost; echo '{READY}'; read -r; "
    f"yes some line of a log | head -c {OUTPUT_BYTES}; echo 'end>'; read -r"
)
# For each line that this program reads, it draws all rows of the screen again, and writes the
# line's text in each row.
DRAW = (
    f"stty -echo; rows=$(printf 'row %s of WORD\\n' {{2..{ROWS}}}); echo '{READY}'; "
    r"while read -r word; do "
    r"""printf '\e[H\e[2J%s\n%s' "${rows//WORD/$word}" "last of $word"; done"""
)

_numbers = itertools.count(1)


def _start(contestant: HasTerminals) -> Samples:
    time.sleep(GAP_S)
    began = time.perf_counter()
    with closing(contestant.terminal(SHOW, READY)):
        return {"tty_start": [seconds_since(began) * 1000]}


def _answer(contestant: HasTerminals) -> Samples:
    with closing(contestant.terminal(CAT, READY)) as terminal:
        lines = [f"answer-{next(_numbers)}>" for _ in range(IN_A_ROW)]
        return {
            "tty_answer": [milliseconds(partial(terminal.answer, each, each)) for each in lines]
        }


def _output(contestant: HasTerminals) -> Samples:
    with closing(contestant.terminal(WRITE, READY)) as terminal:
        began = time.perf_counter()
        count = terminal.answer("go", "end>")
        seconds = seconds_since(began)
    if count < OUTPUT_BYTES:
        raise NoAnswer(f"only {count / MEGABYTE:.1f} MB arrived")
    return {"tty_output": [seconds]}


def _screen(contestant: HasTerminals) -> Samples:
    samples: Samples = {"tty_screen": []}
    with closing(contestant.terminal(DRAW, READY)) as terminal:
        for _ in range(IN_A_ROW):
            word = f"word-{next(_numbers)}"
            began = time.perf_counter()
            rows = terminal.screen(word, f"last of {word}")
            samples["tty_screen"].append(seconds_since(began) * 1000)
            if len(rows) != ROWS or not all(word in row for row in rows):
                raise NoAnswer("not its screen")
    return samples


TERMINAL_QUESTIONS: tuple[Question[HasTerminals], ...] = (
    Question(("tty_start",), 60, _start),
    Question(("tty_answer",), 15, _answer),
    Question(("tty_output",), 5, _output),
    Question(("tty_screen",), 30, _screen),
)
