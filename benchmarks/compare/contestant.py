"""The interface of a contestant: a way to run shell commands from a program."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import NamedTuple

# How long to wait for an answer of a contestant.
LIMIT_S = 30.0
# How long a contestant may take, after its own time limit, to report that the limit was reached.
PATIENCE_S = 5.0


class NotOffered(Exception):
    """The contestant lacks this feature. The message names the missing feature in a few words."""


class NoAnswer(Exception):
    """The contestant did not give the expected answer in time."""


class Answer(NamedTuple):
    """`seconds` is the time since the question. `output` is what the contestant returns."""

    seconds: float
    output: str | bytes = ""


class Participant(ABC):
    """Methods raise `NotOffered` and `NoAnswer`. After `NoAnswer`, call `close` and `open` again.

    `name` is the name of the contestant in tables.
    """

    name: str
    version: str

    @abstractmethod
    def open(self) -> None:
        """Prepare to run commands: for example, start the server."""

    @abstractmethod
    def close(self) -> None:
        """End the contestant, whatever its state."""


class Contestant(Participant):
    """`no_timeout` is the reason why the contestant has no timeout for commands, or None."""

    no_timeout: str | None = None

    @abstractmethod
    def server_pids(self) -> list[int]:
        """Return the pids of the processes between the program and its commands.

        The list is empty if the program starts the commands itself.
        """

    @abstractmethod
    def ping(self) -> None:
        """Send a request that does nothing."""

    @abstractmethod
    def run(self, command: str, *, timeout_s: float = LIMIT_S) -> Answer:
        """Run a command with bash. If the contestant keeps state, the state is that of the last
        command.

        `timeout_s` is the contestant's time limit.
        """

    def run_all(self, commands: Sequence[str], *, timeout_s: float = LIMIT_S) -> list[Answer]:
        """Run commands at the same time."""
        with ThreadPoolExecutor(len(commands)) as threads:
            return list(threads.map(partial(self.run, timeout_s=timeout_s), commands))

    @abstractmethod
    def begin(self, command: str) -> object:
        """Start a command that will not end; return what `kill` needs."""

    @abstractmethod
    def kill(self, begun: object) -> None:
        """End the command, and return when the contestant reports its end."""

    @abstractmethod
    def crash_during(self, command: str, wait_for_start: Callable[[], object]) -> None:
        """Start a command that will not end, then kill the server or program with SIGKILL."""


def seconds_since(began: float) -> float:
    return time.perf_counter() - began
