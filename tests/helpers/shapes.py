"""The ways in which commands try to escape, or to stay alive.

Each shape is a script. Its file descriptor 9 is the FIFO of a `Witness` (see `oracles`). Its
variable BEAT is the path of a heartbeat file, and FIFO is the path of a named pipe that nobody
writes to.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import NamedTuple

PEERS = Path(__file__).parents[1] / "peers"
PYTHON = f"{sys.executable} -S"


class Shape(NamedTuple):
    """A script whose processes hide, then write the line "ready" to fd 9.

    `ready` is the number of these lines that all processes write together. If `waits`, bash waits
    for its children after the script, and then sleeps.
    """

    script: str
    ready: int = 1
    waits: bool = True


# In most shapes, the processes that stay run this program. The program writes "ready" to fd 9, and
# then sleeps.
STAY = "sh -c 'echo ready >&9; exec sleep 60'"
DETACHED = "</dev/null >/dev/null 2>&1"

SHAPES = {
    "plain": Shape(f"exec {STAY}", waits=False),
    "children": Shape(f"{STAY} & {STAY} & {STAY} &", ready=3),
    "setsid": Shape(f"setsid {STAY} &"),
    "nohup and disown": Shape(f"nohup {STAY} >/dev/null 2>&1 & disown"),
    "double fork": Shape(f"( (setsid {STAY} {DETACHED} &) & )"),
    "double fork without environment": Shape(
        f"( (env -i /usr/bin/setsid /bin/{STAY} {DETACHED} &) & )"
    ),
    "daemon that closes everything": Shape(f'{PYTHON} {PEERS}/daemonize.py "$BEAT" &'),
    "comet": Shape(f"{PYTHON} {PEERS}/comet.py 10000 &"),
    "sixteen comets": Shape(
        f"for i in {{1..16}}; do {PYTHON} {PEERS}/comet.py 800 & done", ready=16
    ),
    "two hundred sessions": Shape(f"for i in {{1..200}}; do setsid {STAY} & done", ready=200),
    "every signal ignored": Shape(
        "trap '' TERM HUP INT QUIT; echo ready >&9; while :; do sleep 1; done", waits=False
    ),
    "job control": Shape(f"set -m; {STAY} & {STAY} | {STAY} &", ready=3),
    "stopped child": Shape(f"{STAY} & kill -STOP $!; echo ready >&9", ready=1),
    "stopped shell": Shape(f"{STAY} & echo ready >&9; kill -STOP $$", ready=2, waits=False),
    "traced child": Shape(f"{PYTHON} {PEERS}/traced.py &"),
    "parent held up by vfork": Shape(f'{PYTHON} {PEERS}/vfork.py "$FIFO" &'),
    "process substitution and coprocess": Shape(
        f"coproc {STAY}; cat <({STAY}) & exec 8> >({STAY})", ready=3
    ),
    "another subreaper": Shape(
        f"{PYTHON} -c 'import ctypes, os; ctypes.CDLL(None).prctl(36, 1, 0, 0, 0);"
        f' os.system("setsid {STAY.replace(chr(39), chr(92) + chr(34))} &"); os.read(0, 1);'
        " import time; time.sleep(60)' &"
    ),
}
if os.geteuid() == 0:
    SHAPES["pid namespace of its own"] = Shape(f"unshare --pid --fork {STAY} &")


def command_of(shape: Shape, *, witness: Path, beat: Path, fifo: Path) -> str:
    """Return the command line that runs a shape with its witness and its variables."""
    script = f"BEAT={beat}; FIFO={fifo}; exec 9> {witness}; {shape.script}"
    return script + ("\nwait\nsleep 60" if shape.waits else "")
