"""Reads commands for `shelld shell`, from a terminal or any other stdin.

On a terminal, readline edits the lines and remembers them until the program ends. A command may
have several lines: more lines are read until `bash -n` finds the command complete. `bash -n` runs
nothing.
"""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from typing import Any, Final, cast

_CONTINUES: Final = "> "
# The messages that bash prints if a script ends inside quotes, `[[`, a compound command, or a
# here-document. Bash also prints the line that has the mistake, and this line may contain the text
# of such a message. The atomic group always ends at the first line number, so the pattern does not
# find the text of a message later in the line.
_UNFINISHED: Final = re.compile(
    rb"^(?>.*?: line \d+: )(?:unexpected EOF|unexpected token `EOF'|"
    rb"syntax error: unexpected end of file|warning: here-document .* delimited by end-of-file)",
    re.MULTILINE,
)
# How long to wait for `bash -n`, which takes milliseconds.
_CHECK_S: Final = 10.0


class Lines:
    """Reads commands. `bash` is the program that checks whether a command is complete. A line that
    `is_whole` matches is a command of its own, even if a quote in it is not closed.
    """

    def __init__(self, bash: str, is_whole: re.Pattern[str]) -> None:
        self._bash = bash
        self._is_whole = is_whole
        self.is_terminal = os.isatty(0) and os.isatty(1)
        # Commands and prompts are UTF-8, whatever the locale is. If a command is not valid UTF-8,
        # the daemon refuses it, and the user gets the next prompt. A carriage return is not the end
        # of a line. The streams are Any because pyright does not know the type parameter of
        # TextIOWrapper.
        stdin, stdout = cast("Any", sys.stdin), cast("Any", sys.stdout)
        if isinstance(stdin, io.TextIOWrapper):
            stdin.reconfigure(encoding="utf-8", errors="surrogateescape", newline="\n")
        if self.is_terminal:
            if isinstance(stdout, io.TextIOWrapper):
                stdout.reconfigure(encoding="utf-8")
            # `input` uses readline once readline is loaded. Readline completes file names in our
            # working directory.
            import readline  # noqa: PLC0415

            readline.parse_and_bind("tab: complete")
            readline.set_completer_delims(" \t\n;|&()<>")

    def next_command(self, prompt: str) -> str | None:
        """Return the next command, or None at the end of the input.

        Raises KeyboardInterrupt on Ctrl-C, and OSError if stdin cannot be read.
        """
        lines: list[str] = []
        while (line := self._next_line(_CONTINUES if lines else prompt)) is not None:
            lines.append(line)
            command = "\n".join(lines)
            if self._is_whole.match(command) or self._is_complete(command):
                return command
        # Return an incomplete command at the end of the input, so that bash reports what is
        # missing.
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
        backslashes = len(command) - len(command.rstrip("\\"))
        if backslashes % 2:
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
            # The check has failed. Run the command, so that the daemon reports what is wrong.
            return True
        return _UNFINISHED.search(checked.stderr) is None
