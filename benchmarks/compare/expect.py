"""pexpect runs within this program. No server is between pexpect and its commands."""

from __future__ import annotations

from typing import Any

from compare.contestant import LIMIT_S, NoAnswer
from compare.installed import imported_from_pypi
from compare.terminal import COLS, ROWS, HasTerminals, Terminal


class Pexpect(HasTerminals):
    """pexpect with its default settings, such as a pause of 50 ms before each write."""

    name = "pexpect"
    pauses = True

    def __init__(self) -> None:
        self._pexpect, self.version = imported_from_pypi("pexpect")

    def open(self) -> None:
        """Do nothing, because pexpect needs no preparation."""

    def close(self) -> None:
        """Do nothing, because no process is left."""

    def terminal(self, command: str, shown: str) -> Terminal:
        process = self._pexpect.spawn(
            "/bin/bash", ["-c", command], timeout=LIMIT_S, dimensions=(ROWS, COLS)
        )
        if not self.pauses:
            process.delaybeforesend = None
        terminal = PexpectTerminal(process, (self._pexpect.TIMEOUT, self._pexpect.EOF))
        terminal.wait_for(shown)
        return terminal


class PexpectWithoutPause(Pexpect):
    name = "pexpect without pause"
    pauses = False


class PexpectTerminal(Terminal):
    # pexpect has no types.
    def __init__(self, process: Any, failures: tuple[type[Exception], ...]) -> None:
        self._process = process
        self._failures = failures

    def wait_for(self, end: str) -> int:
        try:
            self._process.expect_exact(end.encode())
        except self._failures as error:
            raise NoAnswer(f"no answer in {LIMIT_S:g} s") from error
        return len(self._process.before) + len(end)

    def answer(self, line: str, end: str) -> int:
        self._process.sendline(line)
        return self.wait_for(end)

    def close(self) -> None:
        self._process.close(force=True)
