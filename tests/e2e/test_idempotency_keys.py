"""A request that repeats an `idempotency_key` starts nothing, and returns the same shell."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from support import Gate, Json, RawDaemon, is_alive, raw_daemon, wait_for

# The method that cancels a request so that the request gets no answer, and the parameter that names
# the request.
SILENT_CANCEL = ("notifications/cancelled", "requestId")


def counting(tmp_path: Path, rest: str = "") -> str:
    """Return a command that notes each of its starts in a file."""
    return f"echo start >> {tmp_path}/starts; {rest}"


def starts(tmp_path: Path) -> int:
    path = tmp_path / "starts"
    return len(path.read_text().splitlines()) if path.exists() else 0


def test_repeat_returns_the_same_result(daemon: RawDaemon, tmp_path: Path) -> None:
    params = {"command": counting(tmp_path, "echo out; exit 3"), "idempotency_key": "same"}
    first = daemon.call("bash", params)
    again = daemon.call("bash", params)
    del first["sessionCwd"], again["sessionCwd"]
    assert again == first
    assert (again["stdout"], again["exitCode"], starts(tmp_path)) == ("out\n", 3, 1)


def test_repeat_waits_for_the_first(daemon: RawDaemon, tmp_path: Path) -> None:
    gate = Gate(tmp_path / "gate")
    params = {"command": counting(tmp_path, f"{gate.wait}; echo end"), "idempotency_key": "wait"}
    # Send all requests in one message, so that most arrive before the command has started.
    message = [
        {"jsonrpc": "2.0", "id": number, "method": "bash", "params": params} for number in range(9)
    ]
    daemon.send(message)
    wait_for(lambda: starts(tmp_path))
    gate.open()
    results = [answer["result"] for answer in daemon.receive()]
    assert {result["bash_id"] for result in results} == {results[0]["bash_id"]}
    assert {result["stdout"] for result in results} == {"end\n"}
    assert starts(tmp_path) == 1


def test_background_start_is_found_again(daemon: RawDaemon, tmp_path: Path) -> None:
    params = {
        "command": counting(tmp_path, "sleep 300"),
        "idempotency_key": "server",
        "run_in_background": True,
    }
    first = daemon.call("bash", params)
    assert daemon.call("bash", params) == first
    wait_for(lambda: starts(tmp_path))
    daemon.call("kill_shell", {"shell_id": first["bash_id"], "grace": 0})
    again = daemon.call("bash", params)
    assert (again["bash_id"], again["status"]) == (first["bash_id"], "killed")
    assert starts(tmp_path) == 1


@pytest.mark.slow
@pytest.mark.parametrize("action", ["kill", "background"])
def test_repeat_has_its_own_timeout_once_no_other_call_waits(
    daemon: RawDaemon, action: str
) -> None:
    key = f"timeout {action}"
    params = {"command": "echo out; sleep 300", "idempotency_key": key, "on_timeout": action}
    bash_id = daemon.bash(**params, run_in_background=True)["bash_id"]

    def has_written() -> bool:
        shells = daemon.call("list_shells")["shells"]
        return any(each["bash_id"] == bash_id and each["unreadBytes"] for each in shells)

    wait_for(has_written)
    request = daemon.request("bash", {**params, "timeout": 1_000})
    answer = daemon.answer(request)
    if action == "kill":
        error = answer["error"]
        assert (error["code"], error["data"]["bash_id"]) == (1001, bash_id)
        assert error["message"] == "Command timed out after 1000ms"
        assert error["data"]["stdout"] == "out\n"
        # This request has a longer timeout, but the command has already been killed.
        later = daemon.answer(daemon.request("bash", {**params, "timeout": 2_000}))["error"]
        assert later["message"] == "Command timed out after 1000ms"
    else:
        assert (answer["result"]["bash_id"], answer["result"]["status"]) == (bash_id, "running")
        assert answer["result"]["pid"]
        assert "exitCode" not in answer["result"]
        daemon.call("kill_shell", {"shell_id": bash_id, "grace": 0})


def test_timeout_of_a_repeat_leaves_the_command_to_another_repeat(
    daemon: RawDaemon, tmp_path: Path
) -> None:
    gate = Gate(tmp_path / "gate")
    command = counting(tmp_path, f"{gate.wait}; echo end")
    params = {"command": command, "idempotency_key": "two timeouts"}
    first = daemon.request("bash", params)
    wait_for(lambda: starts(tmp_path))
    daemon.call("background", {"request_id": first})
    daemon.answer(first)
    other = daemon.request("bash", params)
    assert daemon.call("bash", {**params, "timeout": 1_000})["status"] == "running"
    gate.open()
    assert daemon.answer(other)["result"]["stdout"] == "end\n"


def test_another_command_with_the_key_is_refused(daemon: RawDaemon) -> None:
    daemon.bash("true", idempotency_key="taken")
    error = daemon.fail("bash", {"command": "echo other", "idempotency_key": "taken"})
    assert (error["code"], error["data"]["parameter"]) == (-32602, "idempotency_key")
    assert error["message"] == "Invalid value for idempotency_key: another command has this key"


@pytest.mark.parametrize("key", ["", "x" * 129, 5])
def test_bad_key_is_refused(daemon: RawDaemon, key: object) -> None:
    error = daemon.fail("bash", {"command": "true", "idempotency_key": key})
    assert (error["code"], error["data"]["parameter"]) == (-32602, "idempotency_key")
    longest = "é" * 128
    assert daemon.bash("true", idempotency_key=longest)["exitCode"] == 0


def test_refused_command_does_not_take_the_key(daemon: RawDaemon) -> None:
    daemon.fail("bash", {"command": "true", "cwd": "/nowhere", "idempotency_key": "refused"})
    assert daemon.bash("echo ran", idempotency_key="refused")["stdout"] == "ran\n"


def test_dry_run_does_not_take_the_key(daemon: RawDaemon) -> None:
    assert daemon.bash("echo ran", idempotency_key="dry", dry_run=True)["dryRun"]
    assert daemon.bash("echo ran", idempotency_key="dry")["stdout"] == "ran\n"


def test_cancelled_repeat_leaves_the_command_to_the_first(
    daemon: RawDaemon, tmp_path: Path
) -> None:
    gate = Gate(tmp_path / "gate")
    params = {
        "command": counting(tmp_path, f"{gate.wait}; echo end"),
        "idempotency_key": "cancelled",
    }
    first = daemon.request("bash", params)
    wait_for(lambda: starts(tmp_path))
    again = daemon.request("bash", params)
    daemon.notify("$/cancelRequest", {"id": again})
    assert daemon.answer(again)["error"]["code"] == -32800
    gate.open()
    assert daemon.answer(first)["result"]["stdout"] == "end\n"


def test_cancelled_repeat_kills_a_command_for_which_nobody_else_waits(
    daemon: RawDaemon, tmp_path: Path
) -> None:
    params = {"command": counting(tmp_path, "sleep 300"), "idempotency_key": "alone"}
    first = daemon.request("bash", params)
    wait_for(lambda: starts(tmp_path))
    daemon.call("background", {"request_id": first})
    pid = daemon.answer(first)["result"]["pid"]
    again = daemon.request("bash", params)
    daemon.notify("$/cancelRequest", {"id": again})
    assert daemon.answer(again)["error"]["code"] == -32800
    assert not is_alive(pid)
    assert starts(tmp_path) == 1


def test_cancelled_repeat_leaves_the_command_to_another_repeat(
    daemon: RawDaemon, tmp_path: Path
) -> None:
    params = {"command": counting(tmp_path, "sleep 300"), "idempotency_key": "two repeats"}
    first = daemon.request("bash", params)
    wait_for(lambda: starts(tmp_path))
    daemon.call("background", {"request_id": first})
    daemon.answer(first)
    other, again = daemon.request("bash", params), daemon.request("bash", params)
    daemon.notify("$/cancelRequest", {"id": again})
    assert daemon.answer(again)["error"]["code"] == -32800
    [shell] = [each for each in daemon.call("list_shells")["shells"] if each["status"] == "running"]
    # No other request still waits for the command, so cancelling this one kills the command.
    daemon.notify("$/cancelRequest", {"id": other})
    assert daemon.answer(other)["error"]["code"] == -32800
    assert not is_alive(shell["pid"])


def test_cancelled_repeat_kills_a_command_before_its_long_input_is_decoded(
    daemon: RawDaemon,
) -> None:
    params = {"command": "sleep 300", "idempotency_key": "long", "run_in_background": True}
    pid = daemon.call("bash", params)["pid"]
    text = base64.b64encode(bytes(3_000_000)).decode()
    params = {**params, "run_in_background": False, "stdin_base64": text}
    again = daemon.request("bash", params)
    daemon.notify("$/cancelRequest", {"id": again})
    assert daemon.answer(again)["error"]["code"] == -32800
    assert not is_alive(pid)


@pytest.mark.parametrize("cancel", [("$/cancelRequest", "id"), SILENT_CANCEL])
def test_cancelled_repeat_kills_a_command_although_the_repeat_waits_for_its_turn(
    tmp_path: Path, cancel: tuple[str, str]
) -> None:
    with raw_daemon("--max-in-flight", "1") as daemon:
        params = {"command": "sleep 300", "idempotency_key": "put off"}
        shell = daemon.call("bash", {**params, "run_in_background": True})
        gate = Gate(tmp_path / "gate")
        busy = daemon.request("bash", {"command": gate.wait, "session": None})
        method, member = cancel
        again = daemon.request("bash", params)
        # The next two requests are cancelled before they start their command. One has no key. The
        # other has a key that no earlier request had.
        other_params = {"command": counting(tmp_path), "session": None}
        keyless = daemon.request("bash", other_params)
        first = daemon.request("bash", {**other_params, "idempotency_key": "new"})
        for each in (keyless, first, again):
            daemon.notify(method, {member: each})
        if cancel != SILENT_CANCEL:
            for each in (keyless, first, again):
                assert daemon.answer(each)["error"]["code"] == -32800
        wait_for(lambda: not is_alive(shell["pid"]))
        gate.open()
        assert daemon.answer(busy)["result"]["exitCode"] == 0
        assert starts(tmp_path) == 0


@pytest.mark.parametrize("options", [{}, {"run_in_background": True}, {"session": None}])
def test_request_for_a_command_that_must_exist_starts_nothing(
    daemon: RawDaemon, tmp_path: Path, options: Json
) -> None:
    params = {"command": counting(tmp_path, "echo end"), "idempotency_key": f"{options}", **options}
    error = daemon.answer(daemon.request("bash", {**params, "key_must_exist": True}))["error"]
    assert (error["code"], error["data"]["expired"]) == (1003, False)
    assert error["message"] == "Shell not found: no command has this idempotency_key"
    first = daemon.call("bash", params)
    again = daemon.call("bash", {**params, "key_must_exist": True})
    assert again["bash_id"] == first["bash_id"]
    daemon.call("bash_output", {"bash_id": first["bash_id"], "until": "exit", "wait": 60_000})
    assert starts(tmp_path) == 1


def test_command_that_must_exist_needs_a_key(daemon: RawDaemon) -> None:
    request = daemon.request("bash", {"command": "true", "key_must_exist": True})
    error = daemon.answer(request)["error"]
    assert (error["code"], error["data"]["parameter"]) == (-32602, "key_must_exist")


@pytest.mark.slow
def test_key_is_free_again_after_the_retention_period(tmp_path: Path) -> None:
    params = {"command": counting(tmp_path), "idempotency_key": "late"}
    with raw_daemon("--retain-seconds", "1") as daemon:
        first = daemon.call("bash", params)["bash_id"]
        wait_for(lambda: daemon.call("list_shells")["shells"] == [])
        assert daemon.call("bash", params)["bash_id"] != first
    assert starts(tmp_path) == 2


@pytest.mark.slow
def test_key_outlives_a_shell_that_others_have_displaced(tmp_path: Path) -> None:
    params = {"command": counting(tmp_path), "idempotency_key": "displaced"}
    with raw_daemon("--max-retained", "1") as daemon:
        first = daemon.call("bash", params)["bash_id"]
        daemon.bash("true")
        error = daemon.fail("bash", params)
        assert (error["code"], error["data"]["expired"]) == (1003, True)
        assert error["data"]["bash_id"] == first
    assert starts(tmp_path) == 1


def test_repeat_gets_the_events_of_the_command(daemon: RawDaemon) -> None:
    params = {"command": "echo out", "idempotency_key": "events", "notify": ["exit"]}
    first = daemon.call("bash", params)
    again = daemon.call("bash", params)
    assert again["bash_id"] == first["bash_id"]
    assert again["subscription"] != first["subscription"]
    wanted = {"method": "shell/exited", "subscription": again["subscription"]}
    while True:
        event = daemon.receive()
        if {"method": event["method"], "subscription": event["params"]["subscription"]} == wanted:
            break
    assert event["params"]["exitCode"] == 0
