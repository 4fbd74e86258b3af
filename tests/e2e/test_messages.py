"""Incoming messages in both framings: in pieces, too long, too deep, or too many."""

from __future__ import annotations

import json
import os
import signal
from typing import Any

import pytest

from shelld_protocol.framing import FrameReader
from support import PATIENT_DAEMON, RawDaemon, raw_daemon, wait_for


def error_code(answer: Any) -> int:
    """Return the error code of an answer, or of the first answer of a batch."""
    try:
        code: int = answer["error"]["code"]
    except TypeError:
        return error_code(answer[0])
    return code


@pytest.mark.slow
def test_content_length_is_answered_in_kind(daemon: RawDaemon) -> None:
    del daemon
    with raw_daemon() as lsp:
        body = '{"jsonrpc":"2.0","id":"ü","method":"ping"}'.encode()
        lsp.send_raw(b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
        lsp.send_raw(b"content-type: x\r\ncontent-length:%d\r\n\r\n%b" % (len(body), body))
        expected = '{"jsonrpc":"2.0","id":"ü","result":{}}'.encode()
        frame = b"Content-Length: %d\r\n\r\n%b" % (len(expected), expected)
        lsp.end_input()
        assert lsp.rest() == frame * 2


@pytest.mark.slow
def test_stream_continues_after_bad_headers() -> None:
    with raw_daemon() as lsp:
        body = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'
        lsp.send_raw(b"Content-Length: nope\r\n\r\n")
        lsp.send_raw(b"Content-Length: 3\r\n\r\n{]}")
        # Send this message as a line, without the header that this framing requires.
        lsp.send_raw(b'{"jsonrpc":"2.0","id":2,"method":"ping"}\n')
        lsp.send_raw(b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
        lsp.end_input()
        frames = FrameReader()
        frames.receive_data(lsp.rest())
        answers = [json.loads(bytes(frames.next_event())) for _ in range(4)]  # type: ignore[arg-type]
        codes = [(answer["id"], answer.get("error", {}).get("code")) for answer in answers]
        assert codes == [(None, -32700), (None, -32700), (2, -32700), (1, None)]


@pytest.mark.slow
def test_daemon_writes_nothing_before_reading() -> None:
    with raw_daemon() as daemon:
        daemon.send_raw(b" \n\t\r\n\xef\xbb\xbf\n")
        daemon.end_input()
        assert daemon.rest() == b""
        assert daemon.wait() == 0


def test_requests_may_arrive_byte_by_byte(daemon: RawDaemon) -> None:
    line = '{"jsonrpc":"2.0","id":1,"method":"bash","params":{"command":"echo ä€😀"}}\r\n'
    for byte in line.encode():
        daemon.send_raw(bytes([byte]))
    assert daemon.receive()["result"]["stdout"] == "ä€😀\n"


@pytest.mark.slow
def test_a_message_over_the_limit_is_skipped() -> None:
    with raw_daemon("--max-message-bytes", "10000") as daemon:
        daemon.send_raw(b'{"jsonrpc":"2.0","id":1,"method":"ping","x":"%b"}\n' % (b"x" * 100_000))
        answer = daemon.receive()
        assert (answer["id"], answer["error"]["code"]) == (None, -32600)
        assert daemon.call("ping") == {}


@pytest.mark.slow
def test_hundred_megabytes_without_line_end_cost_no_memory(new_daemon: RawDaemon) -> None:
    def peak_mb() -> int:
        with open(f"/proc/{new_daemon.pid}/status") as status:
            return next(int(line.split()[1]) // 1024 for line in status if "VmHWM" in line)

    before = peak_mb()
    megabyte = b"[" * (1 << 20)
    for _ in range(100):
        new_daemon.send_raw(megabyte)
    new_daemon.send_raw(b"\n")
    assert new_daemon.receive()["error"]["code"] == -32600
    assert new_daemon.call("ping") == {}
    # The limit is 64 MiB, and the data may be in memory twice while a buffer grows.
    assert peak_mb() - before < 160


@pytest.mark.parametrize("depth", [1_000, 100_000])
@pytest.mark.parametrize("where", [b'{"jsonrpc":"2.0","id":1,"method":"bash","params":%b}', b"%b"])
def test_deep_nesting_is_a_parse_error(daemon: RawDaemon, where: bytes, depth: int) -> None:
    for nest in (b"[" * depth + b"]" * depth, b'{"a":' * depth + b"1" + b"}" * depth):
        daemon.send_raw(where % nest + b"\n")
        answer = daemon.receive()
        codes = {-32700} if depth > 10_000 else {-32700, -32600, -32602}
        assert error_code(answer) in codes
    assert daemon.call("ping") == {}


@pytest.mark.parametrize("message", [b"[%b]", b'{"jsonrpc":"2.0","id":1,"method":"x","params":%b}'])
def test_no_depth_of_nesting_ends_the_daemon(daemon: RawDaemon, message: bytes) -> None:
    depths = range(880, 1_020)
    for depth in depths:
        member = b'{"jsonrpc":"2.0","id":1,"method":"ping","params":%b}' % (
            b"[" * depth + b"]" * depth
        )
        daemon.send_raw(message % member + b"\n")
    codes = {error_code(daemon.receive()) for _ in depths}
    assert codes == {-32700}
    assert daemon.call("ping") == {}


@pytest.mark.slow
def test_batch_over_the_limit_is_answered_in_full() -> None:
    with raw_daemon("--max-in-flight", "4", command=PATIENT_DAEMON) as daemon:
        members = [
            {"jsonrpc": "2.0", "id": number, "method": "bash", "params": {"command": "echo $$"}}
            for number in range(30)
        ]
        daemon.send([*members, {"jsonrpc": "2.0", "method": "exit"}])
        daemon.send({"jsonrpc": "2.0", "id": "late", "method": "ping"})
        answers = daemon.receive()
        assert [answer["id"] for answer in answers] == list(range(30))
        assert {answer["result"]["exitCode"] for answer in answers} == {0}
        assert daemon.wait() == 1


@pytest.mark.slow
def test_batch_starting_at_the_stop_is_answered_in_full() -> None:
    with raw_daemon(command=PATIENT_DAEMON) as daemon:
        command = {"command": f"kill -TERM {daemon.pid}"}
        stop = {"jsonrpc": "2.0", "id": 0, "method": "bash", "params": command}
        pings = [{"jsonrpc": "2.0", "id": number, "method": "ping"} for number in range(1, 10_000)]
        daemon.send([stop, *pings])
        assert [answer["id"] for answer in daemon.receive()] == list(range(10_000))
        assert daemon.wait() == 0


@pytest.mark.long
def test_unread_flood_is_stopped_and_then_answered() -> None:
    requests = 5_000
    with raw_daemon() as daemon:
        asked_for_mb = requests * len(json.dumps(daemon.call("rpc.discover"))) >> 20
        before_mb = resident_mb(daemon.pid)
        pid = os.fork()
        if pid == 0:
            # The child blocks on writing once the daemon stops reading.
            try:
                for _ in range(requests):
                    daemon.send_raw(b'{"jsonrpc":"2.0","id":1,"method":"rpc.discover"}\n')
            finally:
                os._exit(0)
        try:
            in_a_row = 0

            def stays_blocked() -> bool:
                # A full pipe blocks any writer for a moment, so require many observations in a row.
                nonlocal in_a_row
                in_a_row = in_a_row + 1 if _is_blocked_writing(pid) else 0
                return in_a_row > 100

            wait_for(stays_blocked, "the daemon to stop reading")
            # The daemon's queue holds only a fraction of the requested answers.
            assert resident_mb(daemon.pid) - before_mb < asked_for_mb / 2
            for _ in range(requests):
                assert daemon.receive()["id"] == 1
            assert os.waitpid(pid, 0)[1] == 0
        except BaseException:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            raise
        assert daemon.call("ping") == {}


def _is_blocked_writing(pid: int) -> bool:
    with open(f"/proc/{pid}/wchan") as file:
        return "pipe" in file.read()


def resident_mb(pid: int) -> int:
    with open(f"/proc/{pid}/status") as status:
        return next(int(row.split()[1]) // 1024 for row in status if "VmRSS" in row)
