"""A target behind a real ssh and sshd, on loopback."""

from __future__ import annotations

import os
import shlex
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from ssh_server import ssh_server
from support import DAEMON_COMMAND, raw_daemon, running_below, wait_for

pytestmark = pytest.mark.slow


@pytest.fixture
def ssh(tmp_path: Path) -> Iterator[list[str]]:
    with ssh_server(tmp_path) as command:
        yield command


def test_target_works_over_ssh(ssh: list[str]) -> None:
    argv = [*ssh, shlex.join(DAEMON_COMMAND)]
    with raw_daemon() as daemon:
        daemon.call("add_target", {"name": "box", "argv": argv})
        result = daemon.bash("cd /tmp; echo $SSH_CONNECTION", target="box")
        assert result["stdout"].startswith("127.0.0.1 ")
        bash_id = daemon.background("read x; echo got $x", target="box", open_stdin=True)
        params = {"bash_id": bash_id, "text": "it\n", "wait": 20_000, "until": "exit"}
        assert daemon.call("write_stdin", params)["stdout"] == "got it\n"
        call = daemon.request("bash", {"command": "sleep 300", "target": "box"})
        far = int(daemon.bash("echo $PPID", target="box")["stdout"])
        os.kill(running_below(daemon.pid, "ssh\0-F")[0], signal.SIGKILL)
        assert daemon.answer(call)["error"]["code"] == 1011
        # The daemon at the far end ends when its connection is lost.
        wait_for(lambda: not Path(f"/proc/{far}").exists())
        assert daemon.bash("pwd", target="box")["stdout"] != "/tmp\n"
        assert daemon.call("remove_target", {"name": "box"})["ended"] is True


def test_refusal_of_ssh_is_quoted(ssh: list[str], tmp_path: Path) -> None:
    (tmp_path / "user.pub").write_text("")
    with raw_daemon() as daemon:
        daemon.call("add_target", {"name": "box", "argv": [*ssh, "shelld"]})
        error = daemon.fail("bash", {"command": "true", "target": "box"})
    assert (error["code"], error["data"]["maybeStarted"]) == (1011, False)
    assert "Permission denied" in error["message"]
    assert "All access is logged." in error["data"]["text"]
