"""A shortage makes a request fail, but the daemon continues and recovers."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
from collections.abc import Generator
from pathlib import Path

import pytest

from support import children, raw_daemon, wait_for

pytestmark = pytest.mark.slow

# This is less memory than the stack of one more thread needs.
SPARE_ADDRESS_SPACE = 4 << 20
# The guard judges this command in a thread, because the command is long and not plain.
LONG_COMMAND = {"command": "sudo true; " * 2_000, "dry_run": True}


@contextlib.contextmanager
def limited(pid: int, limit: int, value: int) -> Generator[None]:
    _, hard = before = resource.prlimit(pid, limit)
    resource.prlimit(pid, limit, (value, hard))
    try:
        yield
    finally:
        resource.prlimit(pid, limit, before)


def address_space(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[0])
    return pages * resource.getpagesize()


def test_first_key_can_come_while_memory_is_short() -> None:
    with raw_daemon("--guard", "off", stderr_is_silent=False) as daemon:
        daemon.bash("true")
        for extra in (0, 64 << 10, 256 << 10, 1 << 20):
            command = {"command": "echo out", "idempotency_key": f"key {extra}"}
            with limited(daemon.pid, resource.RLIMIT_AS, address_space(daemon.pid) + extra):
                answer = daemon.answer(daemon.request("bash", command))
                assert "result" in answer or answer["error"]["code"] == 1005
            # The shortage has no later effects.
            assert daemon.bash(**command)["stdout"] == "out\n"
        assert daemon.call("server_info")["counters"]["internalErrors"] == 0


def test_shortage_of_threads_fails_requests_needing_one() -> None:
    with raw_daemon(stderr_is_silent=False) as daemon:
        daemon.call("list_tools")
        limit = address_space(daemon.pid) + SPARE_ADDRESS_SPACE
        requests = [
            {"jsonrpc": "2.0", "id": number, "method": "bash", "params": LONG_COMMAND}
            for number in range(8)
        ]
        with limited(daemon.pid, resource.RLIMIT_AS, limit):
            # Send all requests at once. There may be one idle thread; the other requests need new
            # threads.
            daemon.send_raw(b"".join(json.dumps(request).encode() + b"\n" for request in requests))
            answers = [daemon.receive() for _ in requests]
            errors = [answer["error"]["data"] for answer in answers if "error" in answer]
            # An idle thread starts to judge a command, but has no memory to parse it.
            assert {error["limit"] for error in errors} | {"memory"} == {"memory", "threads"}
            assert daemon.bash("echo short")["stdout"] == "short\n"
        assert daemon.call("bash", LONG_COMMAND)["dryRun"] is True
        assert daemon.call("server_info")["counters"]["internalErrors"] == 0


def test_soft_limit_of_processor_time_is_survived() -> None:
    with raw_daemon() as daemon:
        assert daemon.call("ping") == {}
        os.kill(daemon.pid, signal.SIGXCPU)
        assert daemon.bash("echo on")["stdout"] == "on\n"
        # Only the daemon ignores the signal; commands do not.
        assert daemon.bash("kill -XCPU $$")["signal"] == "SIGXCPU"


def test_shortage_of_files_while_loading_is_survived() -> None:
    with raw_daemon(stderr_is_silent=False) as daemon:
        assert daemon.call("ping") == {}
        # Do not count the sockets to the runners: their descriptors have high numbers.
        in_use = sum(int(name) < 1_000 for name in os.listdir(f"/proc/{daemon.pid}/fd"))
        with limited(daemon.pid, resource.RLIMIT_NOFILE, in_use):
            # After this time, the daemon has tried to preload the guard and the tools.
            wait_for(lambda: daemon.call("server_info")["uptimeMs"] > 1_500, "the preloads")
            assert daemon.fail("list_tools")["data"]["limit"] == "files"
            assert daemon.fail("bash", {"command": "sudo true"})["data"]["limit"] == "files"
        assert len(daemon.call("list_tools")["tools"]) == 3
        assert daemon.call("explain_command", {"command": "rm -rf /"})["verdict"] == "block"
        assert daemon.call("server_info")["counters"]["internalErrors"] == 0


@pytest.mark.parametrize("blocking", [True, False])
def test_zero_file_limit_loses_no_answer(blocking: bool) -> None:
    read, write = os.pipe()
    os.set_blocking(write, blocking)
    with raw_daemon(stderr_is_silent=False, stdout=write) as daemon, open(read, "rb") as stdout:
        os.close(write)
        daemon.request("bash", {"command": "seq 100000"})
        assert json.loads(stdout.readline())["result"]["stdoutBytes"] == 588_895
        # poll(2) itself fails at this limit.
        with limited(daemon.pid, resource.RLIMIT_NOFILE, 0):
            bash_id = "shell_unknown"
            requests = [daemon.request("bash_output", {"bash_id": bash_id}) for _ in range(2_000)]
            answers = [json.loads(stdout.readline()) for _ in requests]
            assert sorted(answer["id"] for answer in answers) == requests
            # A spare shell does not run the command of a call with `env`.
            daemon.request("bash", {"command": "true", "env": {"A": "1"}})
            error = json.loads(stdout.readline())["error"]
            assert error["data"]["limit"] == "files", error
        daemon.request("bash", {"command": "echo on"})
        assert json.loads(stdout.readline())["result"]["stdout"] == "on\n"


def test_many_commands_with_few_files_are_answered() -> None:
    with raw_daemon(prefix=["prlimit", "--nofile=128:128"], stderr_is_silent=False) as daemon:
        ids = [daemon.request("bash", {"command": "sleep 1"}) for _ in range(30)]
        answers = [daemon.answer(request_id) for request_id in ids]
        for answer in answers:
            if "error" in answer:
                assert answer["error"]["data"]["limit"] == "files"
            else:
                assert answer["result"]["status"] == "completed"
        wait_for(lambda: daemon.call("server_info")["uptimeMs"] > 2_000, "the preloads")
        assert daemon.bash("echo on")["stdout"] == "on\n"
        assert len(daemon.call("list_tools")["tools"]) == 3


@pytest.mark.slow
@pytest.mark.parametrize("framing", ["lines", "content-length"])
def test_message_without_memory_is_skipped(framing: str) -> None:
    with raw_daemon() as daemon:
        assert daemon.bash("echo warm")["stdout"] == "warm\n"
    with raw_daemon(stderr_is_silent=False) as daemon:
        body = (
            b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":"' + b"x" * (48 << 20) + b'"}}'
        )
        ping = b'{"jsonrpc":"2.0","id":2,"method":"ping"}'
        frame = b"%b\n" if framing == "lines" else b"Content-Length: %d\r\n\r\n%b"

        def send(message: bytes) -> None:
            parts = (message,) if framing == "lines" else (len(message), message)
            daemon.send_raw(frame % parts)

        send(ping)
        assert daemon.receive()["id"] == 2
        with limited(daemon.pid, resource.RLIMIT_AS, address_space(daemon.pid) + (24 << 20)):
            send(body)
            answer = daemon.receive()
            assert answer["id"] == 1
            assert answer["error"]["data"] == {"kind": "resource_exhausted", "limit": "memory"}
            send(ping)
            assert daemon.receive()["id"] == 2
        assert children(daemon.pid)


@pytest.mark.long
@pytest.mark.parametrize("member", ["id", "env", "method", "stdin", "arguments"])
@pytest.mark.timeout(240)
def test_large_message_is_answered_at_any_memory_limit(member: str) -> None:
    text = b"x" * (24 << 20)
    names = b",".join(b'"V%d":"1"' % number for number in range(1_000_000))
    # Each value ends in two backslashes before its closing quote.
    paths = b",".join(b'"V%d":"C:\\\\"' % number for number in range(300_000))
    message = {
        "id": b'{"jsonrpc":"2.0","id":"%b","method":"ping"}\n' % text,
        "method": b'{"jsonrpc":"2.0","id":1,"method":"%b"}\n' % text,
        "stdin": b'{"jsonrpc":"2.0","id":1,"method":"bash","params":'
        b'{"command":"cat >/dev/null","stdin":"%b"}}\n' % text,
        "env": b'{"jsonrpc":"2.0","id":1,"method":"bash","params":'
        b'{"command":"true","env":{%b}}}\n' % paths,
        "arguments": b'{"jsonrpc":"2.0","id":1,"method":"call_tool","params":'
        b'{"name":"Bash","arguments":{"command":"true","env":{%b}}}}\n' % names,
    }[member]
    with raw_daemon(stderr_is_silent=False) as daemon:
        daemon.call("list_tools")
        daemon.bash("true")
        for megabytes in (4, 12, 20, 28, 36, 72, 168):
            limit = address_space(daemon.pid) + (megabytes << 20)
            with limited(daemon.pid, resource.RLIMIT_AS, limit):
                daemon.send_raw(message)
                # The answer takes seconds even on an idle machine.
                answer = daemon.receive(90)
            error = answer.get("error")
            # Some messages fail even without a shortage, because their method is unknown or their
            # environment has too many variables.
            if error is not None and error["code"] not in (-32601, -32602):
                assert error["data"] == {"kind": "resource_exhausted", "limit": "memory"}
            assert daemon.call("ping") == {}
