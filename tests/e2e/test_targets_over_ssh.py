"""A target behind a real ssh and sshd, on loopback."""

from __future__ import annotations

import os
import shlex
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from event_reader import events_to, next_event, text_of
from lasting import lasting_user
from ssh_server import ssh_server
from support import DAEMON_COMMAND, Gate, raw_daemon, running_below, wait_for

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
        params = {"bash_id": bash_id, "text": "it\n", "wait": 60_000, "until": "exit"}
        assert daemon.call("write_stdin", params)["stdout"] == "got it\n"
        call = daemon.request("bash", {"command": "sleep 300", "target": "box"})
        far = int(daemon.bash("echo $PPID", target="box")["stdout"])
        os.kill(running_below(daemon.pid, "ssh\0-F")[0], signal.SIGKILL)
        assert daemon.answer(call)["error"]["code"] == 1011
        # The daemon at the far end ends when its connection is lost.
        wait_for(lambda: not Path(f"/proc/{far}").exists())
        assert daemon.bash("pwd", target="box")["stdout"] != "/tmp\n"
        assert daemon.call("remove_target", {"name": "box"})["ended"] is True


def test_lasting_daemon_at_the_far_end_loses_nothing(ssh: list[str], tmp_path: Path) -> None:
    gate, answered = Gate(tmp_path / "gate"), tmp_path / "answered"
    lines = "".join(f"{number}\n" for number in range(1, 1_001))
    command = f"seq 500; {gate.wait}; seq 501 1000; read x; echo got $x; touch {answered}"
    with lasting_user(tmp_path) as user, raw_daemon() as daemon:
        attach = [*DAEMON_COMMAND, "attach", "--name", "far"]
        far = f"XDG_RUNTIME_DIR={user.runtime} {shlex.join(attach)}"
        daemon.call("add_target", {"name": "box", "argv": [*ssh, far]})
        subscribing = {
            "target": "box",
            "events": ["output", "prompt", "exit"],
            "idempotency_key": "events",
        }
        name = daemon.call("subscribe", subscribing)["subscription"]
        starting = {"target": "box", "open_stdin": True, "idempotency_key": "job"}
        bash_id = daemon.background(command, **starting)
        while not next_event(daemon, "output")["text"].endswith("500\n"):
            pass

        def cut() -> None:
            os.kill(running_below(daemon.pid, "ssh\0-F")[0], signal.SIGKILL)
            wait_for(lambda: daemon.call("list_targets")["targets"][0]["state"] == "lost")

        # While the connection is cut for the first time, the command writes more lines and waits
        # for input. While the connection is cut for the second time, the command ends.
        cut()
        assert next_event(daemon, "lost")["subscription"] == name
        gate.open()
        assert daemon.background(command, **starting) == bash_id
        read = {"bash_id": bash_id, "stdout_offset": 0, "wait": 60_000, "until": "prompt"}
        assert daemon.call("bash_output", read)["stdout"] == lines
        daemon.call("write_stdin", {"bash_id": bash_id, "text": "it\n"})
        cut()
        wait_for(answered.exists)
        assert daemon.call("subscribe", subscribing)["subscription"] == name
        events = events_to(daemon, "exited", of=name)
        assert [each["seq"] for each in events] == list(range(1, len(events) + 1))
        assert text_of(events) == f"{lines}got it\n"
        assert [each["prompt"] is None for each in events if each["method"] == "prompt"] == [
            False,
            True,
        ]
        assert daemon.call("bash_output", read)["stdout"] == f"{lines}got it\n"
        assert [each["name"] for each in user.list()] == ["far"]
        daemon.call("remove_target", {"name": "box"})
        assert user.list() == []


def test_refusal_of_ssh_is_quoted(ssh: list[str], tmp_path: Path) -> None:
    (tmp_path / "user.pub").write_text("")
    with raw_daemon() as daemon:
        daemon.call("add_target", {"name": "box", "argv": [*ssh, "shelld"]})
        error = daemon.fail("bash", {"command": "true", "target": "box"})
    assert (error["code"], error["data"]["maybeStarted"]) == (1011, False)
    assert "Permission denied" in error["message"]
    assert "All access is logged." in error["data"]["text"]
