"""Terminals of Desktop Commander. Its commands have only pipes, so `script` makes the terminals."""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Mapping

from compare.contestant import LIMIT_S, NoAnswer
from compare.mcp import DesktopCommander, text_of
from compare.terminal import HasTerminals, Terminal

# No command here writes more lines than this.
ALL = 100_000_000


class DesktopCommanderTerminals(DesktopCommander, HasTerminals):
    def environment(self) -> Mapping[str, str]:
        # `script` starts the shell that this variable names.
        return {**super().environment(), "SHELL": "/bin/bash"}

    def text_of_call(self, name: str, **arguments: object) -> str:
        return text_of(self._server.answer(self.call(name, arguments)))

    def terminal(self, command: str, shown: str) -> Terminal:
        in_terminal = f"script -qfec {shlex.quote(command)} /dev/null"
        text = self.text_of_call("start_process", command=in_terminal, timeout_ms=LIMIT_S * 1000)
        found = re.search(r"PID (\d+)", text)
        if found is None or shown not in text:
            raise NoAnswer("not its output")
        return DesktopCommanderTerminal(self, int(found[1]))


class DesktopCommanderTerminal(Terminal):
    """A terminal that is read again and again, until its output ends with the expected text.

    The server itself can wait, but only for a prompt without a line end. If only new output is
    asked for, the answer lacks text that was added to a line after the line was read.
    """

    def __init__(self, server: DesktopCommanderTerminals, pid: int) -> None:
        self._server = server
        self._pid = pid

    def _read(self, offset: int) -> str:
        return self._server.text_of_call(
            "read_process_output", pid=self._pid, offset=offset, length=ALL
        )

    def answer(self, line: str, end: str) -> int:
        self._server.text_of_call(
            "interact_with_process", pid=self._pid, input=line, wait_for_prompt=False
        )
        began = time.monotonic()
        while end not in (text := self._read(-2)):
            if (passed := time.monotonic() - began) >= LIMIT_S:
                raise NoAnswer(f"no answer in {LIMIT_S:g} s")
            # Each read takes processor time from the server, and the more output there is, the more
            # time it takes.
            time.sleep(passed / 10)
        found = re.search(r"total: (\d+) lines", text)
        if found is None or int(found[1]) <= 2:
            return len(text)
        return len(self._read(1))

    def close(self) -> None:
        self._server.text_of_call("force_terminate", pid=self._pid)
