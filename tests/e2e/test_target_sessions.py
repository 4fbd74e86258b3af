"""Each session is in one place: at this daemon, at a target, or at a target of a target."""

from __future__ import annotations

import base64
import os
import shlex
import signal
from pathlib import Path

import pytest

from support import (
    Json,
    RawDaemon,
    wait_for,
)
from target_daemons import FAR, daemon_of, target

pytestmark = pytest.mark.slow


def test_session_belongs_to_the_target_that_configured_it(hub: RawDaemon) -> None:
    env = {"remove": ["HOME"]}
    hub.call("configure_session", {"session": "far", "env": env, "target": "box"})
    result = hub.bash("echo ${HOME-none}; x=1", session="far")
    assert (result["stdout"], result["bash_id"][:4]) == ("none\n", "box:")
    refused = hub.fail("bash", {"command": "true", "session": "far", "target": "other"})
    assert refused["data"] == {"kind": "invalid_params", "parameter": "target"}
    assert hub.call("get_session", {"session": "far"})["removed"] == ["HOME"]
    assert hub.call("close_session", {"session": "far"})["session"] == "far"
    assert not hub.bash("true", session="far")["bash_id"].startswith("box:")
    hub.call("close_session", {"session": "far"})


@pytest.mark.parametrize("method", ["get_session", "close_session", "list_shells"])
def test_session_at_one_target_is_not_looked_for_at_another(hub: RawDaemon, method: str) -> None:
    hub.bash("x=1", session="there", target="box")
    refused = hub.fail(method, {"session": "there", "target": "other"})
    assert (refused["code"], refused["message"]) == (-32602, "Session there is at target box")
    assert hub.bash("echo $x", session="there")["stdout"] == "1\n"
    hub.call("close_session", {"session": "there"})


def test_session_belongs_to_the_target_of_its_first_command(hub: RawDaemon) -> None:
    hub.bash("true", session="near")
    refused = hub.fail("bash", {"command": "true", "session": "near", "target": "box"})
    assert refused["code"] == -32602
    assert refused["message"] == "Session near is at this daemon, not at target box"
    for method in ("get_session", "close_session", "list_shells"):
        assert hub.fail(method, {"session": "near", "target": "box"}) == refused
    hub.bash("x=1", session="there", target="box")
    assert hub.bash("echo $x", session="there")["stdout"] == "1\n"
    for session in ("near", "there"):
        hub.call("close_session", {"session": session})


@pytest.mark.parametrize("dry_run", [False, True])
def test_tool_refuses_a_session_at_a_target(hub: RawDaemon, dry_run: bool) -> None:
    hub.bash("true", session="there", target="box")
    arguments = {"command": "true", "session": "there"}
    call = {"name": "Bash", "arguments": arguments, "context": {"dry_run": dry_run}}
    result = hub.call("call_tool", call)
    assert not result["success"]
    assert "Session there is at target box" in result["error"]
    hub.call("close_session", {"session": "there"})
    assert hub.call("call_tool", call)["success"]
    if not dry_run:
        hub.call("close_session", {"session": "there"})


@pytest.mark.parametrize(
    ("name", "argv", "code"),
    [("bad", ["false"], 1011), ("box:bad", ["false"], 1011), ("none", ["no-such-program"], 1004)],
)
def test_session_that_could_not_start_at_a_target_is_free(
    hub: RawDaemon, name: str, argv: list[str], code: int
) -> None:
    with target(hub, name, *argv):
        refused = hub.fail("bash", {"command": "true", "session": "s", "target": name})
        assert refused["code"] == code
        assert refused["data"].get("maybeStarted", False) is False
        assert hub.bash("true", session="s")["bash_id"].startswith("shell_")
        hub.call("close_session", {"session": "s"})


def test_session_of_a_cancelled_call_that_was_not_sent_is_free(hub: RawDaemon) -> None:
    params = {"command": "true", "session": "s", "target": "silent"}
    with target(hub, "silent", "sleep", "300"):
        first, second = (hub.request("bash", params) for _ in range(2))
        hub.notify("$/cancelRequest", {"id": first})
        assert hub.answer(first)["error"]["code"] == -32800
        # The second call still waits for the target, so the session stays there.
        refused = hub.fail("bash", {**params, "target": "box"})
        assert refused["message"] == "Session s is at target silent"
        hub.notify("$/cancelRequest", {"id": second})
        assert hub.answer(second)["error"]["code"] == -32800
        assert hub.bash("true", session="s")["bash_id"].startswith("shell_")
        hub.call("close_session", {"session": "s"})


def test_session_is_at_the_new_target_of_a_name(hub: RawDaemon, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "gate")
    late = ["sh", "-c", f"read go <{tmp_path}/gate; exec {shlex.join(FAR)}"]
    hub.call("add_target", {"name": "again", "argv": ["sleep", "300"]})
    params = {"command": "x=1", "session": "s", "target": "again"}
    first, *others, last = hub.request_together(
        ("bash", params),
        ("remove_target", {"name": "again"}),
        ("add_target", {"name": "again", "argv": late}),
        ("bash", params),
    )
    # The call to the removed target ends while the new target still connects.
    assert hub.answer(first)["error"]["code"] == 1011
    (tmp_path / "gate").write_text("go\n")
    assert all("result" in hub.answer(each) for each in (*others, last))
    assert hub.bash("echo $x", session="s")["stdout"] == "1\n"
    hub.call("remove_target", {"name": "again"})


def test_session_stays_at_its_target_although_the_first_request_is_refused(
    hub: RawDaemon, tmp_path: Path
) -> None:
    argv = [
        "sh",
        "-c",
        f"read go <{tmp_path}/gate; exec {shlex.join(FAR)} --max-message-bytes 2000",
    ]
    os.mkfifo(tmp_path / "gate")
    with target(hub, "small", *argv):
        params = {"command": "x=1", "session": "s", "target": "small"}
        large = hub.request("bash", {**params, "stdin": "x" * 3_000})
        fits = hub.request("bash", params)
        (tmp_path / "gate").write_text("go\n")
        assert hub.answer(large)["error"]["code"] == -32600
        assert "result" in hub.answer(fits)
        assert hub.bash("echo $x", session="s")["stdout"] == "1\n"
        hub.call("close_session", {"session": "s"})


def test_session_that_its_target_does_not_have_is_free(hub: RawDaemon) -> None:
    # The target refuses to start the command, so the session never begins there.
    params = {"command": "true", "session": "s", "target": "box", "timeout": -1}
    assert hub.fail("bash", params)["code"] == -32602
    assert hub.fail("close_session", {"session": "s"})["code"] == 1007
    assert hub.bash("true", session="s")["bash_id"].startswith("shell_")
    hub.call("close_session", {"session": "s"})


def test_session_starts_in_one_place_although_its_first_command_starts_late(
    hub: RawDaemon,
) -> None:
    # Another thread decodes the input of the first command.
    stdin = base64.b64encode(bytes(3_000_000)).decode()
    here = {"command": "x=here", "session": "s", "stdin_base64": stdin}
    there = {"command": "x=there", "session": "s", "target": "box"}
    requests = hub.request_together(("bash", here), ("bash", there))
    answers = [hub.answer(each) for each in requests]
    [refused] = [each["error"] for each in answers if "error" in each]
    assert (refused["code"], refused["data"]["kind"]) == (-32602, "invalid_params")
    place = "here" if "result" in answers[0] else "there"
    assert hub.bash("echo $x", session="s")["stdout"] == f"{place}\n"
    hub.call("close_session", {"session": "s"})


def test_session_that_is_used_again_while_it_closes_stays_at_its_target(hub: RawDaemon) -> None:
    again = {"command": "x=2", "session": "s", "target": "box"}
    hub.bash("x=1", session="s", target="box")
    close, use = hub.request_together(("close_session", {"session": "s"}), ("bash", again))
    assert hub.answer(close)["result"]["session"] == "s"
    assert "result" in hub.answer(use)
    assert hub.bash("echo $x", session="s")["stdout"] == "2\n"
    hub.call("close_session", {"session": "s"})


def test_session_stays_at_its_target_although_another_target_does_not_have_it(
    hub: RawDaemon, tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "gate")
    late = ["sh", "-c", f"read go <{tmp_path}/gate; exec {shlex.join(FAR)}"]
    with target(hub, "late", *late):
        close = hub.request("close_session", {"session": "s", "target": "late"})
        hub.bash("x=1", session="s", target="box")
        (tmp_path / "gate").write_text("go\n")
        assert hub.answer(close)["error"]["code"] == 1007
        assert hub.bash("echo $x", session="s")["stdout"] == "1\n"
        hub.call("close_session", {"session": "s"})


@pytest.mark.parametrize("options", [{"dry_run": True}, {"key_must_exist": True}])
def test_session_of_a_request_that_starts_nothing_at_a_target_is_free(
    hub: RawDaemon, options: Json
) -> None:
    params = {"command": "true", "idempotency_key": "free", "session": "s", "target": "box"}
    hub.answer(hub.request("bash", {**params, **options}))
    assert not hub.bash("true", session="s")["bash_id"].startswith("box:")
    hub.call("close_session", {"session": "s"})


def test_target_can_have_targets_of_its_own(hub: RawDaemon) -> None:
    hub.call("add_target", {"name": "box:inner", "argv": FAR})
    bash_id = hub.background("sleep 300", target="box:inner", notify=["exit"])
    assert bash_id.startswith("box:inner:shell_")
    assert [each["name"] for each in hub.call("list_targets", {"target": "box"})["targets"]] == [
        "box:inner"
    ]
    assert hub.call("kill_shell", {"bash_id": bash_id, "grace": 0})["shell_id"] == bash_id
    event = next(each for each in iter(hub.receive, None) if "method" in each)["params"]
    assert (event["target"], event["bash_id"]) == ("box:inner", bash_id)
    assert event["requestId"] is not None
    assert hub.call("remove_target", {"name": "box:inner"}) == {"name": "box:inner", "ended": True}
    assert hub.fail("bash", {"command": "true", "target": "box:inner"})["code"] == -32602


def test_method_without_target_finds_a_session_at_a_target_of_a_target(hub: RawDaemon) -> None:
    hub.call("add_target", {"name": "box:inner", "argv": FAR})
    hub.bash("cd /", session="inner", target="box:inner")
    params = {"command": "rm -rf ./*", "session": "inner"}
    assert hub.call("explain_command", params)["verdict"] == "block"
    hub.call("remove_target", {"name": "box:inner"})


def test_session_of_a_removed_target_of_a_target_is_free(hub: RawDaemon) -> None:
    for name in ("box:inner", "box:other"):
        hub.call("add_target", {"name": name, "argv": FAR})
    hub.bash("x=1", session="lost", target="box:inner")
    hub.bash("x=2", session="kept", target="box:other")
    for elsewhere in ("box", "box:inner"):
        params = {"command": "true", "session": "kept", "target": elsewhere}
        assert hub.fail("bash", params)["message"] == "Session kept is at target box:other"
    hub.call("remove_target", {"name": "box:inner"})
    assert not hub.bash("true", session="lost")["bash_id"].startswith("box:")
    assert hub.bash("echo $x", session="kept")["stdout"] == "2\n"
    hub.call("remove_target", {"name": "box:other"})
    hub.call("close_session", {"session": "lost"})


@pytest.mark.parametrize("how", ["close_session", "remove_target"])
def test_session_is_free_after_its_target_was_lost_with_the_target_before(
    hub: RawDaemon, how: str
) -> None:
    with target(hub, "cut", *FAR, "--grace", "991"):
        hub.call("add_target", {"name": "cut:inner", "argv": FAR})
        hub.bash("true", session="lost", target="cut:inner")
        os.kill(daemon_of(hub, "991"), signal.SIGKILL)
        wait_for(lambda: hub.call("list_targets")["targets"][-1]["state"] == "lost")
        # The new daemon of `cut` has no targets.
        params = {"close_session": {"session": "lost"}, "remove_target": {"name": "cut:inner"}}
        assert hub.fail(how, params[how])["code"] == -32602
        assert not hub.bash("true", session="lost")["bash_id"].startswith("cut:")
    hub.call("close_session", {"session": "lost"})
