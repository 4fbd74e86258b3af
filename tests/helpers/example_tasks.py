"""Tasks that each editor example runs in its tests, and the text that the editor must show."""

from __future__ import annotations

import os
from pathlib import Path

# This script writes a line, waits until somebody writes to the pipe $1, and writes another line.
STEPS = """
cd "$(dirname "$0")"
echo "$1 1"
read -r line < "$1"
echo "$1 2"
"""

# This script writes so much output that the daemon skips some of it if the editor does not read.
# Then the script makes a file and waits. Then it does all of this again. Each time, the script
# writes 6,000,000 bytes to the terminal, in lines of three bytes.
FLOOD = """
cd "$(dirname "$0")"
yes | head -c 4000000
touch flooded
read -r line < more
echo next
read -r line < again
yes | head -c 4000000
touch "flooded again"
"""

EXPECTED = {
    "left": "left 1\nleft 2\n[exit code 0 after N s]",
    "right": "right 1\nright 2\n[exit code 0 after N s]",
    # True if a process of the task ran before the kill, and none ran after the kill.
    "ran": True,
    "killed": "pid PID\n[SIGTERM after N s]",
    # True if the editor showed how many bytes the daemon skipped while the editor did not read.
    "flood": True,
    "handed_over": "over 1\nover 2\n[exit code 0 after N s]",
    "silent": "[SIGTERM after N s]",
    "lost": "lost\n[the daemon has ended]",
    "blocked": "[Command blocked: dangerous (rm-root): it removes the whole file system]",
}


def prepare(folder: Path) -> None:
    """Write the scripts and their pipes."""
    (folder / "steps").write_text(STEPS)
    (folder / "flood").write_text(FLOOD)
    for name in ("left", "right", "over", "more", "again"):
        os.mkfifo(folder / name)
