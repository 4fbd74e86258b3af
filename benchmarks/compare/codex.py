"""Codex's two servers that run commands for a program: `exec-server` and `app-server`."""

from __future__ import annotations

import base64
import itertools
import os
import time
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from compare.contestant import (
    LIMIT_S,
    PATIENCE_S,
    Answer,
    NoAnswer,
    NotOffered,
    seconds_since,
)
from compare.installed import Installed
from compare.line_contestant import LineContestant

# How many chunks of output to decode and keep. The checks need no more chunks, and decoding more
# would only slow down the benchmark.
KEPT_CHUNKS = 16


class CodexContestant(LineContestant):
    arguments: Sequence[str]

    def __init__(self, installed: Installed) -> None:
        super().__init__(installed)
        self._ids = itertools.count(1)

    def command_line(self) -> Sequence[str]:
        return [str(self._installed.program), *self.arguments]

    def environment(self) -> Mapping[str, str]:
        return {"CODEX_HOME": self._home}

    @abstractmethod
    def introduction(self) -> dict[str, object]:
        """Return the params of `initialize`."""

    def introduce(self) -> None:
        self.ask("initialize", self.introduction())
        self._server.notify("initialized", jsonrpc=False)

    def ping(self) -> None:
        raise NotOffered("no such call")

    def send(self, method: str, params: dict[str, object]) -> int:
        return self._server.send(method, params, jsonrpc=False)

    def ask(self, method: str, params: dict[str, object]) -> dict[str, Any]:
        return result_of(self._server.answer(self.send(method, params)))

    def new_id(self) -> str:
        return f"compared-{next(self._ids)}"


def result_of(message: dict[str, Any]) -> dict[str, Any]:
    if "error" in message:
        raise NoAnswer(f"an error: {message['error']['message'][:100]}")
    result: dict[str, Any] = message["result"]
    return result


def params_of(message: dict[str, Any]) -> dict[str, Any]:
    params: dict[str, Any] = message.get("params") or {}
    return params


class ExecServer(CodexContestant):
    """Codex's exec-server. It numbers the messages about a command, but may send them in any order.
    A command counts as ended once the message about its exit and all messages with lower numbers
    have arrived.
    """

    name = "codex exec-server"
    arguments = ("exec-server", "--listen", "stdio", "--concurrent-requests", "64")
    no_timeout = "has no timeout"

    def introduction(self) -> dict[str, object]:
        return {"clientName": "compare"}

    def start(self, command: str, *, tty: bool = False) -> str:
        process_id = self.new_id()
        params: dict[str, object] = {
            "processId": process_id,
            "argv": ["/bin/bash", "-c", command],
            "cwd": Path.cwd().as_uri(),
            "env": dict(os.environ),
            "tty": tty,
            "pipeStdin": False,
            "arg0": None,
        }
        self.send("process/start", params)
        return process_id

    def run_all(self, commands: Sequence[str], *, timeout_s: float = LIMIT_S) -> list[Answer]:
        began = time.perf_counter()
        waiting = [self.start(command) for command in commands]
        received = dict.fromkeys(waiting, 0)
        output = dict.fromkeys(waiting, b"")
        exits: dict[str, int] = {}
        answers: dict[str, Answer] = {}
        for message in self._server.messages(timeout_s):
            if "error" in message:
                result_of(message)
            method, params = message.get("method"), params_of(message)
            process_id = str(params.get("processId"))
            if process_id not in received or process_id in answers:
                continue
            if method == "process/output":
                received[process_id] += 1
                if received[process_id] <= KEPT_CHUNKS:
                    output[process_id] += base64.b64decode(params["chunk"])
            elif method == "process/exited":
                exits[process_id] = params["seq"]
            # Leftover processes may have written output before the exit.
            if process_id in exits and received[process_id] >= exits[process_id] - 1:
                answers[process_id] = Answer(seconds_since(began), output[process_id])
                if len(answers) == len(waiting):
                    break
        return [answers[process_id] for process_id in waiting]

    def begin(self, command: str) -> object:
        return self.start(command)

    def kill(self, begun: object) -> None:
        self.send("process/terminate", {"processId": cast(str, begun)})
        for message in self._server.messages():
            exited = message.get("method") == "process/exited"
            if exited and params_of(message)["processId"] == begun:
                return


class AppServer(CodexContestant):
    name = "codex app-server"
    arguments = ("app-server",)

    def introduction(self) -> dict[str, object]:
        return {"clientInfo": {"name": "compare", "version": "1"}}

    def start(self, command: str, timeout_s: float, **more: object) -> int:
        params: dict[str, object] = {
            "command": ["/bin/bash", "-c", command],
            "cwd": os.getcwd(),
            "timeoutMs": int(timeout_s * 1000),
            "sandboxPolicy": {"type": "dangerFullAccess"},
            **more,
        }
        return self.send("command/exec", params)

    def run_all(self, commands: Sequence[str], *, timeout_s: float = LIMIT_S) -> list[Answer]:
        began = time.perf_counter()
        calls = [self.start(command, timeout_s) for command in commands]
        answers: dict[int, Answer] = {}
        for message in self._server.messages(timeout_s + PATIENCE_S):
            if message.get("id") in calls and "method" not in message:
                result = result_of(message)
                if result["exitCode"]:
                    raise NoAnswer(f"exit code {result['exitCode']}")
                answers[message["id"]] = Answer(seconds_since(began), result["stdout"])
                if len(answers) == len(calls):
                    break
        return [answers[call] for call in calls]

    def begin(self, command: str) -> object:
        process_id = self.new_id()
        return process_id, self.start(command, LIMIT_S, processId=process_id)

    def kill(self, begun: object) -> None:
        process_id, call = cast("tuple[str, int]", begun)
        self.send("command/exec/terminate", {"processId": process_id})
        self._server.answer(call)
