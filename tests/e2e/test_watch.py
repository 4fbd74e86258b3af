"""A person can watch a lasting daemon, and the daemon's client does not notice."""

from __future__ import annotations

import os
import shlex
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest
from rich.text import Text

from lasting import Lasting, daemon_pid, lasting_user, wait_for_end
from shelld.cli.watch_lines import Changes, how_it_ended, new_lines
from shelld.cli.watch_screen import encoded, picture
from shelld.lasting.handshake import HANDSHAKE, Hello, receive, send
from shelld.lasting.views import Info, View, WatchedShell
from shelld_protocol.about import PROTOCOL
from support import DAEMON_COMMAND, Gate, RawDaemon, children, is_alive, wait_for
from user_terminal import UserTerminal

# -- what is shown ----------------------------------------------------------------------------


def seen(
    *lines: str,
    id: str = "shell_1",  # noqa: A002 - the name in the struct
    command: str = "make",
    status: str = "running",
    exit_code: int | None = None,
    sig: str | None = None,
) -> WatchedShell:
    written = sum(map(len, lines))
    is_running = status in ("pending", "running")
    return WatchedShell(
        id, "main", command, status, is_running, exit_code, sig, 1_500, written, [*lines]
    )


def view(*shells: WatchedShell, client: int | None = 7, omitted: int = 0) -> View:
    running = sum(each.is_running for each in shells)
    info = Info("work", 5, 60_000, client, None, 3_600, running, len(shells) - running)
    return View(info, [*shells], omitted)


@pytest.mark.parametrize(
    ("before", "now", "new"),
    [
        ([], [], []),
        ([], ["a", "b"], ["a", "b"]),
        (["a"], ["a"], []),
        (["a"], ["a", "b"], ["b"]),
        (["a", "b", "c"], ["b", "c", "d"], ["d"]),
        (["a", "b"], ["x", "y"], ["x", "y"]),
        (["a", "50%"], ["a", "60%"], ["60%"]),
    ],
)
def test_only_new_lines_are_printed(
    before: Sequence[str], now: Sequence[str], new: Sequence[str]
) -> None:
    assert new_lines(before, now) == new


def test_each_change_is_printed_once() -> None:
    changes = Changes("work")
    first = view(seen("one"), seen(id="shell_2", command="a\n b", status="failed", exit_code=3))
    assert changes.since(first, is_silent=False) == [
        "work: pid 5, client 7",
        "shell_1: runs: make",
        "shell_1 | one",
        "shell_2: exit code 3: a b",
    ]
    assert changes.since(first, is_silent=False) == []
    assert changes.since(first, is_silent=True) == ["work: does not answer"]
    ended = seen("one", "two", status="killed", sig="SIGKILL")
    later = view(ended, seen(id="shell_3", status="completed", exit_code=0), client=None)
    assert changes.since(later, is_silent=False) == [
        "work: no client",
        "work: answers again",
        "shell_1 | two",
        "shell_1: killed (SIGKILL) after 1.50 s",
        "shell_3: started: make",
        "shell_3: exit code 0 after 1.50 s",
    ]


def test_lines_distinguish_the_ways_to_end() -> None:
    assert how_it_ended(seen(status="completed", exit_code=0)) == "exit code 0"
    assert how_it_ended(seen(status="failed", exit_code=1)) == "exit code 1"
    assert how_it_ended(seen(status="timeout", sig="SIGTERM")) == "timeout (SIGTERM)"


def test_output_cannot_act_on_the_terminal() -> None:
    hostile = "a\x1b[2Jb\x07c\td\u202e"
    shell = seen(hostile, id="shell_9", command="printf '\x1b]0;x'")
    # A target may send any text as an id, a status or a signal.
    far = seen(id=f"box:{hostile}\n", status=hostile, sig=hostile)
    shown = view(shell, far)
    texts = [*Changes("work").since(shown, is_silent=False)]
    texts += [each.plain for each in picture("work", shown, 0, 20)]
    assert len(texts) == 8
    assert all(each.isprintable() for each in texts)
    assert "a\ufffd[2Jb\ufffdc    d\ufffd" in texts[2]


def test_names_of_a_target_cannot_act_on_the_terminal() -> None:
    hostile = "a\x1b[2J\nb"
    running = seen(id=f"box:{hostile}", status="running")
    ended = seen(id=f"box:{hostile}", status=hostile, sig=hostile)
    changes = Changes("work")
    texts = [*changes.since(view(running), is_silent=False)]
    texts += [*changes.since(view(ended), is_silent=False)]
    texts += [each.plain for each in picture("work", view(running, ended), 0, 20)]
    assert sum("a\ufffd[2J\ufffdb" in each for each in texts) == 4
    assert all(each.isprintable() for each in texts)


def test_picture_fits_the_terminal() -> None:
    shells = [seen("x", "y", id=f"shell_{number}") for number in range(9)]
    for height in range(1, 40):
        lines = [each.plain for each in picture("work", view(*shells, omitted=4), 0, height)]
        assert len(lines) <= height
        assert lines[0].startswith("work  pid 5, client 7, 9 running, 0 ended")
        shown = sum(each.startswith("shell_") for each in lines)
        if height > 1:
            assert lines[-1] == f"and {13 - shown} more"


def test_lines_keep_their_width_in_every_encoding() -> None:
    # The second character is two columns wide, and the third one is combined with the fourth.
    assert encoded("é界e\u0301…\n", "ascii") == b"???e?\n"
    assert encoded("é界…", "latin-1") == b"\xe9???"
    assert encoded("é界…", "utf-8") == "é界…".encode()


def test_picture_shows_how_long_the_daemon_is_silent() -> None:
    [title] = picture("work", view(), 6.0, 20)
    assert isinstance(title, Text)
    assert title.plain.endswith("has not answered for 6 s")


# -- with a daemon ----------------------------------------------------------------------------


@pytest.fixture
def user(tmp_path: Path) -> Generator[Lasting]:
    with lasting_user(tmp_path) as user:
        yield user


@contextmanager
def attached(user: Lasting, *args: str) -> Generator[RawDaemon]:
    with user.attach("--name", "work", *args) as client:
        client.call("ping")
        yield client


@contextmanager
def watcher(
    user: Lasting, *args: str, start: str = "--default-signal=HUP"
) -> Generator[subprocess.Popen[str]]:
    """Run `shelld watch`, without a terminal."""
    with subprocess.Popen(
        ["env", "--default-signal=INT", start, *DAEMON_COMMAND, "watch", *args],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=user.env,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def until(process: subprocess.Popen[str], text: str) -> str:
    """Read lines until one of them contains `text`; return all lines that were read."""
    assert process.stdout is not None
    found = ""
    while text not in found:
        line = process.stdout.readline()
        assert line, f"no {text!r} in {found!r}"
        found += line
    return found


@pytest.mark.slow
def test_client_does_not_notice_a_watcher(user: Lasting, tmp_path: Path) -> None:
    gate = Gate(tmp_path / "gate")
    with attached(user) as client:
        before = client.call("server_info")
        command = f"echo one; {gate.wait}; echo two"
        job = client.background(command)
        with watcher(user, "work") as process:
            text = until(process, f"{job} | one\n")
            assert f"work: pid {before['pid']}, client {client.process.pid}\n" in text
            assert f"{job}: runs: {command}\n" in text
            [row] = client.call("list_shells")["shells"]
            assert row["unreadBytes"] == len("one\n")
            gate.open()
            text = until(process, f"{job}: exit code 0 after ")
            assert f"{job} | two\n" in text
            # The output is still unread.
            read = client.call("bash_output", {"bash_id": job, "wait": 60_000, "until": "exit"})
            assert read["stdout"] == "one\ntwo\n"
            after = client.call("server_info")
            assert after["attachment"] == before["attachment"]
            process.send_signal(signal.SIGINT)
            assert process.wait(60) == 0
        client.call("ping")
        assert not any("method" in each for each in client.unclaimed)


@pytest.mark.slow
def test_shells_at_targets_are_shown(user: Lasting, tmp_path: Path) -> None:
    gate = Gate(tmp_path / "gate")
    target = f"--target=box={shlex.join([*DAEMON_COMMAND, '--stdio'])}"
    never = f"--target=never={shlex.join(['sh', '-c', f'touch {tmp_path}/connected'])}"
    with attached(user, "--", target, never) as client:
        far = client.background(f"{gate.wait}; exit 3", target="box")
        with watcher(user, "work") as process:
            text = until(process, f"{far}: runs: {gate.wait}; exit 3\n")
            assert text.startswith("work: pid ")
            gate.open()
            until(process, f"{far}: exit code 3 after ")
            # The shell is gone with its target, but the daemon and the watcher go on.
            client.call("remove_target", {"name": "box"})
            job = client.background("sleep 300")
            until(process, f"{job}: started: sleep 300\n")
    assert not (tmp_path / "connected").exists()


# This target answers the greeting. It answers other requests with its second argument, or does not
# answer them if that argument is empty.
PEER = """
import json, sys

def answer(result):
    message = {"jsonrpc": "2.0", "id": request["id"], "result": result}
    print(json.dumps(message, separators=(",", ":")), flush=True)

for line in sys.stdin:
    request = json.loads(line)
    if request.get("method") == "server_info":
        limits = {"maxMessageBytes": 1000000}
        answer({"version": "0", "protocol": int(sys.argv[1]), "limits": limits})
    elif "id" in request and sys.argv[2]:
        answer(eval(sys.argv[2]))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "answer",
    [
        "",
        "[]",
        "{'shells': [{}]}",
        "{'shells': [dict(bash_id='x' * 100000, command='', status='', isRunning=True)]}",
        "{'shells': 10000 * [dict(bash_id='x', command='', status='', isRunning=True)]}",
    ],
    ids=["silence", "array", "empty", "long", "many"],
)
def test_watcher_sees_new_output_beside_an_odd_target(user: Lasting, answer: str) -> None:
    argv = [sys.executable, "-c", PEER, str(PROTOCOL), answer]
    with attached(user, "--", f"--target=box={shlex.join(argv)}") as client:
        client.request("bash", {"command": "true", "target": "box"})
        wait_for(lambda: client.call("list_targets")["targets"][0]["state"] == "connected")
        with watcher(user, "work") as process:
            until(process, "work: pid")
            job = client.background("echo on; sleep 300")
            until(process, f"{job} | on\n")
            process.send_signal(signal.SIGINT)
            assert process.wait(60) == 0
        client.call("kill_shell", {"shell_id": job})


@pytest.mark.slow
def test_watcher_keeps_no_daemon_alive(user: Lasting) -> None:
    with ExitStack() as stack:
        with attached(user, "--linger", "1") as client:
            pid = daemon_pid(client)
            process = stack.enter_context(watcher(user, "work"))
            until(process, "work: pid")
        until(process, "work: no client\n")
        wait_for_end(pid)
        assert process.wait(60) == 0
        assert process.stderr is not None
        assert process.stderr.read() == "shelld: the daemon work has ended\n"


@pytest.mark.slow
def test_watcher_reports_the_death_of_the_daemon(user: Lasting) -> None:
    with attached(user) as client, watcher(user, "work") as process:
        until(process, "work: pid")
        os.kill(daemon_pid(client), signal.SIGKILL)
        assert process.wait(60) == 6
        assert process.stderr is not None
        assert "the daemon work has died" in process.stderr.read()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("clients", "exit_code", "sentence"),
    [(1, 6, "the daemon work does not run"), (100, 2, "the daemon work cannot be watched")],
)
def test_daemon_that_closes_the_connection_runs_no_more_or_is_older(
    user: Lasting, clients: int, exit_code: int, sentence: str
) -> None:
    user.directory.mkdir(mode=0o700)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(user.socket_of("work")))
        listener.listen()

        def serve() -> None:
            with suppress(OSError):
                for _ in range(clients):
                    connection, _ = listener.accept()
                    connection.close()
            listener.close()

        thread = threading.Thread(target=serve)
        thread.start()
        ended = user.run("watch", "work")
        with suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        thread.join()
    user.socket_of("work").unlink()
    assert (ended.returncode, ended.stderr) == (exit_code, f"shelld: {sentence}\n")


@pytest.mark.slow
def test_stopped_watcher_delays_nobody(user: Lasting) -> None:
    with attached(user) as client, watcher(user, "work") as process:
        until(process, "work: pid")
        process.send_signal(signal.SIGSTOP)
        for number in range(50):
            assert client.bash(f"echo {number}")["exitCode"] == 0
        process.send_signal(signal.SIGCONT)
        until(process, "| 49\n")


@pytest.mark.slow
def test_watch_goes_on_after_a_hangup_with_nohup(user: Lasting) -> None:
    with attached(user) as client, watcher(user, "work", start="--ignore-signal=HUP") as process:
        until(process, "work: pid")
        process.send_signal(signal.SIGHUP)
        client.bash("echo after")
        until(process, "| after\n")
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0


@pytest.mark.slow
def test_bad_arguments_of_watch_are_refused(user: Lasting) -> None:
    for arguments, exit_code, sentence in (
        (["work"], 6, "the daemon work does not run"),
        (["a/b"], 2, "a name has no slash"),
        (["-n", "x"], 2, "invalid integer from 0 to 50 value"),
    ):
        ended = user.run("watch", *arguments)
        assert (ended.returncode, ended.stdout) == (exit_code, "")
        assert sentence in ended.stderr


@pytest.mark.slow
def test_watchers_are_limited_and_leave_room_when_they_go(user: Lasting) -> None:
    hello = Hello(handshake=HANDSHAKE, protocol=PROTOCOL, version="", wants="watch")
    with attached(user) as client, ExitStack() as stack:

        def joined() -> bool:
            """Connect another watcher, and keep the connection if there is room for the watcher."""
            connection = user.connect("work")
            send(connection, hello)
            is_watching = b'"watching"' in receive(connection)[0]
            if is_watching:
                stack.enter_context(connection)
            else:
                connection.close()
            return is_watching

        assert [joined() for _ in range(17)] == [True] * 16 + [False]
        ended = user.run("watch", "work")
        assert ended.returncode == 2
        assert "has too many watchers already" in ended.stderr
        client.call("ping")
        stack.close()
        wait_for(joined)
        # A watcher that sends nonsense loses only its own connection.
        with user.connect("work") as connection:
            send(connection, hello)
            receive(connection)
            connection.send(b"nonsense")
            assert receive(connection)[0] == b""
        client.call("ping")


@pytest.mark.slow
def test_large_views_are_cut(user: Lasting) -> None:
    with attached(user) as client:
        for _ in range(30):
            client.bash("printf '%0400d\\n' {1..50}")
        with watcher(user, "-n", "50", "work") as process:
            text = until(process, "work: pid")
            text += until(process, "| ")
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 128 + signal.SIGTERM


# -- on a terminal ----------------------------------------------------------------------------


# This shell continues its stopped program at the next line of input.
SHELL = ("bash", "-mc", '"$@"; read -r; fg', "bash")


def on_terminal(user: Lasting, *args: str, shell: Sequence[str] = (), **env: str) -> UserTerminal:
    # These variables would change how the program writes.
    left_out = {"NO_COLOR", "PYTHONUNBUFFERED"}
    usual = {key: value for key, value in user.env.items() if key not in left_out}
    return UserTerminal(
        [*shell, *DAEMON_COMMAND, "watch", *args], env={**usual, "TERM": "xterm-256color", **env}
    )


ON, OFF = "\x1b[?1049h", "\x1b[?1049l"


@pytest.mark.slow
def test_picture_follows_the_shells_on_a_terminal(user: Lasting, tmp_path: Path) -> None:
    gate = Gate(tmp_path / "gate")
    with attached(user) as client:
        client.background(f"echo one; {gate.wait}; exit 3")
        with on_terminal(user, "work") as terminal:
            terminal.until(ON)
            terminal.until("running")
            terminal.until("    one")
            gate.open()
            terminal.until("exit code 3")
            terminal.resize(5, 30)
            client.bash("echo after; true " + "x" * 100)
            terminal.until("after")
            terminal.write("\x03")
            exit_code, shown = terminal.rest()
            assert (exit_code, OFF in shown) == (0, True)
            assert "Traceback" not in shown


@pytest.mark.slow
@pytest.mark.parametrize(("env", "has_colours"), [({}, True), ({"NO_COLOR": "1"}, False)])
def test_colours_can_be_turned_off(user: Lasting, env: dict[str, str], has_colours: bool) -> None:
    with attached(user) as client:
        client.bash("false")
        with on_terminal(user, "work", **env) as terminal:
            text = terminal.until("exit code 1")
            assert ("\x1b[31m" in text) == has_colours
            assert user.run("stop", "work").returncode == 0
            exit_code, shown = terminal.rest()
    assert exit_code == 0
    # The sentence comes after the code that leaves the alternate screen, so it stays visible.
    assert "the daemon work has ended" in shown.partition(OFF)[2]


@pytest.mark.slow
def test_terminal_without_capabilities_gets_lines(user: Lasting) -> None:
    with attached(user), on_terminal(user, "work", TERM="dumb") as terminal:
        text = terminal.until("work: pid")
        assert "\x1b" not in text
        terminal.write("\x03")
        assert terminal.rest()[0] == 0


@pytest.mark.slow
def test_watch_prints_lines_if_rich_is_missing(user: Lasting, tmp_path: Path) -> None:
    (tmp_path / "rich.py").write_text("raise ImportError")
    command = [sys.executable, "-m", "shelld", "watch", "work"]
    env = {**user.env, "TERM": "xterm", "PYTHONPATH": f"{tmp_path}"}
    with attached(user), UserTerminal(command, env=env) as terminal:
        terminal.until("pip install 'shelld[watch]'")
        terminal.until("work: pid")
        terminal.write("\x03")
        assert terminal.rest()[0] == 0


@pytest.mark.slow
def test_stopped_watch_leaves_the_alternate_screen_until_it_continues(user: Lasting) -> None:
    with attached(user), on_terminal(user, "work", shell=SHELL) as terminal:
        terminal.until("running")
        (pid,) = children(terminal.process.pid)
        terminal.write("\x1a")
        terminal.until(OFF)
        terminal.until("Stopped")
        terminal.write("\n")
        terminal.until(ON)
        terminal.until("running")
        os.kill(pid, signal.SIGHUP)
        exit_code, shown = terminal.rest()
        assert (exit_code, OFF in shown) == (128 + signal.SIGHUP, True)
        assert not is_alive(pid)


@pytest.mark.slow
def test_ctrl_z_in_the_middle_of_a_picture_takes_effect_after_it(user: Lasting) -> None:
    with attached(user), on_terminal(user, "work", shell=SHELL) as terminal:
        terminal.until("running")
        (pid,) = children(terminal.process.pid)
        # So large a picture does not fit into the terminal's buffer.
        terminal.resize(900, 900)
        terminal.until_it_writes(pid)
        os.kill(pid, signal.SIGTSTP)
        terminal.until(OFF)
        terminal.until("Stopped")
        terminal.write("\n")
        terminal.until(ON)
        terminal.write("\x03")
        terminal.rest()


@pytest.mark.slow
def test_ctrl_z_stops_no_watch_that_nobody_can_continue(user: Lasting) -> None:
    # The process of the watch is a session leader, as after `ssh -t`.
    with attached(user), on_terminal(user, "work") as terminal:
        terminal.until("running")
        terminal.write("\x1a")
        terminal.until(OFF)
        terminal.until(ON)
        terminal.until("running")
        terminal.write("\x03")
        exit_code, shown = terminal.rest()
        assert (exit_code, OFF in shown) == (0, True)


@pytest.mark.slow
def test_watch_ignores_ctrl_z_if_its_parent_does(user: Lasting) -> None:
    ignoring = ["bash", "-mc", 'trap "" TSTP; "$@"; echo status $?', "bash"]
    with attached(user), on_terminal(user, "work", shell=ignoring) as terminal:
        terminal.until("running")
        terminal.write("\x1a")
        terminal.until("running")
        terminal.write("\x03")
        assert "Stopped" not in terminal.until("status 0")


@pytest.mark.slow
def test_signal_in_the_middle_of_a_picture_restores_the_screen(user: Lasting) -> None:
    with attached(user), on_terminal(user, "work") as terminal:
        terminal.until("running")
        terminal.resize(900, 900)
        terminal.until_it_writes()
        terminal.process.send_signal(signal.SIGTERM)
        exit_code, shown = terminal.rest()
        assert (exit_code, OFF in shown) == (128 + signal.SIGTERM, True)


@pytest.mark.slow
def test_two_signals_at_once_restore_the_screen(user: Lasting) -> None:
    with attached(user), on_terminal(user, "work") as terminal:
        terminal.until("running")
        for number in (signal.SIGSTOP, signal.SIGHUP, signal.SIGTERM, signal.SIGCONT):
            terminal.process.send_signal(number)
        exit_code, shown = terminal.rest()
        assert exit_code in (128 + signal.SIGHUP, 128 + signal.SIGTERM)
        assert OFF in shown


@pytest.mark.slow
def test_signal_ends_a_watch_whose_terminal_takes_no_output(user: Lasting) -> None:
    with attached(user), on_terminal(user, "work") as terminal:
        terminal.until("running")
        terminal.write("\x13")
        terminal.until_it_writes()
        terminal.process.send_signal(signal.SIGTERM)
        assert terminal.process.wait(60) == 128 + signal.SIGTERM


@pytest.mark.slow
def test_signal_during_a_stop_leaves_the_screen_only_once(user: Lasting) -> None:
    with attached(user), on_terminal(user, "work", shell=SHELL) as terminal:
        terminal.until("running")
        (pid,) = children(terminal.process.pid)
        terminal.write("\x1a")
        terminal.until(OFF)
        terminal.until("Stopped")
        os.kill(pid, signal.SIGTERM)
        terminal.write("\n")
        exit_code, shown = terminal.rest()
        assert (exit_code, OFF in shown) == (128 + signal.SIGTERM, False)


@pytest.mark.slow
def test_picture_fits_a_terminal_without_a_size_and_an_encoding_without_an_ellipsis(
    user: Lasting,
) -> None:
    with attached(user) as client:
        client.bash("true " + "x" * 100)
        with on_terminal(user, "work", PYTHONIOENCODING="ascii") as terminal:
            terminal.resize(0, 0)
            # The line ends at the width of the picture.
            terminal.until("x?\r\n")
            terminal.write("\x03")
            assert terminal.rest()[0] == 0


@pytest.mark.slow
def test_watch_draws_on_a_terminal_that_does_not_block(user: Lasting) -> None:
    # The terminal stays non-blocking, because the processes share it.
    unblock = "import os, sys; os.set_blocking(1, False); os.execvp(sys.argv[1], sys.argv[1:])"
    shell = [sys.executable, "-c", unblock]
    with attached(user), on_terminal(user, "work", shell=shell) as terminal:
        terminal.until("running")
        # So large a picture does not fit into the terminal's buffer.
        terminal.resize(900, 900)
        terminal.until("running")
        terminal.until("running")
        terminal.write("\x03")
        exit_code, shown = terminal.rest()
        assert (exit_code, OFF in shown) == (0, True)


@pytest.mark.slow
def test_watch_says_why_it_cannot_write_to_the_terminal(user: Lasting) -> None:
    shell = ["bash", "-c", '"$@" 1< /dev/tty', "bash"]
    with attached(user), on_terminal(user, "work", shell=shell) as terminal:
        assert terminal.rest() == (2, "shelld: cannot write to stdout: Bad file descriptor\r\n")


@pytest.mark.slow
def test_watcher_ends_by_the_hangup_of_its_terminal(user: Lasting) -> None:
    with attached(user) as client, on_terminal(user, "work") as terminal:
        client.background("sleep 300")
        terminal.until("sleep 300")
        # The picture cannot be removed any more. A write may fail before the signal comes.
        assert terminal.hang_up() in (128 + signal.SIGHUP, 2)
