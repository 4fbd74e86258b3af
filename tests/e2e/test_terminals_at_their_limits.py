"""Terminals and open stdins take large amounts of data, even if programs behave oddly."""

from __future__ import annotations

import base64
import json
import re
import shlex
from pathlib import Path

import pytest

from records import expected, read, records
from support import Gate, Json, RawDaemon, is_alive, raw_daemon, wait_for
from typing_session import Session

RESIZES = 3_000
AT_ONCE = 100
MEBIBYTE = 1024 * 1024

SHOWS_ITS_SIZE = """
import os, signal
def show(*_):
    size = os.get_terminal_size()
    os.write(1, b"%d-%d\\n" % (size.lines, size.columns))
signal.signal(signal.SIGWINCH, show)
os.write(1, b"ready\\n")
while True:
    signal.pause()
"""


@pytest.mark.slow
def test_last_size_of_a_storm_holds(daemon: RawDaemon) -> None:
    typing = Session(daemon, f"exec python3 -c {shlex.quote(SHOWS_ITS_SIZE)}")
    typing.until("ready\r\n")
    sizes = [(1 + number % 900, 1 + number // 900) for number in range(RESIZES - 1)]
    sizes.append((901, 77))
    for start in range(0, RESIZES, AT_ONCE):
        some = [
            {"bash_id": typing.bash_id, "rows": rows, "cols": cols}
            for rows, cols in sizes[start : start + AT_ONCE]
        ]
        asked = [daemon.request("resize_shell", each) for each in some]
        answers = [daemon.answer(request_id)["result"] for request_id in asked]
        assert answers == [{**each, "isRunning": True} for each in some]
    typing.until("901-77\r\n")
    screen = daemon.call("read_screen", {"bash_id": typing.bash_id})
    assert (screen["rows"], screen["cols"]) == (901, 77)
    # The many size changes had no other effect: the terminal's keys still work.
    typing.write(keys=["C-\\"])
    assert typing.end()["signal"] == "SIGQUIT"


def wait_for_end(daemon: RawDaemon, bash_id: str) -> Json:
    """Wait for the end of a long command, without consuming its output."""
    ended: Json = {"isRunning": True}
    while ended["isRunning"]:
        ended = read(daemon, bash_id, wait=5_000, until="exit", stdout_offset=0, max_bytes=1)
    return ended


LONG = [pytest.mark.long, pytest.mark.timeout(1800)]


@pytest.mark.slow
@pytest.mark.parametrize("total", [16_000_000, pytest.param(100_000_000, marks=LONG)])
def test_line_without_end_is_counted_to_the_byte(total: int) -> None:
    with raw_daemon("--retain-bytes", "10000000") as daemon:
        line = f"{records(total)} | tr '\\n' _"
        bash_id = daemon.background(f"stty -opost; {line}", tty=True)
        assert wait_for_end(daemon, bash_id)["exitCode"] == 0
        position = kept = 0
        while position < total:
            result = read(daemon, bash_id, max_bytes=16_777_216)
            span, text = result["stdoutRange"], result["stdout"]
            assert span["start"] == position
            assert span["end"] - position == len(text) + span["dropped"]
            position = span["end"]
            kept += len(text)
            assert text == expected(position - len(text), position).replace("\n", "_")
        assert (position, kept) == (total, 10_000_000)
        assert read(daemon, bash_id)["more"] is False


def resident_bytes(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    (kibibytes,) = re.findall(r"^VmRSS:\s+(\d+)", status, re.MULTILINE)
    return int(kibibytes) * 1024


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_gigabyte_takes_no_memory() -> None:
    total = 1_000_000_000
    with raw_daemon("--retain-bytes", "10000000") as daemon:
        bash_id = daemon.background(f"stty -opost; {records(total)}", tty=True)
        position = most = first = 0
        while position < total:
            result = read(daemon, bash_id, wait=5_000, max_bytes=1_000_000)
            span, text = result["stdoutRange"], result["stdout"]
            assert span["start"] == position
            assert text == expected(span["end"] - len(text), span["end"])
            assert span["end"] - span["start"] == len(text) + span["dropped"]
            position = span["end"]
            most = max(most, resident_bytes(daemon.pid))
            if position < 50_000_000:
                first = most
        assert position == total
        assert wait_for_end(daemon, bash_id)["exitCode"] == 0
        assert most - first < 16 * MEBIBYTE


@pytest.mark.parametrize("half", ["\x1b", "\x1b[3", "\x1b]0;title", "\x1bP1"])
def test_output_may_end_within_an_escape_sequence(daemon: RawDaemon, half: str) -> None:
    typing = Session(daemon, f"stty -echo; printf %s {shlex.quote('text' + half)}; read; exit 3")
    typing.until("text")
    typing.write("\n")
    ended = typing.end()
    assert (ended["exitCode"], ended["more"]) == (3, False)
    again = {"bash_id": typing.bash_id, "stdout_offset": 0, "strip_ansi": False}
    whole = daemon.call("bash_output", again)
    assert whole["stdout"] == "text" + half
    assert whole["stdoutRange"] == {"start": 0, "end": 4 + len(half), "dropped": 0}
    assert "\x1b" not in daemon.call("bash_output", {**again, "strip_ansi": True})["stdout"]
    assert daemon.call("read_screen", {"bash_id": typing.bash_id})["lines"][0] == "text"


def test_detached_child_keeps_the_terminal_open(daemon: RawDaemon, tmp_path: Path) -> None:
    gate = Gate(tmp_path / "gate")
    child = f"echo detached; {gate.wait}; tty <&1; echo late; exec sleep 300"
    typing = Session(daemon, f"stty -echo; setsid bash -c '{child}' & read; exit 3")
    typing.until("detached\r\n")
    typing.write("\n")
    ended = typing.end()
    assert (ended["status"], ended["exitCode"]) == ("failed", 3)
    shells = {each["bash_id"]: each for each in daemon.call("list_shells")["shells"]}
    (left,) = shells[typing.bash_id]["leftover"]
    assert is_alive(left)
    gate.open()
    assert typing.until("late\r\n").startswith("/dev/pts/")
    error = typing.refused("too late\n")
    assert (error["code"], error["data"]["reason"]) == (1008, "ended")
    killed = daemon.call("kill_shell", {"bash_id": typing.bash_id})
    assert killed["survivors"] == []
    assert not is_alive(left)


def test_program_that_never_reads_keys_delays_nobody(daemon: RawDaemon) -> None:
    typing = Session(daemon, "stty raw -echo; printf ready; sleep 300")
    typing.until("ready")
    pending = 0
    while pending < MEBIBYTE:
        piece = "x" * min(100_000, MEBIBYTE - pending)
        pending = typing.write(piece)["pendingBytes"]
        assert pending <= MEBIBYTE
    error = typing.refused("x")
    assert (error["code"], error["data"]["limit"]) == (1005, "stdin")
    assert daemon.bash("echo other")["stdout"] == "other\n"
    assert daemon.call("read_screen", {"bash_id": typing.bash_id})["lines"][0] == "ready"
    size = {"bash_id": typing.bash_id, "rows": 4, "cols": 9}
    assert daemon.call("resize_shell", size)["isRunning"] is True
    assert daemon.call("kill_shell", {"bash_id": typing.bash_id})["survivors"] == []


def test_unread_answers_block_no_keys(daemon: RawDaemon, tmp_path: Path) -> None:
    gate = Gate(tmp_path / "gate")
    ask = r"for i in {1..400}; do printf '\033[c'; done"
    command = f"stty -echo; {ask}; echo half; {gate.wait}; {ask}; echo done; sleep 300"
    typing = Session(daemon, command)
    typing.until("half\r\n")
    gate.open()
    typing.until("done\r\n")
    # The line already contains the terminal's answers, so it has no room for this text.
    assert typing.refused("x" * 4_000)["code"] == -32602
    typing.write("x" * 1_000)
    for key in ("Enter", "C-u", "C-c"):
        typing.write(keys=[key])
    assert typing.end()["signal"] == "SIGINT"


def test_timeout_moves_a_terminal_to_the_background(daemon: RawDaemon) -> None:
    command = "stty size; read -r line; echo got $line; exit 3"
    moved = daemon.bash(command, tty=True, rows=7, timeout=1_000, on_timeout="background")
    assert moved["status"] == "running"
    write = {"bash_id": moved["bash_id"], "text": "this\n", "wait": 60_000, "until": "exit"}
    ended = daemon.call("write_stdin", write)
    assert ended["stdout"] == "7 120\r\nthis\r\ngot this\r\n"
    assert (ended["exitCode"], ended["status"]) == (3, "failed")


def test_python_reads_its_program_from_open_input(daemon: RawDaemon) -> None:
    typing = Session(daemon, "python3 - one", tty=False, open_stdin=True, stdin="import sys\n")
    typing.write("for line in ['é', sys.argv[1]]:\n")
    typing.write("    print(line)\n", eof=True)
    assert typing.end()["exitCode"] == 0
    assert typing.output == "é\none\n"


LANGUAGE_SERVER = r"""
import json, sys
documents = {}
def receive():
    length = None
    while (line := sys.stdin.buffer.readline()) != b"\r\n":
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            length = int(value)
    return json.loads(sys.stdin.buffer.read(length))
def send(**message):
    body = json.dumps({"jsonrpc": "2.0", **message}, ensure_ascii=False).encode()
    sys.stdout.buffer.write(b"Content-Length: %d\r\n\r\n" % len(body) + body)
    sys.stdout.buffer.flush()
while True:
    message = receive()
    method, params = message["method"], message.get("params")
    if method == "exit":
        sys.exit(5)
    elif method == "didOpen":
        documents[params["uri"]] = params["text"]
        send(method="diagnostics", params={"uri": params["uri"], "length": len(params["text"])})
    else:
        send(id=message["id"], result=[method, documents.get((params or {}).get("uri"))])
"""


class LanguageClient:
    """This client runs a language server as a command, and talks to it over the command's stdin and
    stdout.
    """

    def __init__(self, daemon: RawDaemon, program: Path) -> None:
        self._typing = Session(daemon, f"exec python3 {program}", tty=False, open_stdin=True)

    def send(self, pieces: int = 1, **message: object) -> None:
        body = json.dumps({"jsonrpc": "2.0", **message}, ensure_ascii=False).encode()
        data = b"Content-Length: %d\r\n\r\n" % len(body) + body
        size = -(-len(data) // pieces)
        for start in range(0, len(data), size):
            # A piece may end in the middle of a character.
            self._typing.write(base64=base64.b64encode(data[start : start + size]).decode())

    def receive(self) -> Json:
        header = self._typing.until("\r\n\r\n")
        (length,) = re.findall(r"^Content-Length: (\d+)\r\n\r\n$", header)
        size = int(length)
        wait_for(lambda: self._has(size), "a whole message")
        data = self._typing.output.encode()
        self._typing.output = data[size:].decode()
        message: Json = json.loads(data[:size])
        return message

    def _has(self, size: int) -> bool:
        typing = self._typing
        if len(typing.output.encode()) >= size:
            return True
        result = typing.daemon.call("bash_output", {"bash_id": typing.bash_id, "wait": 1_000})
        typing.output += result["stdout"]
        return False

    def end(self) -> Json:
        return self._typing.end()


def test_language_server_is_spoken_with(daemon: RawDaemon, tmp_path: Path) -> None:
    program = tmp_path / "server.py"
    program.write_text(LANGUAGE_SERVER)
    client = LanguageClient(daemon, program)
    client.send(id=1, method="initialize")
    assert client.receive()["result"] == ["initialize", None]
    # The text is longer than a pipe's buffer, so the pipe fills up both when the client sends the
    # text and when the server sends it back. The text contains characters of several bytes.
    text = "é\u4e2d\r\n\r\n" * 30_000
    client.send(pieces=7, method="didOpen", params={"uri": "a", "text": text})
    assert client.receive()["params"] == {"uri": "a", "length": len(text)}
    client.send(pieces=50, id=2, method="hover", params={"uri": "a"})
    client.send(id=3, method="shutdown")
    assert client.receive() == {"jsonrpc": "2.0", "id": 2, "result": ["hover", text]}
    assert client.receive()["id"] == 3
    client.send(method="exit")
    assert client.end()["exitCode"] == 5
