"""Commands whose processes the daemon scans while they run, such as shells, relays and servers."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from fault_injection.asking import MARK, Asker
from support import Json

PYTHON = f"{sys.executable} -I -S -c"

# This program listens on a free port on loopback, and prints the port.
SERVER = f"""{PYTHON} '
import socket, time
server = socket.create_server(("127.0.0.1", 0))
print("port", server.getsockname()[1], flush=True)
time.sleep({MARK})'"""

# This program holds the lock of its output pipe while it waits for its socket.
HOLDER = f"""{PYTHON} '
import os, socket
ours, theirs = socket.socketpair()
os.write(1, b"begin\\n")
os.splice(ours.fileno(), 1, 65536)'"""

# The daemon gives the guard these rules. The program in the rule does not exist.
RULES = """
[[block]]
name = "no-stand-in"
program = "forbidden-stand-in"
"""
FORBIDDEN = "forbidden-stand-in"
BLOCKED = 1002


class Looks(Asker):
    """One run of commands whose processes the daemon scans."""

    STEPS = (
        "type_into_a_shell",
        "type_into_a_pipe",
        "draw",
        "relay",
        "stop_itself",
        "listen",
        "hold_a_pipe",
    )

    def _start(self, command: str, **params: Any) -> str | None:
        started = self.bash(
            command,
            lambda result: result["status"] == "running",
            run_in_background=True,
            **params,
        )
        return None if started is None else str(started["bash_id"])

    def _reach(self, shell: str, until: str, **params: Any) -> Any:
        read = {"bash_id": shell, "until": until, "wait": 60_000, "stdout_offset": 0, **params}
        return self.ask("bash_output", read, lambda result: result["reached"] == until)

    def _write(self, shell: str, pattern: str | None = None, **params: Any) -> Any:
        """Write to a shell, and wait for output."""
        write: Json = {"bash_id": shell, **params}
        if pattern is not None:
            write |= {"until": "match", "pattern": pattern, "wait": 60_000, "stdout_offset": 0}
        reached = ("output", "quiet", None) if pattern is None else ("match",)
        return self.ask("write_stdin", write, lambda result: result["reached"] in reached)

    def type_into_a_shell(self) -> None:
        """Type lines into a shell with readline and into a shell without it. The guard judges the
        lines.
        """
        for command in ("exec bash --norc --noprofile", "exec bash --norc --noediting"):
            shell = self._start(command, tty=True, env={"PS1": "ready> ", "HISTFILE": None})
            if shell is None:
                continue
            self._type(shell)
            self.kill(shell)

    def _type(self, shell: str) -> None:
        """Type lines one after the other, until the fault makes a request fail."""
        read_word = {"text": "read -rs word\n", "wait": 60_000, "until": "prompt"}
        steps: tuple[Callable[[], object], ...] = (
            lambda: self._reach(shell, "prompt"),
            lambda: self._write(shell, "^typed 2", text="echo typed $((1+1))\n"),
            # Wait for the prompt, because otherwise bash could write it after the echo of the next
            # line.
            lambda: self._reach(shell, "prompt"),
            lambda: self._write(shell, text="echo ä\u0301漢 \x1b[D\x08x\x15wrong\x17echo"),
            lambda: self._write(shell, "^kept", keys=["Space", "k", "e", "p", "t", "Enter"]),
            lambda: self._write(shell, text="for i in 1 2\n"),
            lambda: self._write(shell, "^round 2", text="do echo round $i\ndone\n"),
            lambda: self._write(shell, text="cat <<X\n"),
            # Bash may lose keys that are typed while it handles a signal.
            lambda: self._reach(shell, "prompt"),
            lambda: self._write(shell, keys=["C-c"]),
            lambda: self._reach(shell, "prompt"),
            lambda: self._refuse(shell, f"{FORBIDDEN} now\n"),
            lambda: self._write(shell, text="echo pasted", paste=True),
            lambda: self._write(shell, "^pasted", keys=["Enter"]),
            lambda: self.ask("write_stdin", {"bash_id": shell, **read_word}, lambda _: True),
            lambda: self.ask(
                "write_stdin",
                {"bash_id": shell, "text": "hidden\n", "secret": True},
                lambda result: result["written"] > 0,
            ),
        )
        for step in steps:
            step()
            if self.excused:
                return

    def _refuse(self, shell: str, text: str) -> None:
        """Type text that the guard refuses. If the fault makes the guard fail, the guard refuses
        nothing.
        """
        request = self.daemon.request("write_stdin", {"bash_id": shell, "text": text})
        answer = self.answer(request, "write_stdin")
        if "error" not in answer or answer["error"]["code"] != BLOCKED:
            self.excused.append(f"write_stdin: {str(answer)[:200]}")

    def type_into_a_pipe(self) -> None:
        shell = self._start("exec bash", open_stdin=True)
        if shell is not None:
            self._write(shell, "^piped", text="echo piped\n")
            self._refuse(shell, f"{FORBIDDEN} now\n")
            self._reach(shell, "prompt")
            self.kill(shell)

    def draw(self) -> None:
        """Draw on a screen, and ask the terminal questions."""
        draw = r"printf '\033[?1049h\033[?1h\033[?2004h\033[2J\033[3;4Hdrawn\033[6n\033[c'"
        command = f"{draw}; IFS=R read -t 1 -rsd R row; seq 300; printf 'a\\u0301'; sleep {MARK}"
        shell = self._start(command, tty=True)
        if shell is None:
            return
        self._reach(shell, "match", pattern="^300")
        read: Json = {"bash_id": shell, "scrollback": 50}
        self.ask("read_screen", read, lambda result: len(result["lines"]) >= 24)
        self._write(shell, keys=["Up", "F1", "M-x"])
        self.kill(shell)

    def relay(self) -> None:
        """Write to a program that reads its input through another terminal, or through pipes."""
        for command in ("script -qc 'read -r line; echo got' /dev/null", "cat | cat | cat"):
            shell = self._start(command, tty=True)
            if shell is not None:
                self._reach(shell, "prompt")
                self._write(shell, "go", text="go\n")
                self.kill(shell)

    def stop_itself(self) -> None:
        shell = self._start("kill -STOP $$", tty=True)
        if shell is not None:
            self._reach(shell, "quiet", quiet_ms=20)
            self.kill(shell)

    def listen(self) -> None:
        follow = {"events": ["listening", "screen", "prompt"]}
        followed = self.ask("subscribe", follow, lambda result: result["seq"] == 0)
        shell = self._start(SERVER)
        if shell is not None:
            self._reach(shell, "match", pattern="^port")
            reached = self._reach(shell, "listening")
            if reached is not None:
                self._reach(shell, "listening", port=reached["listening"][0]["port"])
            self.ask("list_shells", None, lambda result: len(result["shells"]) > 0)
            self.kill(shell)
        if followed is not None:
            name = {"subscription": followed["subscription"]}
            self.ask("unsubscribe", name, lambda result: result == {})

    def hold_a_pipe(self) -> None:
        shell = self._start(HOLDER)
        if shell is not None:
            self._reach(shell, "match", pattern="^begin")
            # This call reads a pipe whose lock the command holds already, or will hold soon.
            self._reach(shell, "quiet", quiet_ms=20)
            self.ask("list_shells", None, lambda result: len(result["shells"]) > 0)
            self.ask("bash_output", {"bash_id": shell}, lambda result: result["isRunning"])
            self.kill(shell)
