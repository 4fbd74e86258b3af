"""`background` and `on_prompt` end a foreground call before its command ends."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support import Gate, Json, RawDaemon, raw_daemon, stopped, wait_for

ASKS = "echo start; read -rp 'Name? ' name; echo \"hello $name\""


def foreground(daemon: RawDaemon) -> Json | None:
    shells = daemon.call("list_shells")["shells"]
    return next((shell for shell in shells if shell.get("inForeground")), None)


def in_foreground(daemon: RawDaemon) -> Json:
    """Wait until a command in the foreground runs; return its shell."""
    wait_for(lambda: (found := foreground(daemon)) is not None and found["pid"] is not None)
    found = foreground(daemon)
    assert found is not None
    return found


# -- background -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["request_id", "bash_id"])
def test_foreground_call_is_handed_over(daemon: RawDaemon, tmp_path: Path, name: str) -> None:
    gate = Gate(tmp_path / "gate")
    call = daemon.request("bash", {"command": f"echo out; {gate.wait}; echo end"})
    shell = in_foreground(daemon)
    handed = {"request_id": call} if name == "request_id" else {"bash_id": shell["bash_id"]}
    assert daemon.call("background", handed) == {"bash_id": shell["bash_id"]}
    result = daemon.answer(call)["result"]
    assert (result["status"], result["bash_id"]) == ("running", shell["bash_id"])
    assert (result["pid"], result["prompt"]) == (shell["pid"], None)
    assert foreground(daemon) is None
    gate.open()
    wait = {"bash_id": shell["bash_id"], "until": "exit", "wait": 60_000}
    read = daemon.call("bash_output", wait)
    assert (read["stdout"], read["status"]) == ("out\nend\n", "completed")


def test_result_says_that_the_state_of_a_handed_over_command_is_lost(daemon: RawDaemon) -> None:
    # Some of the commands end before the daemon answers, so the answer is the result of a
    # foreground command.
    for number in range(50):
        command = {"command": f"x={number}", "session": "handed over"}
        with stopped(daemon.pid):
            call = daemon.request("bash", command)
            handed = daemon.request("background", {"request_id": call})
        result = daemon.answer(call)["result"]
        daemon.answer(handed)
        kept = daemon.bash("echo $x", session="handed over")["stdout"]
        if result["status"] == "running":
            assert kept != f"{number}\n"
        else:
            assert (kept != f"{number}\n") == (result.get("stateReason") == "background")


@pytest.mark.slow
def test_command_continues_without_its_limits(daemon: RawDaemon) -> None:
    params = {"command": "sleep 3; echo end", "timeout": 1_000, "idle_timeout": 1_000}
    # The daemon reads both requests at once, so it handles `background` before the time limits have
    # passed.
    messages = (
        {"jsonrpc": "2.0", "id": "limited", "method": "bash", "params": params},
        {"jsonrpc": "2.0", "id": 0, "method": "background", "params": {"request_id": "limited"}},
    )
    daemon.send_raw(b"".join(json.dumps(each).encode() + b"\n" for each in messages))
    assert "result" in daemon.answer(0)
    bash_id = daemon.answer("limited")["result"]["bash_id"]
    read = daemon.call("bash_output", {"bash_id": bash_id, "until": "exit", "wait": 60_000})
    assert (read["stdout"], read["status"]) == ("end\n", "completed")
    assert "reason" not in read


@pytest.mark.parametrize("name", ["request_id", "bash_id"])
def test_repeated_call_is_handed_over(daemon: RawDaemon, name: str) -> None:
    params = {"command": "echo out; sleep 300", "idempotency_key": f"repeated {name}"}
    started = daemon.bash(**params, run_in_background=True)
    calls = [daemon.request("bash", params) for _ in range(2)]
    handed = calls[1] if name == "request_id" else started["bash_id"]
    assert daemon.call("background", {name: handed}) == {"bash_id": started["bash_id"]}
    for call in calls:
        result = daemon.answer(call)["result"]
        assert (result["status"], result["pid"]) == ("running", started["pid"])
    error = daemon.answer(daemon.request("background", {"bash_id": started["bash_id"]}))["error"]
    assert "is in the background already" in error["message"]


def test_repeated_call_of_a_command_that_is_being_killed_is_not_handed_over(
    daemon: RawDaemon,
) -> None:
    command = "trap 'echo term' TERM; echo ready; while :; do sleep 0.1; done"
    params = {"command": command, "idempotency_key": "being killed"}
    bash_id = daemon.bash(**params, run_in_background=True)["bash_id"]
    wait = {"bash_id": bash_id, "until": "match", "wait": 60_000}
    daemon.call("bash_output", {**wait, "pattern": "ready"})
    repeated = daemon.request("bash", params)
    killed = daemon.request("kill_shell", {"shell_id": bash_id, "grace": 60_000})
    daemon.call("bash_output", {**wait, "pattern": "term"})
    error = daemon.answer(daemon.request("background", {"bash_id": bash_id}))["error"]
    assert "is being ended" in error["message"]
    daemon.call("kill_shell", {"shell_id": bash_id, "signal": "KILL"})
    daemon.answer(killed)
    assert daemon.answer(repeated)["result"]["status"] == "killed"


def test_request_is_found_before_its_command_starts(daemon: RawDaemon) -> None:
    # Both messages arrive at once.
    for number in range(20):
        command = {"command": "sleep 300", "session": None}
        first = {"jsonrpc": "2.0", "id": f"b{number}", "method": "bash", "params": command}
        handed = {"request_id": f"b{number}"}
        second = {"jsonrpc": "2.0", "id": number, "method": "background", "params": handed}
        daemon.send([first, second])
        answers = {answer["id"]: answer for answer in daemon.receive()}
        bash_id = answers[number]["result"]["bash_id"]
        assert answers[f"b{number}"]["result"]["bash_id"] == bash_id
        daemon.call("kill_shell", {"shell_id": bash_id, "grace": 0})


def test_tool_call_is_handed_over(daemon: RawDaemon) -> None:
    arguments = {"command": "echo out; sleep 300"}
    call = daemon.request("call_tool", {"name": "Bash", "arguments": arguments})
    bash_id = daemon.call("background", {"request_id": call})["bash_id"]
    result = daemon.answer(call)["result"]
    assert result["metadata"]["bash_id"] == bash_id
    assert result["metadata"]["is_running"]
    assert f"now in the background: {bash_id}" in result["output"]


def test_session_ignores_changes_of_a_handed_over_command(
    daemon: RawDaemon, tmp_path: Path
) -> None:
    gate = Gate(tmp_path / "gate")
    call = daemon.request("bash", {"command": f"cd /usr; {gate.wait}"})
    bash_id = daemon.call("background", {"request_id": call})["bash_id"]
    daemon.answer(call)
    gate.open()
    daemon.call("bash_output", {"bash_id": bash_id, "until": "exit", "wait": 60_000})
    assert daemon.bash("pwd")["stdout"] != "/usr\n"


def test_hand_over_needs_a_call_in_the_foreground(daemon: RawDaemon) -> None:
    running = daemon.background("sleep 300")
    ended = daemon.bash("true")["bash_id"]
    for params, code in (
        ({"bash_id": "shell_unknown"}, 1003),
        ({"bash_id": running}, -32602),
        ({"bash_id": ended}, -32602),
        ({"request_id": 10**9}, -32602),
        ({"request_id": "unknown"}, -32602),
        ({}, -32602),
        ({"request_id": 1, "bash_id": running}, -32602),
        ({"request_id": [1]}, -32602),
    ):
        assert daemon.fail("background", params)["code"] == code, params


def test_call_that_runs_no_command_is_refused(daemon: RawDaemon) -> None:
    bash_id = daemon.background("sleep 300")
    read = daemon.request("bash_output", {"bash_id": bash_id, "wait": 60_000})
    assert daemon.fail("background", {"request_id": read})["code"] == -32602
    daemon.notify("$/cancelRequest", {"id": read})
    daemon.answer(read)


def test_request_cannot_hand_over_itself(daemon: RawDaemon) -> None:
    request = daemon.request("background", {"request_id": "self"}, request_id="self")
    assert daemon.answer(request)["error"]["code"] == -32602


def test_call_is_handed_over_once(daemon: RawDaemon) -> None:
    call = daemon.request("bash", {"command": "sleep 300"})
    shell = in_foreground(daemon)
    requests = [daemon.request("background", {"bash_id": shell["bash_id"]}) for _ in range(5)]
    answers = [daemon.answer(request) for request in requests]
    assert sum("result" in answer for answer in answers) == 1
    assert daemon.answer(call)["result"]["status"] == "running"


def test_blocked_call_has_nothing_to_hand_over(daemon: RawDaemon) -> None:
    blocked = {"command": "mkfs.ext4 /dev/none"}
    first = {"jsonrpc": "2.0", "id": "b", "method": "bash", "params": blocked}
    handed = {"request_id": "b"}
    second = {"jsonrpc": "2.0", "id": "h", "method": "background", "params": handed}
    daemon.send([first, second])
    codes = {answer["id"]: answer["error"]["code"] for answer in daemon.receive()}
    assert codes == {"b": 1002, "h": -32602}


def both(daemon: RawDaemon, first: Json, second: Json) -> dict[str, Json]:
    """Send two requests in one batch; return the answers by id."""
    batch = [{"jsonrpc": "2.0", **each} for each in (first, second)]
    daemon.send(batch)
    return {answer["id"]: answer for answer in daemon.receive()}


def test_failed_start_is_the_answer_to_both(daemon: RawDaemon) -> None:
    # The system cannot start a program with such a large variable.
    params = {"command": "true", "env": {"LARGE": "x" * 2_000_000}}
    answers = both(
        daemon,
        {"id": "b", "method": "bash", "params": params},
        {"id": "h", "method": "background", "params": {"request_id": "b"}},
    )
    assert {answer["error"]["code"] for answer in answers.values()} == {1004}


def test_hand_overs_that_name_each_other_are_refused(daemon: RawDaemon) -> None:
    answers = both(
        daemon,
        {"id": "x", "method": "background", "params": {"request_id": "y"}},
        {"id": "y", "method": "background", "params": {"request_id": "x"}},
    )
    assert {answer["error"]["code"] for answer in answers.values()} == {-32602}


@pytest.mark.parametrize("is_tool", [False, True])
def test_read_of_a_foreground_shell_cannot_be_handed_over(daemon: RawDaemon, is_tool: bool) -> None:
    call = daemon.request("bash", {"command": "sleep 300"})
    shell = in_foreground(daemon)
    params: Json = {"bash_id": shell["bash_id"], "wait": 60_000}
    if is_tool:
        read = daemon.request("call_tool", {"name": "BashOutput", "arguments": params})
    else:
        read = daemon.request("bash_output", params)
    assert daemon.fail("background", {"request_id": read})["code"] == -32602
    assert in_foreground(daemon)["bash_id"] == shell["bash_id"]
    daemon.call("kill_shell", {"bash_id": shell["bash_id"], "grace": 0})
    daemon.answer(read)
    daemon.answer(call)


def test_command_that_is_being_ended_is_refused(daemon: RawDaemon) -> None:
    command = "trap 'echo told' TERM; echo ready; while :; do sleep 0.1; done"
    call = daemon.request("bash", {"command": command})
    shell = in_foreground(daemon)
    read = {"bash_id": shell["bash_id"], "until": "match", "wait": 60_000}
    daemon.call("bash_output", {**read, "pattern": "ready"})
    kill = daemon.request("kill_shell", {"bash_id": shell["bash_id"], "grace": 60_000})
    daemon.call("bash_output", {**read, "pattern": "told"})
    assert daemon.fail("background", {"bash_id": shell["bash_id"]})["code"] == -32602
    daemon.call("kill_shell", {"bash_id": shell["bash_id"], "signal": "KILL", "grace": 0})
    assert daemon.answer(call)["result"]["status"] == "killed"
    daemon.answer(kill)


def test_hand_over_does_not_wait_for_the_call_that_it_ends() -> None:
    with raw_daemon("--max-in-flight", "1") as daemon:
        call = daemon.request("bash", {"command": "sleep 300"})
        waiting = daemon.request("ping")
        handed = daemon.request("background", {"request_id": call})
        assert "result" in daemon.answer(handed)
        assert daemon.answer(call)["result"]["status"] == "running"
        daemon.answer(waiting)


def test_hand_over_of_a_call_in_the_queue_is_refused() -> None:
    with raw_daemon("--max-in-flight", "1") as daemon:
        first = daemon.request("bash", {"command": "sleep 300"})
        queued = daemon.request("bash", {"command": "echo queued"})
        assert daemon.fail("background", {"request_id": queued})["code"] == -32602
        daemon.call("background", {"request_id": first})
        assert daemon.answer(queued)["result"]["stdout"] == "queued\n"
        daemon.answer(first)


# -- on_prompt --------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["tty", "open_stdin"])
def test_call_returns_at_its_prompt(daemon: RawDaemon, kind: str) -> None:
    params = {"command": ASKS, kind: True, "on_prompt": "background"}
    result = daemon.call("bash", params)
    assert (result["status"], result["prompt"]["certainty"]) == ("running", "proved")
    answer = {"bash_id": result["bash_id"], "text": "Ann\n", "until": "exit", "wait": 60_000}
    output = daemon.call("write_stdin", answer)["stdout"]
    assert output.replace("\r", "").endswith("hello Ann\n")


@pytest.mark.parametrize("in_background", [False, True])
def test_command_is_killed_at_its_prompt(daemon: RawDaemon, in_background: bool) -> None:
    command, params = f"trap '' HUP; {ASKS}", {"tty": True, "on_prompt": "kill"}
    if in_background:
        bash_id = daemon.background(command, **params)
        result = daemon.call("bash_output", {"bash_id": bash_id, "until": "exit", "wait": 60_000})
    else:
        result = daemon.bash(command, **params)
    assert (result["status"], result["reason"]) == ("killed", "prompt")
    assert "start" in result["stdout"]


def test_background_command_is_not_touched_at_its_prompt(daemon: RawDaemon) -> None:
    bash_id = daemon.background(ASKS, tty=True, on_prompt="background", timeout=1_500)
    read = daemon.call("bash_output", {"bash_id": bash_id, "until": "exit", "wait": 60_000})
    assert read["status"] == "timeout"


@pytest.mark.parametrize("on_prompt", ["background", "kill"])
@pytest.mark.parametrize(
    "command",
    [
        # This output looks like a prompt, but the command reads nothing.
        "printf 'Password: '; sleep 1",
        # This command reads a pipe instead of its terminal.
        "read x < <(sleep 1; echo y)",
    ],
)
def test_command_that_waits_for_no_input_goes_on(
    daemon: RawDaemon, command: str, on_prompt: str
) -> None:
    result = daemon.call("bash", {"command": command, "tty": True, "on_prompt": on_prompt})
    assert (result["status"], result["exitCode"]) == ("completed", 0)


def test_answered_command_is_not_killed(daemon: RawDaemon) -> None:
    params = {"command": 'read x; echo "<$x>"', "stdin": "yes\n", "tty": True}
    result = daemon.call("bash", {**params, "on_prompt": "kill"})
    assert (result["status"], "<yes>" in result["stdout"]) == ("completed", True)


def test_on_prompt_has_no_effect_on_a_command_without_input(daemon: RawDaemon) -> None:
    result = daemon.call("bash", {"command": "read x; echo end", "on_prompt": "kill"})
    assert (result["status"], result["stdout"]) == ("completed", "end\n")


def test_program_with_a_timer_is_killed_at_its_prompt(daemon: RawDaemon) -> None:
    result = daemon.call("bash", {"command": "read -t 300 x", "tty": True, "on_prompt": "kill"})
    assert (result["status"], result["reason"]) == ("killed", "prompt")


def test_unknown_value_of_on_prompt_is_invalid(daemon: RawDaemon) -> None:
    error = daemon.fail("bash", {"command": "true", "on_prompt": "ask"})
    assert (error["code"], error["data"]["parameter"]) == (-32602, "on_prompt")


@pytest.mark.slow
def test_hand_over_ends_the_watch_for_prompts(daemon: RawDaemon, tmp_path: Path) -> None:
    # The command reaches its first prompt only after the test has opened the gate.
    gate = Gate(tmp_path / "gate")
    command = f"{gate.wait}; echo ready; read -r first; read -r name; echo end"
    params = {"command": command, "stdin": "", "tty": True, "on_prompt": "kill"}
    call = daemon.request("bash", params)
    shell = in_foreground(daemon)
    daemon.call("background", {"request_id": call})
    assert daemon.answer(call)["result"]["status"] == "running"
    gate.open()
    quiet = {"bash_id": shell["bash_id"], "until": "prompt", "wait": 60_000}
    assert daemon.call("bash_output", quiet)["reached"] == "prompt"
    later = {**quiet, "until": "quiet", "quiet_ms": 2_000}
    assert daemon.call("bash_output", later)["isRunning"]
