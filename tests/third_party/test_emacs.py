"""Emacs's own jsonrpc.el, against a real daemon."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

import example_tasks
from installed import program
from lasting import daemon_pid, lasting_user, wait_for_end
from support import DAEMON_COMMAND, Gate, wait_for

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent
EXAMPLE = HERE.parents[1] / "examples" / "emacs" / "shelld.el"


def emacs(*options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run Emacs without a display."""
    return subprocess.run(
        [program("emacs"), "-Q", "--batch", *options],
        env={**os.environ, "DAEMON": json.dumps(DAEMON_COMMAND), **environment},
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )


def report_of(tmp_path: Path, *options: str) -> Any:
    report = tmp_path / "report"
    ended = emacs(*options, REPORT=str(report), FOLDER=str(tmp_path))
    assert report.exists(), ended.stderr
    return json.loads(report.read_text())


def test_emacs_gets_every_answer(tmp_path: Path) -> None:
    assert report_of(tmp_path, "-l", str(HERE / "emacs.el")) == {
        "ping": True,
        "foreground": ["out\n", "err\n", 3],
        "failure": [-32602, "Missing required parameter: command"],
        "background": ["ready\n", True],
        "killed": "killed",
        "waited": "killed",
        "cancelled": -32800,
        "long": [True, 5_000_000, 5_000_000],
        "many": True,
        "shutdown": True,
        "exit_code": 0,
    }


def test_the_example_runs_several_tasks(tmp_path: Path) -> None:
    example_tasks.prepare(tmp_path)
    options = ("-L", str(EXAMPLE.parent), "-l", str(HERE / "emacs_example.el"))
    assert report_of(tmp_path, *options) == {
        "first": "/\nto stderr\n[exit code 3 after N s]",
        "second": "/\n[exit code 0 after N s]",
        "bar": "20%\n[exit code 0 after N s]",
        "colour": True,
        **example_tasks.EXPECTED,
    }


def test_the_example_compiles_without_a_warning(tmp_path: Path) -> None:
    copy = shutil.copy(EXAMPLE, tmp_path)
    strict = "(setq byte-compile-error-on-warn t)"
    ended = emacs("--eval", strict, "-f", "batch-byte-compile", str(copy))
    assert ended.returncode == 0, ended.stderr
    assert ended.stderr == ""


def shown(tmp_path: Path, case: str, name: str, runtime: Path) -> str:
    """Return what the example shows of a lasting daemon."""
    options = ("-L", str(EXAMPLE.parent), "-l", str(HERE / "emacs_attach.el"))
    report = tmp_path / "report"
    env = {"CASE": case, "NAME": name, "REPORT": str(report), "XDG_RUNTIME_DIR": str(runtime)}
    ended = emacs(*options, **env)
    assert report.exists(), ended.stderr
    text: str = json.loads(report.read_text())["shown"]
    return text


def test_the_example_works_with_messages_on_stderr(tmp_path: Path) -> None:
    runtime = tmp_path / "runtime"
    runtime.mkdir()
    # With this name, the message is longer than the text that jsonrpc.el skips.
    name = "a" * 64
    with lasting_user(runtime) as user:
        with user.attach("--name", name) as client:
            pid = daemon_pid(client)
            os.kill(pid, signal.SIGKILL)
            wait_for_end(pid)
        expected = "$ echo out\nout\n[exit code 0 after N s]"
        assert shown(tmp_path, "follow", name, runtime) == expected


def test_the_example_says_that_another_editor_is_attached(tmp_path: Path) -> None:
    runtime = tmp_path / "runtime"
    runtime.mkdir()
    with lasting_user(runtime) as user, user.attach("--name", "work") as client:
        client.call("ping")
        expected = "$ echo out\n[another editor is attached to work]"
        assert shown(tmp_path, "follow", "work", runtime) == expected


def test_the_example_rejoins_long_after_it_has_attached(tmp_path: Path) -> None:
    gate, runtime = Gate(tmp_path / "gate"), tmp_path / "runtime"
    runtime.mkdir()
    with lasting_user(runtime) as user:
        with user.attach("--name", "work") as client:
            client.background(gate.wait)
        gate.open()
        wait_for(lambda: user.list()[0]["shellsRunning"] == 0)
        assert shown(tmp_path, "rejoin", "work", runtime).endswith("[exit code 0 after N s]")
