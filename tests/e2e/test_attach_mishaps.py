"""`shelld attach` on a machine in trouble: directories, disks, clocks, suspension."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from lasting import Lasting, daemon_pid, kill_attach, lasting_user, wait_for_end
from shelld.lasting.directory import DirectoryError, SocketDirectory
from shelld.lasting.handshake import HANDSHAKE, STDOUT_FAILED, Hello, Reply, decode, receive, send
from shelld_protocol.about import PROTOCOL
from support import DAEMON_COMMAND, RawDaemon, is_alive, stopped, wait_for

pytestmark = pytest.mark.slow

NOBODY = 65534


@pytest.fixture
def user(tmp_path: Path) -> Generator[Lasting]:
    with lasting_user(tmp_path) as user:
        yield user


def has_no_client(user: Lasting) -> bool:
    """Return whether no client is attached. Ask the daemon itself, because starting `shelld list`
    might take longer than the daemon lingers.
    """
    with user.connect() as connection:
        hello = Hello(handshake=HANDSHAKE, protocol=PROTOCOL, version="", wants="info")
        send(connection, hello)
        info = decode(receive(connection)[0], Reply).info
    assert info is not None
    return info["client"] is None


# -- the directory ----------------------------------------------------------------------------


def runtime_of(kind: str, tmp_path: Path) -> str:
    if kind == "of another user":
        if os.getuid() != 0:
            pytest.skip("needs root")
        os.chown(tmp_path, NOBODY, NOBODY)
    elif kind == "a file":
        (tmp_path / "file").write_text("")
        return str(tmp_path / "file")
    kinds = {"empty": "", "relative": "run", "missing": str(tmp_path / "missing")}
    return kinds.get(kind, str(tmp_path))


@pytest.mark.parametrize("kind", ["empty", "relative", "missing", "a file", "of another user"])
def test_unusable_runtime_directory_is_replaced(tmp_path: Path, kind: str) -> None:
    runtime = runtime_of(kind, tmp_path)
    before = sorted(tmp_path.iterdir())
    env = {**os.environ, "XDG_RUNTIME_DIR": runtime}
    name = f"test-{os.getpid()}"
    client = RawDaemon("attach", "--name", name, "--linger", "0", env=env)
    try:
        pid = daemon_pid(client)
        assert Path(f"/tmp/shelld-{os.getuid()}/{name}.sock").is_socket()
    finally:
        client.close()
    wait_for_end(pid)
    assert sorted(tmp_path.iterdir()) == before


def test_full_disk_is_named_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))

    def full(*_arguments: object) -> None:
        raise OSError(28, os.strerror(28))

    with monkeypatch.context() as patched:
        patched.setattr("os.mkdir", full)
        with pytest.raises(DirectoryError, match=r"cannot use .*: No space left on device"):
            SocketDirectory.open(create=True)
    directory = SocketDirectory.open(create=True)
    assert directory is not None
    try:
        with monkeypatch.context() as patched:
            patched.setattr("socket.socket.bind", full)
            with pytest.raises(DirectoryError, match=r"cannot make .*: No space left on device"):
                directory.listen("work")
        assert directory.names() == []
    finally:
        directory.close()


def test_daemon_that_may_write_no_file_serves_its_client(user: Lasting) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with user.attach() as first:
        pid = daemon_pid(first)
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, hard))
        job = first.background("head -c 1000000 /dev/zero | tr '\\0' x; echo end")
    with user.attach() as second:
        params = {"bash_id": job, "wait": 60_000, "until": "exit"}
        read = second.call("bash_output", params)
        assert read["spoolError"] == "EFBIG"
        # The daemon counts the output that it could not keep.
        assert second.call("bash_output", {"bash_id": job})["stdoutRange"]["end"] == 1_000_004
        assert second.bash("echo again")["stdout"] == "again\n"


def test_daemon_without_descriptors_ends_after_its_linger(user: Lasting) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with user.attach("--linger", "0") as client:
        pid = daemon_pid(client)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (3, hard))
        # The daemon has no descriptor left with which it could accept this connection.
        user.connect().close()
    wait_for_end(pid)
    assert not user.directory.exists()


def test_unwritable_answers_are_reported(user: Lasting) -> None:
    request = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "ping"}) + "\n"
    with open("/dev/full", "w") as full:
        ended = subprocess.run(
            [*DAEMON_COMMAND, "attach"],
            input=request,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            env=user.env,
            timeout=60,
            check=False,
        )
    assert (ended.returncode, ended.stderr) == (
        STDOUT_FAILED,
        "shelld: cannot write all answers to stdout\n",
    )
    with user.attach() as second:
        assert second.call("ping") == {}


# -- suspension -------------------------------------------------------------------------------


def has_connected(pid: int) -> bool:
    """Return whether a process has a connected Unix socket."""
    links = list[str]()
    for each in Path(f"/proc/{pid}/fd").iterdir():
        # The descriptor may be closed by now.
        with suppress(FileNotFoundError):
            links.append(os.readlink(each))
    lines = map(str.split, Path("/proc/net/unix").read_text().splitlines()[1:])
    # The state 03 means connected.
    connected = {f"socket:[{line[6]}]" for line in lines if line[5] == "03"}
    return not connected.isdisjoint(links)


def test_unread_answers_are_reported(user: Lasting) -> None:
    with user.attach() as client:
        bash_id = client.bash("head -c 1000000 /dev/zero; exit 3")["bash_id"]
        for _ in range(3):
            # The answer is larger than a pipe.
            client.request("bash_output", {"bash_id": bash_id, "stdout_offset": 0})
        client.end_input()
        assert client.wait() == STDOUT_FAILED
        assert client.read_stderr() == b"shelld: cannot write all answers to stdout\n"


def test_client_that_comes_while_the_daemon_is_stopped_finds_its_shells(user: Lasting) -> None:
    with user.attach("--linger", "2") as first:
        pid = daemon_pid(first)
        job = first.background("sleep 300")
    wait_for(lambda: has_no_client(user))
    with stopped(pid), user.attach("--no-start") as second:
        request = second.request("list_shells")
        wait_for(lambda: has_connected(second.process.pid), "the connection of the second client")
        # The client waits for longer than the daemon lingers.
        with pytest.raises(subprocess.TimeoutExpired):
            second.process.wait(3)
        os.kill(pid, signal.SIGCONT)
        [shell] = second.answer(request)["result"]["shells"]
        assert (shell["bash_id"], shell["isRunning"]) == (job, True)
        assert daemon_pid(second) == pid
    wait_for_end(pid)


def test_stopped_attach_delays_no_call(user: Lasting) -> None:
    with user.attach() as client:
        client.call("ping")
        with stopped(client.process.pid):
            assert client.bash("echo on")["stdout"] == "on\n"
        assert client.bash("echo again")["stdout"] == "again\n"


def test_suspended_daemon_and_client_continue(user: Lasting) -> None:
    with user.attach() as client:
        pid = daemon_pid(client)
        job = client.background("sleep 300")
        with stopped(client.process.pid), stopped(pid):
            request = client.request("ping")
        assert client.answer(request)["result"] == {}
        assert client.call("list_shells")["shells"][0]["bash_id"] == job


# Once the file `ahead` or `behind` exists, the wall clock is ten years ahead or behind.
JUMPING_CLOCK = """
import os, time
real, jumps = time.time, {}
time.time = lambda: real() + sum(years for file, years in jumps.items() if os.path.exists(file))
jumps[{ahead!r}] = 10 * 365 * 86_400
jumps[{behind!r}] = -20 * 365 * 86_400
"""


def test_clock_jumps_end_no_daemon_and_no_shell(user: Lasting, tmp_path: Path) -> None:
    ahead, behind = tmp_path / "ahead", tmp_path / "behind"
    code = JUMPING_CLOCK.replace("{ahead!r}", repr(str(ahead)))
    code = code.replace("{behind!r}", repr(str(behind)))
    (tmp_path / "sitecustomize.py").write_text(code)
    user.env = {**user.env, "PYTHONPATH": str(tmp_path)}
    with user.attach("--linger", "60", "--", "--retain-seconds", "60") as client:
        pid = daemon_pid(client)
        running = client.background("sleep 300")
        ended = client.bash("echo kept")["bash_id"]
        year = client.call("list_shells")["shells"][0]["startedAt"][:4]
    for jump, years in ((ahead, 10), (behind, -10)):
        jump.touch()
        with user.attach() as client:
            assert daemon_pid(client) == pid
            later = client.bash("true")["bash_id"]
            shells = {each["bash_id"]: each for each in client.call("list_shells")["shells"]}
            assert {running, ended, later} <= shells.keys()
            assert abs(int(shells[later]["startedAt"][:4]) - int(year) - years) <= 1
            read = client.call("bash_output", {"bash_id": ended, "stdout_offset": 0})
            assert read["stdout"] == "kept\n"
        [info] = user.list()
        assert 0 <= info["detachedMs"] < 60_000 if info["client"] is None else True
    assert is_alive(pid)


# -- framing ----------------------------------------------------------------------------------


def framed(value: Any) -> bytes:
    body = json.dumps(value).encode()
    return b"Content-Length: %d\r\n\r\n%b" % (len(body), body)


@pytest.mark.parametrize("framing", ["lines", "Content-Length"])
def test_host_of_mcp_finds_its_shell_again(user: Lasting, framing: str) -> None:
    def exchange(client: subprocess.Popen[bytes], number: int, method: str, params: Any) -> Any:
        assert client.stdin is not None
        assert client.stdout is not None
        message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
        is_framed = framing != "lines"
        client.stdin.write(framed(message) if is_framed else json.dumps(message).encode() + b"\n")
        client.stdin.flush()
        line = client.stdout.readline()
        if is_framed:
            length = int(line.split(b":")[1])
            client.stdout.readline()
            line = client.stdout.read(length)
        return json.loads(line)["result"]

    hello: dict[str, Any] = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {}}
    arguments: dict[str, Any] = {"command": "echo $$; sleep 300", "run_in_background": True}
    found = list[str]()
    for number in range(2):
        with subprocess.Popen(
            [sys.executable, "-m", "shelld", "attach"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=user.env,
        ) as client:
            assert exchange(client, 1, "initialize", hello)["serverInfo"]["name"] == "shelld"
            if number == 0:
                call = {"name": "Bash", "arguments": arguments}
                text = exchange(client, 2, "tools/call", call)["content"][0]["text"]
                found += [word.rstrip(".") for word in text.split() if word.startswith("shell_")]
            call = {"name": "BashOutput", "arguments": {"bash_id": found[0]}}
            result = exchange(client, 3, "tools/call", call)
            assert not result.get("isError"), result
            assert "running" in result["content"][0]["text"]
            client.kill()


def test_output_of_a_tool_stays_unread_when_its_client_is_lost(user: Lasting) -> None:
    with user.attach() as client:
        command = "echo out; echo err >&2; sleep 300"
        client.request("call_tool", {"name": "Bash", "arguments": {"command": command}})
        [shell] = wait_for(lambda: client.call("list_shells")["shells"])
        read = {"bash_id": shell["bash_id"], "stdout_offset": 0, "wait": 60_000}
        assert client.call("bash_output", read)["stdout"] == "out\n"
        read = {"bash_id": shell["bash_id"], "stderr_offset": 0, "wait": 60_000}
        assert client.call("bash_output", read)["stderr"] == "err\n"
        kill_attach(client)
    with user.attach() as client:
        left = client.call("bash_output", {"bash_id": shell["bash_id"]})
        assert (left["stdout"], left["stderr"]) == ("out\n", "err\n")


def test_attach_ends_at_a_signal_that_its_parent_has_blocked(user: Lasting) -> None:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    try:
        with user.attach() as client:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            client.call("ping")
            client.process.terminate()
            assert client.wait() == 0
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
