"""A process that holds the lock of a pipe, as splice(2) does, does not stop the daemon."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support import Gate, RawDaemon, raw_daemon, wait_for

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/syscall").exists(), reason="the system does not tell system calls"
)

# Moves from a socket to stdout for ever. Writes before, so that there is something to read.
FROM_SOCKET = """
import os, socket, sys, threading
ours, theirs = socket.socketpair()
def send():
    for number in range(3):
        open(sys.argv[1] + str(number)).read()
        theirs.send(b"part %d;" % number)
    theirs.close()
open(sys.argv[1]).read()
threading.Thread(target=send).start()
os.write(1, b"begin;")
while os.splice(ours.fileno(), 1, 65536):
    pass
"""
# Moves from stdin to a socket, which is full until the gate opens.
TO_SOCKET = """
import os, socket, sys, threading
ours, theirs = socket.socketpair()
ours.setblocking(False)
held = 0
try:
    while True:
        held += ours.send(b"x")
except BlockingIOError:
    ours.setblocking(True)
def receive():
    open(sys.argv[1] + "0").read()
    data = b""
    while not data.endswith(b"end"):
        data += theirs.recv(65536).lstrip(b"x")
    os.write(1, data)
    os._exit(0)
open(sys.argv[1]).read()
threading.Thread(target=receive).start()
os.write(1, b"full;")
while True:
    os.splice(0, ours.fileno(), 65536)
"""


@pytest.fixture
def daemon() -> Iterator[RawDaemon]:
    with raw_daemon() as running:
        yield running


@pytest.fixture
def gates(tmp_path: Path) -> list[Gate]:
    """What the programs wait for, one after the other."""
    return [Gate(tmp_path / f"gate{number}") for number in range(3)]


def start(daemon: RawDaemon, program: str, folder: Path, **params: Any) -> str:
    """Start a program. It holds the lock of a pipe from which the daemon has something to read."""
    script, gate = folder / "program.py", Gate(folder / "gate")
    script.write_text(program)
    # Bash would give a background process another stdin.
    command = f"exec 3<&0; {sys.executable} {script} {folder}/gate <&3 3<&- & echo $!; wait"
    bash_id = daemon.background(command, **params)
    pid = int(read_until(daemon, bash_id, "\n"))
    # The daemon reads nothing until the program sleeps in splice(2).
    daemon.process.send_signal(signal.SIGSTOP)
    gate.open()
    wait_for(lambda: in_splice(pid), "the program in splice")
    daemon.process.send_signal(signal.SIGCONT)
    return bash_id


def in_splice(pid: int) -> bool:
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return any((task / "syscall").read_text().split()[0] in ("275", "76") for task in tasks)


def read_until(daemon: RawDaemon, bash_id: str, end: str) -> str:
    text = ""
    while not text.endswith(end):
        wanted = {"bash_id": bash_id, "wait": 20_000}
        text += daemon.call("bash_output", wanted)["stdout"]
    return text


def test_socket_spliced_into_stdout_stops_no_daemon(
    daemon: RawDaemon, tmp_path: Path, gates: list[Gate]
) -> None:
    bash_id = start(daemon, FROM_SOCKET, tmp_path)
    text = read_until(daemon, bash_id, "begin;")
    for number, gate in enumerate(gates):
        gate.open()
        text += read_until(daemon, bash_id, f"part {number};")
        assert daemon.bash("echo meanwhile")["stdout"] == "meanwhile\n"
    ended = {"bash_id": bash_id, "wait": 20_000, "until": "exit"}
    assert daemon.call("bash_output", ended)["exitCode"] == 0
    assert text == "begin;part 0;part 1;part 2;"


def test_command_that_holds_its_stdout_can_be_killed(
    daemon: RawDaemon, tmp_path: Path, gates: list[Gate]
) -> None:
    bash_id = start(daemon, FROM_SOCKET, tmp_path)
    read_until(daemon, bash_id, "begin;")
    result = daemon.call("kill_shell", {"bash_id": bash_id, "grace": 100})
    assert (result["status"], result["survivors"]) == ("killed", [])


def test_stdin_spliced_into_a_full_socket_stops_no_daemon(
    daemon: RawDaemon, tmp_path: Path, gates: list[Gate]
) -> None:
    bash_id = start(daemon, TO_SOCKET, tmp_path, open_stdin=True, stdin="first;")
    read_until(daemon, bash_id, "full;")
    for text in ("more;", "end"):
        written = daemon.call("write_stdin", {"bash_id": bash_id, "text": text, "wait": 0})
        assert written["written"] == len(text)
        # A look for a prompt asks the kernel how much of the input is unread.
        daemon.call("bash_output", {"bash_id": bash_id, "until": "prompt", "wait": 1})
        assert daemon.bash("echo meanwhile")["stdout"] == "meanwhile\n"
    gates[0].open()
    assert read_until(daemon, bash_id, "end") == "first;more;end"


def test_no_descriptor_of_a_held_pipe_is_left(
    daemon: RawDaemon, tmp_path: Path, gates: list[Gate]
) -> None:
    bash_id = start(daemon, FROM_SOCKET, tmp_path)
    read_until(daemon, bash_id, "begin;")

    def pidfds() -> int:
        links = Path(f"/proc/{daemon.pid}/fd").iterdir()
        return sum("pidfd" in str(link.readlink()) for link in links if link.is_symlink())

    for gate in gates:
        gate.open()
    daemon.call("bash_output", {"bash_id": bash_id, "wait": 20_000, "until": "exit"})
    wait_for(lambda: pidfds() == 0)
