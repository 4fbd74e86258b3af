"""The daemon works with whatever stdin and stdout its parent provides."""

from __future__ import annotations

import fcntl
import json
import os
import select
import socket
import subprocess
import sys
import tempfile
import termios
from pathlib import Path

import pytest

from support import DAEMON_COMMAND, PATIENT_DAEMON, RawDaemon, is_alive, raw_daemon, wait_for

REQUEST = b'{"jsonrpc":"2.0","id":1,"method":"bash","params":{"command":"cat; echo done"}}\n'


def stdout_of(answer: bytes) -> str:
    text: str = json.loads(answer)["result"]["stdout"]
    return text


def test_stdin_and_stdout_may_be_files(tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(REQUEST)
    with (tmp_path / "in").open("rb") as stdin, (tmp_path / "out").open("wb") as stdout:
        ended = subprocess.run(PATIENT_DAEMON, stdin=stdin, stdout=stdout, timeout=100, check=True)
    assert ended.returncode == 0
    assert stdout_of((tmp_path / "out").read_bytes()) == "done\n"


def test_stdin_may_be_the_null_device() -> None:
    ended = subprocess.run(
        DAEMON_COMMAND, stdin=subprocess.DEVNULL, capture_output=True, timeout=100, check=True
    )
    assert (ended.stdout, ended.stderr) == (b"", b"")


def test_one_socket_may_be_stdin_and_stdout() -> None:
    # Node gives its children such sockets.
    ours, theirs = socket.socketpair()
    with (
        ours,
        subprocess.Popen(DAEMON_COMMAND, stdin=theirs.fileno(), stdout=theirs.fileno()) as process,
    ):
        theirs.close()
        ours.sendall(REQUEST)
        assert stdout_of(ours.makefile("rb").readline()) == "done\n"
        ours.shutdown(socket.SHUT_WR)
        assert process.wait(60) == 0


def test_stdin_and_stdout_may_be_a_terminal() -> None:
    ours, theirs = os.openpty()
    subprocess.run(["stty", "raw", "-echo"], stdin=theirs, check=True)
    process = subprocess.Popen(DAEMON_COMMAND, stdin=theirs, stdout=theirs)
    os.close(theirs)
    try:
        os.write(ours, REQUEST)
        data = b""
        while not data.endswith(b"\n"):
            assert select.select([ours], [], [], 20)[0]
            data += os.read(ours, 4096)
        assert stdout_of(data) == "done\n"
    finally:
        os.close(ours)
        assert process.wait(60) == 0


def test_flags_of_inherited_streams_are_left_alone() -> None:
    read, write = os.pipe()
    with raw_daemon(stdin=read) as daemon:
        os.write(write, b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n')
        assert daemon.receive()["id"] == 1
        assert os.get_blocking(read)
        assert os.get_blocking(write)
        os.close(write)
        assert daemon.wait() == 0
    os.close(read)


def test_only_the_protocol_reaches_stdout(tmp_path: Path) -> None:
    # The daemon loads this module. At exit, the module prints one line with Python's `print`, and
    # writes another line directly to the descriptor.
    (tmp_path / "sitecustomize.py").write_text(
        "import atexit, os\n"
        "atexit.register(lambda: (print('printed'), os.write(1, b'written\\n')))\n"
    )
    ended = subprocess.run(
        PATIENT_DAEMON,
        input=REQUEST,
        capture_output=True,
        timeout=100,
        check=True,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )
    assert stdout_of(ended.stdout) == "done\n"
    assert sorted(ended.stderr.split()) == [b"printed", b"written"]


def test_standard_descriptors_do_not_reach_the_protocol() -> None:
    with raw_daemon() as daemon:
        daemon.call("ping")
        links = [os.readlink(f"/proc/{daemon.pid}/fd/{number}") for number in range(3)]
        assert links[0] == os.devnull
        assert links[1] == links[2]


def test_writes_to_device_files_miss_protocol_stdout() -> None:
    with raw_daemon() as daemon:
        result = daemon.bash("echo a >/dev/stdout; echo b >/dev/stderr; echo c >/dev/tty")
        assert (result["stdout"], result["stderr"][:2]) == ("a\n", "b\n")
        assert result["exitCode"] == 1


@pytest.mark.slow
@pytest.mark.parametrize("size", [4096, 1 << 16])
def test_unread_answers_never_stall_a_command(tmp_path: Path, size: int) -> None:
    read, write = os.pipe()
    # `size` is the minimum or the default size of a pipe.
    import fcntl  # noqa: PLC0415

    fcntl.fcntl(write, fcntl.F_SETPIPE_SZ, size)
    with raw_daemon(stdout=write) as daemon:
        os.close(write)
        for number in range(20):
            params = {"command": f"seq 50000; touch {tmp_path}/{number}"}
            daemon.request("bash", params, number)
        wait_for(lambda: len(list(tmp_path.iterdir())) == 20, "all commands to have ended")
        # The timeout of a command fires although the daemon cannot answer.
        daemon.request("bash", {"command": f"echo $$ >{tmp_path}/pid; sleep 300", "timeout": 1000})
        wait_for((tmp_path / "pid").exists, "the last command's start")
        wait_for(lambda: not _is_running(tmp_path / "pid"), "its timeout")
        with open(read, "rb") as answers:
            ids = {json.loads(answers.readline())["id"] for _ in range(21)}
            assert ids == {*range(20), 1}
            daemon.end_input()
            assert answers.read() == b""


def _is_running(pid_file: Path) -> bool:
    text = pid_file.read_text().strip()
    return not text or is_alive(int(text))


def test_a_client_that_reads_slowly_gets_everything() -> None:
    read, write = os.pipe()
    with raw_daemon(stdout=write) as daemon:
        os.close(write)
        daemon.send_raw(b'{"jsonrpc":"2.0","id":7,"method":"ping"}\n' * 300)
        daemon.request("bash", {"command": "seq 20000"}, 8)
        data = b""
        while data.count(b"\n") < 301:
            data += os.read(read, 7 if len(data) < 2000 else 65536)
        assert [json.loads(line)["id"] for line in data.splitlines()] == [7] * 300 + [8]
    os.close(read)


@pytest.mark.slow
def test_descriptors_threads_and_memory_do_not_grow() -> None:
    # Each spare shell holds descriptors, and the number of spare shells varies.
    with raw_daemon("--spare-shells", "0") as daemon:
        _exercise_and_compare(daemon)


def _exercise_and_compare(daemon: RawDaemon) -> None:
    def figures() -> tuple[int, int, int]:
        descriptors = len(os.listdir(f"/proc/{daemon.pid}/fd"))
        status = Path(f"/proc/{daemon.pid}/status").read_text()
        rows = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
        return descriptors, int(rows["Threads"]), int(rows["VmRSS"].split()[0])

    def exercise() -> None:
        for _ in range(30):
            ids = [daemon.request("bash", {"command": "echo x; echo y >&2"}) for _ in range(5)]
            ids.append(daemon.request("bash", {"command": "sleep 300 &"}))
            ids.append(daemon.request("bash", {"command": "true", "cwd": "/nonexistent"}))
            ids.append(daemon.request("bash", {"command": "cat", "stdin": "x" * 1000}))
            daemon.send_raw(b"junk\n")
            for request_id in ids:
                answer = daemon.answer(request_id)
                for _ in answer.get("result", {}).get("leftover", ()):
                    daemon.call("kill_shell", {"shell_id": answer["result"]["bash_id"]})

    exercise()
    before = figures()
    for _ in range(2):
        exercise()
    after = figures()
    assert after[0] <= before[0]
    assert after[1] <= before[1]
    # The last two exercises have left 480 ended shells, and the daemon keeps a few KiB for each.
    assert after[2] - before[2] < 5_500


@pytest.mark.slow
def test_no_temporary_files_are_made() -> None:
    with (
        tempfile.TemporaryDirectory() as directory,
        raw_daemon(env={**os.environ, "TMPDIR": directory}) as daemon,
    ):
        daemon.bash("cat >/dev/null", stdin="x" * 1_000_000)
        daemon.bash("true" + "#" * 1_000_000)
        assert list(Path(directory).iterdir()) == []


def test_a_nonblocking_socket_loses_no_answer() -> None:
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    theirs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    with (
        ours,
        theirs,
        subprocess.Popen(DAEMON_COMMAND, stdin=theirs.fileno(), stdout=theirs.fileno()) as process,
    ):
        command = "head -c 200000 /dev/zero | tr '\\0' x"
        for number in range(4):
            params = {"command": command, "session": None}
            request = {"jsonrpc": "2.0", "id": number, "method": "bash", "params": params}
            ours.sendall(json.dumps(request).encode() + b"\n")
        # Read nothing before the first answer has arrived, so that the stream fills up.
        wait_for(lambda: unread_bytes(ours) > 0, "an answer")
        lines = ours.makefile("rb")
        answers = [json.loads(lines.readline()) for _ in range(4)]
        assert sorted(answer["id"] for answer in answers) == list(range(4))
        assert {answer["result"]["stdoutBytes"] for answer in answers} == {200_000}
        assert not os.get_blocking(theirs.fileno())
        ours.shutdown(socket.SHUT_WR)
        assert process.wait(60) == 0


def unread_bytes(sock: socket.socket) -> int:
    unread = bytearray(4)
    fcntl.ioctl(sock, termios.FIONREAD, unread)
    return int.from_bytes(unread, sys.byteorder)


def test_a_stderr_that_nobody_reads_stops_nothing() -> None:
    daemon = RawDaemon("--log-level", "debug")
    try:
        # The daemon logs a line for each notification. A pipe of 64 KiB is full long before the
        # last line.
        for _ in range(1_500):
            daemon.notify("ping", {})
        assert daemon.call("ping") == {}
        daemon.process.terminate()
        assert daemon.wait() == 0
    finally:
        daemon.close()
    assert len(daemon.stderr) > 60_000
