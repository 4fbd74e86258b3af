"""Servers of the Model Context Protocol."""

from __future__ import annotations

import os
import re
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
from compare.line_contestant import LineContestant

# How many characters of an error are shown.
SHOWN = 100


class McpContestant(LineContestant):
    @abstractmethod
    def tool_call(self, command: str, timeout_s: float) -> tuple[str, dict[str, object]]:
        """Return the tool's name and its arguments."""

    def introduce(self) -> None:
        params = {
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": "compare", "version": "1"},
        }
        self._server.answer(self._server.send("initialize", params))
        self._server.notify("notifications/initialized")

    def ping(self) -> None:
        self._server.answer(self._server.send("ping"))

    def call(self, name: str, arguments: dict[str, object]) -> int:
        return self._server.send("tools/call", {"name": name, "arguments": arguments})

    def run_all(self, commands: Sequence[str], *, timeout_s: float = LIMIT_S) -> list[Answer]:
        began = time.perf_counter()
        calls = [self.call(*self.tool_call(command, timeout_s)) for command in commands]
        answers: dict[int, Answer] = {}
        for message in self._server.messages(timeout_s + PATIENCE_S):
            if message.get("id") in calls and "method" not in message:
                answers[message["id"]] = Answer(seconds_since(began), text_of(message))
                if len(answers) == len(calls):
                    break
        return [answers[call] for call in calls]

    def begin(self, command: str) -> object:
        return self.call(*self.tool_call(command, LIMIT_S))

    def kill(self, begun: object) -> None:
        raise NotOffered("no such call")


def text_of(message: dict[str, Any]) -> str:
    if "error" in message:
        raise NoAnswer(f"an error: {message['error']['message'][:SHOWN]}")
    result = message["result"]
    text = "".join(part.get("text", "") for part in result["content"])
    if result.get("isError"):
        raise NoAnswer(f"an error: {text[:SHOWN]}")
    return text


class McpShellServer(McpContestant):
    """This server refuses shells and their operators, so each command is an allowed script."""

    name = "mcp-shell-server"

    def command_line(self) -> Sequence[str]:
        return [str(self._installed.program)]

    def environment(self) -> Mapping[str, str]:
        self._scripts: dict[str, str] = {}
        return {
            "ALLOW_PATTERNS": r"compared-\d+",
            "MCP_SHELL_MAX_TIMEOUT_SECONDS": "300",
            "MCP_SHELL_SAFE_PATH": f"{self._home}:{os.environ['PATH']}",
        }

    def tool_call(self, command: str, timeout_s: float) -> tuple[str, dict[str, object]]:
        if command not in self._scripts:
            name = f"compared-{len(self._scripts)}"
            script = Path(self._home, name)
            script.write_text(f"#!/bin/bash\n{command}\n")
            script.chmod(0o755)
            self._scripts[command] = name
        return "shell_execute", {
            "command": [self._scripts[command]],
            "directory": self._home,
            "timeout": max(1, int(timeout_s)),
        }


class DesktopCommander(McpContestant):
    name = "Desktop Commander"
    no_timeout = "stops waiting, does not end the command"

    def command_line(self) -> Sequence[str]:
        return ["node", str(self._installed.program)]

    def environment(self) -> Mapping[str, str]:
        settings = Path(self._home, ".claude-server-commander", "config.json")
        settings.parent.mkdir()
        settings.write_text('{"telemetryEnabled": false}')
        return {}

    def tool_call(self, command: str, timeout_s: float) -> tuple[str, dict[str, object]]:
        return "start_process", {"command": command, "timeout_ms": int(timeout_s * 1000)}

    def begin(self, command: str) -> object:
        call = self.call(*self.tool_call(command, 0.5))
        found = re.search(r"PID (\d+)", text_of(self._server.answer(call)))
        if found is None:
            raise NoAnswer("no pid")
        return int(found[1])

    def kill(self, begun: object) -> None:
        call = self.call("force_terminate", {"pid": cast(int, begun)})
        text_of(self._server.answer(call))
