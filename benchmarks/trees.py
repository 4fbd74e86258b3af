"""Compare this checkout with another one: does a change make the daemon slower?

One daemon of each tree runs. The two daemons run at the same time and take turns, so that both run
under the same conditions. Even two daemons of one tree differ by a few percent, depending on where
the system placed their memory. So the program measures several pairs of daemons, one after the
other. The program prints medians, their ratio (this tree / the other), and the lowest and highest
ratio of any pair. All daemons run with the Python of this environment.

Usage: python benchmarks/trees.py OTHER [--rounds N] [--pairs N] [--only TEXT]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from measure import milliseconds

HERE = Path(__file__).parents[1]
GAP_S = 0.01
IN_A_ROW = 10
WARM_UP = 5


class Tree:
    """A checkout, and a daemon that runs from it."""

    def __init__(self, root: Path) -> None:
        folders = [str(root / name) for name in ("daemon", "protocol", "client")]
        self._env = {**os.environ, "PYTHONPATH": os.pathsep.join(folders)}
        self._process = self._start()
        self._id = 0

    def _start(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "shelld"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=self._env,
        )

    def send(self, method: str, params: dict[str, Any]) -> None:
        self._id += 1
        request = {"jsonrpc": "2.0", "id": self._id, "method": method, "params": params}
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request).encode() + b"\n")
        self._process.stdin.flush()

    def receive(self) -> Any:
        assert self._process.stdout is not None
        return json.loads(self._process.stdout.readline())

    def call(self, method: str, **params: Any) -> Any:
        self.send(method, params)
        answer = self.receive()
        assert "error" not in answer, answer
        return answer["result"]

    def bash(self, command: str, **params: Any) -> Any:
        return self.call("bash", command=command, **params)

    def start_up(self) -> None:
        """Start another daemon; wait for its first answer, then until it has exited."""
        process = self._start()
        process.communicate(b'{"jsonrpc":"2.0","id":1,"method":"bash","params":{"command":"true"}}')

    def at_once(self, count: int, command: str) -> None:
        for _ in range(count):
            self.send("bash", {"command": command, "session": None})
        for _ in range(count):
            self.receive()

    def in_a_row(self, command: str, **params: Any) -> None:
        for _ in range(IN_A_ROW):
            self.bash(command, **params)

    def close(self) -> None:
        self._process.communicate()


ROWS: dict[str, tuple[Callable[[Tree], object], int]] = {
    "ping": (lambda tree: tree.call("ping"), 10),
    "true, 10 ms apart": (lambda tree: tree.bash("true"), 10),
    "true in a row": (lambda tree: tree.in_a_row("true"), 3),
    "true without a session": (lambda tree: tree.bash("true", session=None), 10),
    "a change of state, 10 ms apart": (lambda tree: tree.bash("x=$((x + 1))"), 10),
    "a change of state in a row": (lambda tree: tree.in_a_row("x=$((x + 1))"), 3),
    "50 true at once": (lambda tree: tree.at_once(50, "true"), 1),
    "200 true at once": (lambda tree: tree.at_once(200, "true"), 0),
    "100 MB": (lambda tree: tree.bash("head -c 100000000 /dev/zero", session=None), 0),
    "start-up": (Tree.start_up, 0),
}


def compare(name: str, roots: list[Path], pairs: int, rounds: int) -> None:
    action, share = ROWS[name]
    count = max(10, rounds * max(share, 1) // 10 // pairs)
    times: list[list[float]] = [[], []]
    ratios: list[float] = []
    for _ in range(pairs):
        trees = [Tree(root) for root in roots]
        of_pair = rounds_of(action, trees, count)
        for tree in trees:
            tree.close()
        for all_times, more in zip(times, of_pair, strict=True):
            all_times.extend(more)
        ours, theirs = map(statistics.median, of_pair)
        ratios.append(ours / theirs)
    ours, theirs = map(statistics.median, times)
    spread = f"{min(ratios):.2f}-{max(ratios):.2f}"
    print(f"{name:32} {ours:9.3f} {theirs:9.3f} {ours / theirs:7.3f}   {spread}", flush=True)


def rounds_of(action: Callable[[Tree], object], trees: list[Tree], count: int) -> list[list[float]]:
    times: list[list[float]] = [[], []]
    for round_number in range(WARM_UP + count):
        # The second daemon benefits from the caches that the first has filled.
        order = (0, 1) if round_number % 2 else (1, 0)
        for number in order:
            time.sleep(GAP_S)
            taken = milliseconds(partial(action, trees[number]))
            if round_number >= WARM_UP:
                times[number].append(taken)
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("other", type=Path)
    parser.add_argument("--rounds", type=int, default=400)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    print(f"{'':32} {'this, ms':>9} {'other, ms':>9} {'ratio':>7}   pairs, min-max")
    for name in ROWS:
        if options.only in name:
            compare(name, [HERE, options.other], options.pairs, options.rounds)


if __name__ == "__main__":
    main()
