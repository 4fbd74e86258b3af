"""Connections to targets that are lost, or that never come about."""

from __future__ import annotations

import os
import select
import shlex
import signal
import sys
from pathlib import Path

import pytest

from event_reader import next_event
from shelld_protocol.about import PROTOCOL
from support import (
    Gate,
    RawDaemon,
    altered_daemon,
    is_alive,
    raw_daemon,
    running_below,
    stopped,
    wait_for,
)
from target_daemons import FAR, daemon_of, target

pytestmark = pytest.mark.slow


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
        assert error["message"].startswith("Cannot start the program that connects to the target")


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


# Runs a program, and passes its own input on, slowly.
_SLOW = """import os, subprocess, sys, time
far = subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE)
while data := os.read(0, 65_536):
    os.write(far.stdin.fileno(), data)
    time.sleep(0.05)
"""


def test_slow_upload_keeps_the_connection() -> None:
    constants = {"shelld.targets.link.PING_S": 0.5, "shelld.targets.link.SILENCE_S": 3.0}
    with raw_daemon(command=altered_daemon(constants)) as daemon:
        daemon.call("add_target", {"name": "box", "argv": [sys.executable, "-c", _SLOW, *FAR]})
        daemon.bash("x=1", target="box")
        # The target cannot answer a ping before it has all of the input.
        daemon.bash("cat >/dev/null", stdin="x" * 8_000_000, target="box")
        assert daemon.bash("echo $x", target="box")["stdout"] == "1\n"


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


def test_target_that_does_not_read_gets_no_more_requests() -> None:
    limit = {"shelld.targets.requests.MAX_UNSENT_BYTES": 1 << 20}
    with raw_daemon(command=altered_daemon(limit)) as daemon:
        with target(daemon, "deaf", "sleep", "300"):
            params = {"command": "true", "stdin": "x" * (2 << 20), "target": "deaf"}
            first = daemon.request("bash", params)
            error = daemon.fail("bash", {"command": "true", "target": "deaf"})
            assert (error["code"], error["data"]["limit"]) == (1005, "target")
            assert "More than 1 MiB of requests wait for target deaf" in error["message"]
        assert daemon.answer(first)["error"]["code"] == 1011


def test_requests_wait_behind_a_long_one(hub: RawDaemon) -> None:
    with target(hub, "busy"):
        params = {"command": "wc -c", "stdin": "x" * (9 << 20), "target": "busy"}
        answers = [hub.request("bash", params) for _ in range(4)]
        for each in answers:
            assert hub.answer(each)["result"]["stdout"] == f"{9 << 20}\n"
