"""Terminals of SWE-ReX. A program that runs in a session may wait for input."""

from __future__ import annotations

import itertools
import shlex

from compare.contestant import LIMIT_S, PATIENCE_S
from compare.swe_rex import SweRexSession
from compare.terminal import HasTerminals, Terminal


class SweRexTerminals(SweRexSession, HasTerminals):
    """A session has one terminal. Each command gets a new session, which the contestant makes in
    advance.
    """

    def open(self) -> None:
        super().open()
        self._names = map("terminal-{}".format, itertools.count())
        self.next_session()

    def next_session(self) -> None:
        self.ready = next(self._names)
        body = {"session": self.ready, "session_type": "bash", "startup_timeout": 5}
        self.request("POST", "/create_session", body)

    def terminal(self, command: str, shown: str) -> Terminal:
        terminal = SweRexTerminal(self, self.ready)
        terminal.answer(f"/bin/bash -c {shlex.quote(command)}", shown)
        return terminal


class SweRexTerminal(Terminal):
    def __init__(self, server: SweRexTerminals, session: str) -> None:
        self._server = server
        self._session = session

    def answer(self, line: str, end: str) -> int:
        body = {
            "action_type": "bash",
            "session": self._session,
            "command": line,
            "timeout": LIMIT_S,
            "is_interactive_command": True,
            "expect": [end],
        }
        result = self._server.request("POST", "/run_in_session", body, limit_s=LIMIT_S + PATIENCE_S)
        return len(result["output"]) + len(end)

    def close(self) -> None:
        body = {"session": self._session, "session_type": "bash"}
        self._server.request("POST", "/close_session", body)
        self._server.next_session()
