"""Terminals of Codex's two servers. The servers send output to the client as it comes.

Only a model can call Codex's tools for terminals, `exec_command` and `write_stdin`. So this module
calls the servers' own methods, which start processes in the same way as these tools.
"""

from __future__ import annotations

import base64
from abc import abstractmethod
from typing import Any

from compare.codex import AppServer, CodexContestant, ExecServer, params_of, result_of
from compare.contestant import LIMIT_S
from compare.terminal import COLS, ROWS, HasTerminals, Output, Terminal


class CodexTerminals(CodexContestant, HasTerminals):
    @abstractmethod
    def start_terminal(self, command: str) -> str:
        """Return the id of the process."""

    @abstractmethod
    def write(self, process_id: str, data: bytes) -> None:
        """Send a request to write to the process, and do not wait for the answer."""

    @abstractmethod
    def end(self, process_id: str) -> None:
        """Send a request to end the process, and do not wait for the answer."""

    @abstractmethod
    def output_of(self, message: dict[str, Any]) -> tuple[str, bytes] | None:
        """Return the id and the output of a process, if the message has output."""

    def receive(self, process_id: str, output: Output) -> None:
        for message in self._server.messages(LIMIT_S):
            if "error" in message:
                result_of(message)
            came = self.output_of(message)
            if came is not None and came[0] == process_id and output.add(came[1]):
                return

    def terminal(self, command: str, shown: str) -> Terminal:
        process_id = self.start_terminal(command)
        self.receive(process_id, Output(shown))
        return CodexTerminal(self, process_id)


class CodexTerminal(Terminal):
    def __init__(self, server: CodexTerminals, process_id: str) -> None:
        self._server = server
        self._id = process_id

    def answer(self, line: str, end: str) -> int:
        output = Output(end)
        self._server.write(self._id, line.encode() + b"\n")
        self._server.receive(self._id, output)
        return output.count

    def close(self) -> None:
        self._server.end(self._id)


class ExecServerTerminals(ExecServer, CodexTerminals):
    def start_terminal(self, command: str) -> str:
        return self.start(command, tty=True)

    def write(self, process_id: str, data: bytes) -> None:
        params: dict[str, object] = {
            "processId": process_id,
            "writeId": self.new_id(),
            "chunk": base64.b64encode(data).decode(),
        }
        self.send("process/write", params)

    def end(self, process_id: str) -> None:
        self.send("process/terminate", {"processId": process_id})

    def output_of(self, message: dict[str, Any]) -> tuple[str, bytes] | None:
        if message.get("method") != "process/output":
            return None
        params = params_of(message)
        return params["processId"], base64.b64decode(params["chunk"])


class AppServerTerminals(AppServer, CodexTerminals):
    def start_terminal(self, command: str) -> str:
        process_id = self.new_id()
        size = {"rows": ROWS, "cols": COLS}
        self.start(
            command, LIMIT_S, processId=process_id, tty=True, size=size, disableOutputCap=True
        )
        return process_id

    def write(self, process_id: str, data: bytes) -> None:
        delta = base64.b64encode(data).decode()
        self.send("command/exec/write", {"processId": process_id, "deltaBase64": delta})

    def end(self, process_id: str) -> None:
        self.send("command/exec/terminate", {"processId": process_id})

    def output_of(self, message: dict[str, Any]) -> tuple[str, bytes] | None:
        if message.get("method") != "command/exec/outputDelta":
            return None
        params = params_of(message)
        return params["processId"], base64.b64decode(params["deltaBase64"])
