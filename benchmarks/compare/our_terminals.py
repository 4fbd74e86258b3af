"""Terminals of shelld, through its client library."""

from __future__ import annotations

import time
from collections.abc import Sequence

from compare.contestant import LIMIT_S, NoAnswer
from compare.ours import Shelld
from compare.terminal import COLS, ROWS, HasTerminals, Output, Terminal
from shelld_client import Client, ShellError

LIMIT_MS = int(LIMIT_S * 1000)


class ShelldTerminal(Terminal):
    def __init__(self, client: Client, command: str) -> None:
        self._client = client
        started = client.bash(command, tty=True, rows=ROWS, cols=COLS, run_in_background=True)
        self._id = started.bash_id
        self._version: int | None = None
        self._rows: dict[int, str] = {}

    def wait_for(self, shown: str) -> None:
        self._receive(Output(shown), "")

    def answer(self, line: str, end: str) -> int:
        output = Output(end)
        written = self._client.write_stdin(self._id, line + "\n", wait=LIMIT_MS, strip_ansi=False)
        self._receive(output, written.stdout)
        return output.count

    def _receive(self, output: Output, text: str) -> None:
        deadline = time.monotonic() + LIMIT_S
        while not output.add(text.encode()):
            left = int((deadline - time.monotonic()) * 1000)
            if left <= 0:
                raise NoAnswer(f"no answer in {LIMIT_S:g} s")
            read = self._client.bash_output(self._id, wait=left, strip_ansi=False)
            if not read.is_running and not read.stdout:
                raise NoAnswer("it has ended")
            text = read.stdout

    def screen(self, line: str, row: str) -> Sequence[str]:
        if self._version is None:
            self._look(wait=0)
        self._client.write_stdin(self._id, line + "\n")
        deadline = time.monotonic() + LIMIT_S
        while row not in self._rows.values():
            if time.monotonic() >= deadline:
                raise NoAnswer(f"no answer in {LIMIT_S:g} s")
            self._look(wait=LIMIT_MS)
        return [self._rows[number] for number in range(ROWS)]

    def _look(self, wait: int) -> None:
        """Read the rows that have changed since the last read, or wait until some rows change."""
        if self._version is None:
            seen = self._client.read_screen(self._id)
        else:
            seen = self._client.read_screen(
                self._id, wait=wait, until="change", since=self._version
            )
        self._version = seen.version
        self._rows.update(zip(seen.changed, seen.lines, strict=True))

    def close(self) -> None:
        self._client.kill_shell(self._id, grace=0)


class ShelldTerminals(Shelld, HasTerminals):
    def terminal(self, command: str, shown: str) -> Terminal:
        try:
            terminal = ShelldTerminal(self._client, command)
            terminal.wait_for(shown)
        except ShellError as error:
            raise NoAnswer(str(error)) from error
        return terminal
