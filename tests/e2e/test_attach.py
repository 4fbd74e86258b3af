"""`shelld attach` connects to a daemon that outlives its client."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from event_reader import next_event
from lasting import Lasting, daemon_pid, kill_attach, lasting_user, wait_for_end
from shelld import __version__
from shelld.lasting.handshake import HANDSHAKE, Hello, send
from shelld.targets.subscribers import MAX_LOST
from shelld_protocol.about import PROTOCOL
from support import (
    DAEMON_COMMAND,
    Gate,
    Json,
    RawDaemon,
    is_alive,
    raw_daemon,
    running_below,
    wait_for,
)

pytestmark = pytest.mark.slow


@pytest.fixture
def user(tmp_path: Path) -> Generator[Lasting]:
    with lasting_user(tmp_path) as user:
        yield user


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Generator[Lasting]:
    """A user with a daemon that several tests share. No test changes the daemon in a way that
    affects later tests.
    """
    with lasting_user(tmp_path_factory.mktemp("runtime")) as user:
        with user.attach() as client:
            assert client.call("ping") == {}
        yield user


def exits_of(client: RawDaemon, bash_id: str) -> list[Any]:
    """Return the sequence numbers of a shell's `exited` events that have arrived."""
    client.call("ping")
    return [
        event["params"]["seq"]
        for event in client.unclaimed
        if event.get("method") == "shell/exited" and event["params"]["bash_id"] == bash_id
    ]


# -- what outlives a client -------------------------------------------------------------------


@pytest.mark.parametrize("loss", ["end of file", "SIGKILL", "SIGTERM"])
def test_next_client_finds_shells_output_and_events(
    shared: Lasting, tmp_path: Path, loss: str
) -> None:
    gate = Gate(tmp_path / "gate")
    with shared.attach() as first:
        pid = daemon_pid(first)
        server = first.background("echo out; sleep 300")
        session = f"session {loss}"
        first.bash("cd /usr; export KEPT=1", session=session)
        follow = first.call("subscribe", {"events": ["exit"]})["subscription"]
        command: dict[str, Any] = {
            "command": f"{gate.wait}; echo end",
            "session": None,
            "timeout": 600_000,
        }
        call = first.request("bash", {**command, "idempotency_key": loss})
        first.request("bash_output", {"bash_id": server, "until": "exit", "wait": 600_000})
        wait_for(lambda: any(s.get("inForeground") for s in first.call("list_shells")["shells"]))
        if loss == "end of file":
            first.end_input()
            answers = {answer.get("id"): answer for answer in first.answers_to_the_end()}
            assert answers[call]["result"]["status"] == "running"
            assert answers[call + 1]["error"]["code"] == -32800
            assert first.wait() == 0
        elif loss == "SIGTERM":
            first.process.send_signal(signal.SIGTERM)
            assert first.wait() == 0
        else:
            kill_attach(first)
    with shared.attach() as second:
        info = second.call("server_info")
        assert info["pid"] == pid
        assert info["attachment"]["name"] == "main"
        assert info["attachment"]["generation"] > 1
        assert info["attachment"]["lingerS"] == 3_600
        assert second.bash("echo $PWD $KEPT", session=session)["stdout"] == "/usr 1\n"
        read = second.call("bash_output", {"bash_id": server, "stdout_offset": 0})
        assert (read["stdout"], read["isRunning"]) == ("out\n", True)
        gate.open()
        again = second.bash(**command, idempotency_key=loss)
        assert (again["stdout"], again["status"]) == ("end\n", "completed")
        continued = {"subscription": follow, "from_seq": 0}
        assert second.call("subscribe", continued)["subscription"] == follow
        wait_for(lambda: exits_of(second, again["bash_id"]))
        assert len(exits_of(second, again["bash_id"])) == 1
        second.call("kill_shell", {"shell_id": server, "grace": 0})


def test_client_that_ends_its_side_of_a_socket_gets_its_answers(shared: Lasting) -> None:
    ours, theirs = socket.socketpair()
    with ours:
        with theirs:
            command = [*DAEMON_COMMAND, "attach"]
            attach = subprocess.Popen(
                command, stdin=theirs.fileno(), stdout=theirs.fileno(), env=shared.env
            )
        params = {"command": "sleep 0.1; echo end", "session": None}
        request = {"jsonrpc": "2.0", "id": 1, "method": "bash", "params": params}
        ours.sendall(json.dumps(request).encode() + b"\n")
        ours.shutdown(socket.SHUT_WR)
        with ours.makefile("rb") as answers:
            assert json.loads(answers.read())["result"]["stdout"] == "end\n"
    assert attach.wait(60) == 0


def test_command_can_end_with_its_client(shared: Lasting) -> None:
    with shared.attach() as first:
        first.request("bash", {"command": "sleep 300", "on_disconnect": "kill"})
        wait_for(lambda: [s for s in first.call("list_shells")["shells"] if s["pid"]])
        shell = first.call("list_shells")["shells"][-1]
        kill_attach(first)
    with shared.attach() as second:
        wait = {"bash_id": shell["bash_id"], "until": "exit", "wait": 60_000}
        assert second.call("bash_output", wait)["status"] == "killed"
        assert not is_alive(shell["pid"])


def test_repeated_request_of_a_lost_client_is_answered_as_running(shared: Lasting) -> None:
    params = {"command": "sleep 319", "idempotency_key": "repeated when lost"}
    with shared.attach() as first:
        first.request("bash", params)
        wait_for(lambda: any(s.get("inForeground") for s in first.call("list_shells")["shells"]))
        kill_attach(first)
    with shared.attach() as second:
        call = second.request("bash", params)
        second.end_input()
        answers = {answer.get("id"): answer for answer in second.answers_to_the_end()}
        assert answers[call]["result"]["status"] == "running"
    with shared.attach() as third:
        third.call("kill_shell", {"shell_id": answers[call]["result"]["bash_id"], "grace": 0})


def test_first_call_decides_whether_a_command_ends_with_its_client(shared: Lasting) -> None:
    # The daemon ends the requests of a lost client in any order.
    commands = [f"sleep {number}" for number in range(310, 318)]

    def shells_of(client: RawDaemon) -> list[Json]:
        shells = client.call("list_shells")["shells"]
        return [each for each in shells if each["command"] in commands and each["pid"]]

    with shared.attach() as first:
        for command in commands:
            params = {"command": command, "idempotency_key": command}
            first.request_together(("bash", params), ("bash", {**params, "on_disconnect": "kill"}))
        wait_for(lambda: len(shells_of(first)) == len(commands))
        kill_attach(first)
    with shared.attach() as second:
        # The requests of the first client are over by now.
        shells = shells_of(second)
        assert {(each["status"], each.get("inForeground")) for each in shells} == {
            ("running", None)
        }
        for shell in shells:
            second.call("kill_shell", {"shell_id": shell["bash_id"]})


@pytest.mark.parametrize("key", [None, "build"])
def test_queued_command_that_ends_with_its_client_does_not_start_after_its_loss(
    user: Lasting, key: str | None
) -> None:
    options = {"on_disconnect": "kill", "idempotency_key": key}
    with user.attach("--", "--max-in-flight", "1") as first:
        pid = daemon_pid(first)
        first.request_together(
            ("bash", {"command": "sleep 301", "on_disconnect": "kill"}),
            ("bash", {"command": "sleep 302", **options}),
        )
        wait_for(lambda: user.list()[0]["shellsRunning"] == 1)
        kill_attach(first)
    with user.attach() as second:
        assert daemon_pid(second) == pid
        [shell] = second.call("list_shells")["shells"]
        assert shell["command"] == "sleep 301"
        wait = {"bash_id": shell["bash_id"], "until": "exit", "wait": 60_000}
        assert second.call("bash_output", wait)["status"] == "killed"
        if key is not None:
            # The key is free.
            params = {"command": "echo again", "idempotency_key": key}
            assert second.call("bash", params)["stdout"] == "again\n"


@pytest.mark.parametrize(("on_disconnect", "status"), [(None, "running"), ("kill", "killed")])
def test_command_at_a_target_outlives_its_client(
    user: Lasting, on_disconnect: str | None, status: str
) -> None:
    target = {"name": "box", "argv": [*DAEMON_COMMAND, "--stdio"]}
    with user.attach() as first:
        first.call("add_target", target)
        params = {"command": "sleep 300", "target": "box", "on_disconnect": on_disconnect}
        first.request("bash", params)
        where = {"target": "box"}
        wait_for(lambda: [s for s in first.call("list_shells", where)["shells"] if s["pid"]])
        kill_attach(first)
    with user.attach() as second:

        def state() -> tuple[str, bool | None]:
            [shell] = second.call("list_shells", where)["shells"]
            return shell["status"], shell.get("inForeground")

        wait_for(lambda: state() == (status, None))


def test_few_subscriptions_of_lost_clients_are_kept_at_a_target(user: Lasting) -> None:
    begin = {"events": ["exit"], "target": "box"}
    with user.attach() as client:
        client.call("add_target", {"name": "box", "argv": [*DAEMON_COMMAND, "--stdio"]})
        first, second, third, *_ = [
            client.call("subscribe", begin)["subscription"] for _ in range(MAX_LOST + 2)
        ]
        kill_attach(client)
    with user.attach() as client:
        client.call("subscribe", {"subscription": first, "target": "box"})
        client.call("subscribe", begin)
        client.call("subscribe", {"subscription": first, "target": "box"})
        unknown = client.fail("subscribe", {"subscription": second, "target": "box"})
        assert unknown["data"]["parameter"] == "subscription"
        client.call("subscribe", {"subscription": third, "target": "box"})


def test_configured_session_at_a_lasting_target_outlives_a_cut(user: Lasting) -> None:
    with user.attach("--name", "far") as client:
        client.call("ping")
    attach = ["env", f"XDG_RUNTIME_DIR={user.runtime}", *DAEMON_COMMAND, "attach", "--name", "far"]
    with raw_daemon() as daemon:
        daemon.call("add_target", {"name": "box", "argv": attach})
        limits = {"open_files": 44}
        daemon.call("configure_session", {"session": "s", "limits": limits, "target": "box"})
        daemon.bash("x=1", session="s")
        for _ in range(2):
            os.kill(running_below(daemon.pid, "attach\0--name")[0], signal.SIGKILL)
            wait_for(lambda: daemon.call("list_targets")["targets"][0]["state"] == "lost")
            assert daemon.bash("echo $x $(ulimit -n)", session="s")["stdout"] == "1 44\n"


def test_command_that_starts_at_a_target_after_its_client_is_lost_goes_on(user: Lasting) -> None:
    target = {"name": "box", "argv": [*DAEMON_COMMAND, "--stdio"]}
    with user.attach("--", "--max-in-flight", "1") as first:
        first.call("add_target", target)
        first.bash("true", target="box")
        first.request_together(
            ("bash", {"command": "sleep 301", "on_disconnect": "kill"}),
            ("bash", {"command": "sleep 302", "target": "box"}),
        )
        wait_for(lambda: user.list()[0]["shellsRunning"] == 1)
        kill_attach(first)
    with user.attach() as second:

        def state() -> tuple[str, bool | None] | None:
            shells = second.call("list_shells", {"target": "box"})["shells"]
            found = [each for each in shells if each["command"] == "sleep 302"]
            return (found[0]["status"], found[0].get("inForeground")) if found else None

        wait_for(lambda: state() == ("running", None))


def test_queued_command_at_a_target_does_not_start_after_its_client_is_lost(user: Lasting) -> None:
    target = {"name": "box", "argv": [*DAEMON_COMMAND, "--stdio"]}
    with user.attach("--", "--max-in-flight", "1") as first:
        first.call("add_target", target)
        first.bash("true", target="box")
        first.request_together(
            ("bash", {"command": "sleep 301", "on_disconnect": "kill"}),
            ("bash", {"command": "sleep 302", "target": "box", "on_disconnect": "kill"}),
        )
        wait_for(lambda: user.list()[0]["shellsRunning"] == 1)
        kill_attach(first)
    with user.attach() as second:
        [shell] = second.call("list_shells", {"target": "box"})["shells"]
        assert shell["command"] == "true"


def test_events_wait_for_the_next_client(shared: Lasting, tmp_path: Path) -> None:
    gate = Gate(tmp_path / "gate")
    with shared.attach() as first:
        job = first.background(f"echo one; {gate.wait}; echo two")
        name = first.call("subscribe", {"bash_id": job, "events": ["output", "exit"]})
        assert next_event(first)["text"] == "one\n"
        kill_attach(first)
    gate.open()
    with shared.attach() as second:
        second.call("bash_output", {"bash_id": job, "until": "exit", "wait": 60_000})
        second.call("subscribe", {"subscription": name["subscription"], "from_seq": 0})
        events = [second.receive()["params"] for _ in range(3)]
        assert [event["seq"] for event in events] == [1, 2, 3]
        assert [event.get("text") for event in events] == ["one\n", "two\n", None]
        assert [(e["start"], e["end"]) for e in events[:2]] == [(0, 4), (4, 8)]


def test_next_client_gets_events_of_a_target_only_if_it_continues_them(user: Lasting) -> None:
    target = {"name": "box", "argv": [*DAEMON_COMMAND, "--stdio"]}
    follow = {"target": "box", "events": ["exit"]}
    with user.attach() as first:
        first.call("add_target", target)
        names = [first.call("subscribe", follow)["subscription"] for _ in range(2)]
        kill_attach(first)
    with user.attach() as second:
        # The second client uses the same request ids again, so an event for an earlier request
        # could reach the wrong reader.
        job = second.bash("true", target="box", session=None, notify=["exit"])
        second.call("list_shells", {"target": "box"})
        assert second.receive()["params"]["subscription"] == job["subscription"]
        request = second.request("subscribe", {"subscription": names[0], "from_seq": 0})
        assert second.receive()["id"] == request
        second.bash("true", target="box", session=None)
        for seq in (1, 2):
            event = second.receive()["params"]
            assert (event["subscription"], event["seq"]) == (names[0], seq)
            assert event["requestId"] == request
        second.call("remove_target", {"name": "box"})
        lost = second.receive()
        assert (lost["method"], lost["params"]["subscription"]) == ("shell/lost", names[0])
        second.call("ping")
        assert second.unclaimed == []


def test_framing_and_protocol_may_change_with_the_client(shared: Lasting) -> None:
    with shared.attach() as lines:
        assert lines.call("ping") == {}
    with shared.attach() as framed:
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "ping"})
        framed.send_raw(f"Content-Length: {len(body)}\r\n\r\n{body}".encode())
        assert framed.read_bytes().startswith(b"Content-Length: ")
    with shared.attach() as host:
        params: dict[str, Any] = {
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {},
        }
        assert host.call("initialize", params)["protocolVersion"] == "2025-11-25"
        arguments = {"name": "Bash", "arguments": {"command": "echo tool"}}
        assert host.call("tools/call", arguments)["content"][0]["text"] == "tool\n"
        with shared.attach("--steal") as thief:
            assert thief.call("ping") == {}
            # An MCP host gets only notifications that MCP defines.
            assert host.rest() == b""
            assert host.wait() == 4


def test_plain_daemon_has_no_attachment(daemon: RawDaemon) -> None:
    assert "attachment" not in daemon.call("server_info")


# -- one client at a time ---------------------------------------------------------------------


def test_second_client_is_refused_unless_it_steals(shared: Lasting) -> None:
    with shared.attach() as first:
        assert first.call("server_info")
        code, errors = shared.attach_in_vain()
        sentence = "another client is attached to main; --steal takes its place"
        assert (code, errors) == (4, f"shelld: {sentence}\n")
        assert first.call("ping") == {}
        call = first.request("bash", {"command": "sleep 300"})
        wait_for(lambda: any(s.get("inForeground") for s in first.call("list_shells")["shells"]))
        with shared.attach("--steal") as thief:
            [shell] = [s for s in thief.call("list_shells")["shells"] if s["isRunning"]]
            assert not shell.get("inForeground")
            messages = list(first.answers_to_the_end())
            assert messages[0] == {"jsonrpc": "2.0", "method": "shell/detached", "params": {}}
            assert [each["id"] for each in messages[1:]] == [call]
            assert first.wait() == 4
            assert b"another client has taken the daemon main" in first.read_stderr()
            thief.call("kill_shell", {"shell_id": shell["bash_id"], "grace": 0})


def test_next_client_joins_although_a_fork_holds_the_streams(shared: Lasting) -> None:
    with shared.attach() as first:
        assert first.call("ping") == {}
        assert first.process.stdin is not None
        assert first.process.stdout is not None
        held = (first.process.stdin, first.process.stdout)
        with subprocess.Popen(["sleep", "300"], pass_fds=[each.fileno() for each in held]) as fork:
            try:
                kill_attach(first)
                with shared.attach() as second:
                    assert second.call("ping") == {}
            finally:
                fork.kill()


def test_attach_killed_before_joining_keeps_nobody_out(shared: Lasting) -> None:
    with shared.attach() as first:
        pid = daemon_pid(first)
    wait_for(lambda: shared.list()[0]["client"] is None)
    os.kill(pid, signal.SIGSTOP)
    hello = Hello(handshake=HANDSHAKE, protocol=PROTOCOL, wants="attach")
    (reader, writer), connection = os.pipe(), socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with connection:
        connection.connect(str(shared.socket_of()))
        send(connection, hello, (reader, writer))
    os.kill(pid, signal.SIGCONT)
    # The connection is closed, as if the process that wanted to attach had been killed. The test
    # still holds this process's streams open.
    with shared.attach() as second:
        assert daemon_pid(second) == pid
    os.close(reader)
    os.close(writer)


def test_client_keeps_its_daemon_if_a_thief_dies_before_joining(shared: Lasting) -> None:
    with shared.attach() as first:
        pid = daemon_pid(first)
        os.kill(pid, signal.SIGSTOP)
        thief = Hello(handshake=HANDSHAKE, protocol=PROTOCOL, wants="attach", steal=True)
        with shared.connect() as connection:
            reader, writer = os.pipe()
            send(connection, thief, (reader, writer))
        os.kill(pid, signal.SIGCONT)
        # When the daemon answers the second connection, it has already handled the first
        # connection.
        exit_code, _ = shared.attach_in_vain()
        assert exit_code == 4
        assert first.call("ping") == {}
    os.close(reader)
    os.close(writer)


def test_attach_ends_when_its_watched_process_ends(shared: Lasting) -> None:
    with (
        subprocess.Popen(["sleep", "300"]) as parent,
        shared.attach("--stdio", f"--clientProcessId={parent.pid}") as client,
    ):
        assert client.call("ping") == {}
        parent.kill()
        assert client.wait() == 0


def test_simultaneous_starters_get_one_daemon(user: Lasting) -> None:
    clients = [RawDaemon("attach", env=user.env) for _ in range(4)]
    try:
        for client in clients:
            client.request("server_info")
        wait_for(lambda: sum(client.process.poll() is not None for client in clients) == 3)
        codes = [client.process.poll() for client in clients]
        assert sorted(code for code in codes if code is not None) == [4, 4, 4]
        [info] = user.list()
        assert info["client"] == clients[codes.index(None)].pid
    finally:
        for client in clients:
            client.close()


def test_client_that_closes_its_stream_is_answered_although_others_wait(user: Lasting) -> None:
    clients = [RawDaemon("attach", env=user.env) for _ in range(4)]
    try:
        for client in clients:
            client.request("bash", {"command": "echo out", "session": None})
            client.end_input()
        for client in clients:
            [answer] = client.answers_to_the_end()
            assert answer["result"]["stdout"] == "out\n"
            assert client.wait() == 0
    finally:
        for client in clients:
            client.close()


def test_slow_start_of_one_daemon_delays_no_other(user: Lasting, tmp_path: Path) -> None:
    gate, begun = tmp_path / "gate", tmp_path / "begun"
    (tmp_path / "sitecustomize.py").write_text(
        "import os, pathlib, sys, time\n"
        "if 'lasting' in sys.orig_argv:\n"
        f"    pathlib.Path({str(begun)!r}).touch()\n"
        f"    while not os.path.exists({str(gate)!r}):\n"
        "        time.sleep(0.01)\n"
    )
    slow = RawDaemon("attach", "--linger", "0", env={**user.env, "PYTHONPATH": str(tmp_path)})
    try:
        wait_for(begun.exists)
        with user.attach("--name", "other", "--linger", "0") as other:
            assert other.call("ping") == {}
        assert slow.process.poll() is None
        gate.touch()
        assert slow.call("ping") == {}
    finally:
        gate.touch()
        slow.close()


def test_attach_works_with_high_descriptor_numbers(user: Lasting) -> None:
    with_many_files = (
        "import os, resource, sys\n"
        "hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (2_048, hard))\n"
        "for _ in range(1_100):\n"
        "    os.set_inheritable(os.open(os.devnull, os.O_RDONLY), True)\n"
        "os.execv(sys.argv[1], sys.argv[1:])"
    )
    command = [*DAEMON_COMMAND, "attach", "--linger", "0"]
    ended = subprocess.run(
        [sys.executable, "-c", with_many_files, *command],
        input=b"",
        capture_output=True,
        env=user.env,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (0, b"")


def test_list_skips_sockets_with_invalid_names(user: Lasting) -> None:
    user.directory.mkdir(mode=0o700)
    with contextlib.ExitStack() as stack:
        for name in (b"a\nb", b"\x1b[31m", b".hidden", b"\xff", b""):
            listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            stack.enter_context(listener)
            listener.bind(bytes(user.directory) + b"/" + name + b".sock")
            listener.listen()
        ended = user.run("list")
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "No daemon is running.\n", "")


def test_names_are_shown_in_every_encoding(user: Lasting) -> None:
    with user.attach("--name", "é") as client:
        client.call("ping")
        (found,) = user.list()
        user.env = {**user.env, "PYTHONIOENCODING": "ascii"}
        assert user.list()[0]["name"] == found["name"] == "é"
        assert user.run("list").stdout.splitlines()[1].startswith("\\xe9  ")
        watcher = subprocess.Popen(
            [*DAEMON_COMMAND, "watch", "é"], env=user.env, stdout=subprocess.PIPE, text=True
        )
        with watcher:
            assert watcher.stdout is not None
            assert watcher.stdout.readline().startswith("\\xe9: pid ")
            watcher.terminate()


# -- ends -------------------------------------------------------------------------------------


def test_daemon_leaves_nothing_after_its_linger(user: Lasting) -> None:
    with user.attach("--linger", "0") as client:
        pid = daemon_pid(client)
        shell = client.call("bash", {"command": "sleep 300", "run_in_background": True})
        assert stat.S_IMODE(user.directory.stat().st_mode) == 0o700
        assert stat.S_IMODE(user.socket_of().stat().st_mode) == 0o600
    wait_for_end(pid)
    assert not is_alive(shell["pid"])
    assert list(user.runtime.iterdir()) == []


def test_stop_ends_a_daemon_with_its_client(user: Lasting) -> None:
    with user.attach("--name", "work one") as client:
        pid = daemon_pid(client)
        shell = client.call("bash", {"command": "sleep 300", "run_in_background": True})
        table = user.run("list").stdout.splitlines()
        assert table[0].split() == [
            "NAME",
            "PID",
            "CLIENT",
            "RUNNING",
            "ENDED",
            "AGE",
            "ENDS",
            "IN",
        ]
        assert table[1].startswith(f"work one  {pid}")
        assert user.run("stop", "work one").returncode == 0
        assert not is_alive(shell["pid"])
        assert client.rest() == b""
        assert client.wait() == 0
    assert user.run("list").stdout == "No daemon is running.\n"
    ended = user.run("stop", "work one")
    assert (ended.returncode, ended.stderr) == (1, "shelld: there is no daemon work one\n")


def test_client_can_end_the_daemon(user: Lasting) -> None:
    with user.attach() as client:
        pid = daemon_pid(client)
        client.call("shutdown")
        client.notify("exit", None)
        assert client.wait() == 0
    wait_for_end(pid)
    assert list(user.runtime.iterdir()) == []


def test_death_of_the_daemon_is_reported(user: Lasting) -> None:
    with user.attach() as first:
        pid = daemon_pid(first)
        shell = first.call("bash", {"command": "sleep 300", "run_in_background": True})
        os.kill(pid, signal.SIGKILL)
        assert first.wait() == 6
        assert b"the daemon main has died" in first.read_stderr()
        wait_for(lambda: not is_alive(shell["pid"]))
    assert user.list() == []
    with user.attach() as second:
        assert daemon_pid(second) != pid
        wait_for(lambda: b"the earlier daemon main was killed" in second.read_stderr())


# -- bad input --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a/b", "", "x" * 65, "é" * 41, ".hidden", "line\nend"])
def test_bad_name_is_refused(user: Lasting, name: str) -> None:
    code, errors = user.attach_in_vain("--name", name)
    assert code == 2
    assert "a name has" in errors
    assert list(user.runtime.iterdir()) == []


def test_longest_name_and_a_long_directory_work(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 100)
    deep.mkdir()
    with lasting_user(deep) as user, user.attach("--name", "é" * 16 + "x" * 48) as client:
        assert client.call("server_info")["attachment"]["name"] == "é" * 16 + "x" * 48


@pytest.mark.parametrize("kind", ["file", "symlink", "directory"])
def test_foreign_file_in_place_of_the_socket_stays(user: Lasting, kind: str) -> None:
    user.directory.mkdir(mode=0o700)
    path = user.socket_of()
    target = user.runtime / "target"
    if kind == "file":
        path.write_text("precious")
    elif kind == "symlink":
        path.symlink_to(target)
    else:
        path.mkdir()
    code, errors = user.attach_in_vain()
    assert (code, errors) == (2, f"shelld: cannot use {path}: it is not a socket of yours\n")
    assert not target.exists()
    assert path.is_symlink() or path.is_dir() or path.read_text() == "precious"


@pytest.mark.parametrize("limit", [5, 6])
def test_attach_without_descriptors_leaves_no_socket(user: Lasting, limit: int) -> None:
    line = f'ulimit -n {limit}; exec "$@"'
    ended = subprocess.run(
        ["/bin/bash", "-c", line, "bash", *DAEMON_COMMAND, "attach"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env=user.env,
        timeout=60,
        check=False,
    )
    sentence = "shelld: cannot start the daemon main: Too many open files\n"
    assert (ended.returncode, ended.stderr) == (2, sentence)
    assert not user.directory.exists()


@pytest.mark.parametrize("kind", ["symlink", "open to others", "closed to its owner", "file"])
def test_bad_directory_is_refused(user: Lasting, kind: str) -> None:
    if kind == "symlink":
        (user.runtime / "elsewhere").mkdir(mode=0o700)
        user.directory.symlink_to("elsewhere")
    elif kind == "file":
        user.directory.write_text("")
    else:
        user.directory.mkdir(mode=0o755 if kind == "open to others" else 0o600)
    code, errors = user.attach_in_vain()
    assert code == 2
    assert errors.startswith(f"shelld: cannot use {user.directory}: it ")
    assert list((user.runtime / "shelld").parent.glob("*/*.sock")) == []


def test_user_without_a_runtime_directory_has_one_in_tmp(user: Lasting) -> None:
    env = {name: value for name, value in user.env.items() if name != "XDG_RUNTIME_DIR"}
    name = f"test-{os.getpid()}"
    client = RawDaemon("attach", "--name", name, "--linger", "0", env=env)
    try:
        pid = daemon_pid(client)
        assert Path(f"/tmp/shelld-{os.getuid()}/{name}.sock").is_socket()
    finally:
        client.close()
    wait_for_end(pid)


def test_bad_options_of_the_daemon_are_refused(user: Lasting) -> None:
    code, errors = user.attach_in_vain("--", "--grace", "never")
    assert code == 2
    assert "--grace" in errors
    code, errors = user.attach_in_vain("--", "--parent-pid", "1")
    assert code == 2
    assert "put --parent-pid before --" in errors
    assert list(user.runtime.iterdir()) == []
    code, errors = user.attach_in_vain("--", "--bash", "/nowhere")
    assert code == 2
    assert errors == (
        "shelld: cannot run commands with /nowhere: No such file or directory\n"
        "shelld: the daemon main could not start\n"
    )
    assert list(user.runtime.iterdir()) == []


def test_options_reach_the_daemon_that_they_start(user: Lasting) -> None:
    with user.attach("--", "--max-shells", "7") as first:
        assert first.call("server_info")["limits"]["maxShells"] == 7
    with user.attach("--linger", "60", "--", "--max-shells", "8") as second:
        info = second.call("server_info")
        assert (info["limits"]["maxShells"], info["attachment"]["lingerS"]) == (7, 60)
        wait_for(lambda: b"so the given options have no effect" in second.read_stderr())


@pytest.mark.parametrize(
    ("command", "exit_code"), [(["attach"], 5), (["stop", "main"], 1), (["list"], 0)]
)
def test_error_names_the_version_of_another_daemon(
    user: Lasting, command: list[str], exit_code: int
) -> None:
    user.directory.mkdir(mode=0o700)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(user.socket_of()))
        listener.listen()
        client = RawDaemon(*command, env=user.env)
        try:
            connection, _ = listener.accept()
            with connection:
                connection.recv(4096)
                connection.send(b'{"handshake": 99, "protocol": 7, "version": "9.9", "new": []}')
            assert client.wait() == exit_code
            errors = client.read_stderr().decode()
        finally:
            client.close()
    user.socket_of().unlink()
    assert "shelld 9.9 (protocol 7)" in errors
    assert f"this is shelld {__version__} (protocol 1)" in errors


def test_commands_do_not_see_the_locale_that_python_has_set(user: Lasting) -> None:
    user.env = {"XDG_RUNTIME_DIR": user.env["XDG_RUNTIME_DIR"]}
    with user.attach() as client:
        assert client.bash("echo ${LC_CTYPE-none}")["stdout"] == "none\n"
