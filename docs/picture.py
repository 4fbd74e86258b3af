"""Records the beginning of `make demo` on a terminal, as docs/demo.svg: `make picture`."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import subprocess
import sys
import tempfile
import termios
from pathlib import Path

from rich.console import Console
from rich.text import Text

HERE = Path(__file__).parent
COLUMNS = 96
# The picture ends before this heading.
END = "# A killed job"


def recorded(command: list[str]) -> str:
    """Return what a program writes to a terminal."""
    terminal, program_side = pty.openpty()
    termios.tcsetwinsize(program_side, (50, COLUMNS))
    output = b""
    with subprocess.Popen(
        command,
        cwd=tempfile.gettempdir(),
        env={**os.environ, "TERM": "xterm-256color"},
        stdin=subprocess.DEVNULL,
        stdout=program_side,
    ):
        os.close(program_side)
        # When the program has ended, reading fails with EIO.
        with contextlib.suppress(OSError):
            while chunk := os.read(terminal, 65_536):
                output += chunk
    os.close(terminal)
    return output.decode().replace("\r\n", "\n")


def main() -> None:
    text = recorded([sys.executable, str(HERE.parent / "examples" / "demo.py")])
    shown = re.split(rf"(?m)^.*{END}", text)[0].rstrip()
    with open(os.devnull, "w") as nowhere:
        console = Console(record=True, width=COLUMNS, file=nowhere, force_terminal=True)
        console.print(Text("$ make demo"))
        console.print(Text.from_ansi(shown))
        picture = console.export_svg(title="make demo")
    # A document must not load fonts from elsewhere.
    (HERE / "demo.svg").write_text(re.sub(r"@font-face \{.*?\}\s*", "", picture, flags=re.S))


if __name__ == "__main__":
    main()
