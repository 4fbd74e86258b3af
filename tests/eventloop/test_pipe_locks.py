"""A process that holds the lock of a pipe, as in splice(2), does not block the daemon."""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import indent
from typing import Any

import pytest

from shelld.eventloop import pipe_locks
from shelld.eventloop.pipe_locks import PipeWatch
from support import DEADLINE_S, Gate, RawDaemon, descendants, is_alive, raw_daemon, wait_for

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/syscall").exists(), reason="the system does not tell system calls"
)

# This program moves data from a socket to stdout. It writes first, so that there is something to
# read.
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
# This program also moves data from a socket to stdout, but no data arrives.
SILENT = """
import os, socket
ours, theirs = socket.socketpair()
os.splice(ours.fileno(), 1, 65536)
"""
# This program moves data from stdin to a socket, which is full until the gate opens.
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


# This program runs `FROM_SOCKET` in a thread, and its main thread has ended.
LEADERLESS = f"""
import ctypes, threading
def move():
{indent(FROM_SOCKET, "    ")}
threading.Thread(target=move).start()
ctypes.CDLL(None).pthread_exit(None)
"""


# This program reads a pipe whose lock another process holds. It reads in a thread that `PipeWatch`
# watches, and no descriptor is free.
SHORT_OF_FILES = """
import os, resource, socket, time
from shelld.eventloop.pipe_locks import PipeWatch
read, write = os.pipe()
ours, theirs = socket.socketpair()
holder = os.fork()
if holder == 0:
    os.write(write, b"x")
    os.splice(ours.fileno(), write, 65536)
before = len(os.listdir("/proc/self/fd"))
PipeWatch(lambda: True).command_starts()
while len(os.listdir("/proc/self/fd")) < before + 3:
    time.sleep(0.01)
while open(f"/proc/{holder}/syscall").read().split()[0] not in ("275", "76"):
    time.sleep(0.01)
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
try:
    while True:
        os.dup(0)
except OSError:
    os.read(read, 1)
    os.write(1, b"read\\n")
    os._exit(0)
"""


@pytest.fixture
def daemon() -> Iterator[RawDaemon]:
    with raw_daemon() as running:
        yield running


@pytest.fixture
def gates(tmp_path: Path) -> list[Gate]:
    """Return three gates. A program waits for one gate after the other."""
    return [Gate(tmp_path / f"gate{number}") for number in range(3)]


def start(daemon: RawDaemon, program: str, folder: Path, **params: Any) -> str:
    """Start a program that holds the lock of a pipe from which the daemon has something to read."""
    script, gate = folder / "program.py", Gate(folder / "gate")
    script.write_text(program)
    # Without the redirection from descriptor 3, bash would give the background process another
    # stdin.
    command = f"exec 3<&0; {sys.executable} {script} {folder}/gate <&3 3<&- & echo $!; wait"
    bash_id = daemon.background(command, **params)
    pid = int(read_until(daemon, bash_id, "\n"))
    # Stop the daemon, so that it reads nothing before the program sleeps in splice(2).
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
        wanted = {"bash_id": bash_id, "wait": 60_000}
        text += daemon.call("bash_output", wanted)["stdout"]
    return text


@pytest.mark.slow
def test_socket_spliced_into_stdout_does_not_block_the_daemon(
    daemon: RawDaemon, tmp_path: Path, gates: list[Gate]
) -> None:
    bash_id = start(daemon, FROM_SOCKET, tmp_path)
    text = read_until(daemon, bash_id, "begin;")
    for number, gate in enumerate(gates):
        gate.open()
        text += read_until(daemon, bash_id, f"part {number};")
        assert daemon.bash("echo meanwhile")["stdout"] == "meanwhile\n"
    ended = {"bash_id": bash_id, "wait": 60_000, "until": "exit"}
    assert daemon.call("bash_output", ended)["exitCode"] == 0
    assert text == "begin;part 0;part 1;part 2;"


@pytest.mark.slow
def test_command_that_holds_its_stdout_can_be_killed(
    daemon: RawDaemon, tmp_path: Path, gates: list[Gate]
) -> None:
    bash_id = start(daemon, FROM_SOCKET, tmp_path)
    read_until(daemon, bash_id, "begin;")
    result = daemon.call("kill_shell", {"bash_id": bash_id, "grace": 100})
    assert (result["status"], result["survivors"]) == ("killed", [])


@pytest.mark.slow
def test_stdin_spliced_into_a_full_socket_does_not_block_the_daemon(
    daemon: RawDaemon, tmp_path: Path, gates: list[Gate]
) -> None:
    bash_id = start(daemon, TO_SOCKET, tmp_path, open_stdin=True, stdin="first;")
    read_until(daemon, bash_id, "full;")
    for text in ("more;", "end"):
        written = daemon.call("write_stdin", {"bash_id": bash_id, "text": text, "wait": 0})
        assert written["written"] == len(text)
        # When the daemon checks for a prompt, it asks the kernel how much of the input is unread.
        daemon.call("bash_output", {"bash_id": bash_id, "until": "prompt", "wait": 1})
        assert daemon.bash("echo meanwhile")["stdout"] == "meanwhile\n"
    gates[0].open()
    assert read_until(daemon, bash_id, "end") == "first;more;end"


@pytest.mark.slow
def test_held_stdin_can_be_closed(daemon: RawDaemon, tmp_path: Path, gates: list[Gate]) -> None:
    # After the program has taken the pipe's lock, the daemon does nothing with the pipe until the
    # daemon closes the write end.
    bash_id = start(daemon, TO_SOCKET, tmp_path, open_stdin=True, stdin="first;")
    assert daemon.call("write_stdin", {"bash_id": bash_id, "eof": True})["isRunning"]
    assert daemon.bash("echo meanwhile")["stdout"] == "meanwhile\n"


@pytest.mark.slow
def test_leftover_that_locks_its_stdout_does_not_block_the_daemon(
    daemon: RawDaemon, tmp_path: Path
) -> None:
    (tmp_path / "program.py").write_text(SILENT)
    # Bash ends as soon as the program is in splice(2). The daemon then closes its own write end of
    # the pipe. No other process has this write end open, because bash has opened another one
    # through /proc. So the kernel needs the pipe's lock to close the daemon's write end.
    in_splice = "read -r number _ < /proc/$!/syscall && [[ $number == 275 || $number == 76 ]]"
    start = f"exec > /proc/self/fd/1; {sys.executable} {tmp_path}/program.py &"
    command = f"{start} until {in_splice}; do :; done"
    result = daemon.bash(command)
    assert (result["exitCode"], len(result["leftover"])) == (0, 1)
    assert daemon.bash("echo meanwhile")["stdout"] == "meanwhile\n"


@pytest.mark.slow
def test_killed_daemon_leaves_no_command_that_holds_a_pipe(
    daemon: RawDaemon, tmp_path: Path, gates: list[Gate]
) -> None:
    bash_id = start(daemon, FROM_SOCKET, tmp_path)
    read_until(daemon, bash_id, "begin;")
    (shell,) = daemon.call("list_shells")["shells"]
    tree = [shell["pid"], *descendants(shell["pid"])]
    daemon.process.kill()
    daemon.process.wait()
    wait_for(lambda: not any(map(is_alive, tree)), "the end of the command")


@pytest.mark.slow
def test_job_control_does_not_notice_that_a_process_is_stopped(
    daemon: RawDaemon, tmp_path: Path, gates: list[Gate]
) -> None:
    script, gate = tmp_path / "program.py", Gate(tmp_path / "gate")
    script.write_text(FROM_SOCKET)
    bash_id = daemon.background(f"set -m; {sys.executable} {script} {tmp_path}/gate; echo $?")
    gate.open()
    text = read_until(daemon, bash_id, "begin;")
    for gate, end in zip(gates, ("part 0;", "part 1;", "part 2;0\n"), strict=True):
        gate.open()
        text += read_until(daemon, bash_id, end)
    assert text == "begin;part 0;part 1;part 2;0\n"


def test_watch_needs_no_free_descriptor() -> None:
    program = subprocess.Popen(
        [sys.executable, "-c", SHORT_OF_FILES], stdout=subprocess.PIPE, start_new_session=True
    )
    assert program.stdout is not None
    with program.stdout as stdout:
        try:
            ready, _, _ = select.select([stdout], [], [], DEADLINE_S)
            assert ready
            assert stdout.readline() == b"read\n"
        finally:
            # Also kill the process that holds the pipe. The program cannot end while that process
            # holds the pipe's lock.
            os.killpg(program.pid, signal.SIGKILL)
            program.wait()


@pytest.mark.slow
def test_thread_that_outlives_the_main_thread_does_not_block_the_daemon(
    daemon: RawDaemon, tmp_path: Path, gates: list[Gate]
) -> None:
    # When the main thread has ended, /proc/PID/fd is empty. Only the directories of the other
    # threads in /proc show the files of the process.
    bash_id = start(daemon, LEADERLESS, tmp_path)
    assert read_until(daemon, bash_id, "begin;") == "begin;"
    assert daemon.bash("echo meanwhile")["stdout"] == "meanwhile\n"


class FakeProcess:
    """A process that has a pipe open."""

    key = "fake"

    def __init__(self) -> None:
        self.is_stopped = self.was_stopped = False

    def stop(self) -> None:
        self.is_stopped = self.was_stopped = True

    def go_on(self) -> None:
        self.is_stopped = False


def test_failed_check_of_the_event_loop_leaves_no_process_stopped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reader, writer = os.pipe()
    process = FakeProcess()
    asleep = re.compile(rb"(\d+) (\S+)").match(b"0 0x%x" % reader)
    answers = [asleep, asleep]

    def sleeping_in(_watch: PipeWatch) -> re.Match[bytes] | None:
        if not answers:
            raise MemoryError
        return answers.pop()

    def processes_with(_pipe: str, *, every_thread: bool) -> list[FakeProcess]:
        return [process]

    monkeypatch.setattr(PipeWatch, "_sleeping_in", sleeping_in)
    monkeypatch.setattr(pipe_locks, "_processes_with", processes_with)
    look = vars(PipeWatch)["_look"]
    watch = PipeWatch(lambda: True)
    look(watch)
    with pytest.raises(MemoryError):
        look(watch)
    assert (process.was_stopped, process.is_stopped) == (True, False)
    pipe_locks.close_pipe(reader)
    os.close(writer)
    # Close the descriptor that the watch keeps in reserve.
    for descriptor in vars(watch)["_files"]:
        os.close(descriptor)


def process_state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0]


def test_process_continues_when_its_last_stopper_lets_go() -> None:
    with subprocess.Popen(["sleep", "300"]) as sleep:
        started = vars(pipe_locks)["_stat"](sleep.pid).started
        process = vars(pipe_locks)["_Process"](sleep.pid, started)
        try:
            process.stop()
            # Continue the stopped process, as another process may do at any time.
            sleep.send_signal(signal.SIGCONT)
            process.stop()
            # `stop` does not wait for a process in state D, such as one that starts its program.
            wait_for(lambda: process_state(sleep.pid) == "T")
            process.go_on()
            assert process_state(sleep.pid) == "T"
            process.go_on()
            wait_for(lambda: process_state(sleep.pid) == "S")
        finally:
            sleep.kill()


@pytest.mark.parametrize(
    "function", ["shelld.eventloop.pipe_locks.os.fstat", "shelld.eventloop.pipe_locks.unlocked"]
)
def test_pipe_is_closed_although_a_step_before_close_fails(
    monkeypatch: pytest.MonkeyPatch, function: str
) -> None:
    reader, writer = os.pipe()

    def fail(_descriptor: int) -> None:
        raise ZeroDivisionError

    with monkeypatch.context() as patch:
        patch.setattr(function, fail)
        with pytest.raises(ZeroDivisionError):
            pipe_locks.close_pipe(reader)
    with pytest.raises(BrokenPipeError):
        os.write(writer, b"x")
    os.close(writer)
