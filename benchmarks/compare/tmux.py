"""tmux in its control mode. One client keeps running, sends commands and receives output."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Sequence

from compare.contestant import LIMIT_S, NoAnswer
from compare.installed import NotInstalled
from compare.lines import LineServer
from compare.terminal import COLS, ROWS, HasTerminals, Output, Terminal

# The benchmark starts its own server, without the user's settings.
SERVER = ("-L", "compare", "-f", "/dev/null")


class Tmux(HasTerminals):
    name = "tmux"

    def __init__(self) -> None:
        program = shutil.which("tmux")
        if program is None:
            raise NotInstalled("it is not on this machine")
        self._program = program
        shown = subprocess.run([program, "-V"], capture_output=True, text=True, check=True)
        self.version = shown.stdout.removeprefix("tmux").strip()

    def open(self) -> None:
        self._folder = tempfile.mkdtemp(prefix="compare-")
        size = ("-x", str(COLS), "-y", str(ROWS))
        self._client = LineServer(
            [self._program, *SERVER, "-C", "new-session", *size, "sleep", "infinity"],
            env={"TMUX_TMPDIR": self._folder, "SHELL": "/bin/bash"},
        )
        self.take_answer()

    def close(self) -> None:
        subprocess.run(
            [self._program, *SERVER, "kill-server"],
            env={"TMUX_TMPDIR": self._folder},
            stderr=subprocess.DEVNULL,
            check=False,
        )
        self._client.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def terminal(self, command: str, shown: str) -> Terminal:
        (pane,) = self.ask("new-window", "-PF", "#{pane_id}", "/bin/bash", "-c", command)
        self.receive(pane, Output(shown))
        return TmuxTerminal(self, pane)

    def send(self, *words: str) -> None:
        """Send a command, and do not wait for the answer."""
        self._client.write(shlex.join(words).encode())

    def ask(self, *words: str) -> list[str]:
        """Return the lines that answer a command. Drop the output that comes before the answer."""
        self.send(*words)
        return self.take_answer()

    def take_answer(self) -> list[str]:
        answer: list[str] | None = None
        for line in self._client.lines(LIMIT_S):
            if line.startswith(b"%begin "):
                answer = []
            elif answer is None:
                continue
            elif line.startswith(b"%error "):
                raise NoAnswer(f"an error: {' '.join(answer)[:100]}")
            elif line.startswith(b"%end "):
                return answer
            else:
                answer.append(line.decode())
        raise AssertionError

    def receive(self, pane: str, output: Output) -> None:
        """Take the output of a pane until `output` ends with the expected text.

        Drop everything else that arrives, such as the answers to commands.
        """
        start = f"%output {pane} ".encode()
        for line in self._client.lines(LIMIT_S):
            if line.startswith(start):
                ended = output.add(line[len(start) :])
                # tmux sends a control character or a backslash as a backslash and three digits.
                output.count -= 3 * line.count(b"\\")
                if ended:
                    return
        raise AssertionError


class TmuxTerminal(Terminal):
    def __init__(self, server: Tmux, pane: str) -> None:
        self._server = server
        self._pane = pane

    def _type(self, line: str) -> None:
        self._server.send("send-keys", "-t", self._pane, line, "Enter")

    def answer(self, line: str, end: str) -> int:
        output = Output(end)
        self._type(line)
        self._server.receive(self._pane, output)
        return output.count

    def screen(self, line: str, row: str) -> Sequence[str]:
        # By now, tmux has drawn everything that it has sent to us.
        self.answer(line, row)
        rows = self._server.ask("capture-pane", "-p", "-t", self._pane)
        if row not in rows:
            raise NoAnswer("not its screen")
        return rows

    def close(self) -> None:
        self._server.ask("kill-pane", "-t", self._pane)
