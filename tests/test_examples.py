"""The examples run. Those for an editor are run by it, among the tests of third parties."""

from __future__ import annotations

import contextlib
import os
import pty
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from installed import NODE_MODULES, node, node_environment, npm_package
from support import DAEMON_COMMAND

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.mark.parametrize("name", ["demo.py", "harness.py"])
def test_it_runs(name: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-W", "error", EXAMPLES / name],
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stderr == ""
    assert "\x1b" not in ended.stdout
    if name == "harness.py":
        assert "Serving HTTP on 127.0.0.1" in ended.stdout
        assert ended.stdout.endswith("model: It starts, it answers, and it is gone.\n")


def test_the_demo_is_in_colour_on_a_terminal() -> None:
    env = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
    ours, theirs = pty.openpty()
    with open(ours, "rb", buffering=0) as terminal:
        demo = subprocess.Popen([sys.executable, EXAMPLES / "demo.py"], stdout=theirs, env=env)
        os.close(theirs)
        shown = b""
        # EIO is how a terminal ends.
        with contextlib.suppress(OSError):
            while data := terminal.read(65536):
                shown += data
        assert demo.wait(50) == 0
    assert b"\x1b[1m# A command\x1b[0m" in shown
    assert b"\r\x1b[Krunning: 'step 1\\n'" in shown


def test_the_one_for_vscode_follows_a_command_and_ends_as_it_does(tmp_path: Path) -> None:
    npm_package("vscode-jsonrpc")
    script = shutil.copy(EXAMPLES / "vscode-jsonrpc" / "run.mjs", tmp_path)
    (tmp_path / "node_modules").symlink_to(NODE_MODULES)
    ended = subprocess.run(
        [node(), script, "echo one; sleep 0.2; echo two; echo three >&2; exit 4"],
        env={**node_environment(), "SHELLD": " ".join(DAEMON_COMMAND)},
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert (ended.stdout, ended.stderr) == ("one\ntwo\n", "three\n")
    assert ended.returncode == 4
