"""Commands that end in unusual ways, and commands with much output."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path

from fault_injection.asking import MARK, Asker, ViolationError, is_excused
from support import Json, RawDaemon, descendants, parent_of

TIMED_OUT = 1001

# This is more output than the daemon keeps in memory for one stream.
COUNT = 60_000
BYTES = 348_894

# This command uses all the memory that its limit allows, and keeps it until it is killed, because
# nobody reads what `tail` writes. If the fault keeps the daemon from making a cgroup, only the
# daemon itself watches the memory, and needs a moment to notice that the command exceeds its limit.
HOG = f"head -c 100M /dev/zero | tail | sleep {MARK}"


def is_match(result: Json) -> bool:
    return bool(result["reached"] == "match")


class Endings(Asker):
    """One run of commands that end in unusual ways or write much output.

    The commands may write to `folder`.
    """

    STEPS = (
        "read_much_output",
        "time_out",
        "exceed_memory",
        "exceed_time",
        "exceed_file_size",
        "lose_a_runner",
    )

    def __init__(self, daemon: RawDaemon, folder: Path) -> None:
        super().__init__(daemon)
        self._folder = folder

    def read_much_output(self) -> None:
        """Read output from the disk: pieces, text with colours, bytes, and the text for a model."""
        started = self.bash(
            f"seq {COUNT}; seq {COUNT} >&2; printf '\\033[31mred\\033[0m\\r\\n'; sleep {MARK}",
            lambda result: result["status"] == "running",
            run_in_background=True,
        )
        if started is None:
            return
        shell = {"bash_id": started["bash_id"]}
        until = {"until": "match", "pattern": "^red", "wait": 50_000, "stdout_offset": 0}
        if self.ask("bash_output", {**shell, **until}, is_match) is None:
            # The fault may have ended the wait, so the command may not have written everything yet.
            # If the disk has failed, this answer and all later ones say so.
            self.ask("bash_output", {**shell, **until}, is_match)
        at = {**shell, "stdout_offset": BYTES - 6, "stderr_offset": 0, "max_bytes": 1_000}
        self.ask("bash_output", at, lambda result: result["stdout"] == "60000\nred\r\n")
        raw = {**at, "encoding": "base64"}
        self.ask("bash_output", raw, lambda result: result["stdout"].startswith("NjAwMDAK"))
        few = {**shell, "filter": "9999$", "stdout_offset": 0, "stderr_offset": 0}
        found = {f"{tens}9999" for tens in "1234"} | {"9999", "59999"}
        self.ask("bash_output", few, lambda result: set(result["stdout"].split()) == found)
        self.kill(started["bash_id"])
        call = {"name": "Bash", "arguments": {"command": f"seq {COUNT}"}}
        self.ask("call_tool", call, lambda result: "60000" in result["output"])

    def time_out(self) -> None:
        """Let three commands exceed a time limit at once: a timeout, an idle timeout, and a timeout
        that moves the command to the background.
        """
        killed, silent, left = (
            self.daemon.request("bash", {"command": command, **limit})
            for command, limit in (
                (f"sleep {MARK} & sleep {MARK}", {"timeout": 1_000}),
                (f"sleep {MARK}", {"idle_timeout": 1_000}),
                (f"sleep {MARK}", {"timeout": 1_000, "on_timeout": "background"}),
            )
        )
        early: Json = {}
        for request in (killed, silent, left):
            answer = early.pop(request, None) or self.answer(request, "bash", early)
            if is_excused(answer) and answer.get("error", {}).get("code") != TIMED_OUT:
                self.note(answer, "bash")
            elif ("error" in answer) is (request == left):
                raise ViolationError(f"wrong answer to bash: {str(answer)[:600]}")
            elif request == left:
                self.kill(answer["result"]["bash_id"])

    def exceed_memory(self) -> None:
        self._exceed({"memory_bytes": 32 * 2**20}, HOG, "memory")

    def exceed_time(self) -> None:
        self._exceed({"cpu_seconds": 1}, "while :; do :; done", "cpu")

    def exceed_file_size(self) -> None:
        # The limit also applies to the file that the injector writes, so it must leave room for
        # this file.
        limits = {"file_bytes": 2**26, "processes": 99}
        self._exceed(limits, f"truncate -s 100M {self._folder}/large", "file_size")

    def _exceed(self, limits: Json, command: str, reason: str) -> None:
        session = {"session": "limited"}
        if self.ask("configure_session", {**session, "limits": limits}, lambda _: True):
            self.bash(command, lambda result: result["reason"] == reason, **session)
            self.close_session("limited")

    def lose_a_runner(self) -> None:
        """Kill the runner of a command with several processes, and of a command with one."""
        for command in (f"sleep {MARK} & sleep {MARK}", f"exec sleep {MARK}"):
            started = self.bash(
                command, lambda result: result["status"] == "running", run_in_background=True
            )
            if started is None:
                continue
            with suppress(FileNotFoundError, ProcessLookupError):
                runner = parent_of(started["pid"])
                if runner in descendants(self.daemon.pid):
                    os.kill(runner, signal.SIGKILL)
            read: Json = {"bash_id": started["bash_id"], "until": "exit", "wait": 60_000}
            answer = self.answer(self.daemon.request("bash_output", read), "bash_output")
            if "error" in answer:
                self.note(answer, "bash_output")
            elif answer["result"]["isRunning"]:
                raise ViolationError(f"a command has outlived its runner: {str(answer)[:600]}")
