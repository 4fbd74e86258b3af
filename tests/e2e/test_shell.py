"""``shelld shell`` runs the lines that a person types, or that a pipe contains, in one session."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from shelld.cli.lines import Lines
from support import children, is_alive, wait_for
from user_terminal import UserTerminal

pytestmark = pytest.mark.slow

NOTHING = re.compile("(?!)")
PROGRAM = [sys.executable, "-W", "error", "-P", "-m", "shelld", "shell"]


def shell(script: str, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*PROGRAM, *options], input=script, capture_output=True, text=True, timeout=100, check=False
    )


def on_terminal(directory: Path) -> UserTerminal:
    environment = {**os.environ, "HOME": str(directory), "TERM": "dumb"}
    return UserTerminal(PROGRAM, env=environment)


def test_commands_from_a_pipe_share_a_session() -> None:
    ended = shell(
        "cd /; x=1\n"
        'echo "$PWD\n$x"\n'
        "cat <<END\nhere\nEND\n"
        "echo one \\\ntwo\n"
        "for each in a b; do\n  echo $each\ndone\n"
        "\n"
        "echo oops >&2; (exit 3)\n"
    )
    assert ended.stdout == "/\n1\nhere\none two\na\nb\n"
    assert (ended.returncode, ended.stderr) == (3, "oops\n")


@pytest.mark.parametrize(
    ("script", "code", "message"),
    [
        ("false\nexit\necho no\n", 1, ""),
        ("exit 300\n", 44, ""),
        ("echo 'open\n", 2, "unexpected EOF while looking for matching"),
        ("kill -9 $$", 137, ""),
    ],
)
def test_exit_code_is_that_of_the_last_command(script: str, code: int, message: str) -> None:
    ended = shell(script)
    assert (ended.returncode, ended.stdout) == (code, "")
    assert message in ended.stderr
    assert "Traceback" not in ended.stderr


def test_stdin_that_cannot_be_read_is_reported(tmp_path: Path) -> None:
    with (tmp_path / "file").open("w") as file:
        ended = subprocess.run(
            PROGRAM, stdin=file, capture_output=True, text=True, timeout=100, check=False
        )
    assert (ended.returncode, ended.stdout) == (125, "")
    assert ended.stderr == "shelld: cannot read commands: Bad file descriptor\n"


def test_blocked_command_has_an_exit_code_of_its_own(tmp_path: Path) -> None:
    rules = tmp_path / "rules.toml"
    rules.write_text('[[block]]\nname = "no"\nprogram = "forbidden"\n')
    ended = shell("forbidden\n", "--guard-rules", str(rules))
    assert (ended.returncode, ended.stdout) == (126, "")
    assert "Command blocked: dangerous (no)" in ended.stderr


def test_own_commands_begin_with_a_colon() -> None:
    ended = shell(
        ":bg echo $$; exec sleep 300\n:shells\n: is bash\n:nonsense\n:kill nobody\n"
        ":explain rm -rf /\n:session other\ncd /tmp\n:session\n:help\n",
        "--grace=100",
    )
    bash_id, listed, verdict, *sessions = ended.stdout.splitlines()
    assert listed == f"{bash_id}  running  'echo $$; exec sleep 300'" or " bytes unread" in listed
    assert verdict == "block: it removes the whole file system"
    assert sessions[1] == "other  /tmp"
    assert ":bg COMMAND         run a command in the background" in sessions
    refused, unknown = ended.stderr.splitlines()
    assert refused == "no such command: :nonsense; :help lists the commands"
    assert unknown.startswith("Shell not found: nobody")


def test_open_quote_in_an_own_command_takes_no_further_lines() -> None:
    ended = shell(
        ":session \"\n:session 'the other'\n:nonsense '\necho on\n:bg echo '\nexit'\n:session\n"
    )
    said, output = ended.stderr.splitlines(), ended.stdout.splitlines()
    assert said == [
        'a quote in the name of the session is not closed: "',
        "no such command: :nonsense; :help lists the commands",
    ]
    assert output[0] == "on"
    assert [line.split("  ")[0] for line in output[2:]] == ["main", "the other"]


def test_new_session_runs_no_command_of_the_prompt() -> None:
    assert shell(":session other\n:shells\n").stdout == ""


@pytest.mark.parametrize("encoding", ["ascii", "utf-8:strict", "latin-1"])
def test_commands_are_utf_8_in_every_locale(encoding: str) -> None:
    script = "echo é\necho 'a\rb'\n".encode() + b"echo \xff\necho still\n"
    ended = subprocess.run(
        PROGRAM,
        env={**os.environ, "PYTHONIOENCODING": encoding},
        input=script,
        capture_output=True,
        timeout=50,
        check=False,
    )
    assert ended.stdout == "é\na\rb\nstill\n".encode()
    assert "Traceback" not in ended.stderr.decode()
    assert ended.returncode == 0


def test_odd_lines_and_directories_do_not_end_the_prompt(tmp_path: Path) -> None:
    environment = {**os.environ, "HOME": str(tmp_path), "TERM": "dumb"}
    with UserTerminal(PROGRAM, env={**environment, "PYTHONIOENCODING": "ascii"}) as terminal:
        terminal.until(" $ ")
        terminal.write("mkdir -p ~/é$'\\e[31m'; cd ~/é*\n")
        terminal.until("~/é\N{REPLACEMENT CHARACTER}[31m $ ")
        terminal.write("echo \udcff\n")
        terminal.until(" $ ")
        terminal.write("echo still $((6 * 7))\n")
        terminal.until("still 42")
        terminal.until(" $ ")
        terminal.write("\x04")
        assert terminal.rest()[0] == 0


def test_output_of_background_commands_is_read_and_they_end_with_the_shell(tmp_path: Path) -> None:
    with on_terminal(tmp_path) as terminal:
        terminal.until(" $ ")
        terminal.write(":bg echo pid $$; exec sleep 300\n")
        bash_id = re.findall(r"shell_\w+", terminal.until(" $ "))[0]
        found: list[str] = []

        def pid_is_shown() -> bool:
            terminal.write(f":output {bash_id}\n")
            found.extend(re.findall(r"pid (\d+)", terminal.until(" $ ")))
            return bool(found)

        wait_for(pid_is_shown)
        assert is_alive(int(found[0]))
        terminal.write("\x04")
        assert terminal.rest()[0] == 0
        assert not is_alive(int(found[0]))


def test_lost_output_is_counted() -> None:
    ended = shell("head -c 9999999 /dev/zero\n", "--retain-bytes", "4096")
    assert ended.returncode == 125
    assert re.search(r"^shelld: [\d.]+ MiB of output are missing: ", ended.stderr)


def test_output_of_a_background_command_is_never_lost_in_silence(tmp_path: Path) -> None:
    done = tmp_path / "done"
    script = f":bg head -c 4194304 /dev/zero; touch {done}\nuntil [[ -e {done} ]]; do :; done\n"
    with subprocess.Popen(
        [*PROGRAM, "--retain-bytes", "2M"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(script)
        process.stdin.flush()
        bash_id = process.stdout.readline().strip()
        stdout, stderr = process.communicate(f":output {bash_id}\n" * 3, timeout=100)
    lost = "shelld: 2.0 MiB of output are missing: the command was faster, and --retain-bytes"
    more = f"there is more: :output {bash_id}"
    first, second, third = stderr.splitlines()
    assert len(stdout) == 2 * 2**20
    assert [first, second[: len(lost)], third] == [more, lost, more]
    assert process.returncode == 125


def test_read_without_output_leaves_the_cursor_at_the_beginning_of_a_line(tmp_path: Path) -> None:
    with on_terminal(tmp_path) as terminal:
        terminal.until(" $ ")
        terminal.write(":bg true\n")
        bash_id = re.findall(r"shell_\w+", terminal.until(" $ "))[0]
        terminal.write(f":output {bash_id}\n")
        terminal.until(" $ ")
        terminal.write("false\n")
        assert terminal.until("[exit code 1 after ") == "false\r\n[exit code 1 after "


def test_list_of_sessions_does_not_control_the_terminal() -> None:
    enter = "mkdir -p /tmp/$'a\\eb'; cd /tmp/$'a\\eb'; rmdir \"$PWD\""
    ended = shell(f"{enter}\n:session\n")
    assert ended.stdout == "main  /tmp/a\N{REPLACEMENT CHARACTER}b\n"


def test_ctrl_c_ends_the_running_command_and_ctrl_d_leaves(tmp_path: Path) -> None:
    (tmp_path / "place").mkdir()
    # A process that was started in the background may ignore SIGINT.
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        terminal = on_terminal(tmp_path)
    finally:
        signal.signal(signal.SIGINT, handler)
    with terminal:
        terminal.until(" $ ")
        terminal.write("cd ~/place\n")
        terminal.until("~/place $ ")
        terminal.write("setsid sleep 300 & echo pid $!; wait\n")
        terminal.until("pid ")
        terminal.until("pid ")
        pid = int(terminal.until("\n"))
        terminal.write("\x03")
        terminal.until("~/place $ ")
        wait_for(lambda: not is_alive(pid))
        # At the prompt, Ctrl-C drops the line.
        terminal.write("echo 'unfinished\n")
        terminal.until("> ")
        terminal.until_it_selects()
        terminal.write("\x03")
        terminal.until("~/place $ ")
        terminal.write("(exit 4)\n")
        terminal.until("[exit code 4 after ")
        terminal.until("~/place $ ")
        terminal.write("sleep 300 &\n")
        terminal.until(" sleep]")
        terminal.until("~/place $ ")
        terminal.write("\x04")
        assert terminal.rest()[0] == 0


def test_end_of_the_daemon_is_reported() -> None:
    process = subprocess.Popen(
        PROGRAM, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    with process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("echo ready\n")
        process.stdin.flush()
        assert process.stdout.readline() == "ready\n"
        (daemon,) = children(process.pid)
        os.kill(daemon, signal.SIGKILL)
        _, stderr = process.communicate("echo more\n", timeout=100)
    assert process.returncode == 125
    assert stderr == "shelld: the daemon was killed by SIGKILL\n"


@pytest.mark.parametrize(
    ("command", "is_complete"),
    [
        ("ls", True),
        ("", True),
        ("if true", False),
        ("if true; then ls; fi", True),
        ("cat <<E\nx", False),
        ("cat <<E\nx\nE", True),
        ("echo \\", False),
        ("echo \\\\", True),
        ("echo \\\\\\", False),
        ("echo 'a", False),
        # Bash refuses this text, whatever text comes after it.
        ("echo )", True),
        # Bash repeats this line in its message.
        ("echo ) unexpected EOF", True),
        ("echo ) x: line 1: unexpected EOF", True),
        ("ls |", False),
        ("[[ -n a &&", False),
        ("[[ -n a &&\n-n b ]]", True),
        ("[[", False),
        ("[[ -n a", False),
        ("{ echo `", False),
    ],
)
def test_bash_decides_where_a_command_ends(command: str, is_complete: bool) -> None:
    lines = Lines("/bin/bash", NOTHING)
    assert lines._is_complete(command) is is_complete  # pyright: ignore[reportPrivateUsage]
    # If bash cannot be started, the lines count as complete, so that the daemon reports the
    # problem.
    assert Lines("/nowhere", NOTHING)._is_complete("'")  # pyright: ignore[reportPrivateUsage]


def test_commands_do_not_see_the_locale_that_python_has_set() -> None:
    script = "echo ${LC_CTYPE-none}"
    ended = subprocess.run(
        PROGRAM, env={}, input=script, capture_output=True, text=True, timeout=100, check=True
    )
    assert ended.stdout == "none\n"
