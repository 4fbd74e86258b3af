"""How the daemon ends: its exit codes and its last answers. It leaves nothing behind."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import select
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from shelld import __version__, app
from shelld.app import STDIN_FAILED, STDOUT_FAILED
from shelld.server.attached_client import DRAIN_S, FLUSH_S
from support import (
    DAEMON_COMMAND,
    PATIENT_DAEMON,
    Gate,
    RawDaemon,
    altered_daemon,
    children,
    descendants,
    is_alive,
    raw_daemon,
    wait_for,
)

STUBBORN = "trap '' TERM HUP INT; echo set; while :; do sleep 0.05; done"


def start_stubborn_family(daemon: RawDaemon) -> list[int]:
    """Start processes that hide, and processes that ignore SIGTERM. Return the pids of the daemon's
    descendants.
    """
    bash_id = daemon.background(STUBBORN)
    daemon.call("bash_output", {"bash_id": bash_id, "wait": 60_000})
    daemon.bash("(setsid sleep 300 &) ; nohup sleep 300 >/dev/null 2>&1 & disown")
    daemon.background("env -i setsid sleep 300 & sleep 300")
    return descendants(daemon.pid)


def assert_all_gone(pids: list[int]) -> None:
    wait_for(lambda: not any(map(is_alive, pids)), "the end of everything the daemon started")


def test_stop_stages_fit_promised_time() -> None:
    assert app.STOP_GRACE_MS / 1000 < app.STOP_KILL_S
    assert app.STOP_S < 2
    for shells, promised_s in ((1, 2), (1_000, 5)):
        kill_s = app.STOP_KILL_S + shells * app.STOP_KILL_PER_SHELL_S
        assert DRAIN_S + kill_s + FLUSH_S < promised_s


# In this daemon, asyncio can never describe a callback or a task, as if memory were short at these
# moments. One callback fails.
_SHORT_OF_MEMORY = """
import asyncio, sys
from asyncio import format_helpers
from shelld import app
from shelld.__main__ import main

def fail(*arguments):
    raise MemoryError

def with_failure(watch):
    async def watched(*arguments):
        asyncio.get_running_loop().call_soon(fail)
        await watch(*arguments)
    return watched

format_helpers._format_callback_source = fail
app._watch_output = with_failure(app._watch_output)
sys.exit(main())
"""


@pytest.mark.slow
def test_shortage_in_the_event_loop_ends_neither_the_daemon_nor_its_stop() -> None:
    with raw_daemon(command=[sys.executable, "-W", "error", "-c", _SHORT_OF_MEMORY]) as daemon:
        assert daemon.bash("echo here")["stdout"] == "here\n"
        daemon.background("sleep 300")
        family = descendants(daemon.pid)
        daemon.end_input()
        assert daemon.wait() == 0
        assert_all_gone(family)


@pytest.mark.slow
def test_end_of_input_ends_everything_before_the_daemon() -> None:
    with raw_daemon(command=PATIENT_DAEMON) as daemon:
        family = start_stubborn_family(daemon)
        daemon.end_input()
        assert daemon.wait() == 0
        # The keeper and the runners ended before the daemon.
        assert not [pid for pid in family if is_alive(pid)]


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_everything(number: signal.Signals) -> None:
    with raw_daemon() as daemon:
        family = start_stubborn_family(daemon)
        daemon.process.send_signal(number)
        assert daemon.wait() == 0
    assert_all_gone(family)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_signal_during_start_ends_daemon_quietly(number: signal.Signals) -> None:
    with raw_daemon() as daemon:
        # The daemon starts the keeper first.
        wait_for(lambda: children(daemon.pid), "the keeper")
        family = children(daemon.pid)
        daemon.process.send_signal(number)
        assert daemon.wait() == 0
    assert_all_gone(family)


@pytest.mark.slow
def test_second_signal_skips_the_grace() -> None:
    # Without the second signal, neither the request nor the command would end during the test.
    endless = altered_daemon(
        {
            "shelld.app.DRAIN_S": 600,
            "shelld.app.STOP_KILL_S": 600,
            "shelld.app.STOP_GRACE_MS": 600_000,
        }
    )
    with raw_daemon(command=endless) as daemon:
        daemon.request("bash", {"command": STUBBORN}, "running")
        wait_for(lambda: daemon.call("list_shells")["shells"], "the shell")
        wait_for(lambda: daemon.call("list_shells")["shells"][0]["pid"], "the command")
        daemon.process.send_signal(signal.SIGTERM)
        daemon.process.send_signal(signal.SIGINT)
        assert daemon.answer("running")["error"]["code"] == 1006
        assert daemon.wait() == 0


def test_sigkill_of_the_daemon_leaves_nothing() -> None:
    daemon = RawDaemon()
    try:
        family = start_stubborn_family(daemon)
        daemon.process.kill()
        daemon.wait()
    finally:
        daemon.close()
    assert_all_gone(family)


@pytest.mark.slow
def test_requests_at_end_of_input_get_results(tmp_path: Path) -> None:
    gate, log = Gate(tmp_path / "gate"), tmp_path / "log"
    log.touch()
    logging = ("--log-level", "info", "--log-file", str(log))
    with raw_daemon(*logging, command=PATIENT_DAEMON) as daemon:
        daemon.request("bash", {"command": f"{gate.wait}; echo made it"}, 1)
        daemon.request("ping", request_id=2)
        daemon.end_input()
        wait_for(lambda: "stopping" in log.read_text(), "the end of input to be noticed")
        gate.open()
        assert daemon.answer(1)["result"]["stdout"] == "made it\n"
        assert daemon.answer(2)["result"] == {}
        assert daemon.wait() == 0


@pytest.mark.slow
def test_long_last_answer_reaches_slow_reader() -> None:
    with raw_daemon(command=PATIENT_DAEMON) as daemon:
        daemon.request("bash", {"command": "seq 100000"}, 1)
        daemon.end_input()
        assert daemon.process.stdout is not None
        answer = b""
        while piece := os.read(daemon.process.stdout.fileno(), 4096):
            answer += piece
            select.select([], [], [], 0.001)
        assert len(json.loads(answer)["result"]["stdout"]) == 588_895
        assert daemon.wait() == 0


@pytest.mark.slow
@pytest.mark.parametrize("end", ["input", "signal"])
def test_requests_that_do_not_end_are_refused(end: str) -> None:
    with raw_daemon() as daemon:
        waiting = daemon.background("sleep 300")
        daemon.request("bash", {"command": STUBBORN, "notify": ["leftover"]}, 1)
        daemon.request("bash_output", {"bash_id": waiting, "wait": 600_000}, 2)
        daemon.send(
            [
                {"jsonrpc": "2.0", "id": 3, "method": "bash", "params": {"command": "sleep 300"}},
                {"jsonrpc": "2.0", "id": 4, "method": "ping"},
            ]
        )
        daemon.call("ping")
        if end == "input":
            daemon.end_input()
        else:
            daemon.process.send_signal(signal.SIGTERM)
        for request_id in (1, 2):
            error = daemon.answer(request_id)["error"]
            assert (error["code"], error["data"]["kind"]) == (1006, "shutting_down")
            # Only request 1 has started a shell and a subscription.
            assert ("bash_id" in error["data"]) == (request_id == 1)
            assert ("subscription" in error["data"]) == (request_id == 1)
        batch = daemon.receive()
        assert [answer["id"] for answer in batch] == [3, 4]
        assert batch[0]["error"]["code"] == 1006
        assert daemon.wait() == 0


@pytest.mark.slow
def test_a_last_line_without_its_end_is_processed() -> None:
    with raw_daemon(command=PATIENT_DAEMON) as daemon:
        daemon.send_raw(b'{"jsonrpc":"2.0","id":1,"method":"bash","params":{"command":"echo x"}}')
        daemon.end_input()
        assert daemon.answer(1)["result"]["stdout"] == "x\n"


def test_an_unfinished_body_is_not_processed(tmp_path: Path) -> None:
    with raw_daemon() as daemon:
        body = b'{"jsonrpc":"2.0","id":1,"method":"bash","params":{"command":"touch x"}}'
        daemon.send_raw(b"Content-Length: %d\r\n\r\n%b" % (len(body) + 1, body))
        daemon.end_input()
        assert daemon.rest() == b""
        assert daemon.wait() == 0


@pytest.mark.slow
def test_shutdown_then_exit_is_zero() -> None:
    with raw_daemon() as daemon:
        daemon.request("bash", {"command": "sleep 0.3; echo kept"}, "before")
        assert daemon.call("shutdown") is None
        assert daemon.fail("ping")["code"] == 1006
        assert daemon.answer("before")["result"]["stdout"] == "kept\n"
        daemon.notify("exit", None)
        assert daemon.wait() == 0


SHUTDOWN = {"jsonrpc": "2.0", "id": "shutdown", "method": "shutdown"}
TOO_LATE = {"jsonrpc": "2.0", "id": "late", "method": "bash", "params": {"command": "true"}}
EXIT = {"jsonrpc": "2.0", "method": "exit"}


def send_at_once(daemon: RawDaemon, *messages: object) -> None:
    daemon.send_raw(b"".join(json.dumps(message).encode() + b"\n" for message in messages))


@pytest.mark.parametrize(
    "messages",
    [[SHUTDOWN, TOO_LATE, EXIT], [[SHUTDOWN, TOO_LATE, EXIT]], [[SHUTDOWN], TOO_LATE, EXIT]],
    ids=["lines", "one batch", "a batch and lines"],
)
def test_shutdown_applies_to_messages_beside_it(messages: list[object]) -> None:
    with raw_daemon() as daemon:
        send_at_once(daemon, *messages)
        answers = {answer["id"]: answer for answer in daemon.answers_to_the_end()}
        assert answers["shutdown"]["result"] is None
        assert answers["late"]["error"]["code"] == 1006
        assert daemon.wait() == 0


def test_shutdown_as_a_notification_takes_effect() -> None:
    with raw_daemon() as daemon:
        send_at_once(daemon, {"jsonrpc": "2.0", "method": "shutdown"}, TOO_LATE, EXIT)
        [answer] = daemon.answers_to_the_end()
        assert answer["error"]["code"] == 1006
        assert daemon.wait() == 0


@pytest.mark.slow
def test_shutdown_with_bad_params_changes_nothing() -> None:
    with raw_daemon() as daemon:
        send_at_once(daemon, {**SHUTDOWN, "params": {"now": True}}, TOO_LATE)
        assert daemon.answer("shutdown")["error"]["code"] == -32602
        assert daemon.answer("late")["result"]["exitCode"] == 0
        daemon.notify("exit", None)
        assert daemon.wait() == 1


def test_shutdown_needs_no_free_place_in_flight() -> None:
    with raw_daemon("--max-in-flight", "1") as daemon:
        daemon.request("bash", {"command": "sleep 300"}, "endless")
        send_at_once(daemon, SHUTDOWN, TOO_LATE)
        assert daemon.answer("shutdown")["result"] is None
        assert daemon.answer("late")["error"]["code"] == 1006


def test_exit_without_shutdown_exits_1() -> None:
    with raw_daemon() as daemon:
        bash_id = daemon.background("sleep 300")
        assert bash_id
        daemon.notify("exit", None)
        assert daemon.wait() == 1


def test_exit_with_an_id_is_answered() -> None:
    with raw_daemon() as daemon:
        assert daemon.call("exit") is None
        assert daemon.wait() == 1


def test_vanished_reader_ends_daemon() -> None:
    daemon = RawDaemon(command=PATIENT_DAEMON)
    try:
        pid = daemon.bash("sleep 300", run_in_background=True)["pid"]
        assert daemon.process.stdout is not None
        daemon.process.stdout.close()
        daemon.request("ping")
        assert daemon.wait() == 0
        assert not is_alive(pid)
    finally:
        daemon.process.stdout = None
        daemon.close()
    assert daemon.stderr == b""


@pytest.mark.slow
def test_blocked_reader_cannot_keep_daemon(tmp_path: Path) -> None:
    with raw_daemon(stderr_is_silent=False) as daemon:
        daemon.bash("true")
        for _ in range(50):
            daemon.request("rpc.discover")
        daemon.request("bash", {"command": f"touch {tmp_path}/ran; sleep 300"})
        wait_for((tmp_path / "ran").exists, "a command that nobody listens to")
        daemon.process.send_signal(signal.SIGTERM)
        assert daemon.wait() == STDOUT_FAILED


@pytest.mark.slow
def test_unread_answers_are_reported_at_the_end() -> None:
    with raw_daemon(stderr_is_silent=False) as daemon:
        stdout = daemon.bash("head -c 200000 /dev/zero | tr '\\0' x")["stdout"]
        assert len(stdout) == 200_000
        # The answer is larger than the pipe, and nobody reads any of it.
        daemon.request("bash", {"command": "head -c 200000 /dev/zero | tr '\\0' x"})
        daemon.end_input()
        assert daemon.wait() == STDOUT_FAILED
    assert daemon.stderr == (
        b"shelld: cannot write to stdout: the client has not read all answers in time\n"
    )


@pytest.mark.slow
def test_end_of_input_is_seen_although_there_is_no_room_for_answers() -> None:
    with raw_daemon(stderr_is_silent=False) as daemon:
        bash_id = daemon.call("bash", {"command": "head -c 16000000 /dev/zero"})["bash_id"]
        read = {"bash_id": bash_id, "stdout_offset": 0, "max_bytes": 16_000_000}
        # Nobody reads this answer, which is larger than the daemon's queue.
        daemon.request("bash_output", {**read, "encoding": "base64"})
        stdout = daemon.process.stdout
        assert stdout is not None
        wait_for(lambda: select.select([stdout], [], [], 0)[0], "the answer")
        for _ in range(100):
            daemon.request("ping")
        daemon.end_input()
        assert daemon.wait() == STDOUT_FAILED


@pytest.mark.parametrize("flag", ["--parent-pid", "--clientProcessId", "--clientProcessId="])
def test_daemon_ends_with_watched_parent(flag: str) -> None:
    parent = subprocess.Popen(["sleep", "300"])
    arguments = [f"{flag}{parent.pid}"] if flag.endswith("=") else [flag, str(parent.pid)]
    with raw_daemon(*arguments) as daemon:
        assert daemon.bash("echo up")["stdout"] == "up\n"
        assert daemon.process.poll() is None
        parent.kill()
        assert daemon.wait() == 0
    parent.wait()


@pytest.fixture
def parent() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "300"]) as process:
        yield process
        process.kill()


@pytest.mark.parametrize("error", [None, errno.ENOSYS, errno.EPERM, errno.EMFILE])
async def test_parent_is_watched_without_pidfd(
    monkeypatch: pytest.MonkeyPatch, parent: subprocess.Popen[bytes], error: int | None
) -> None:
    def fail(_pid: int) -> int:
        assert error is not None
        raise OSError(error, os.strerror(error))

    if error is None:
        monkeypatch.delattr(os, "pidfd_open")
    else:
        monkeypatch.setattr(os, "pidfd_open", fail)
    monkeypatch.setattr(app, "PARENT_POLL_S", 0.001)
    with anyio.fail_after(60), anyio.CancelScope() as reading:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(app.watch_process, parent.pid, reading)
            for _ in range(5):
                await anyio.sleep(0.001)
            assert not reading.cancel_called
            parent.kill()
            parent.wait()
            await anyio.sleep_forever()
    assert reading.cancel_called


async def test_a_process_of_another_user_is_watched(
    monkeypatch: pytest.MonkeyPatch, parent: subprocess.Popen[bytes]
) -> None:
    kill = os.kill

    def refuse(pid: int, number: int) -> None:
        if number == 0:
            raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))
        kill(pid, number)

    monkeypatch.setattr(os, "kill", refuse)
    with anyio.fail_after(60), anyio.CancelScope() as reading:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(app.watch_process, parent.pid, reading)
            await anyio.lowlevel.checkpoint()
            assert not reading.cancel_called
            parent.kill()
            await anyio.sleep_forever()
    assert reading.cancel_called


def test_dead_parent_ends_daemon() -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    with raw_daemon("--parent-pid", str(gone.pid)) as daemon:
        assert daemon.wait() == 0


def run_daemon(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [*DAEMON_COMMAND, *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=100, check=False, stdin=subprocess.DEVNULL
    )


def test_version_and_help_are_printed() -> None:
    version = run_daemon("--version")
    assert (version.returncode, version.stdout) == (0, f"shelld {__version__}\n")
    shown = run_daemon("--help")
    assert shown.returncode == 0
    for option in ("--stdio", "--max-shells", "--audit-log", "--default-timeout", "--parent-pid"):
        assert option in shown.stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ["--nope"],
        ["--std"],
        ["extra"],
        ["--max-shells", "0"],
        ["--max-shells", "many"],
        ["--default-timeout", "999"],
        ["--log-level", "loud"],
        ["--log-file", "/nonexistent/log"],
        ["--audit-log", "/nonexistent/log"],
    ],
)
def test_bad_arguments_exit_2_with_reason(arguments: list[str]) -> None:
    ended = run_daemon(*arguments)
    assert ended.returncode == 2
    assert ended.stdout == ""
    assert "shelld: " in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize("option", ["--log-file", "--audit-log"])
def test_a_log_that_nobody_reads_is_refused(option: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "log")
    ended = run_daemon(option, str(tmp_path / "log"))
    assert ended.returncode == 2
    what = "audit log" if option == "--audit-log" else "log file"
    assert ended.stderr.startswith(f"shelld: cannot write the {what}: ")


@pytest.mark.slow
@pytest.mark.parametrize("option", ["--log-file", "--audit-log"])
def test_full_log_stops_nothing(option: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "log")
    reader = os.open(tmp_path / "log", os.O_RDONLY | os.O_NONBLOCK)
    fcntl.fcntl(reader, fcntl.F_SETPIPE_SZ, 4_096)
    arguments = (option, str(tmp_path / "log"), "--log-level", "debug")
    with raw_daemon(*arguments, stderr_is_silent=False) as daemon:
        for number in range(100):
            assert daemon.bash(f"echo {number}")["stdout"] == f"{number}\n"
        daemon.end_input()
        assert daemon.wait() == 0
    os.close(reader)


@pytest.mark.parametrize("path", ["/dev/stderr", "/dev/null"])
def test_the_log_may_be_a_device(path: str) -> None:
    with raw_daemon("--log-file", path, "--log-level", "info", stderr_is_silent=False) as daemon:
        daemon.bash("true")
    assert (b"started" in daemon.stderr) == (path == "/dev/stderr")


def test_the_console_script_is_the_same_program() -> None:
    script = Path(sys.executable).with_name("shelld")
    ended = subprocess.run(
        [script, "--stdio"],
        input='{"jsonrpc":"2.0","id":1,"method":"ping"}\n',
        capture_output=True,
        text=True,
        timeout=100,
        check=True,
    )
    assert ended.stdout == '{"jsonrpc":"2.0","id":1,"result":{}}\n'


@pytest.mark.parametrize("closed", ["0", "1", "0 1 2"])
def test_closed_streams_are_refused(closed: str) -> None:
    close = " ".join(f"{number}>&-" for number in closed.split())
    quoted = " ".join(f"'{part}'" for part in DAEMON_COMMAND)
    ended = subprocess.run(
        ["/bin/bash", "-c", f"{quoted} {close}"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert ended.returncode == 2
    assert ended.stdout == ""


@pytest.mark.parametrize("redirections", ["0> /dev/null", "1< /dev/null"])
def test_streams_of_the_wrong_direction_are_refused(redirections: str) -> None:
    ended = subprocess.run(
        ["/bin/bash", "-c", f"{shlex.join(DAEMON_COMMAND)} {redirections}"],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert ended.returncode == 2
    assert ended.stderr == "shelld: stdin must be readable, and stdout writable\n"


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_signals_during_shutdown_leave_exit_code_zero(number: signal.Signals) -> None:
    for _ in range(5):
        with raw_daemon() as daemon:
            daemon.call("ping")
            daemon.end_input()
            while daemon.process.poll() is None:
                daemon.process.send_signal(number)
                time.sleep(0.001)
            assert daemon.wait() == 0


@pytest.mark.slow
def test_two_daemons_never_see_each_others_shells() -> None:
    with raw_daemon() as one, raw_daemon() as two:
        bash_id = one.background("sleep 300")
        assert two.call("list_shells")["shells"] == []
        assert two.fail("kill_shell", {"shell_id": bash_id})["code"] == 1003
        assert one.call("bash_output", {"bash_id": bash_id})["isRunning"] is True


@pytest.mark.slow
def test_starts_and_ends_leave_no_files_behind() -> None:
    before = set(os.listdir("/tmp"))
    for _ in range(5):
        with raw_daemon() as daemon:
            daemon.end_input()
            assert daemon.wait() == 0
    left = {name for name in set(os.listdir("/tmp")) - before if "shelld" in name}
    # Other tests may start lasting daemons. The directory of lasting daemons is never removed.
    assert {name for name in left if not re.fullmatch(r"shelld-\d+", name)} == set()


@pytest.mark.slow
def test_client_vanishing_at_the_limit_ends_daemon() -> None:
    with raw_daemon("--max-in-flight", "3") as daemon:
        bash_id = daemon.background("sleep 300")
        for _ in range(10):
            daemon.request("bash_output", {"bash_id": bash_id, "wait": 600_000})
        daemon.end_input()
        assert daemon.wait() == 0


@pytest.mark.slow
def test_log_names_shells_but_not_commands(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with raw_daemon("--log-level", "debug", "--log-file", str(log)) as daemon:
        bash_id = daemon.bash("echo secret", env={"TOKEN": "secret"})["bash_id"]
    text = log.read_text()
    for words in (
        f"{bash_id} started",
        f"{bash_id} ended: completed",
        "request 'bash'",
        "stopping",
    ):
        assert words in text
    assert "secret" not in text
    with raw_daemon("--log-file", str(log)) as daemon:
        daemon.bash("true")
    assert log.read_text() == text


# A daemon whose frame reader fails at a certain message.
DEAF_DAEMON = """
import sys
from shelld.__main__ import main
from shelld_protocol.framing import FrameReader

receive_data = FrameReader.receive_data

def fail(frames, data):
    if b"unreadable" in data:
        raise ValueError
    receive_data(frames, data)

FrameReader.receive_data = fail
sys.exit(main())
"""


def test_daemon_that_cannot_read_says_so() -> None:
    command = [sys.executable, "-c", DEAF_DAEMON]
    with raw_daemon(command=command, stderr_is_silent=False) as daemon:
        request_id = daemon.request("bash", {"command": "sleep 300"})
        daemon.call("ping")
        daemon.request("unreadable")
        # Even after this error, the daemon answers the requests in flight before it ends.
        answer = daemon.receive()
        assert answer["id"] == request_id
        assert answer["error"]["data"]["kind"] == "shutting_down"
        assert daemon.wait() == STDIN_FAILED
    assert daemon.stderr.endswith(b"shelld: cannot read requests from stdin: an unexpected error\n")


@pytest.mark.slow
@pytest.mark.parametrize("in_background", [False, True])
@pytest.mark.parametrize(
    ("way", "count"), [("SIGTERM", 1), ("end of input", 1), ("kill_shell twice", 2)]
)
def test_command_gets_sigterm_once_unless_client_asks_again(
    tmp_path: Path, way: str, count: int, in_background: bool
) -> None:
    ready, signals = tmp_path / "ready", tmp_path / "signals"
    os.mkfifo(tmp_path / "fifo")
    # The command continues after SIGTERM until it gets SIGKILL, so the test would see a second
    # SIGTERM.
    wait = f"while :; do read -t 60 <> {tmp_path}/fifo; done"
    program = f"trap 'echo TERM >> {signals}' TERM; touch {ready}; {wait}"
    # The command has enough time for its trap, even on a busy machine.
    slow = altered_daemon({"shelld.app.STOP_GRACE_MS": 2_000, "shelld.app.STOP_KILL_S": 60})
    with raw_daemon(command=slow) as daemon:
        request = daemon.request("bash", {"command": program, "run_in_background": in_background})
        wait_for(ready.exists)
        if way == "kill_shell twice":
            (shell,) = daemon.call("list_shells")["shells"]
            kill = {"bash_id": shell["bash_id"], "grace": 60_000}
            asked = [request, daemon.request("kill_shell", kill)]
            wait_for(signals.exists)
            asked.append(daemon.request("kill_shell", kill))
            wait_for(lambda: signals.read_text() == "TERM\n" * count, "both signals")
            asked.append(daemon.request("kill_shell", {**kill, "signal": "KILL"}))
            assert ["result" in daemon.answer(each) for each in asked] == [True] * 4
        elif way == "SIGTERM":
            daemon.process.send_signal(signal.SIGTERM)
        else:
            daemon.end_input()
        if way != "kill_shell twice":
            assert daemon.wait() == 0
    assert signals.read_text() == "TERM\n" * count
