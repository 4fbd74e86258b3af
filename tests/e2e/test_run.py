"""``shelld run`` passes on the command's output and exit code, and leaves no process behind."""

from __future__ import annotations

import os
import pty
import re
import shlex
import signal
import subprocess
import sys
import termios
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from shelld.cli.explain import explain
from shelld.cli.formats import duration, size
from shelld.cli.run import run as run_here
from support import DEADLINE_S, altered_daemon, children, is_alive, running_below, wait_for
from user_terminal import UserTerminal

pytestmark = pytest.mark.slow

PROGRAM = (sys.executable, "-W", "error", "-P", "-m", "shelld")
# This program shows progress at once, and updates it often.
EAGER = altered_daemon({"shelld.cli.display._SILENT_S": 0.0, "shelld.cli.display._RENEWAL_MS": 20})
ENVIRONMENT = {**os.environ, "TERM": "xterm-256color"}
ENVIRONMENT.pop("NO_COLOR", None)


@pytest.fixture
def rules(tmp_path: Path) -> str:
    """Return the path of a file with guard rules. The rules block a harmless command."""
    path = tmp_path / "rules.toml"
    path.write_text('[[block]]\nname = "no"\nprogram = "forbidden"\n')
    return str(path)


def run(*arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    command = [*PROGRAM, "run", *arguments]
    return subprocess.run(command, input=stdin, capture_output=True, timeout=100, check=False)


@contextmanager
def running(
    *arguments: str, program: Sequence[str] = PROGRAM
) -> Generator[subprocess.Popen[bytes]]:
    """Run shelld while the `with` block runs, in a process that does not ignore SIGINT."""
    # A process that was started in the background may ignore SIGINT.
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        process = subprocess.Popen(
            [*program, "run", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
    finally:
        signal.signal(signal.SIGINT, handler)
    with process:
        try:
            yield process
        finally:
            process.kill()


def first_line(process: subprocess.Popen[bytes]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().decode()


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        *((0, "0 s"), (7, "7 s"), (0.254, "0.25 s"), (9.99, "9.99 s"), (9.996, "10.0 s")),
        *((59.94, "59.9 s"), (59.96, "1 min 0 s"), (125, "2 min 5 s"), (3_720, "1 h 2 min")),
    ],
)
def test_times_are_printed_for_people(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1_048_570, "1.0 MiB"),
        (5 << 40, "5120.0 GiB"),
    ],
)
def test_sizes_are_printed_for_people(count: int, text: str) -> None:
    assert size(count) == text


def test_output_input_and_exit_code_pass_through() -> None:
    binary = bytes(range(256)) * 1_000
    ended = run("--", "cat; echo oops >&2; exit 3", stdin=binary)
    assert (ended.returncode, ended.stdout) == (3, binary)
    error, summary = ended.stderr.decode().splitlines()
    assert error == "oops"
    form = r"shelld: exit code 3 after \d+\.\d+ s, peak memory \d+\.\d MiB"
    assert re.fullmatch(form, summary)


def test_several_words_are_a_program_with_arguments(tmp_path: Path) -> None:
    words = [
        "-q",
        "--cwd",
        str(tmp_path),
        "--guard",
        "warn",
        "--",
        "sh",
        "-c",
        'pwd; echo "$1"; kill -9 $$',
    ]
    ended = run(*words, "x", "a  b")
    assert (ended.returncode, ended.stdout.decode()) == (137, f"{tmp_path}\na  b\n")
    assert ended.stderr == b""


@pytest.mark.parametrize("locale", ["C.UTF-8", "C"])
def test_arguments_of_any_bytes_reach_the_command_in_every_locale(locale: str) -> None:
    # Without these variables, Python would replace the locale C.
    environment = {**os.environ, "LC_ALL": locale, "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    word = b"\xff'\\f \xc3\xa9"
    for command, output in ([b"printf", b"%s", word], word), ([b"printf \xc3\xa9"], b"\xc3\xa9"):
        arguments = [*map(os.fsencode, PROGRAM), b"run", b"-q", b"--", *command]
        ended = subprocess.run(
            arguments, stdin=subprocess.DEVNULL, capture_output=True, env=environment, check=False
        )
        assert (ended.returncode, ended.stdout, ended.stderr) == (0, output, b"")


def test_command_line_that_is_not_utf_8_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    for program in (run_here, explain):
        with pytest.raises(SystemExit) as ended:
            program(["printf \udcff"])
        assert ended.value.code == 2
        assert "the command is not UTF-8: write the other bytes as in $'" in capsys.readouterr().err


def test_input_that_cannot_be_read_ends() -> None:
    with open(os.devnull, "wb") as unreadable:
        ended = subprocess.run(
            [*PROGRAM, "run", "-q", "--", "cat; echo ended"],
            stdin=unreadable,
            capture_output=True,
            timeout=50,
            check=False,
        )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, b"ended\n", b"")


def test_leftover_processes_are_ended_and_named() -> None:
    # `shelld run` names a process by the program that it runs, so wait until the child runs sleep.
    becomes_sleep = 'until [ "$(< /proc/$!/comm)" = sleep ]; do sleep 0.01; done'
    ended = run("--", f"setsid sleep 300 & {becomes_sleep}; echo $!")
    pid = int(ended.stdout)
    assert not is_alive(pid)
    summary, left = ended.stderr.decode().splitlines()
    assert summary.startswith("shelld: exit code 0 after ")
    assert left == f"shelld: ended what the command had left running: {pid} sleep"


def test_name_of_a_leftover_process_does_not_control_the_terminal() -> None:
    renamed = r"(printf '\e[2Jx' > /proc/$BASHPID/comm; kill -STOP $BASHPID) &"
    ended = run("-q", "--", f"{renamed} until grep -q 2J /proc/$!/comm; do sleep 0.01; done")
    assert ended.stderr.decode().endswith(" \N{REPLACEMENT CHARACTER}[2Jx\n")


def test_slow_reader_causes_no_timeout_of_an_ended_command() -> None:
    # The first timeout is shorter and began earlier, so it has passed by the time the second
    # timeout has passed.
    with running("--timeout", "1", "--", "seq 100000") as process:
        assert run("--timeout", "2", "--", "sleep 300").returncode == 124
        stdout, stderr = process.communicate(timeout=DEADLINE_S)
        assert (process.returncode, len(stdout.split())) == (0, 100_000)
        assert b"shelld: exit code 0 after " in stderr


def test_timeout_ends_a_command_that_exits_with_zero() -> None:
    ended = run("--timeout", "0.2", "--", "trap 'exit 0' TERM; sleep 300 & wait")
    assert ended.returncode == 124


def test_timeout_ends_the_command() -> None:
    ended = run("--timeout", "0.2", "--grace", "50", "--", "trap '' TERM; echo $$; sleep 300")
    assert ended.returncode == 124
    assert not is_alive(int(ended.stdout))
    assert b"shelld: ended at the timeout of 0.2 s after " in ended.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_signal_reaches_the_command_and_ends_its_tree(number: signal.Signals) -> None:
    command = f"trap 'echo bye; exit 7' {number.name}; setsid sleep 300 & echo $!; wait"
    with running("--", command) as process:
        pid = int(first_line(process))
        process.send_signal(number)
        stdout, _ = process.communicate(timeout=DEADLINE_S)
    assert (process.returncode, stdout) == (7, b"bye\n")
    assert not is_alive(pid)


def test_second_signal_kills_at_once() -> None:
    command = "trap 'echo told' INT; echo ready; while :; do sleep 0.1; done"
    with running("--grace", "60000", "--", command) as process:
        assert first_line(process) == "ready\n"
        process.send_signal(signal.SIGINT)
        assert first_line(process) == "told\n"
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 128 + signal.SIGKILL
    assert b"shelld: ended by SIGKILL after " in stderr


def test_nothing_outlives_a_killed_run() -> None:
    with running("--", "setsid sleep 300 & echo $!; wait") as process:
        pid = int(first_line(process))
        process.kill()
        process.wait()
        wait_for(lambda: not is_alive(pid))


def test_end_of_the_daemon_is_reported() -> None:
    with running("--", "echo ready; sleep 300") as process:
        assert first_line(process) == "ready\n"
        (daemon,) = children(process.pid)
        os.kill(daemon, signal.SIGKILL)
        _, stderr = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 125
    assert stderr == b"shelld: the daemon was killed by SIGKILL\n"


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--cwd", "no/where", "--", "ls"], 125, "directory no/where: No such file or directory"),
        (["--cwd", "", "--", "ls"], 2, "--cwd: invalid directory value: ''"),
        (["--cwd", "\udcff", "--", "ls"], 2, "--cwd: invalid directory value"),
        (["--bash", "/nowhere", "--", "ls"], 125, "cannot run commands with /nowhere: "),
    ],
)
def test_refusals_are_explained(arguments: list[str], code: int, message: str) -> None:
    ended = run(*arguments)
    assert (ended.returncode, ended.stdout) == (code, b"")
    assert message in ended.stderr.decode()
    assert b"Traceback" not in ended.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-t", "--", "ls"], "--tty needs a terminal as stdin and stdout"),
        (["-q"], "error: the command is missing"),
        (["-q", "--"], "error: the command is missing"),
        ([], "error: the command is missing"),
        (["--timeout", "0", "--", "ls"], "argument --timeout: invalid number of seconds"),
        (["--timeout", "nan", "--", "ls"], "argument --timeout: invalid number of seconds"),
        (["--nonsense", "--", "ls"], "unrecognized arguments: --nonsense"),
    ],
)
def test_bad_arguments_are_refused_before_a_daemon_starts(
    arguments: list[str], message: str, capfd: pytest.CaptureFixture[str]
) -> None:
    try:
        code: object = run_here(arguments)
    except SystemExit as exited:
        code = exited.code
    assert code == 2
    assert message in capfd.readouterr().err


@pytest.mark.parametrize(("command", "stdin"), [("forbidden", b""), ("bash", b"forbidden\n")])
def test_guard_refuses_the_command_or_its_input(rules: str, command: str, stdin: bytes) -> None:
    ended = run("-q", "--guard-rules", rules, "--", command, stdin=stdin)
    assert (ended.returncode, ended.stdout) == (126, b"")
    assert ended.stderr.startswith(b"shelld: Command blocked: dangerous (no)")


def test_one_file_for_both_streams_keeps_their_order(tmp_path: Path) -> None:
    command = "for each in 1 3 5; do echo $each; echo $((each + 1)) >&2; done"
    with (tmp_path / "log").open("wb") as log:
        subprocess.run([*PROGRAM, "run", "-q", "--", command], stdout=log, stderr=log, check=True)
    assert (tmp_path / "log").read_text() == "1\n2\n3\n4\n5\n6\n"


@pytest.mark.parametrize(
    ("line", "code", "message"),
    [
        ("{} -- yes | head -n 1", 141, ""),
        ("{} -- yes >/dev/full", 125, "cannot write to the output: No space left on device"),
        ("{} -- ls >&-", 125, "cannot write to stdout: it is closed"),
        (
            "{} --retain-bytes 4096 -- head -c 9999999 /dev/zero | wc -c",
            125,
            "MiB of output are missing",
        ),
        ("{} -- 'cat; echo $?' <&- 2>&-", 0, ""),
    ],
)
def test_output_is_never_lost_in_silence(line: str, code: int, message: str) -> None:
    program = " ".join([*PROGRAM, "run", "-q"])
    script = f"set -o pipefail; {line.format(program)}"
    ended = subprocess.run(
        ["bash", "-c", script],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=100,
        check=False,
    )
    assert ended.returncode == code, ended.stderr
    assert message in ended.stderr.decode()
    assert b"Traceback" not in ended.stderr


def test_progress_is_shown_and_erased_on_a_terminal(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    command = [*EAGER, "run", "--", f"read < {gate}; echo done"]
    with UserTerminal(command, env=ENVIRONMENT) as terminal:
        terminal.until("\x1b[2mshelld: running for ")
        gate.write_text("\n")
        code, shown = terminal.rest()
    assert code == 0
    assert "\r\x1b[Kdone\r\n" in shown
    assert re.search(r"\x1b\[32mshelld: exit code 0 after .*\x1b\[0m\r\n$", shown)


def test_no_progress_is_shown_in_the_background(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    environment = {**ENVIRONMENT, "PS1": "at the prompt ", "TERM": "xterm"}
    with UserTerminal(["bash", "--norc", "--noediting", "-i"], env=environment) as terminal:
        terminal.until("at the prompt ")
        command = shlex.join([*EAGER, "run", "--", f"echo begun; read < {gate}; echo done"])
        terminal.write(f"{command} &\n")
        terminal.until("begun\r\n")
        # Give it time for progress.
        terminal.write("sleep 2; echo slept > /dev/null; jobs\n")
        shown = terminal.until("Running")
        terminal.write("fg\n")
        terminal.until("running for ")
        gate.write_text("\n")
        terminal.until("done\r\n")
        terminal.until("at the prompt ")
        terminal.write("exit\n")
        assert terminal.rest()[0] == 0
    assert "running for" not in shown


def test_no_color_is_respected_and_the_report_begins_a_new_line() -> None:
    command = [*EAGER, "run", "--", "printf 'no newline'; sleep 0.2; exit 1"]
    environment = {**ENVIRONMENT, "NO_COLOR": "1"}
    with UserTerminal(command, env=environment) as terminal:
        code, shown = terminal.rest()
    assert code == 1
    assert re.fullmatch(
        r"(shelld: running for \d+ s, silent for \d+ s\r\x1b\[K)*"
        r"no newline\r\nshelld: exit code 1 after .*\r\n",
        shown,
    )


def test_tty_gives_the_command_a_terminal_of_our_size() -> None:
    prompt = 'while read -rp "$(stty size)> " line; do echo "<$line>"; done; exit 5'
    command = [*PROGRAM, "run", "-t", "--", prompt]
    with UserTerminal(command, env=ENVIRONMENT, rows=33, cols=99) as terminal:
        terminal.until("33 99> ")
        terminal.resize(20, 50)
        terminal.write("one\r")
        size = "33 99"
        # A line may reach the command before the signal about the new size does, so send lines
        # until the command shows the new size.
        while size == "33 99":
            shown = terminal.until("> ")
            assert shown.startswith("one\r\n<one>\r\n")
            size = shown.removesuffix("> ").rpartition("\n")[2]
            terminal.write("one\r" if size == "33 99" else "")
        assert size == "20 50"
        # The key reaches the command, and `shelld run` itself gets no signal.
        terminal.write("\x04")
        code, shown = terminal.rest()
    assert code == 5
    assert "shelld: exit code 5 after " in shown


def test_keys_that_are_typed_early_reach_the_command() -> None:
    main, inner = pty.openpty()
    os.write(main, b"early\r")
    command = [*PROGRAM, "run", "-q", "-t", "--timeout", "60", "--", 'read -r line; echo "<$line>"']
    with subprocess.Popen(command, stdin=inner, stdout=inner, stderr=inner):
        os.close(inner)
        shown = b""
        # At the end of the output, os.read raises OSError.
        with suppress(OSError):
            while b"<early>" not in shown:
                shown += os.read(main, 4096)
    os.close(main)
    assert b"<early>" in shown


def test_third_signal_restores_the_terminal() -> None:
    main, inner = pty.openpty()
    settings = termios.tcgetattr(inner)
    command = [*PROGRAM, "run", "-t", "--", "trap '' TERM; echo ready; while :; do sleep 1; done"]
    # The tests may run where these signals are ignored.
    start = ["env", "--default-signal=HUP,QUIT"]
    with subprocess.Popen([*start, *command], stdin=inner, stdout=inner, stderr=inner) as process:
        shown = b""
        while b"ready\r\n" not in shown:
            shown += os.read(main, 4096)
        assert termios.tcgetattr(inner) != settings
        # The signals differ, so that none is merged with the one before. They come faster than the
        # end of the command.
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
            process.send_signal(number)
        assert process.wait(DEADLINE_S) > 128
    assert termios.tcgetattr(inner) == settings
    os.close(inner)
    os.close(main)


def test_tty_has_a_usual_size_if_our_terminal_has_none() -> None:
    command = [*PROGRAM, "run", "-q", "-t", "--", "stty size"]
    with UserTerminal(command, env=ENVIRONMENT, rows=0, cols=0) as terminal:
        assert terminal.rest() == (0, "24 80\r\n")


def test_signals_end_the_command_after_a_resize_of_a_lost_terminal() -> None:
    main, inner = pty.openpty()
    command = [*PROGRAM, "run", "-q", "-t", "--", "trap '' HUP; echo ready; exec sleep 300"]
    start = ["env", "--ignore-signal=HUP", "setsid", "--ctty"]
    with subprocess.Popen(
        [*start, *command], stdin=inner, stdout=inner, stderr=subprocess.PIPE
    ) as process:
        os.close(inner)
        shown = b""
        while b"ready\r\n" not in shown:
            shown += os.read(main, 4096)
        os.close(main)
        process.send_signal(signal.SIGWINCH)
        try:
            process.send_signal(signal.SIGTERM)
            _, stderr = process.communicate(timeout=DEADLINE_S)
        finally:
            process.kill()
    assert process.returncode == 128 + signal.SIGTERM
    assert stderr == b""


def test_input_is_passed_on_again_after_a_time_in_the_background() -> None:
    environment = {**ENVIRONMENT, "PS1": "at the prompt ", "TERM": "dumb"}
    with UserTerminal(["bash", "--norc", "--noediting", "-i"], env=environment) as terminal:
        terminal.until("at the prompt ")
        # While `shelld run` is in the background, give it time to try to read.
        command = "sleep 0.5; echo ready; cat"
        terminal.write(shlex.join([*PROGRAM, "run", "-q", "--", command]) + " &\n")
        terminal.until("[1] ")
        terminal.until("ready\r\n")
        terminal.write("fg\n")
        terminal.until("run")
        terminal.write("typed\n")
        terminal.until("typed\r\ntyped\r\n")
        terminal.write("\x04")
        terminal.until("at the prompt ")
        terminal.write("exit\n")
        assert terminal.rest()[0] == 0


def test_terminal_passes_on_keys_and_refuses_dangerous_lines(rules: str) -> None:
    options = ["-t", "-q", "--guard-rules", rules]
    command = [*PROGRAM, "run", *options, "--", "PS1='$ ' exec bash --norc -i"]
    with UserTerminal(command, env=ENVIRONMENT) as terminal:
        terminal.until("$ ")
        terminal.write("forbidden\r")
        terminal.until("shelld: Command blocked: dangerous (no)")
        terminal.write("\x15sleep 4071\r")
        terminal.until("sleep 4071\r\n")
        # Bash may ignore an interrupt that comes before the program has the terminal.
        wait_for(lambda: running_below(os.getpid(), "sleep\x004071"))
        terminal.write("\x03")
        terminal.until("^C")
        terminal.until("$ ")
        terminal.write("exit 9\r")
        assert terminal.rest()[0] == 9


def test_command_does_not_see_the_locale_that_python_has_set() -> None:
    command = [*PROGRAM, "run", "-q", "--", "env"]
    for given in ({}, {"LC_CTYPE": "C"}):
        ended = subprocess.run(command, env=given, capture_output=True, timeout=100, check=True)
        names = [line for line in ended.stdout.decode().splitlines() if line.startswith("LC_")]
        assert names == [f"{name}={value}" for name, value in given.items()]
