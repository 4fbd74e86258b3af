"""Ask all contestants all questions. The contestants take turns. Print a table, and write the
answers to a file.

With ``--only``, the other rows of the output file stay as they are.

With ``--busy``, one busy loop per processor runs during the whole benchmark.

Usage: python -m compare [--peers] [--busy] [--rounds PERCENT] [--only FIGURE]... [--output FILE]
"""

from __future__ import annotations

import argparse
import contextlib
import os
import platform
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Generic

from compare.contestant import NoAnswer, NotOffered
from compare.figures import FIGURES
from compare.installed import NotInstalled
from compare.peers import BASELINES, PEERS, TERMINAL_BASELINES, TERMINAL_PEERS, Maker
from compare.questions import QUESTIONS, P, Question, Samples
from compare.results import Cell, Column, Results, Row, cell_of, merged, write
from compare.table import as_text
from compare.terminal_questions import TERMINAL_QUESTIONS
from measure import busy_loops

# A contestant that takes longer than this is asked only once.
SLOW_S = 10.0


class Asked(Generic[P]):
    """Keeps contestants running between questions."""

    def __init__(self, makers: dict[str, Maker[P]]) -> None:
        self.columns: list[Column] = []
        self.missing: dict[str, str] = {}
        self._contestants: dict[str, P] = {}
        self._open: set[str] = set()
        for name, make in makers.items():
            try:
                contestant = self._contestants[name] = make()
                self.columns.append(Column(name, contestant.version))
                self._opened(contestant)
            except (NotInstalled, NoAnswer, NotOffered, OSError) as error:
                self.missing[name] = str(error)
                self._close(name)
                self._contestants.pop(name, None)

    def _opened(self, contestant: P) -> P:
        if contestant.name not in self._open:
            # Even a failed `open` may leave something to close.
            self._open.add(contestant.name)
            contestant.open()
        return contestant

    def _close(self, name: str) -> None:
        if name in self._open:
            self._open.remove(name)
            with contextlib.suppress(Exception):
                self._contestants[name].close()

    def close(self) -> None:
        for name in list(self._open):
            self._close(name)

    def ask(self, question: Question[P], rounds: int) -> dict[str, Row]:
        """Ask all contestants in each round, in a rotating order."""
        samples: dict[str, Samples] = {name: {} for name in self._contestants}
        failed: dict[str, str] = {}
        slow: set[str] = set()
        names = list(self._contestants)
        for turn in range(rounds):
            for name in names[turn % len(names) :] + names[: turn % len(names)]:
                if name in failed or name in slow:
                    continue
                began = time.monotonic()
                try:
                    for figure, values in self._ask_one(name, question).items():
                        samples[name].setdefault(figure, []).extend(values)
                except (NoAnswer, NotOffered) as error:
                    failed[name] = str(error)
                    if isinstance(error, NoAnswer):
                        self._close(name)
                if (seconds := time.monotonic() - began) > SLOW_S:
                    print(f"  {name} took {seconds:.0f} s", file=sys.stderr, flush=True)
                    slow.add(name)
        return {
            figure: {
                name: self._cell(samples[name].get(figure), failed.get(name)) for name in names
            }
            for figure in question.figures
        }

    def _ask_one(self, name: str, question: Question[P]) -> Samples:
        contestant = self._contestants[name]
        if not question.fresh:
            return question.ask(self._opened(contestant))
        self._close(name)
        self._open.add(name)
        try:
            return question.ask(contestant)
        finally:
            self._close(name)

    @staticmethod
    def _cell(values: list[float] | None, why: str | None) -> Cell:
        return Cell(why=why or "some commands never end") if values is None else cell_of(values)


def ask_all(
    results: Results,
    questions: Sequence[Question[P]],
    makers: dict[str, Maker[P]],
    *,
    percent: int,
) -> None:
    """Ask some contestants some questions, and add their answers to the results."""
    if not questions:
        return
    asked = Asked(makers)
    for name, why in asked.missing.items():
        print(f"{name} is left out: {why}", file=sys.stderr)
    results.missing.update(asked.missing)
    results.columns += [column for column in asked.columns if column not in results.columns]
    try:
        for question in questions:
            rounds = max(1, question.rounds * percent // 100)
            print(f"asking for {', '.join(question.figures)}", file=sys.stderr, flush=True)
            results.rows.update(asked.ask(question, rounds))
    finally:
        asked.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--peers", action="store_true", help="also measure programs from PyPI and npm"
    )
    parser.add_argument("--busy", action="store_true")
    parser.add_argument("--rounds", type=int, default=100, metavar="PERCENT")
    parser.add_argument("--only", action="append", choices=FIGURES, metavar="FIGURE")
    parser.add_argument("--output", type=Path, metavar="FILE", help="where to write JSON")
    options = parser.parse_args()
    machine = (
        f"{os.cpu_count()} processors, {platform.system()}, Python {platform.python_version()}"
    )
    results = Results(machine, [], {}, {})

    def chosen(questions: Sequence[Question[P]]) -> list[Question[P]]:
        only = set(options.only or FIGURES)
        return [question for question in questions if only & set(question.figures)]

    commands = {**BASELINES, **(PEERS if options.peers else {})}
    terminals = {**TERMINAL_BASELINES, **(TERMINAL_PEERS if options.peers else {})}
    with busy_loops() if options.busy else contextlib.nullcontext():
        ask_all(results, chosen(QUESTIONS), commands, percent=options.rounds)
        ask_all(results, chosen(TERMINAL_QUESTIONS), terminals, percent=options.rounds)
    print(as_text(results))
    if options.output is not None:
        write(merged(results, options.output) if options.only else results, options.output)


main()
