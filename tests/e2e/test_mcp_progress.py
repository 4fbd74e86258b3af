"""MCP notifications: progress during long calls, and the end of a cancelled call."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import Any

import pytest

from mcp_messages import (
    META,
    bash,
    initialize,
    messages_before,
)
from shelld.mcp import progress
from support import Gate, RawDaemon, is_alive, running_below, wait_for


@pytest.fixture
def host(daemon: RawDaemon) -> RawDaemon:
    """A daemon after an MCP handshake."""
    initialize(daemon)
    return daemon


@pytest.mark.slow
@pytest.mark.parametrize("token", ["abc", 0, 7])
def test_a_call_that_takes_long_reports_its_progress(
    daemon: RawDaemon, tmp_path: Path, token: Any
) -> None:
    gate = Gate(tmp_path / "gate")
    meta = {**META, "progressToken": token}
    arguments = {"command": f"echo first line; {gate.wait}; echo done"}
    request = daemon.request("tools/call", {"name": "Bash", "arguments": arguments, "_meta": meta})
    # On a busy machine, the first reports may come before the command has written its line.
    reports = [daemon.receive()]
    while [each["params"]["message"] for each in reports[-2:]] != ["first line"] * 2:
        reports.append(daemon.receive())
    gate.open()
    reports += messages_before(daemon, request)
    for notification in reports:
        assert notification["method"] == "notifications/progress"
        assert "id" not in notification
        assert notification["params"]["progressToken"] == token
    for first, second in itertools.pairwise(reports):
        assert second["params"]["progress"] > first["params"]["progress"]
    # After the answer, the daemon sends no further report about this call.
    daemon.request("bash", {"command": "sleep 1"})
    assert "result" in daemon.receive()


def test_reports_are_due_more_than_once_a_second() -> None:
    assert progress.INTERVAL_S < 1


def test_silent_call_reports_its_duration(daemon: RawDaemon) -> None:
    bash(daemon, "true")
    meta = {**META, "progressToken": 1}
    arguments = {"command": "sleep 300"}
    request = daemon.request("tools/call", {"name": "Bash", "arguments": arguments, "_meta": meta})
    report = daemon.receive()["params"]
    assert re.fullmatch(r"Running for \d+ s", report["message"])
    daemon.notify("notifications/cancelled", {"requestId": request})


def test_waiting_read_reports_progress(daemon: RawDaemon) -> None:
    started = bash(daemon, "echo booting; sleep 300", run_in_background=True)
    bash_id = started["structuredContent"]["metadata"]["bash_id"]
    arguments = {"bash_id": bash_id, "wait": 60_000, "until": "exit"}
    params = {
        "name": "BashOutput",
        "arguments": arguments,
        "_meta": {**META, "progressToken": "t"},
    }
    request = daemon.request("tools/call", params)
    # On a busy machine, the first reports may come before the command has written its line.
    while daemon.receive()["params"]["message"] != "booting":
        pass
    daemon.call("kill_shell", {"bash_id": bash_id, "grace": 0})
    assert "result" in daemon.answer(request)


def test_progress_needs_a_token(host: RawDaemon) -> None:
    arguments = {"command": "sleep 1"}
    host.request("tools/call", {"name": "Bash", "arguments": arguments})
    assert "result" in host.receive()


def test_cancelled_call_is_killed_and_unanswered(daemon: RawDaemon) -> None:
    meta = {**META, "progressToken": 1}
    arguments = {"command": "setsid sleep 3141 & sleep 3141"}
    request = daemon.request("tools/call", {"name": "Bash", "arguments": arguments, "_meta": meta})
    wait_for(lambda: len(running_below(daemon.pid, "3141")) >= 2, "both to run")
    sleepers = running_below(daemon.pid, "3141")
    daemon.notify("notifications/cancelled", {"requestId": request, "reason": "enough"})
    wait_for(lambda: not any(map(is_alive, sleepers)), "their end")
    # Progress notifications may arrive before the ping's answer, but the cancelled call gets no
    # answer.
    assert all("id" not in message for message in messages_before(daemon, daemon.request("ping")))


def test_cancelled_call_reports_no_progress_while_dying(
    daemon: RawDaemon,
) -> None:
    meta = {**META, "progressToken": 1}
    arguments = {"command": "trap '' TERM; echo deaf; while :; do sleep 3141; done"}
    request = daemon.request("tools/call", {"name": "Bash", "arguments": arguments, "_meta": meta})
    while daemon.receive()["params"]["message"] != "deaf":
        pass
    daemon.notify("notifications/cancelled", {"requestId": request})
    messages_before(daemon, daemon.request("ping"))
    # The command has a grace period of one second, so it takes longer to end than the pause between
    # two reports.
    wait_for(lambda: not running_below(daemon.pid, "3141"), "its end")
    assert messages_before(daemon, daemon.request("ping")) == []


def test_mcp_only_client_sees_only_mcp(daemon: RawDaemon) -> None:
    initialize(daemon)
    meta = {"progressToken": "p"}
    ids = [
        daemon.request("tools/call", {"name": "Bash", "arguments": {"command": command}, **more})
        for command, more in (
            ("sleep 1; echo slow", {"_meta": meta}),
            ("echo fast", {}),
            ("exit 1", {}),
            ("kill -KILL $$", {}),
        )
    ]
    ids += [daemon.request("tools/list"), daemon.request("ping"), daemon.request("nope")]
    seen: list[Any] = []
    while len(seen) < len(ids):
        message = daemon.receive()
        assert message["jsonrpc"] == "2.0"
        if "id" in message:
            seen.append(message["id"])
        else:
            assert message["method"] == "notifications/progress"
    assert sorted(seen) == sorted(ids)
