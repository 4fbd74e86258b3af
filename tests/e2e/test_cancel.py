"""The three ways to cancel a request, and their races with output and with the end of a command."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from support import Gate, RawDaemon, is_alive, raw_daemon, stopped, wait_for

ANSWERED = [("$/cancelRequest", "id"), ("$/cancel_request", "requestId")]
DIALECTS = [*ANSWERED, ("notifications/cancelled", "requestId")]


def running_pid(daemon: RawDaemon) -> int:
    pids: list[int] = []

    def started() -> bool:
        shells = daemon.call("list_shells")["shells"]
        pids[:] = [shell["pid"] for shell in shells if shell["pid"] and shell["isRunning"]]
        return bool(pids)

    wait_for(started, "the command's start")
    return pids[0]


def was_answered(daemon: RawDaemon, request_id: Any) -> bool:
    daemon.call("ping")
    return any(message.get("id") == request_id for message in daemon.unclaimed)


def wait_for_end(pid: int) -> None:
    wait_for(lambda: not is_alive(pid))


@pytest.mark.parametrize(("method", "member"), ANSWERED)
@pytest.mark.parametrize("request_id", ["text", 0, 1.5, None])
def test_cancelled_command_is_dead_at_the_answer(
    new_daemon: RawDaemon, method: str, member: str, request_id: Any
) -> None:
    new_daemon.send(
        {
            "jsonrpc": "2.0",
            "id": request_id,
            "method": "bash",
            "params": {"command": "setsid sleep 300 & sleep 300"},
        }
    )
    pid = running_pid(new_daemon)
    new_daemon.notify(method, {member: request_id})
    answer = new_daemon.answer(request_id)
    assert answer["error"] == {
        "code": -32800,
        "message": "Request cancelled",
        "data": {"kind": "cancelled"},
    }
    assert not is_alive(pid)
    (shell,) = new_daemon.call("list_shells")["shells"]
    assert (shell["status"], shell["leftover"]) == ("killed", [])


def test_cancelled_background_start_leaves_no_command(new_daemon: RawDaemon) -> None:
    answered: set[str] = set()
    for number in range(20):
        params = {"command": "sleep 300", "run_in_background": True, "session": None}
        new_daemon.request("bash", params, number)
        new_daemon.notify("$/cancelRequest", {"id": number})
        answer = new_daemon.answer(number)
        if "result" in answer:
            # The command had started before the cancellation took effect.
            answered.add(answer["result"]["bash_id"])
    shells = new_daemon.call("list_shells")["shells"]
    assert {shell["bash_id"] for shell in shells if shell["isRunning"]} == answered


def test_mcp_cancellation_gets_no_answer(new_daemon: RawDaemon) -> None:
    new_daemon.request("bash", {"command": "sleep 300"}, "gone")
    pid = running_pid(new_daemon)
    new_daemon.notify("notifications/cancelled", {"requestId": "gone", "reason": "changed my mind"})
    wait_for(lambda: not is_alive(pid), "the command's end")
    new_daemon.request("ping", request_id="next")
    assert new_daemon.receive()["id"] == "next"


@pytest.mark.parametrize("request_id", ["1", 2, None])
def test_an_id_of_another_type_cancels_nothing(daemon: RawDaemon, request_id: Any) -> None:
    daemon.request("bash", {"command": "sleep 0.3; echo done"}, 1)
    daemon.notify("$/cancelRequest", {"id": request_id})
    assert daemon.answer(1)["result"]["stdout"] == "done\n"


@pytest.mark.parametrize("params", [None, [], {}, {"id": {}}, {"id": [1]}, [1], {"x": 1}])
def test_a_malformed_cancellation_is_ignored(daemon: RawDaemon, params: Any) -> None:
    for method in ("$/cancelRequest", "$/cancel_request", "notifications/cancelled"):
        daemon.notify(method, params)
    daemon.request("ping", request_id="next")
    assert daemon.receive()["id"] == "next"


def test_cancellation_right_after_request_ends_it(new_daemon: RawDaemon) -> None:
    for number in range(50):
        request = b'{"jsonrpc":"2.0","id":%d,"method":"bash","params":{"command":"sleep 300"}}\n'
        cancel = b'{"jsonrpc":"2.0","method":"$/cancelRequest","params":{"id":%d}}\n'
        new_daemon.send_raw(request % number + cancel % number)
    answers = [new_daemon.receive() for _ in range(50)]
    assert {answer["error"]["code"] for answer in answers} == {-32800}
    assert sorted(answer["id"] for answer in answers) == list(range(50))
    wait_for(
        lambda: not any(shell["isRunning"] for shell in new_daemon.call("list_shells")["shells"]),
        "all commands to be dead",
    )


def test_cancellation_at_any_moment_gives_one_answer(daemon: RawDaemon) -> None:
    for number in range(100):
        command = f"sleep 0.00{number % 10}"
        daemon.request("bash", {"command": command}, number)
        for _ in range(number % 3):
            daemon.call("ping")
        daemon.notify("$/cancelRequest", {"id": number})
        daemon.notify("$/cancelRequest", {"id": number})
        answer = daemon.answer(number)
        assert ("result" in answer) != ("error" in answer)
    daemon.request("ping", request_id="last")
    assert daemon.receive()["id"] == "last"


def test_a_cancel_hits_all_requests_of_that_id(daemon: RawDaemon) -> None:
    for _ in range(2):
        daemon.request("bash", {"command": "sleep 300"}, "same")
    daemon.notify("$/cancelRequest", {"id": "same"})
    assert [daemon.receive()["error"]["code"] for _ in range(2)] == [-32800, -32800]


def test_cancelling_a_background_start_leaves_no_unanswered_request(daemon: RawDaemon) -> None:
    params = {"command": "sleep 300", "run_in_background": True}
    daemon.request("bash", params, "start")
    daemon.notify("$/cancelRequest", {"id": "start"})
    answer = daemon.answer("start")
    assert "result" in answer or answer["error"]["code"] == -32800


@pytest.mark.parametrize("is_queued", [False, True])
@pytest.mark.parametrize(
    ("method", "member"), [*ANSWERED, ("notifications/cancelled", "requestId")]
)
def test_cancelled_call_gives_no_command_to_a_spare_shell(
    tmp_path: Path, method: str, member: str, *, is_queued: bool
) -> None:
    made = tmp_path / "made"
    with raw_daemon("--max-in-flight", "1") as daemon:
        for number in range(3):
            gate = Gate(tmp_path / f"gate{number}")
            # A spare shell does not run a command that has an `env`.
            busy = {"command": gate.wait, "env": {"A": "1"}}
            daemon.bash("true")
            daemon.wait_for_spare()
            before = daemon.call("server_info")["counters"]["shellsStarted"]
            first = daemon.request("bash", busy) if is_queued else None
            with stopped(daemon.pid):
                call = daemon.request("bash", {"command": f": > {made}"})
                daemon.notify(method, {member: call})
            if (method, member) in ANSWERED:
                assert daemon.answer(call)["error"]["code"] == -32800
            if first is not None:
                gate.open()
                daemon.answer(first)
            counters = daemon.call("server_info")["counters"]
            assert counters["shellsStarted"] == before + is_queued
            assert not made.exists()


@pytest.mark.parametrize(("method", "member"), ANSWERED)
def test_command_of_a_cancelled_call_is_not_judged(
    tmp_path: Path, method: str, member: str
) -> None:
    rules = tmp_path / "rules.toml"
    rules.write_text('[[block]]\nname = "stand-in"\nprogram = "stand-in"\n')
    gate = Gate(tmp_path / "gate")
    with raw_daemon("--max-in-flight", "1", "--guard-rules", str(rules)) as daemon:
        assert daemon.fail("bash", {"command": "stand-in"})["code"] == 1002
        first = daemon.request("bash", {"command": gate.wait})
        queued = daemon.request("bash", {"command": "stand-in"})
        daemon.notify(method, {member: queued})
        assert daemon.answer(queued)["error"]["code"] == -32800
        gate.open()
        daemon.answer(first)


def test_cancelled_batch_member_spares_others(daemon: RawDaemon) -> None:
    daemon.send(
        [
            {"jsonrpc": "2.0", "id": "a", "method": "bash", "params": {"command": "sleep 300"}},
            {"jsonrpc": "2.0", "id": "b", "method": "bash", "params": {"command": "sleep 300"}},
            {"jsonrpc": "2.0", "id": "c", "method": "bash", "params": {"command": "echo c"}},
        ]
    )
    daemon.notify("$/cancelRequest", {"id": "a"})
    daemon.notify("notifications/cancelled", {"requestId": "b"})
    answers = daemon.receive()
    assert [answer["id"] for answer in answers] == ["a", "c"]
    assert answers[0]["error"]["code"] == -32800
    assert answers[1]["result"]["stdout"] == "c\n"


@pytest.mark.parametrize("tool", [False, True])
def test_cancelled_read_takes_no_output(
    new_daemon: RawDaemon, tmp_path: Path, *, tool: bool
) -> None:
    for number in range(10):
        gate, written = Gate(tmp_path / f"gate{number}"), tmp_path / f"written{number}"
        command = f"{gate.wait}; echo out; touch {written}; sleep 300"
        bash_id = new_daemon.background(command)
        params = {"bash_id": bash_id, "wait": 60_000}
        if tool:
            read = new_daemon.request("call_tool", {"name": "BashOutput", "arguments": params})
        else:
            read = new_daemon.request("bash_output", params)
        # When this ping is answered, the daemon is already handling the requests before it.
        new_daemon.call("ping")
        with stopped(new_daemon.pid):
            # The daemon learns of the cancellation and of the output at the same time.
            gate.open()
            wait_for(written.exists)
            new_daemon.notify("notifications/cancelled", {"requestId": read})
        assert new_daemon.call("bash_output", {**params, "stdout_offset": 0})["stdout"] == "out\n"
        unread = new_daemon.call("bash_output", {"bash_id": bash_id})["stdout"]
        # If the read had ended before the cancellation arrived, the read's answer contains the
        # output.
        assert unread == ("" if was_answered(new_daemon, read) else "out\n")


def test_cancelled_repeat_takes_no_output(new_daemon: RawDaemon, tmp_path: Path) -> None:
    for number in range(10):
        gate, written = Gate(tmp_path / f"gate{number}"), tmp_path / f"written{number}"
        command = f"{gate.wait}; echo out; touch {written}"
        params = {"command": command, "idempotency_key": f"key {number}"}
        bash_id = new_daemon.bash(**params, run_in_background=True)["bash_id"]
        repeat = new_daemon.request("bash", params)
        new_daemon.call("ping")
        (bash,) = (each for each in new_daemon.call("list_shells")["shells"] if each["isRunning"])
        with stopped(new_daemon.pid):
            # The daemon learns of the cancellation and of the end at the same time.
            gate.open()
            wait_for_end(bash["pid"])
            new_daemon.notify("notifications/cancelled", {"requestId": repeat})
        wait = {"bash_id": bash_id, "until": "exit", "wait": 60_000}
        unread = new_daemon.call("bash_output", wait)["stdout"]
        assert unread == ("" if was_answered(new_daemon, repeat) else "out\n")


def test_cancelled_write_says_how_much_it_has_written(daemon: RawDaemon) -> None:
    params = {"command": "cat", "run_in_background": True, "open_stdin": True}
    bash_id = daemon.call("bash", params)["bash_id"]
    wait = {"until": "exit", "wait": 60_000}
    write = daemon.request("write_stdin", {"bash_id": bash_id, "text": "text\n", **wait})
    # The output shows that the input was written.
    read = {"bash_id": bash_id, "stdout_offset": 0, "wait": 60_000}
    assert daemon.call("bash_output", read)["stdout"] == "text\n"
    daemon.notify("$/cancelRequest", {"id": write})
    assert daemon.answer(write)["error"]["data"] == {"kind": "cancelled", "written": 5}
    daemon.call("kill_shell", {"shell_id": bash_id})
