"""What is compared: a way to run shell commands from a program."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import NamedTuple

# After which a contestant is said not to answer.
LIMIT_S = 30.0
# Beyond a limit that a contestant is given itself, for its answer that it was reached.
PATIENCE_S = 5.0


class NotOffered(Exception):
    """The contestant has no such thing; the message says so in a few words."""


class NoAnswer(Exception):
    """Nothing came in time, or not what it should."""


class Answer(NamedTuple):
    """`seconds` since the question; `output` as far as the contestant tells it."""

    seconds: float
    output: str | bytes = ""


class Contestant(ABC):
    """Methods raise `NotOffered` and `NoAnswer`; after the latter, `close` and open it again.

    `name` is for tables. `no_timeout` says why there is no timeout that ends a command.
    """

    name: str
    version: str
    no_timeout: str | None = None

    @abstractmethod
    def open(self) -> None:
        """Be ready for the first command, or for being asked for it."""

    @abstractmethod
    def close(self) -> None:
        """End, whatever state it is in."""

    @abstractmethod
    def server_pids(self) -> list[int]:
        """The processes between the program and its commands; none if it starts them itself."""

    @abstractmethod
    def ping(self) -> None:
        """Ask it for nothing."""

    @abstractmethod
    def run(self, command: str, *, timeout_s: float = LIMIT_S) -> Answer:
        """Run a command by bash, in the state that the one before has left, if there is any.

        `timeout_s` is what the contestant is given.
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
        """End it, and return when the contestant says that it has ended."""

    @abstractmethod
    def crash_during(self, command: str, wait_for_start: Callable[[], object]) -> None:
        """Start a command that will not end, then be hit by SIGKILL: the server, or the program."""


def seconds_since(began: float) -> float:
    return time.perf_counter() - began
