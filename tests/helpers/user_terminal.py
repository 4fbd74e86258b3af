"""A terminal with a program. The test acts as the person who uses the terminal."""

from __future__ import annotations

import codecs
import fcntl
import os
import platform
import pty
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from support import DEADLINE_S, is_readable, wait_for


class UserTerminal:
    """This object runs a program whose streams and controlling terminal are a new terminal."""

    def __init__(
        self, command: Sequence[str], *, env: Mapping[str, str], rows: int = 24, cols: int = 80
    ) -> None:
        self._main, inner = pty.openpty()
        self._set_size(rows, cols)
        # The tests may run where Ctrl-C is ignored, as in the background of a script.
        start = ["env", "--default-signal=INT,QUIT", "setsid", "--ctty"]
        self.process = subprocess.Popen(
            [*start, *command], stdin=inner, stdout=inner, stderr=inner, env=env
        )
        os.close(inner)
        # A read may end in the middle of a character.
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        # The terminal has shown this text since the last `until`.
        self.shown = ""

    def _set_size(self, rows: int, cols: int) -> None:
        fcntl.ioctl(self._main, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))

    def resize(self, rows: int, cols: int) -> None:
        self._set_size(rows, cols)
        self.process.send_signal(signal.SIGWINCH)

    def write(self, text: str) -> None:
        os.write(self._main, text.encode(errors="surrogateescape"))

    def _read(self) -> bool:
        """Read more output; return whether there was any output."""
        assert is_readable(self._main), f"nothing came after {self.shown!r}"
        try:
            data = os.read(self._main, 65536)
        except OSError:
            # No process has the terminal open any more.
            return False
        self.shown += self._decoder.decode(data)
        return bool(data)

    def until(self, text: str) -> str:
        """Wait for `text`; return and forget the shown output up to the end of `text`."""
        deadline = time.monotonic() + DEADLINE_S
        while text not in self.shown:
            assert self._read(), f"no {text!r} in {self.shown!r}"
            assert time.monotonic() < deadline, f"no {text!r} in {self.shown!r}"
        before, _, self.shown = self.shown.partition(text)
        return before + text

    def until_it_selects(self) -> None:
        """Wait until the program itself, which is in Python, sleeps in select(2) for a key. If a
        signal arrives after the prompt and before this call, Python notices the signal only at the
        next key.
        """
        self._wait_for_call({"x86_64": {"23", "270"}, "aarch64": {"72"}}, "that waits for a key")

    def until_it_writes(self, pid: int | None = None) -> None:
        """Wait until the program itself, or the process `pid`, sleeps in write(2), because nobody
        reads its output.
        """
        self._wait_for_call({"x86_64": {"1"}, "aarch64": {"64"}}, "whose output is not read", pid)

    def _wait_for_call(self, calls: dict[str, set[str]], what: str, pid: int | None = None) -> None:
        path = Path(f"/proc/{pid or self.process.pid}/syscall")
        numbers = calls[platform.machine()]
        wait_for(lambda: path.read_text().split()[0] in numbers, f"a program {what}")

    def rest(self) -> tuple[int, str]:
        """Wait for the end; return the exit code and all output after the last `until`."""
        while self._read():
            pass
        return self.process.wait(DEADLINE_S), self.shown

    def hang_up(self) -> int:
        """Close the terminal, as when its window is closed; return the exit code."""
        with open(os.devnull, "r+b") as null:
            os.dup2(null.fileno(), self._main, inheritable=False)
        return self.process.wait(DEADLINE_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self._main)
