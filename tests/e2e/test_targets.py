"""The daemon under test starts other daemons as targets, and passes requests on to them."""

from __future__ import annotations

import os
import shlex
import signal
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from support import (
    Gate,
    Json,
    Mark,
    RawDaemon,
    descendants,
    is_alive,
    raw_daemon,
    running_below,
    stopped,
    wait_for,
)
from target_daemons import FAR, daemon_of, target

pytestmark = pytest.mark.slow


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
    assert (box["name"], box["argv"], box["state"]) == ("box", [*FAR], "connected")
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
