"""The examples run. The tests in tests/third_party run the examples for editors."""

from __future__ import annotations

import ast
import contextlib
import json
import os
import pty
import re
import signal
import subprocess
import sys
import termios
from pathlib import Path

import vscode_example
from installed import node, node_environment
from support import DAEMON_COMMAND

EXAMPLES = Path(__file__).parents[1] / "examples"


def run_example(name: str) -> str:
    ended = subprocess.run(
        [sys.executable, "-W", "error", EXAMPLES / name],
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stderr == ""
    return ended.stdout


def run_demo_on_terminal(columns: int) -> str:
    """Return the text that the demo writes to a terminal of `columns` columns."""
    unwanted = ("NO_COLOR", "COLUMNS", "LINES")
    env = {name: value for name, value in os.environ.items() if name not in unwanted}
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, columns))
    with open(ours, "rb", buffering=0) as terminal:
        demo = subprocess.Popen([sys.executable, EXAMPLES / "demo.py"], stdout=theirs, env=env)
        os.close(theirs)
        shown = b""
        # A closed terminal raises EIO.
        with contextlib.suppress(OSError):
            while data := terminal.read(65536):
                shown += data
        assert demo.wait(50) == 0
    # A terminal turns each line end into a carriage return and a newline.
    return shown.decode().replace("\r\n", "\n")


def assert_follows_the_job(lines: list[str]) -> None:
    """Check that the lines show all output of the background job, and that the last line shows how
    the job ended.

    On a busy machine, one read can return the output of several steps.
    """
    told = [line for line in lines if line.startswith(("after ", "completed with "))]
    *reads, end = told
    written = [ast.literal_eval(read.partition(" ms: ")[2]) for read in reads]
    assert "".join(written) == "step 1\nstep 2\nstep 3\n"
    assert re.fullmatch(r"completed with exit code 0 after \d+ ms", end)


def test_the_harness_runs() -> None:
    shown = run_example("harness.py")
    assert "\x1b" not in shown
    assert "[python3 listens on 127.0.0.1 port " in shown
    assert '[bash waits for input: "Deploy? [y/N]"]' in shown
    assert "has ended: failed, exit code 3\n" in shown
    assert "6 calls, none of them to see whether something was ready" in shown


def test_the_harness_runs_if_a_job_ends_after_the_last_turn(tmp_path: Path) -> None:
    text = (EXAMPLES / "harness.py").read_text()
    late = tmp_path / "harness.py"
    late.write_text(text.replace("answer; echo", "answer; sleep 3; echo"))
    assert late.read_text() != text
    assert "6 calls, none of them to see" in run_example(str(late))


def test_piped_demo_shows_messages_on_one_line() -> None:
    shown = run_example("demo.py")
    assert "\x1b" not in shown
    lines = shown.splitlines()
    messages = [json.loads(line[5:]) for line in lines if line[:5] in ("  -> ", "  <- ")]
    assert [message["id"] for message in messages[:8]] == [1, 1, 2, 2, 3, 3, 4, 4]
    assert_follows_the_job(lines)
    assert re.fullmatch(r"process \d+: gone", lines[-1])


def test_demo_on_a_terminal_overwrites_nothing() -> None:
    shown = run_demo_on_terminal(80)
    assert "\x1b[1m# A command\x1b[0m\n" in shown
    text = re.sub(r"\x1b\[[012]m", "", shown)
    assert "\x1b" not in text
    assert "\r" not in text
    lines = text.splitlines()
    assert_follows_the_job(lines)
    assert max(map(len, lines)) <= 80
    assert "".join(lines).count('"jsonrpc": "2.0"') == text.count("  -> ") + text.count("  <- ")


def test_demo_ends_quietly_when_its_reader_goes() -> None:
    with subprocess.Popen(
        [sys.executable, EXAMPLES / "demo.py"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,
    ) as demo:
        assert demo.stdout is not None
        assert demo.stderr is not None
        demo.stdout.read(1)
        demo.stdout.close()
        assert demo.stderr.read() == b""
        assert demo.wait(50) == -signal.SIGPIPE


def test_vscode_example_follows_a_command(tmp_path: Path) -> None:
    script = vscode_example.install_in(tmp_path)
    ended = subprocess.run(
        [node(), script, "echo one; sleep 0.2; echo two; echo three >&2; exit 4"],
        env={**node_environment(), "SHELLD": " ".join(DAEMON_COMMAND)},
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert (ended.stdout, ended.stderr) == ("one\ntwo\n", "three\n")
    assert ended.returncode == 4


def test_vscode_example_names_missing_shelld(tmp_path: Path) -> None:
    script = vscode_example.install_in(tmp_path)
    ended = subprocess.run(
        [node(), script],
        env={**node_environment(), "SHELLD": "no-such-shelld"},
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert ended.stdout == ""
    assert ended.stderr == (
        "Cannot start no-such-shelld: it is not on the PATH. Install it, or set SHELLD.\n"
    )
    assert ended.returncode == 1
