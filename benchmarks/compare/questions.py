"""Asks each contestant the questions about commands."""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

from compare.contestant import (
    Answer,
    Contestant,
    NoAnswer,
    NotOffered,
    Participant,
    seconds_since,
)
from compare.marks import Marked, wait_for_end, watched
from measure import milliseconds

MEGABYTE = 1_000_000
IN_A_ROW = 10
GAP_S = 0.01
LARGE_LIMIT_S = 60.0
# The time limit for an answer that a leftover process may delay.
SHORT_LIMIT_S = 5.0

# The measured values, by the name of the figure.
Samples = dict[str, list[float]]


P = TypeVar("P", bound=Participant)


class Question(NamedTuple, Generic[P]):
    """A question to each contestant. With `fresh`, `ask` itself opens the contestant each time."""

    figures: tuple[str, ...]
    rounds: int
    ask: Callable[[P], Samples]
    fresh: bool = False


def _start(contestant: Contestant) -> Samples:
    began = time.perf_counter()
    contestant.open()
    contestant.run("true")
    seconds = seconds_since(began)
    pids = contestant.server_pids()
    if not pids:
        raise NotOffered("nothing is started")
    # Also count the memory that the contestant takes after its first answer.
    time.sleep(0.5)
    # Pss divides shared memory among the processes that share it.
    memory = sum(memory_mb(pid, "smaps_rollup", "Pss") for pid in contestant.server_pids())
    return {"start": [seconds * 1000], "memory": [memory]}


def _ping(contestant: Contestant) -> Samples:
    return {"ping": [milliseconds(contestant.ping) for _ in range(IN_A_ROW)]}


def _apart(contestant: Contestant) -> Samples:
    time.sleep(GAP_S)
    return {"apart": [contestant.run("true").seconds * 1000]}


def _in_a_row(contestant: Contestant) -> Samples:
    return {"in_a_row": [contestant.run("true").seconds * 1000 for _ in range(IN_A_ROW)]}


def _beside(contestant: Contestant) -> Samples:
    _, beside = contestant.run_all(["sleep 1", "true"])
    return {"beside": [beside.seconds * 1000]}


def _at_once(figure: str, count: int) -> Callable[[Contestant], Samples]:
    def ask(contestant: Contestant) -> Samples:
        began = time.perf_counter()
        contestant.run_all(["sleep 1"] * count, timeout_s=LARGE_LIMIT_S)
        return {figure: [seconds_since(began)]}

    return ask


def _true_at_once(figure: str, count: int) -> Callable[[Contestant], Samples]:
    def ask(contestant: Contestant) -> Samples:
        return {figure: [milliseconds(lambda: contestant.run_all(["true"] * count))]}

    return ask


def _output(figure: str, megabytes: int) -> Callable[[Contestant], Samples]:
    def ask(contestant: Contestant) -> Samples:
        contestant.open()
        # Before its first command, the contestant may not be ready.
        contestant.run("true")
        with tempfile.NamedTemporaryFile() as source:
            source.write(b"some line of a log\n" * (10 * MEGABYTE // 19))
            source.flush()
            command = f"for i in {{1..{megabytes // 10}}}; do cat {source.name}; done"
            pids = contestant.server_pids() or [os.getpid()]
            before = {pid: memory_mb(pid, "status", "VmRSS") for pid in pids}
            for pid in pids:
                # Reset VmHWM, the peak of the process's memory use: see proc(5).
                Path(f"/proc/{pid}/clear_refs").write_text("5")
            answer = contestant.run(command, timeout_s=LARGE_LIMIT_S)
            # If the process that ran the command has ended, its number in `growth` is negative.
            growth = [memory_mb(pid, "status", "VmHWM") - before[pid] for pid in pids]
        memory = sum(more for more in growth if more > 0)
        return {figure: [answer.seconds], f"{figure}_memory": [memory]}

    return ask


def _leftover(contestant: Contestant) -> Samples:
    marked = Marked()
    try:
        # Use only the first of the three processes, because only this process keeps the pipe open.
        command = marked.command.split("&")[0] + "& echo hi"
        answer = contestant.run(command, timeout_s=SHORT_LIMIT_S)
        if answer.seconds >= SHORT_LIMIT_S - 1:
            raise NoAnswer(f"no answer in {SHORT_LIMIT_S:g} s")
        if "hi" not in text_of(answer):
            raise NoAnswer("not its output")
        return {"leftover": [answer.seconds]}
    finally:
        marked.kill()


def _timeout(contestant: Contestant) -> Samples:
    if contestant.no_timeout is not None:
        raise NotOffered(contestant.no_timeout)
    marked = Marked()
    try:
        with ThreadPoolExecutor(1) as watching:
            # Check that the processes started: otherwise, the contestant would seem to leave none
            # behind.
            started = watching.submit(marked.wait_for_start)
            with contextlib.suppress(NoAnswer):
                contestant.run(marked.command, timeout_s=1.0)
            started.result()
        return {"timeout_left": [marked.left()]}
    finally:
        marked.kill()


def _kill(contestant: Contestant) -> Samples:
    marked = Marked()
    try:
        begun = contestant.begin(marked.command)
        pids = marked.wait_for_start()
        with watched(pids) as poll:
            began = time.perf_counter()
            contestant.kill(begun)
            left = wait_for_end(poll, len(pids))
            seconds = seconds_since(began)
        samples: Samples = {"kill_left": [left]}
        if not left:
            samples["kill"] = [seconds * 1000]
        return samples
    finally:
        marked.kill()


def _crash(contestant: Contestant) -> Samples:
    contestant.open()
    marked = Marked()
    try:
        contestant.crash_during(marked.command, marked.wait_for_start)
        return {"crash_left": [marked.left()]}
    finally:
        marked.kill()


def _forgotten(contestant: Contestant) -> Samples:
    contestant.run("cd /; export compared=yes")
    answer = contestant.run('echo "<$PWD><$compared>"')
    found = re.search("<(.*)><(.*)>", text_of(answer))
    if found is None:
        raise NoAnswer("not its output")
    return {"forgotten": [(found[1] != "/") + (found[2] != "yes")]}


def text_of(answer: Answer) -> str:
    return answer.output.decode() if isinstance(answer.output, bytes) else answer.output


def memory_mb(pid: int, file: str, field: str) -> float:
    """Return a field of a proc(5) file in MB; 0 if the process is gone."""
    try:
        text = Path(f"/proc/{pid}/{file}").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    (line,) = re.findall(rf"^{field}:\s+(\d+) kB", text, re.MULTILINE) or ["0"]
    return int(line) * 1024 / MEGABYTE


QUESTIONS: tuple[Question[Contestant], ...] = (
    Question(("start", "memory"), 9, _start, fresh=True),
    Question(("ping",), 30, _ping),
    Question(("apart",), 200, _apart),
    Question(("in_a_row",), 30, _in_a_row),
    Question(("beside",), 15, _beside),
    Question(("fifty",), 3, _at_once("fifty", 50)),
    Question(("thousand",), 3, _at_once("thousand", 1000)),
    Question(("true_64",), 15, _true_at_once("true_64", 64)),
    Question(("true_256",), 9, _true_at_once("true_256", 256)),
    Question(("output_100", "output_100_memory"), 5, _output("output_100", 100), fresh=True),
    Question(("output_1000", "output_1000_memory"), 3, _output("output_1000", 1000), fresh=True),
    Question(("leftover",), 3, _leftover),
    Question(("timeout_left",), 3, _timeout),
    Question(("kill", "kill_left"), 5, _kill),
    Question(("crash_left",), 3, _crash, fresh=True),
    Question(("forgotten",), 1, _forgotten),
)
