"""Reads commands of one or more lines for `shelld shell`, from a terminal or anything else.

On a terminal, readline edits the lines and remembers them until the end. A command goes on until
bash finds it complete. `bash -n` decides that; it runs nothing.
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Final

_CONTINUES: Final = "> "
# What bash says about a script that ends too early: in quotes or a compound command, or in a
# here-document.
_UNFINISHED: Final = (b"unexpected EOF", b"unexpected end of file", b"delimited by end-of-file")
# How long to wait for `bash -n`, which takes milliseconds.
_CHECK_S: Final = 10.0


class Lines:
    """`bash` is the bash that judges whether a command is complete."""

    def __init__(self, bash: str) -> None:
        self._bash = bash
        self.is_terminal = os.isatty(0) and os.isatty(1)
        if self.is_terminal:
            # `input` uses it once it is loaded. File names are completed in our own directory.
            import readline  # noqa: PLC0415

            readline.parse_and_bind("tab: complete")
            readline.set_completer_delims(" \t\n;|&()<>")

    def next_command(self, prompt: str) -> str | None:
        """Return the next command, or None at the end of the input.

        Raises KeyboardInterrupt on Ctrl-C.
        """
        lines: list[str] = []
        while (line := self._next_line(_CONTINUES if lines else prompt)) is not None:
            lines.append(line)
            command = "\n".join(lines)
            if self._is_complete(command):
                return command
        # Bash says what is missing at the end of an incomplete command.
        return "\n".join(lines) or None

    def _next_line(self, prompt: str) -> str | None:
        if self.is_terminal:
            try:
                return input(prompt)
            except EOFError:
                return None
        line = sys.stdin.readline() if sys.stdin is not None else ""
        return line.rstrip("\n") if line else None

    def _is_complete(self, command: str) -> bool:
        if command.endswith("\\") and not command.endswith("\\\\"):
            return False
        try:
            checked = subprocess.run(
                [self._bash, "-n"],
                input=command.encode("utf-8", "surrogateescape"),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                env={"LC_ALL": "C"},
                timeout=_CHECK_S,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired):
            # The daemon will say what is wrong.
            return True
        return not any(sign in checked.stderr for sign in _UNFINISHED)
