"""Drives an installed server that exchanges messages in JSON, one message per line."""

from __future__ import annotations

import shutil
import tempfile
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence

from compare.contestant import LIMIT_S, Answer, Contestant
from compare.installed import Installed, without_network
from compare.lines import LineServer


class LineContestant(Contestant):
    """A server that gets a new home directory of its own each time it starts."""

    def __init__(self, installed: Installed) -> None:
        self.version = installed.version
        self._installed = installed
        self._home = ""

    @abstractmethod
    def command_line(self) -> Sequence[str]:
        """Return the command line that starts the server."""

    def environment(self) -> Mapping[str, str]:
        """Return additional environment variables.

        The home directory exists when this method is called.
        """
        return {}

    @abstractmethod
    def introduce(self) -> None:
        """Send the messages that the server needs before the first question."""

    def open(self) -> None:
        self._home = tempfile.mkdtemp(prefix="compare-")
        environment = {"HOME": self._home, **self.environment()}
        self._server = LineServer(without_network(self.command_line()), env=environment)
        self.introduce()

    def close(self) -> None:
        self._server.close()
        shutil.rmtree(self._home, ignore_errors=True)

    def server_pids(self) -> list[int]:
        return self._server.pids()

    def run(self, command: str, *, timeout_s: float = LIMIT_S) -> Answer:
        return self.run_all([command], timeout_s=timeout_s)[0]

    def crash_during(self, command: str, wait_for_start: Callable[[], object]) -> None:
        self.begin(command)
        wait_for_start()
        self._server.crash()
