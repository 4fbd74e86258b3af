"""The daemon under test starts other daemons as targets, and passes requests on to them."""

from __future__ import annotations

import base64
import contextlib
import os
import select
import shlex
import signal
import sys
from collections.abc import Generator, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from event_reader import next_event
from shelld_protocol.about import PROTOCOL
from support import (
    DAEMON_COMMAND,
    Gate,
    Json,
    Mark,
    RawDaemon,
    altered_daemon,
    descendants,
    is_alive,
    raw_daemon,
    running_below,
    stopped,
    wait_for,
)

pytestmark = pytest.mark.slow

FAR = [*DAEMON_COMMAND, "--stdio"]


@pytest.fixture(scope="module")
def shared_hub() -> Iterator[RawDaemon]:
    targets = [f"--target={name}={shlex.join(FAR)}" for name in ("box", "other")]
    with raw_daemon(*targets) as daemon:
        daemon.bash("true", target="box")
        yield daemon


@pytest.fixture
def hub(shared_hub: RawDaemon) -> Iterator[RawDaemon]:
    """A daemon that the tests share. It has two targets, of which `box` is connected."""
    yield shared_hub
    # Check that the test has received every event that it has asked for.
    shared_hub.call("ping")
    left = shared_hub.unclaimed
    shared_hub.forget_answers()
    assert left == []


@contextlib.contextmanager
def target(daemon: RawDaemon, name: str, *argv: str) -> Generator[None]:
    """Add a target, and remove it when the `with` block ends.

    By default, the target is another daemon on this machine.
    """
    assert daemon.call("add_target", {"name": name, "argv": argv or FAR}) == {"name": name}
    yield
    daemon.call("remove_target", {"name": name})


# -- what is passed on --------------------------------------------------------------------------


def test_command_runs_at_its_target(hub: RawDaemon) -> None:
    far = hub.bash("echo $PPID; cd /tmp", target="box")
    assert far["bash_id"].startswith("box:shell_")
    here = hub.bash("echo $PPID; pwd")
    assert not here["bash_id"].startswith("box:")
    assert far["stdout"] != here["stdout"].partition("\n")[0] + "\n"
    # The daemon and the target each have a session `main` of their own.
    assert hub.bash("pwd", target="box")["stdout"] == "/tmp\n"
    assert here["stdout"].endswith(f"{os.getcwd()}\n")
    assert hub.call("get_session", {"target": "box"})["cwd"] == "/tmp"
    assert hub.call("get_session")["cwd"] == os.getcwd()


def test_positional_params_are_passed_on(hub: RawDaemon) -> None:
    bash_id = hub.background("echo out; sleep 300", target="box")
    assert hub.call("bash_output", [bash_id, None, 20_000])["stdout"] == "out\n"
    assert hub.call("kill_shell", [bash_id])["shell_id"] == bash_id


def test_every_method_takes_the_id_of_a_target(hub: RawDaemon) -> None:
    command = "read a; echo got $a; sleep 300"
    bash_id = hub.background(command, target="box", tty=True, description="far")
    written = hub.call(
        "write_stdin",
        {"bash_id": bash_id, "text": "x\n", "wait": 60_000, "until": "match", "pattern": "^got x"},
    )
    assert (written["bash_id"], written["reached"]) == (bash_id, "match")
    resized = hub.call("resize_shell", {"bash_id": bash_id, "rows": 5, "cols": 50})
    assert (resized["bash_id"], resized["cols"]) == (bash_id, 50)
    screen = hub.call("read_screen", {"bash_id": bash_id})
    assert (screen["bash_id"], screen["cols"]) == (bash_id, 50)
    listed = hub.call("list_shells", {"target": "box"})["shells"]
    assert [shell["description"] for shell in listed if shell["bash_id"] == bash_id] == ["far"]
    assert bash_id not in [shell["bash_id"] for shell in hub.call("list_shells")["shells"]]
    assert bash_id in hub.call("get_session", {"target": "box"})["shells"]
    refused = hub.fail("background", {"bash_id": bash_id})
    assert refused["code"] == -32602
    killed = hub.call("kill_shell", {"bash_id": bash_id, "grace": 0})
    assert killed["message"] == f"Shell {bash_id} terminated"
    gone = hub.fail("bash_output", {"bash_id": f"{bash_id}0"})
    assert (gone["code"], gone["message"]) == (1003, f"Shell not found: {bash_id}0")
    assert gone["data"]["bash_id"] == f"{bash_id}0"


def test_id_of_a_request_may_have_any_number_of_digits(hub: RawDaemon) -> None:
    # The number is sent as text, because Python cannot convert so many digits.
    hub.send_raw(
        b'{"jsonrpc":"2.0","id":"digits","method":"background","params":{"request_id":%b}}\n'
        % (b"1" * 5_000)
    )
    assert hub.answer("digits")["error"]["code"] == -32602


def test_cancelled_removal_ends_a_target_that_hangs(hub: RawDaemon) -> None:
    hub.call("add_target", {"name": "hung", "argv": FAR})
    before = set(descendants(hub.pid))
    hub.bash("true", target="hung")
    [far] = [pid for pid in set(descendants(hub.pid)) - before if _is_daemon(pid)]
    os.kill(far, signal.SIGSTOP)
    request = hub.request("remove_target", {"name": "hung"})
    hub.call("ping")
    hub.notify("$/cancelRequest", {"id": request})
    assert hub.answer(request)["error"]["code"] == -32800
    wait_for(lambda: not is_alive(far))


def _is_daemon(pid: int) -> bool:
    return b"\0-m\0shelld\0" in Path(f"/proc/{pid}/cmdline").read_bytes()


def test_errors_come_as_the_target_sends_them(hub: RawDaemon, tmp_path: Path) -> None:
    mark = Mark(tmp_path)
    command = f"echo so far; {mark.touch}; sleep 300"
    params = {"command": command, "timeout": 1000, "target": "box"}
    timeout = mark.in_time(partial(hub.fail, "bash", params))
    assert (timeout["code"], timeout["data"]["kind"]) == (1001, "timeout")
    assert timeout["message"] == "Command timed out after 1000ms"
    assert timeout["data"]["stdout"] == "so far\n"
    assert timeout["data"]["bash_id"].startswith("box:shell_")
    invalid = hub.fail("bash", {"command": "", "target": "box"})
    assert invalid["data"] == {"kind": "invalid_params", "parameter": "command"}
    # The guard of the target judges the command. Nothing runs in a dry run.
    blocked = hub.fail("bash", {"command": ":(){ :|:& };:", "dry_run": True, "target": "box"})
    assert blocked["code"] == 1002


def test_slow_call_delays_no_other_answer(hub: RawDaemon, tmp_path: Path) -> None:
    gate = Gate(tmp_path / "gate")
    slow = hub.request("bash", {"command": gate.wait, "target": "box", "session": None})
    assert hub.bash("echo 1", target="box")["stdout"] == "1\n"
    assert hub.bash("echo 2")["stdout"] == "2\n"
    gate.open()
    assert hub.answer(slow)["result"]["exitCode"] == 0


def test_long_output_comes_whole(hub: RawDaemon) -> None:
    text = hub.bash("head -c 1000000 /dev/zero | tr '\\0' x", target="box")["stdout"]
    assert text == "x" * 1_000_000


def test_cancelled_call_kills_its_command_there(hub: RawDaemon) -> None:
    call = hub.request("bash", {"command": "sleep 4096", "target": "box"})
    wait_for(lambda: running_below(hub.pid, "4096"))
    hub.notify("$/cancelRequest", {"id": call})
    assert hub.answer(call)["error"]["code"] == -32800
    assert running_below(hub.pid, "sleep\x004096") == []


def test_cancelled_call_that_was_not_sent_is_answered(hub: RawDaemon) -> None:
    with target(hub, "silent", "sleep", "300"):
        call = hub.request("bash", {"command": "true", "target": "silent"})
        hub.notify("$/cancelRequest", {"id": call})
        assert hub.answer(call)["error"]["data"] == {"kind": "cancelled"}


@pytest.mark.parametrize("key", [None, "build"])
def test_command_of_a_call_cancelled_before_it_began_does_not_start_there(
    hub: RawDaemon, tmp_path: Path, key: str | None
) -> None:
    log = tmp_path / "log"
    name = f"logged-{key}"
    lead = f"tee {log} | {shlex.join(FAR)}"
    hub.call("add_target", {"name": name, "argv": ["sh", "-c", lead]})
    hub.bash("true", target=name)
    params = {"command": "echo unwanted", "target": name, "idempotency_key": key}
    with stopped(hub.pid):
        call = hub.request("bash", params)
        hub.notify("$/cancelRequest", {"id": call})
    assert hub.answer(call)["error"]["code"] == -32800
    hub.call("list_shells", {"target": name})
    sent = [line for line in log.read_text().splitlines() if "unwanted" in line]
    # A repeated call is sent, so that its cancellation can end the command. But it must not start
    # the command.
    assert ["key_must_exist" in line for line in sent] == ([] if key is None else [True])


def test_cancelled_repeat_that_began_late_kills_its_command_there(hub: RawDaemon) -> None:
    params = {"command": "sleep 4098", "target": "box", "idempotency_key": "late"}
    hub.call("bash", {**params, "run_in_background": True})
    with stopped(hub.pid):
        again = hub.request("bash", params)
        hub.notify("$/cancelRequest", {"id": again})
    assert hub.answer(again)["error"]["code"] == -32800
    wait_for(lambda: running_below(hub.pid, "sleep\x004098") == [])


@pytest.mark.parametrize(("own", "named"), [("mine", "mine"), (-5, -5), (5_000, 5_000.0)])
def test_call_in_flight_is_handed_over_by_its_request(
    hub: RawDaemon, own: int | str, named: float | str
) -> None:
    call = hub.request("bash", {"command": "sleep 300", "target": "box"}, request_id=own)
    handed = hub.call("background", {"request_id": named})
    assert hub.answer(call)["result"]["bash_id"] == handed["bash_id"]
    assert handed["bash_id"].startswith("box:")
    hub.call("kill_shell", {"bash_id": handed["bash_id"]})


# -- events -------------------------------------------------------------------------------------


def test_events_come_after_the_answer_with_the_target(hub: RawDaemon, tmp_path: Path) -> None:
    gate = Gate(tmp_path / "gate")
    bash_id = hub.background(f"{gate.wait}; echo out", target="box")
    request = hub.request("subscribe", {"bash_id": bash_id, "events": ["exit", "output"]})
    answer = hub.receive()
    assert answer["id"] == request
    name = answer["result"]["subscription"]
    assert name.startswith("box:")
    gate.open()
    output, ended = hub.receive(), hub.receive()
    assert (output["method"], ended["method"]) == ("shell/output", "shell/exited")
    for number, event in enumerate((output["params"], ended["params"]), 1):
        about = [event[key] for key in ("target", "bash_id", "subscription", "seq", "requestId")]
        assert about == ["box", bash_id, name, number, request]
    # The target keeps the journal of the subscription, so the target answers this request.
    again = hub.request("subscribe", {"subscription": name, "from_seq": 1})
    assert hub.receive()["id"] == again
    assert hub.receive()["params"]["requestId"] == again
    assert hub.call("unsubscribe", {"subscription": name}) == {}


def test_events_of_a_foreground_call_have_its_id(hub: RawDaemon) -> None:
    params = {"command": "echo out", "target": "box", "notify": ["output", "exit"]}
    call = hub.request("bash", params, request_id='a "quoted" \u00e9 id')
    messages = [hub.receive() for _ in range(3)]
    events = [each["params"] for each in messages if "method" in each]
    assert [event["requestId"] for event in events] == [call, call]
    assert events[0]["text"] == "out\n"


def test_name_of_a_lost_subscription_is_not_used_again(hub: RawDaemon) -> None:
    names: list[str] = []
    for _ in range(2):
        with target(hub, "mortal"):
            names.append(
                hub.call("subscribe", {"target": "mortal", "events": ["exit"]})["subscription"]
            )
            # A client can miss the loss of the target, and continue the subscription.
            for lost in names[:-1]:
                error = hub.fail("subscribe", {"subscription": lost, "from_seq": 0})
                assert error["data"]["parameter"] == "subscription"
        assert hub.receive()["method"] == "shell/lost"


def test_target_can_be_given_together_with_an_id_of_the_target(hub: RawDaemon) -> None:
    bash_id = hub.background("sleep 300", target="box")
    params = {"target": "box", "bash_id": bash_id, "events": ["leftover"]}
    name = hub.call("subscribe", params)["subscription"]
    again = hub.call("subscribe", {"target": "box", "subscription": name})
    assert (again["subscription"], again["bash_id"]) == (name, bash_id)
    error = hub.fail("subscribe", {**params, "target": "other"})
    assert error["data"]["parameter"] == "target"
    hub.call("unsubscribe", {"subscription": name})
    hub.call("kill_shell", {"bash_id": bash_id, "grace": 0})


def test_subscription_to_all_shells_of_a_target(hub: RawDaemon) -> None:
    name = hub.call("subscribe", {"target": "box", "events": ["exit"]})["subscription"]
    hub.bash("true")
    bash_id = hub.bash("true", target="box")["bash_id"]
    assert hub.receive()["params"]["bash_id"] == bash_id
    hub.call("unsubscribe", {"subscription": name})
    hub.forget_answers()


# -- sessions -----------------------------------------------------------------------------------


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


# -- targets that have targets of their own -----------------------------------------------------


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


# -- the table of targets -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("params", "parameter"),
    [
        ({"name": "box", "argv": ["true"]}, "name"),
        ({"name": "a b", "argv": ["true"]}, "name"),
        ({"name": "", "argv": ["true"]}, "name"),
        ({"name": "-x", "argv": ["true"]}, "name"),
        ({"name": "x" * 65, "argv": ["true"]}, "name"),
        ({"name": "unknown:x", "argv": ["true"]}, "name"),
        ({"name": "x", "argv": "ssh box shelld"}, "argv"),
        ({"name": "x", "argv": []}, "argv"),
        ({"name": "x", "argv": [""]}, "argv"),
        ({"name": "x", "argv": ["true", 1]}, "argv"),
        ({"name": "x", "argv": ["a\0b"]}, "argv"),
        ({"name": "x", "argv": ["x"] * 1_001}, "argv"),
        ({"name": "x"}, "argv"),
    ],
)
def test_invalid_target_is_refused(hub: RawDaemon, params: Json, parameter: str) -> None:
    error = hub.fail("add_target", params)
    assert (error["code"], error["data"]["parameter"]) == (-32602, parameter)
    if params["name"] == "unknown:x":
        assert error["message"] == "Invalid value for name: there is no target unknown"


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("bash", {"command": "true"}),
        ("configure_session", {"session": "x"}),
        ("get_session", {}),
        ("close_session", {"session": "x"}),
        ("list_shells", {}),
        ("subscribe", {"events": ["exit"]}),
        ("list_targets", {}),
    ],
)
def test_unknown_target_is_refused(
    hub: RawDaemon, daemon: RawDaemon, method: str, params: Json
) -> None:
    # The second daemon has no targets at all.
    for each in (hub, daemon):
        error = each.fail(method, {**params, "target": "nowhere"})
        assert error["message"] == "Invalid value for target: there is no target nowhere"
        assert error["data"]["parameter"] == "target"


def test_id_of_an_unknown_target_is_unknown(hub: RawDaemon, daemon: RawDaemon) -> None:
    for each in (hub, daemon):
        error = each.fail("kill_shell", {"bash_id": "nowhere:shell_1"})
        assert (error["code"], error["data"]["bash_id"]) == (1003, "nowhere:shell_1")
        assert each.fail("remove_target", {"name": "nowhere"})["data"]["parameter"] == "name"


def test_method_without_target_refuses_one(hub: RawDaemon) -> None:
    error = hub.fail("bash_output", {"bash_id": "shell_1", "target": "box"})
    assert error["message"] == "Unknown parameter: target"


def test_targets_are_listed_with_their_state(hub: RawDaemon) -> None:
    box, other = hub.call("list_targets")["targets"][:2]
    assert (box["name"], box["argv"], box["state"]) == ("box", FAR, "connected")
    assert (other["name"], other["state"], other["version"]) == ("other", "unused", None)
    assert box["version"] == hub.call("server_info")["version"]


def test_removed_target_ends_with_its_shells(hub: RawDaemon) -> None:
    with target(hub, "extra", *FAR, "--grace", "999"):
        bash_id = hub.background("sleep 300", target="extra", session="s")
        family = descendants(daemon_of(hub, "999"))
    wait_for(lambda: not any(map(is_alive, family)))
    assert "extra" not in [each["name"] for each in hub.call("list_targets")["targets"]]
    assert hub.fail("kill_shell", {"bash_id": bash_id})["code"] == 1003
    # The daemon has also forgotten the sessions of the target.
    assert hub.bash("echo here", session="s")["stdout"] == "here\n"
    hub.call("close_session", {"session": "s"})


def test_removed_target_answers_its_calls_in_flight(hub: RawDaemon) -> None:
    with target(hub, "extra"):
        background = hub.background("sleep 300", target="extra")
        calls = [
            hub.request("bash", {"command": "sleep 300", "target": "extra"}),
            hub.request("bash_output", {"bash_id": background, "until": "exit", "wait": 60_000}),
        ]
        hub.bash("true", target="extra")
    command, read = (hub.answer(call) for call in calls)
    # The wait may end because the shell has ended, or because the target is lost.
    assert "result" in read or read["error"]["code"] == 1011
    error = command["error"]
    assert error["message"] == "Target extra is shutting down"
    assert (error["code"], error["data"]["kind"]) == (1011, "target_lost")
    assert (error["data"]["target"], error["data"]["maybeStarted"]) == ("extra", True)
    assert error["data"]["bash_id"].startswith("extra:shell_")


@pytest.mark.parametrize("how", ["end_input", "SIGTERM", "SIGKILL"])
def test_targets_end_with_the_daemon(how: str) -> None:
    with raw_daemon(f"--target=box={shlex.join(FAR)}") as daemon:
        daemon.background("setsid sleep 300 & sleep 300", target="box")
        family = descendants(daemon.pid)
        if how == "end_input":
            daemon.end_input()
        else:
            daemon.process.send_signal(signal.Signals[how])
        daemon.wait()
    wait_for(lambda: not any(map(is_alive, family)))


# -- lost connections ---------------------------------------------------------------------------


def daemon_of(hub: RawDaemon, word: str) -> int:
    """Return the pid of the target's daemon that has `word` among its options."""
    return running_below(hub.pid, f"\0{word}\0")[0]


def test_calls_on_a_cut_link_fail_and_the_next_one_connects(hub: RawDaemon) -> None:
    with target(hub, "cut", *FAR, "--grace", "998"):
        hub.bash("x=1", target="cut", session="far")
        bash_id = hub.background("sleep 4097", target="cut")
        calls = [
            hub.request("bash", {"command": "sleep 4098", "target": "cut"}),
            hub.request("bash_output", {"bash_id": bash_id, "wait": 60_000}),
        ]
        wait_for(lambda: running_below(hub.pid, "sleep\x004098"))
        os.kill(daemon_of(hub, "998"), signal.SIGKILL)
        for call in calls:
            error = hub.answer(call)["error"]
            assert (error["code"], error["data"]["kind"]) == (1011, "target_lost")
            assert (error["data"]["target"], error["data"]["maybeStarted"]) == ("cut", True)
            assert error["message"].startswith("The connection to target cut is gone: ")
        assert hub.call("list_targets")["targets"][-1]["state"] == "lost"
        wait_for(lambda: not running_below(hub.pid, "sleep\x00409"))
        assert hub.bash("echo again", target="cut")["stdout"] == "again\n"
        assert hub.fail("bash_output", {"bash_id": bash_id})["code"] == 1003
        assert hub.bash("echo ${x-new state}", session="far")["stdout"] == "new state\n"


@pytest.mark.parametrize("session", ["main", "limited"])
def test_settings_of_a_session_apply_again_after_a_cut(hub: RawDaemon, session: str) -> None:
    with target(hub, "cut", *FAR, "--grace", "994"):
        for limits in ({"open_files": 55}, {"open_files": 44}):
            # The last settings count.
            hub.call("configure_session", {"session": session, "limits": limits, "target": "cut"})
        run = {"command": "ulimit -n", "session": session, "target": "cut"}
        for _ in range(2):
            os.kill(daemon_of(hub, "994"), signal.SIGKILL)
            wait_for(lambda: hub.call("list_targets")["targets"][-1]["state"] == "lost")
            for call in hub.request_together(("bash", run), ("bash", run)):
                assert hub.answer(call)["result"]["stdout"] == "44\n"
        hub.call("close_session", {"session": session, "target": "cut"})
        assert hub.call("bash", run)["stdout"] != "44\n"
        hub.call("close_session", {"session": session, "target": "cut"})


def test_settings_of_an_inner_target_apply_again_after_a_cut(hub: RawDaemon) -> None:
    with target(hub, "cut", *FAR, "--grace", "992", f"--target=in={shlex.join(FAR)}"):
        for where, limit in (("cut", 44), ("cut:in", 45)):
            params = {"session": "main", "limits": {"open_files": limit}, "target": where}
            hub.call("configure_session", params)
        params = {"session": "inner", "limits": {"open_files": 46}, "target": "cut:in"}
        hub.call("configure_session", params)
        os.kill(daemon_of(hub, "992"), signal.SIGKILL)
        wait_for(lambda: hub.call("list_targets")["targets"][-1]["state"] == "lost")
        assert hub.bash("ulimit -n", target="cut")["stdout"] == "44\n"
        assert hub.bash("ulimit -n", target="cut:in")["stdout"] == "45\n"
        assert hub.bash("ulimit -n", session="inner")["stdout"] == "46\n"


def test_command_does_not_run_without_the_settings_of_its_session(
    hub: RawDaemon, tmp_path: Path
) -> None:
    # From the second start on, the target does not take so high a limit.
    script = f'[ -e {tmp_path}/old ] && set -- "$@" --limit open_files=40; : > {tmp_path}/old'
    with target(hub, "cut", "sh", "-c", f'{script}; exec "$@"', "sh", *FAR, "--grace", "993"):
        limits = {"open_files": 44}
        hub.call("configure_session", {"session": "lost", "limits": limits, "target": "cut"})
        hub.bash("true", session="lost")
        os.kill(daemon_of(hub, "993"), signal.SIGKILL)
        wait_for(lambda: hub.call("list_targets")["targets"][-1]["state"] == "lost")
        for _ in range(2):
            error = hub.fail("bash", {"command": f": > {tmp_path}/ran", "session": "lost"})
            assert error["data"]["parameter"] == "limits.open_files"
        assert not (tmp_path / "ran").exists()


def test_command_does_not_run_after_a_cut_if_the_sandbox_of_its_session_never_started(
    hub: RawDaemon, tmp_path: Path
) -> None:
    bwrap = tmp_path / "bwrap"
    bwrap.write_text("#!/bin/sh\nexit 1\n")
    bwrap.chmod(0o755)
    path = f"PATH={tmp_path}:{os.environ['PATH']}"
    with target(hub, "cut", "env", path, *FAR, "--grace", "990"):
        session = {"session": "sealed", "target": "cut"}
        settings = {"sandbox": {"mode": "read-only"}}
        assert hub.fail("configure_session", session | settings)["code"] == 1010
        assert hub.fail("bash", {"command": "true"} | session)["code"] == 1010
        os.kill(daemon_of(hub, "990"), signal.SIGKILL)
        wait_for(lambda: hub.call("list_targets")["targets"][-1]["state"] == "lost")
        assert hub.fail("bash", {"command": "true"} | session)["code"] == 1010


def test_call_that_waits_for_the_settings_of_its_session_is_handed_over(
    hub: RawDaemon, tmp_path: Path
) -> None:
    # From the second start on, the target starts when the test tells it to.
    old, new = shlex.quote(f"{tmp_path}/old"), shlex.quote(f"{tmp_path}/new")
    script = f"[ ! -e {old} ] || until [ -e {new} ]; do sleep 0.05; done; : > {old}"
    with target(hub, "cut", "sh", "-c", f'{script}; exec "$@"', "sh", *FAR, "--grace", "988"):
        limits = {"open_files": 44}
        hub.call("configure_session", {"session": "far", "limits": limits, "target": "cut"})
        os.kill(daemon_of(hub, "988"), signal.SIGKILL)
        wait_for(lambda: hub.call("list_targets")["targets"][-1]["state"] == "lost")
        call = hub.request("bash", {"command": "sleep 300", "session": "far"})
        handing = hub.request("background", {"request_id": call})
        hub.call("ping")
        (tmp_path / "new").touch()
        handed = hub.answer(handing)["result"]
        assert handed["bash_id"] == hub.answer(call)["result"]["bash_id"]
        hub.call("kill_shell", {"bash_id": handed["bash_id"]})


def test_command_that_waits_for_lost_settings_has_not_started(
    hub: RawDaemon, tmp_path: Path
) -> None:
    # From the second start on, the target answers the first request, and ends at the second one.
    greeting = {"version": "1", "protocol": PROTOCOL, "limits": {"maxMessageBytes": 1_000_000}}
    ends = f"""
import json, sys
answer = {{"jsonrpc": "2.0", "id": json.loads(input())["id"], "result": {greeting}}}
print(json.dumps(answer, separators=(",", ":")), flush=True)
input()
"""
    started = shlex.quote(f"{tmp_path}/started")
    script = f"[ -e {started} ] && exec {shlex.join([sys.executable, '-c', ends])}; : > {started}"
    with target(hub, "cut", "sh", "-c", f'{script}; exec "$@"', "sh", *FAR, "--grace", "989"):
        limits = {"open_files": 44}
        hub.call("configure_session", {"session": "far", "limits": limits, "target": "cut"})
        os.kill(daemon_of(hub, "989"), signal.SIGKILL)
        wait_for(lambda: hub.call("list_targets")["targets"][-1]["state"] == "lost")
        error = hub.fail("bash", {"command": "true", "session": "far"})
        assert (error["code"], error["data"]["maybeStarted"]) == (1011, False)


def test_subscribers_learn_that_the_link_is_cut(hub: RawDaemon) -> None:
    with target(hub, "cut", *FAR, "--grace", "996"):
        over = hub.request("bash", {"command": "true", "target": "cut", "notify": ["exit"]})
        hub.answer(over)
        assert hub.receive()["params"]["requestId"] == over
        everything = hub.request("subscribe", {"events": ["prompt"], "target": "cut"})
        left = hub.call("subscribe", {"events": ["exit"], "target": "cut"})["subscription"]
        hub.call("unsubscribe", {"subscription": left})
        sleep = {"command": "sleep 4096", "run_in_background": True, "target": "cut"}
        one = hub.request("bash", {**sleep, "notify": ["output", "exit"]})
        names = [hub.answer(each)["result"]["subscription"] for each in (everything, one)]
        os.kill(daemon_of(hub, "996"), signal.SIGKILL)
        told = [hub.receive() for _ in names]
        assert {each["method"] for each in told} == {"shell/lost"}
        params = [each["params"] for each in told]
        assert [(each["subscription"], each["requestId"]) for each in params] == list(
            zip(names, (everything, one), strict=True)
        )
        for each in params:
            assert each["target"] == "cut"
            assert each["message"].startswith("The connection to target cut is gone: ")
        # No other notification arrives, and none arrives twice.
        ping = hub.request("ping")
        assert hub.receive()["id"] == ping


def test_continued_subscription_at_a_target_tells_its_end(hub: RawDaemon, tmp_path: Path) -> None:
    gate = Gate(tmp_path / "gate")
    with target(hub, "far", *FAR):
        command = {"command": gate.wait, "run_in_background": True, "target": "far"}
        name = hub.call("bash", {**command, "notify": ["output"]})["subscription"]
        request = hub.request("subscribe", {"subscription": name})
        hub.answer(request)
        gate.open()
        over = next_event(hub, "over")
        assert (over["subscription"], over["requestId"]) == (name, request)
        assert (name.partition(":")[0], over["target"]) == ("far", "far")


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("echo Welcome; echo denied >&2; exit 3", "its program has ended with exit code 3: denied"),
        ("echo hello; kill -9 $$", "its program was ended by SIGKILL: hello"),
        ("head -c 70000 /dev/zero | tr '\\0' x; cat", "it does not speak the protocol of shelld"),
    ],
)
def test_error_quotes_a_program_that_is_not_shelld(
    hub: RawDaemon, script: str, message: str
) -> None:
    with target(hub, "bad", "sh", "-c", script):
        error = hub.fail("bash", {"command": "true", "target": "bad"})
    assert (error["code"], error["data"]["maybeStarted"]) == (1011, False)
    assert f"Target bad cannot be reached: {message}" in error["message"]
    assert len(error["data"]["text"]) <= 4_096


def test_target_that_may_still_connect_delays_nobody(hub: RawDaemon) -> None:
    # `cat` sends the request back. A request is not an answer, so the daemon still waits for one.
    with target(hub, "echoing", "cat"):
        call = hub.request("bash", {"command": "true", "target": "echoing"})
        assert hub.bash("echo here")["stdout"] == "here\n"
        assert hub.bash("echo there", target="box")["stdout"] == "there\n"
        assert hub.call("list_targets")["targets"][-1]["state"] == "connecting"
    assert hub.answer(call)["error"]["data"]["maybeStarted"] is False


def test_banner_before_the_protocol_is_skipped(hub: RawDaemon) -> None:
    banner = 'printf \'Last login: today\\n{"jsonrpc": "2.0"}\\nno newline\''
    with target(hub, "greeting", "sh", "-c", f"{banner}; exec {shlex.join(FAR)}"):
        assert hub.bash("echo hi", target="greeting")["stdout"] == "hi\n"


def test_echo_of_a_request_is_not_its_answer(hub: RawDaemon) -> None:
    echo = 'while read -r line; do echo "$line" >&3; echo "$line"; done'
    with target(hub, "echo", "bash", "-c", f"exec 3>&1; {echo} | {shlex.join(FAR)}"):
        assert hub.bash("echo hi", target="echo")["stdout"] == "hi\n"


def test_answer_without_a_result_is_invalid(hub: RawDaemon) -> None:
    far = f"""{shlex.join(FAR)} | sed -u 's/,"result":{{"bash_id.*/}}/'"""
    with target(hub, "empty", "sh", "-c", far):
        error = hub.fail("bash", {"command": "true", "target": "empty"})
        assert (error["code"], error["data"]["maybeStarted"]) == (1011, True)


def test_missing_program_is_a_failed_start(hub: RawDaemon, tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_text("no program")
    text.chmod(0o755)
    for program, errno in (("no-such-program", "ENOENT"), (str(text), "ENOEXEC")):
        with target(hub, "none", program):
            error = hub.fail("bash", {"command": "true", "target": "none"})
        assert (error["code"], error["data"]["errno"]) == (1004, errno)


def test_other_version_of_the_protocol_is_refused(hub: RawDaemon) -> None:
    with target(hub, "old", *altered_daemon({"shelld.methods.about.PROTOCOL": 99})):
        error = hub.fail("bash", {"command": "true", "target": "old"})
    assert (error["code"], error["data"]["what"]) == (1010, "target old")
    assert "protocol 99" in error["data"]["hint"]


def test_message_that_the_target_would_refuse_is_not_sent(hub: RawDaemon) -> None:
    with target(hub, "small", *FAR, "--max-message-bytes", "2000"):
        for _ in range(2):
            # For the first request, the daemon does not know the limit yet.
            params = {"command": "true", "stdin": "x" * 3_000, "target": "small"}
            error = hub.fail("bash", params)
            assert (error["code"], error["data"]["max_message_bytes"]) == (-32600, 2_000)


def test_target_that_is_silent_counts_as_lost() -> None:
    constants = {"shelld.targets.link.PING_S": 0.5, "shelld.targets.link.SILENCE_S": 4.0}
    with raw_daemon(command=altered_daemon(constants)) as daemon:
        daemon.call("add_target", {"name": "box", "argv": [*FAR, "--grace", "997"]})
        # While the command sleeps, the target sends no message by itself, but it answers pings.
        daemon.bash("sleep 6", target="box")
        far = daemon_of(daemon, "997")
        os.kill(far, signal.SIGSTOP)
        error = daemon.fail("bash", {"command": "true", "target": "box"})
        assert (error["code"], error["data"]["maybeStarted"]) == (1011, True)
        wait_for(lambda: not is_alive(far))


def test_connection_outlives_a_stop_of_the_daemon() -> None:
    constants = {"shelld.targets.link.PING_S": 0.5, "shelld.targets.link.SILENCE_S": 4.0}
    with raw_daemon(command=altered_daemon(constants)) as daemon:
        daemon.call("add_target", {"name": "box", "argv": FAR})
        daemon.bash("x=1", target="box")
        with stopped(daemon.pid):
            select.select([], [], [], 6)
        assert daemon.bash("echo $x", target="box")["stdout"] == "1\n"


def test_target_that_never_answers_is_given_up() -> None:
    with raw_daemon(command=altered_daemon({"shelld.targets.link.CONNECT_S": 0.3})) as daemon:
        daemon.call("add_target", {"name": "silent", "argv": ["sleep", "300"]})
        error = daemon.fail("bash", {"command": "true", "target": "silent"})
        assert error["data"]["maybeStarted"] is False


def test_target_that_does_not_read_gets_no_more_requests(hub: RawDaemon) -> None:
    with target(hub, "deaf", "sleep", "300"):
        params = {"command": "true", "stdin": "x" * (9 << 20), "target": "deaf"}
        first = hub.request("bash", params)
        error = hub.fail("bash", {"command": "true", "target": "deaf"})
        assert (error["code"], error["data"]["limit"]) == (1005, "target")
    assert hub.answer(first)["error"]["code"] == 1011


# -- the command line ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "values",
    [["box"], ["=true"], ["a b=true"], ["box="], ["box='"], ["box=true", "box=true"]],
)
def test_invalid_option_is_refused(values: list[str]) -> None:
    options = [f"--target={value}" for value in values]
    with raw_daemon(*options, stderr_is_silent=False) as daemon:
        assert daemon.wait() == 2
    assert b"--target" in daemon.stderr


def test_configuration_file_has_a_table_of_targets(tmp_path: Path) -> None:
    config = tmp_path / "shelld.toml"
    config.write_text('target = { box = "ssh box shelld", other = "true" }\n')
    with raw_daemon("--config", str(config)) as daemon:
        targets: Any = daemon.call("list_targets")["targets"]
    assert [target["argv"] for target in targets] == [["ssh", "box", "shelld"], ["true"]]


def test_option_is_split_like_shell_words() -> None:
    line = f"{shlex.quote(sys.executable)} -c 'print(1)' \"two words\" $HOME"
    with raw_daemon(f"--target=box={line}") as daemon:
        argv: Any = daemon.call("list_targets")["targets"][0]["argv"]
    assert argv == [sys.executable, "-c", "print(1)", "two words", "$HOME"]
